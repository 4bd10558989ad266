from pathlib import Path

import pytest

from segmentlog.query import metadata
from support.commands import run_command


def test_lag_in_messages_bytes_and_time(store: Path) -> None:
    rows = run_command("lag", store, "etl", "--json").rows
    assert [(row["queueId"], row["position"], row["messages"], row["lost"]) for row in rows] == [
        (queue, 20, 80, 0) for queue in range(4)
    ]
    assert [row["timeMs"] for row in rows] == [319_000, 318_000, 317_000, 316_000]
    assert all(row["bytes"] > 80 for row in rows)


def test_a_replica_is_suggested_for_a_backlog_that_does_not_fit_into_memory(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = sum(row["bytes"] for row in run_command("lag", store, "etl", "--json").rows)
    monkeypatch.setattr(metadata, "memory_bytes", lambda: waiting * 10 // 4 + 1)
    assert [row["suggestReplica"] for row in run_command("lag", store, "etl", "--json").rows] == [False] * 4
    monkeypatch.setattr(metadata, "memory_bytes", lambda: (waiting - 1) * 10 // 4)
    ran = run_command("lag", store, "etl", "--json")
    assert ran.code == 0
    assert ran.out.count(b'"suggestReplica":true') == 4
    assert f"hint: {waiting} bytes wait for etl, more than 40% of the" in ran.err
    assert "segmentlog replicate" in ran.err
