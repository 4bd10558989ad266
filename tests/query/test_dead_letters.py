import shlex
from pathlib import Path
from typing import Any

import pytest

from segmentlog.query.dead_letters import dead_letter_batches, original_topic
from segmentlog.query.metadata import SCHEMAS
from segmentlog.query.selection import Topics
from segmentlog.query.system_frames import SystemWindow
from segmentlog.store import Snapshot
from support.commands import run_command
from support.system_store import START_MS, SystemStore

ALL = SystemWindow()


def rows(path: Path, window: SystemWindow = ALL) -> list[dict[str, Any]]:
    found = []
    for batch in dead_letter_batches(Snapshot.open(path), window):
        assert batch.schema == SCHEMAS["dead-letters"]
        found += batch.to_pylist()
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = SystemStore(tmp_path / "broker's store")
    for topic, failures in (("orders", 17), ("payments", 1), ("orders", 3), ("orders", 16)):
        made.put("%DLQ%billing", RETRY_TOPIC=topic, reconsume_times=failures, born_timestamp=START_MS - 5000)
    made.put("%DLQ%audit", RETRY_TOPIC="it's", reconsume_times=18, born_timestamp=START_MS - 7000)
    made.put("%DLQ%audit", born_timestamp=START_MS)
    made.put("%DLQ%audit", DLQ_ORIGIN_TOPIC="orders", born_timestamp=START_MS)
    made.put("%DLQ%pop", RETRY_TOPIC="%RETRY%pop_orders", reconsume_times=17, born_timestamp=START_MS)
    made.put("orders", RETRY_TOPIC="orders")
    return made.close()


def test_letters_are_counted_by_group_and_original_topic(path: Path) -> None:
    found = rows(path)
    assert [(row["group"], row["topic"], row["messages"], row["exhausted"], row["retries"]) for row in found] == [
        ("audit", None, 1, 0, 0),
        ("audit", "it's", 1, 1, 17),
        ("audit", "orders", 1, 0, 0),
        ("billing", "orders", 3, 1, 16),
        ("billing", "payments", 1, 0, 0),
        ("pop", "orders", 1, 1, 16),
    ]
    times = [
        found[3][f"{name}Timestamp"].timestamp() * 1000 - START_MS for name in ("firstBorn", "firstStore", "lastStore")
    ]
    assert times == [-5000, 0, 3000]


def test_the_command_sends_the_letters_of_its_row(path: Path) -> None:
    """Read with the filter of the command what it would send; without HOST and FILE, `cat` takes the same flags."""
    for row in rows(path):
        program, verb, *words = shlex.split(row["resend"])
        assert (program, verb, words[0], words[1]) == ("segmentlog", "resend", str(path), f"%DLQ%{row['group']}")
        assert words[-4:] == ["--broker", "HOST:10911", "--state", "FILE"]
        flags = words[2:-4]
        assert ("--map-topic" in flags) == (row["topic"] is None)
        if row["topic"] is None:
            assert flags[-2:] == ["--map-topic", "%DLQ%audit=TOPIC"]
            flags = flags[:-2]
        ran = run_command("cat", *words[:2], *flags, "--json")
        assert len(ran.rows) == row["messages"]
        for letter in ran.rows:
            properties = letter["properties"]
            named = properties.get("RETRY_TOPIC") or properties.get("DLQ_ORIGIN_TOPIC")
            assert original_topic(words[1], named, None) == row["topic"]


def test_topics_and_times_limit_rows_and_commands(path: Path) -> None:
    orders = rows(path, SystemWindow(topics=Topics(("orders",))))
    assert [(row["group"], row["topic"]) for row in orders] == [
        ("audit", "orders"),
        ("billing", "orders"),
        ("pop", "orders"),
    ]
    assert "--sql" in orders[1]["resend"]
    (one,) = rows(path, SystemWindow(start_ms=START_MS + 1000, stop_ms=START_MS + 2000))
    assert (one["topic"], one["messages"]) == ("payments", 1)
    assert "--from 2023-11-14T22:13:21Z --to 2023-11-14T22:13:22Z" in one["resend"]


def test_a_store_without_dead_letters_has_no_rows(tmp_path: Path) -> None:
    made = SystemStore(tmp_path)
    made.put("orders")
    assert rows(made.close()) == []
