from pathlib import Path

import pytest

from segmentlog.command.verbs import stats
from support.commands import run_command
from support.delegating import patch_import


def test_rates_end_at_a_time(store: Path) -> None:
    rows = run_command("stats", store, "orders", "--at", "2026-01-31T00:05:00Z", "--json").rows
    assert rows == [
        {
            "at": "2026-01-31T00:05:00.000Z",
            "topic": "orders",
            "queues": 4,
            "messages": 400,
            "bytes": rows[0]["bytes"],
            "messagesPerSecond": 1,
            "messages24h": 301,
            "lastStoreTimestamp": "2026-01-31T00:06:39.000Z",
        }
    ]
    queues = run_command("queues", store, "orders", "--json").rows
    assert rows[0]["bytes"] == sum(row["bytes"] for row in queues)


def test_all_topics_now(store: Path) -> None:
    rows = run_command("statsAll", store, "--json").rows
    assert [row["topic"] for row in rows] == ["%RETRY%etl", "orders", "payments"]
    assert {row["messagesPerSecond"] for row in rows} == {0}
    assert run_command("stats", store, "ordrs").code == 2


@pytest.mark.parametrize("terminal", [True, False])
def test_watching_continues_until_an_interrupt(store: Path, monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    patch_import(monkeypatch, stats, "time", sleep=pause)
    ran = run_command("stats", store, "orders", "--watch", "2", terminal=terminal)
    assert (ran.code, ran.err) == (130, "")
    assert pauses == [2, 2, 2]
    assert ran.text.count("\x1b[H") == (3 if terminal else 0)
    assert ran.text.count("orders") == 3
