"""Verb ``backfill``: its flags become a request; wrong ones are errors before Spark starts. The job: tests/jobs."""

from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from segmentlog.command.verbs import backfill as verb
from segmentlog.jobs.backfill import Files, Length, Request
from segmentlog.jobs.report import Report
from support.commands import run_command

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
    assert how == {"bodies": None, "catches_up": False, "every_s": None, "stop": None}


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
    run_command("backfill", store, "orders", "--start", "today", "--to", tmp_path, "--follow", "--every", "5")
    ((_, _, how),) = calls
    assert how["every_s"] == 5
    assert not how["stop"].is_set()
