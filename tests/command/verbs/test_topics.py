"""Verb ``topics``."""

from pathlib import Path

import segmentlog
from support.commands import run_command


def test_topics_are_listed_without_system_topics_of_rocketmq(store: Path) -> None:
    rows = run_command("topics", store, "--json").rows
    assert [(row["topic"], row["queues"], row["messages"]) for row in rows] == [
        ("orders", 4, 400),
        ("payments", 4, 400),
    ]
    assert rows[0]["firstStoreTimestamp"] == "2026-01-31T00:00:00.000Z"
    assert rows[0]["brokerName"] == store.name


def test_all_topics(store: Path) -> None:
    rows = run_command("topics", store, "--all", "--json").rows
    assert [(row["topic"], row["isSystem"]) for row in rows] == [
        ("%RETRY%etl", True),
        ("orders", False),
        ("payments", False),
    ]
    assert list(rows[0]) == segmentlog.open(store).topics().schema.names


def test_a_table(store: Path) -> None:
    lines = run_command("topicList", store).text.splitlines()
    assert lines[0].split()[:3] == ["brokerName", "topic", "isSystem"]
    assert lines[2].split()[:5] == [store.name, "orders", "no", "4", "400"]
