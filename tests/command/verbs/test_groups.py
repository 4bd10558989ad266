"""Verb ``groups``."""

from pathlib import Path

from support.commands import run_command


def test_positions_of_groups(store: Path) -> None:
    rows = run_command("groups", store, "--json").rows
    assert [(row["group"], row["topic"], row["queueId"], row["position"]) for row in rows] == [
        ("etl", "orders", queue, 20) for queue in range(4)
    ]
    assert run_command("groups", store, "etl", "--json").rows == rows
