"""Verb ``queues``."""

from pathlib import Path

from support.commands import run_command


def test_queues_of_topics(store: Path) -> None:
    assert len(run_command("queues", store, "--json").rows) == 9
    rows = run_command("queues", store, "orders", "--json").rows
    assert [(row["topic"], row["queueId"], row["minOffset"], row["maxOffset"]) for row in rows] == [
        ("orders", queue, 0, 100) for queue in range(4)
    ]
    assert len(run_command("queues", store, "orders", "payments", "--json").rows) == 8
