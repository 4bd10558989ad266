"""Verb ``backfill``: its flags become a request; wrong ones are errors before Spark starts. The job: tests/jobs."""

import json
import random
import subprocess
import sys
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from segmentlog.command.verbs import moving as verb
from segmentlog.jobs import replay as job
from segmentlog.jobs.backfill import Files, Length, Request
from segmentlog.jobs.report import Report
from segmentlog.store import MessageStore, Outgoing
from support.commands import run_command
from support.scale import scale
from support.scripted_broker import SEND, ScriptedBroker
from support.scripted_broker import Request as Sent
from support.written_stores import SMALL

Call = tuple[Request, Files, dict[str, Any]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Return the calls of the job, which does nothing."""
    found: list[Call] = []

    def run(_: object, request: Request, target: Files, **how: Any) -> Report:
        found.append((request, target, how))
        return Report(numbers={"messages": 7}, table=pa.table({"part": [0]}))

    monkeypatch.setattr(verb, "session_of", nullcontext)
    monkeypatch.setattr("segmentlog.jobs.backfill.run", run)
    return found


def test_a_day(calls: list[Call], store: Path, tmp_path: Path) -> None:
    ran = run_command("backfill", store, "orders", "--day", "2026-01-31", "--to", tmp_path / "lake", "--json")
    assert (ran.code, ran.rows) == (0, [{"messages": 7, "rows": [{"part": 0}]}])
    ((request, target, how),) = calls
    assert (request.source.path, request.topics, request.zone) == (str(store), ("orders",), UTC)
    assert request.start_ms == datetime(2026, 1, 31, tzinfo=UTC).timestamp() * 1000
    assert (request.end_ms - request.start_ms, request.length) == (86_400_000, Length.DAY)
    assert request.columns == verb.COLUMNS
    assert target.path == str(tmp_path / "lake")
    assert how == {"bodies": None, "catches_up": False, "every_s": None, "commit_bytes": None, "stop": None}


def test_all_flags(calls: list[Call], store: Path, tmp_path: Path) -> None:
    flags = "--start 2026-01-31T01:00 --end 2026-01-31T02:00 --tz Europe/Berlin --by hour,queue --output orc"
    flags += " --file-mib 9 --tag a --columns queueId,body --properties region --on-corrupt skip --on-loss skip"
    run_command("backfill", store, "orders", "payments", "orders", "--to", tmp_path, *flags.split(), "--catch-up")
    ((request, _, how),) = calls
    assert request.topics == ("orders", "payments")
    assert (request.length, request.columns, request.skips_lost) == (Length.HOUR, ("queueId", "body"), True)
    assert request.options == {
        "tags": "a",
        "corruptRecord": "skip",
        "propertyColumns": "region",
        "maxBytesPerPartition": "9m",
    }
    assert how["catches_up"]


def test_bodies_have_dead_letters_beside_the_target(calls: list[Call], store: Path, tmp_path: Path) -> None:
    flags = ["--day", "2026-01-31", "--body", "json", "--schema", "id string"]
    run_command("backfill", store, "orders", "--to", tmp_path / "lake", *flags)
    ((request, _, how),) = calls
    assert request.body == "json id string"
    assert "body" not in request.columns
    assert how["bodies"].format.schema.names == ["id"]
    assert how["bodies"].dead_letters.path == str(tmp_path / "lake-dead-letters")


def test_following_needs_no_end(calls: list[Call], store: Path, tmp_path: Path) -> None:
    follow = ["backfill", store, "orders", "--start", "today", "--to", tmp_path, "--follow", "--every", "5"]
    run_command(*follow, "--commit-bytes", "4m")
    ((_, _, how),) = calls
    assert (how["every_s"], how["commit_bytes"]) == (5, 4 << 20)
    assert not how["stop"].is_set()
    assert "`0` is not a size" in run_command(*follow, "--commit-bytes", "0").err
    day = ["backfill", store, "orders", "--day", "2026-01-31", "--to", tmp_path]
    assert "Add --follow" in run_command(*day, "--commit-bytes", "4m").err
    assert "--every is for --follow" in run_command(*day, "--every", "5").err


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Arguments of the jobs that the verb runs, without Spark; each reports a part that is left."""
    found: list[dict[str, Any]] = []

    def run(*arguments: object, **more: Any) -> Report:
        found.append({"arguments": arguments, **more})
        return Report(numbers={"partsLeft": 1}, table=pa.table({}), has_findings=True)

    monkeypatch.setattr(job, "run", run)
    monkeypatch.setattr(verb, "session_of", lambda _: nullcontext("session"))
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


QUEUES, MESSAGES = 3, 12


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        for serial in range(MESSAGES):
            for queue_id in range(QUEUES):
                body, keys = f"{queue_id}/{serial}".encode(), f"k{serial} q{queue_id}"
                store.append(Outgoing(topic="orders", queue_id=queue_id, body=body, keys=keys))
    return tmp_path / "store"


def flags(path: Path, broker: ScriptedBroker, *more: object) -> list[object]:
    state = path.parent / "state"
    return ["resend", path, "orders", "--broker", broker.address, "--state", state, "--json", *more]


def bodies(broker: ScriptedBroker) -> list[str]:
    return [each.body.decode() for each in broker.sent]


def test_a_report_has_a_row_per_queue(path: Path) -> None:
    with ScriptedBroker({"orders": QUEUES}) as broker:
        ran = run_command(*flags(path, broker))
    assert (ran.code, ran.err) == (0, "")
    report = json.loads(ran.out)
    assert (report["sent"], report["left"]) == (QUEUES * MESSAGES, 0)
    assert [(row["queueId"], row["status"], row["messages"]) for row in report["rows"]] == [
        (queue_id, "SEND_OK", MESSAGES) for queue_id in range(QUEUES)
    ]


def test_a_dry_run_needs_no_state_and_sends_nothing(path: Path) -> None:
    with ScriptedBroker({"paid": 2}) as broker:
        ran = run_command(
            "resend", path, "orders", "--namesrv", broker.address, "--map-topic", "orders=paid", "--dry-run"
        )
        assert (ran.code, broker.sent) == (0, [])
    assert f"messages {QUEUES * MESSAGES}" in ran.text
    assert ran.text.count("WOULD_SEND") == QUEUES


def test_positions_queues_and_keys_choose_messages(path: Path) -> None:
    with ScriptedBroker({"orders": QUEUES}) as broker:
        assert run_command(*flags(path, broker, "-p", 1, "--from", 3, "--to", 5)).code == 0
        assert bodies(broker) == ["1/3", "1/4"]
        (path.parent / "state").unlink()
        broker.sent.clear()
        assert run_command(*flags(path, broker, "--key", "k7", "--key", "k9", "--from", 2, "-p", "0,2")).code == 0
        assert sorted(bodies(broker)) == ["0/7", "0/9", "2/7", "2/9"]
        missing = run_command(*flags(path, broker, "--key", "k7", "--key", "q1", "--from", 9)).error
    assert missing["found"] == "--key: no message between start and end has `k7`"


def command(path: Path, broker: ScriptedBroker) -> list[str]:
    return [sys.executable, "-m", "segmentlog.command", *map(str, flags(path, broker))]


def slow(request: Sent) -> None:
    if request.code == SEND:
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize("seed", range(scale(1, 4, 8)))
def test_a_killed_job_sends_every_message_and_repeats_only_unacknowledged_messages(path: Path, seed: int) -> None:
    kills, rng = scale(2, 16, 25), random.Random(seed)
    target, twice = 0, 0
    with ScriptedBroker({"orders": QUEUES}) as broker:
        for _ in range(kills):
            target = len(broker.sent) + rng.randrange(1, 6)
            with subprocess.Popen(
                command(path, broker), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ) as process:
                broker.script = slow
                while len(broker.sent) < target and process.poll() is None:
                    time.sleep(0.001)
                time.sleep(rng.random() * 0.04)
                process.kill()
            time.sleep(0.05)  # the broker still stores what is on the connection
            twice += QUEUES
        broker.script = lambda _: None
        assert run_command(*flags(path, broker)).code == 0
        for queue_id in range(QUEUES):
            texts = [each.body.decode() for each in broker.stored("orders", queue_id)]
            serials = [int(each.partition("/")[2]) for each in texts]
            assert sorted(set(serials)) == list(range(MESSAGES))
            assert serials == sorted(serials)  # a repetition comes at once after the first copy
        assert len(broker.sent) - QUEUES * MESSAGES <= twice
        ids = {(each.origin, each.properties["UNIQ_KEY"]) for each in broker.sent}
        assert len(ids) == QUEUES * MESSAGES
