"""Verb ``lag``."""

from pathlib import Path

from support.commands import run_command


def test_lag_in_messages_bytes_and_time(store: Path) -> None:
    rows = run_command("lag", store, "etl", "--json").rows
    assert [(row["queueId"], row["position"], row["messages"], row["lost"]) for row in rows] == [
        (queue, 20, 80, 0) for queue in range(4)
    ]
    assert [row["timeMs"] for row in rows] == [319_000, 318_000, 317_000, 316_000]
    assert all(row["bytes"] > 80 for row in rows)


def test_an_unknown_group(store: Path) -> None:
    assert run_command("consumerProgress", store, "nobody").code == 2
