from pathlib import Path
from typing import Any

import pytest

from segmentlog.query.metadata import SCHEMAS
from segmentlog.query.selection import Topics
from segmentlog.query.system_frames import SystemWindow, transaction_batches
from segmentlog.store import Snapshot
from support import fixtures
from support.system_store import HALF, START_MS, SystemStore

ALL = SystemWindow()


def rows(path: Path, window: SystemWindow = ALL) -> list[dict[str, Any]]:
    found = []
    for batch in transaction_batches(Snapshot.open(path), window):
        assert batch.schema == SCHEMAS["transactions"]
        assert batch.num_rows
        found += batch.to_pylist()
    return found


def test_each_half_message_has_its_outcome(tmp_path: Path) -> None:
    made = SystemStore(tmp_path)
    first = made.half("commit")  # at physical offset 0, which ordinary messages name as prepared
    made.put("orders", key="commit", queue_id=2)
    made.half("rollback")
    made.half("asked")
    made.half("open")
    made.half("given-up")
    made.half(None)
    unanswered = made.half("unanswered")
    commit = made.commit(first, "commit")
    answer = made.answer(b"0,1,junk,,99999999999999999999,5")
    made.half("asked", TRANSACTION_CHECK_TIMES=1)
    made.put("TRANS_CHECK_MAX_TIME_TOPIC", key="given-up")
    made.answer(b"7")
    made.commit(unanswered, "unanswered")  # its answer is not written yet
    path = made.close()
    found = rows(path)
    assert [(row["uniqKey"], row["outcome"], row["checks"]) for row in found] == [
        ("commit", "commit", 0),
        ("rollback", "rollback", 0),
        ("asked", "checked", 0),
        ("open", "pending", 0),
        ("given-up", "discarded", 0),
        (None, None, 0),
        ("unanswered", "commit", 0),
        ("asked", "rollback", 1),
    ]
    row = found[0]
    assert first.physical_offset == row["physicalOffset"] == 0
    assert row["commitPhysicalOffset"] == commit.physical_offset
    assert row["commitQueueOffset"] == commit.queue_offset
    assert row["answerPhysicalOffset"] == answer.physical_offset
    assert (row["topic"], row["queueId"], row["producerGroup"]) == ("orders", 2, "shop")
    assert found[3]["answerPhysicalOffset"] is found[3]["commitPhysicalOffset"] is None


def test_half_messages_that_a_broker_keeps_for_rocksdb_have_their_outcome(tmp_path: Path) -> None:
    made = SystemStore(tmp_path)
    made.half("queued")
    halves = {
        key: made.put("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", key=key, REAL_TOPIC="orders", REAL_QID=2, PGROUP="shop")
        for key in ("commit", "rollback", "open")
    }
    commit = made.commit(halves["commit"], "commit")
    answers = [
        made.put("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", tags="d", TRANS_OFFSET=halves[key].physical_offset)
        for key in ("commit", "rollback")
    ]
    found = rows(made.close())
    assert [(row["uniqKey"], row["outcome"]) for row in found] == [
        ("queued", "pending"),
        ("commit", "commit"),
        ("rollback", "rollback"),
        ("open", "pending"),
    ]
    assert [row["answerPhysicalOffset"] for row in found[1:3]] == [answer.physical_offset for answer in answers]
    assert found[1]["commitPhysicalOffset"] == commit.physical_offset


def test_answers_after_the_window_count(tmp_path: Path) -> None:
    made = SystemStore(tmp_path)
    for key in "abc":
        made.half(key)
    made.answer(b"1")
    path = made.close()
    window = SystemWindow(start_ms=START_MS + 1000, stop_ms=START_MS + 2000)
    assert [(row["uniqKey"], row["outcome"]) for row in rows(path, window)] == [("b", "rollback")]
    assert rows(path, SystemWindow(topics=Topics(("payments",)))) == []


def test_malformed_properties_are_null(tmp_path: Path) -> None:
    made = SystemStore(tmp_path)
    made.put(HALF, REAL_QID="two", TRANSACTION_CHECK_TIMES="often")
    (row,) = rows(made.close())
    assert [row[name] for name in ("topic", "queueId", "checks", "producerGroup")] == [None] * 4
    assert row["outcome"] == "pending"


def test_answers_that_name_no_half_message_answer_none(tmp_path: Path) -> None:
    made = SystemStore(tmp_path / "none")
    made.put("orders")
    assert rows(made.close()) == []
    made = SystemStore(tmp_path / "one")
    made.half("open")
    made.answer(b"junk")
    assert [row["outcome"] for row in rows(made.close())] == ["pending"]


@pytest.mark.conformance
@pytest.mark.parametrize("version", ["4.9.1", "5.3.3", "5.5.0"])
def test_half_messages_of_rocketmq(version: str, tmp_path: Path) -> None:
    name = f"transactions-{version}"
    path = fixtures.unpack(name, tmp_path)
    messages = fixtures.expected(name).messages
    halves = {line["queueOffset"]: line for line in messages if line["topic"] == HALF}
    found = {row["halfQueueOffset"]: row for row in rows(path)}
    assert found.keys() == halves.keys()
    answered = {row["halfQueueOffset"] for row in found.values() if row["answerPhysicalOffset"] is not None}
    assert len(answered) == sum(line["topic"].startswith("RMQ_SYS_TRANS_OP") for line in messages)
    for offset, row in found.items():
        line = halves[offset]
        assert row["physicalOffset"] == line["phyOffset"]
        assert row["topic"] == line["properties"]["REAL_TOPIC"]
        # No message of these stores commits one of the half messages.
        unknown = None if "UNIQ_KEY" not in line["properties"] else "rollback"
        assert row["outcome"] == (unknown if offset in answered else "pending")
