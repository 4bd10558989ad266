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


def test_topics_as_a_table(store: Path) -> None:
    lines = run_command("topicList", store).text.splitlines()
    assert lines[0].split()[:3] == ["brokerName", "topic", "isSystem"]
    assert lines[2].split()[:5] == [store.name, "orders", "no", "4", "400"]


def test_queues_of_topics(store: Path) -> None:
    assert len(run_command("queues", store, "--json").rows) == 9
    rows = run_command("queues", store, "orders", "--json").rows
    assert [(row["topic"], row["queueId"], row["minOffset"], row["maxOffset"]) for row in rows] == [
        ("orders", queue, 0, 100) for queue in range(4)
    ]
    assert len(run_command("queues", store, "orders", "payments", "--json").rows) == 8


def test_segments_lists_the_files_of_the_commit_log(store: Path) -> None:
    rows = run_command("segments", store, "--json").rows
    assert [row["path"] for row in rows] == sorted(str(path) for path in (store / "commitlog").iterdir())
    assert rows[0]["baseOffset"] == 0
    assert [row["bytes"] for row in rows] == [1 << 15] * len(rows)


def test_positions_of_groups(store: Path) -> None:
    rows = run_command("groups", store, "--json").rows
    assert [(row["group"], row["topic"], row["queueId"], row["position"]) for row in rows] == [
        ("etl", "orders", queue, 20) for queue in range(4)
    ]
    assert run_command("groups", store, "etl", "--json").rows == rows
