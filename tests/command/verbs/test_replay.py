import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from segmentlog.command.verbs import replay
from segmentlog.jobs import replay as job
from segmentlog.jobs.report import Report
from support.commands import run_command


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Arguments of the jobs that the verb runs, without Spark; each reports a part that is left."""
    found: list[dict[str, Any]] = []

    def run(*arguments: object, **more: Any) -> Report:
        found.append({"arguments": arguments, **more})
        return Report(numbers={"partsLeft": 1}, table=pa.table({}), has_findings=True)

    monkeypatch.setattr(job, "run", run)
    monkeypatch.setattr(replay, "session_of", lambda _: nullcontext("session"))
    return found


def test_flags_become_settings(store: Path, tmp_path: Path, asked: list[dict[str, Any]]) -> None:
    topic = json.loads(run_command("topics", store, "-o", "jsonl").out.splitlines()[0])["topic"]
    flags = ["--tag", "a", "--speed", "2.5", "--map-topic", f"{topic}=b", "--key-prefix", "t-", "--sink", "flush=async"]
    ran = run_command("replay", store, tmp_path / "to", topic, "--state", "s", "--json", "--where", "flag > 1", *flags)
    assert (ran.code, json.loads(ran.out)["partsLeft"]) == (1, 1)
    (found,) = asked
    session, source, ranges, target, state = found["arguments"]
    assert (session, source.path, target, state) == ("session", str(store), str(tmp_path / "to"), "s")
    assert {each.key.topic for each in ranges} == {topic}
    assert found["settings"] == job.ReplaySettings(
        speed=2.5,
        read={"tags": "a"},
        write={"flush": "async"},
        where="(flag > 1)",
        map_topic={topic: "b"},
        key_prefix="t-",
    )
    assert found["asked"]["to"] == str(tmp_path / "to")
    json.dumps(found["asked"])


def test_keys_become_a_condition(store: Path, tmp_path: Path, asked: list[dict[str, Any]]) -> None:
    topic = json.loads(run_command("topics", store, "-o", "jsonl").out.splitlines()[0])["topic"]
    run_command("replay", store, tmp_path / "to", topic, "--state", "s", "--key", "k1", "--key", r"it's \ one")
    assert asked[0]["settings"].where == r"arrays_overlap(split(keys, ' '), array('k1', 'it\'s \\ one'))"
