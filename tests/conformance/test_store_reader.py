"""Every store that real RocketMQ wrote, read row by row as RocketMQ reads it.

``expected.jsonl`` is what RocketMQ shows *after it recovered* the store; a reader sees the directory as it lies.
Where the two differ is in `DIFFERENCES`, with the reason; everywhere else every field of every row is equal.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store import Boundary, CorruptRecordError, OnCorrupt, QueueKey, QueueSource, StoreReader
from segmentlog.store.format.hashing import java_hash
from support import fixtures, reading

pytestmark = pytest.mark.conformance


@dataclass(frozen=True)
class Difference:
    """What a reader shows beyond RocketMQ."""

    why: str
    more: int = 0
    damaged: int = 0
    min_offsets: bool = False


_NOT_REBUILT = "5.1.0 forgets all messages when consumequeue/ is gone; they are whole in the CommitLog"
_REBUILT_IN_PART = "RocketMQ begins recovery in a later segment and forgets what lies before; the CommitLog has it all"
_CUT = "RocketMQ cuts the log at the damaged record; 39 whole records lie behind it"
_GONE = "4.9.1 keeps minimum 0 of a queue whose messages retention deleted, and reads a stray record through it"

DIFFERENCES = {
    "cq-deleted-5.1.0": Difference(_NOT_REBUILT, more=250, min_offsets=True),
    "crash-cq-deleted-4.9.1": Difference(_REBUILT_IN_PART, more=56),
    "crash-cq-deleted-5.3.3": Difference(_REBUILT_IN_PART, more=56, min_offsets=True),
    "crash-middle-4.9.1": Difference(_CUT, more=39, damaged=1),
    "crash-middle-5.3.3": Difference(_CUT, more=39, damaged=1),
    "retention-4.9.1": Difference(_GONE, min_offsets=True),
}


@pytest.fixture(params=fixtures.names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(name: str, tmp_path: Path) -> Path:
    return fixtures.unpack(name, tmp_path)


@pytest.mark.parametrize("source", list(QueueSource))
def test_rows_are_rocketmqs(name: str, store: Path, source: QueueSource) -> None:
    difference = DIFFERENCES.get(name, Difference(""))
    expected = {m["phyOffset"]: m for m in fixtures.expected(name).messages if "error" not in m}
    reader = StoreReader.open(store, queue_source=source)
    rows = list(reading.read(reader, on_corrupt=OnCorrupt.NULL))
    damaged = [row for row in rows if reading.is_damaged(row)]
    found = {row["physicalOffset"]: row for row in rows if not reading.is_damaged(row)}
    assert len(found) + len(damaged) == len(rows)

    assert expected.keys() <= found.keys()
    for offset, message in expected.items():
        wanted = reading.expected_row(message)
        if source is QueueSource.COMMIT_LOG and name == "cq-ext-4.9.1":
            # The entry holds an address in consumequeue_ext/; the log gives the hash itself.
            wanted["cqTagsCode"] = java_hash(message["tags"] or "")
        assert reading.described(found[offset]) == wanted
    more = found.keys() - expected.keys()
    if source is QueueSource.COMMIT_LOG and name.startswith("cq-partial"):
        # The deleted queue is one that only the log still knows: the reader that goes by the log shows it.
        unqueued = {record["phyOffset"] for record in fixtures.expected(name).records}
        assert more == unqueued
    else:
        assert (len(more), len(damaged)) == (difference.more, difference.damaged)


def test_queue_offsets_rise_one_by_one(store: Path) -> None:
    reader = StoreReader.open(store)
    for key, rows in reading.by_queue(reading.read(reader, on_corrupt=OnCorrupt.NULL)).items():
        bounds = reader.bounds(key)
        assert [row["queueOffset"] for row in rows] == list(range(bounds.min_offset, bounds.max_offset))


def test_bounds_are_rocketmqs(name: str, store: Path) -> None:
    difference = DIFFERENCES.get(name, Difference(""))
    reader = StoreReader.open(store)
    for queue in fixtures.expected(name).queues:
        bounds = reader.bounds(QueueKey(queue["topic"], queue["queueId"]))
        if difference.more:  # RocketMQ forgot some: its bounds lie within ours
            assert bounds.min_offset <= queue["minOffset"]
            assert bounds.max_offset >= queue["maxOffset"]
            continue
        assert bounds.max_offset == queue["maxOffset"]
        if not difference.min_offsets:
            assert bounds.min_offset == queue["minOffset"]


def test_message_by_physical_offset(name: str, store: Path) -> None:
    reader = StoreReader.open(store)
    damaged = 0
    for query in fixtures.queries(name, "messageByOffset"):
        answer = query["answer"]
        try:
            message = reader.message_at(query["phyOffset"])
        except CorruptRecordError as error:
            damaged += 1
            assert error.offset == query["phyOffset"]
            message = None
        if answer is None:
            assert message is None
        else:
            assert message is not None
            assert message.topic == answer["topic"]
            assert (message.queue_id, message.queue_offset) == (answer["queueId"], answer["queueOffset"])
            assert (message.message_id, message.store_size) == (answer["msgId"], answer["storeSize"])
            assert reading.millis(message.store_timestamp) == answer["storeTimestamp"]
    assert damaged <= DIFFERENCES.get(name, Difference("")).damaged


def _clamped(name: str, key: QueueKey, offset: int, boundary: Boundary = Boundary.LOWER) -> int:
    """Where RocketMQ forgot messages its answers stay within what it still has."""
    if name not in DIFFERENCES:
        return offset
    for queue in fixtures.expected(name).queues:
        if (queue["topic"], queue["queueId"]) == (key.topic, key.queue_id):
            last = queue["maxOffset"] - (boundary is Boundary.UPPER)
            return int(max(min(offset, last), queue["minOffset"]))
    return 0


def _time_queries(name: str, *, boundary: bool) -> Iterator[tuple[QueueKey, dict[str, Any]]]:
    for query in fixtures.queries(name, "offsetByTime"):
        if ("boundary" in query) == boundary:
            yield QueueKey(query["topic"], query["queueId"]), query


def test_offsets_by_time_are_rocketmq_5s(name: str, store: Path) -> None:
    reader = StoreReader.open(store)
    for key, query in _time_queries(name, boundary=True):
        boundary = Boundary(query["boundary"].lower())
        offset = reader.offset_at(key, query["time"], boundary)
        assert _clamped(name, key, offset, boundary) == query["answer"], query


def test_offsets_by_time_without_boundary(name: str, store: Path) -> None:
    """Since 5.1.1 that is LOWER. Before, it is the *nearest* message of the file whose modification time fits.

    The earlier answer is not imitated; here it is only shown that it is a message next to the time, in queues of one
    file, so that the difference is what the reference says it is.
    """
    reader = StoreReader.open(store)
    for key, query in _time_queries(name, boundary=False):
        lower = reader.offset_at(key, query["time"], Boundary.LOWER)
        if fixtures.about(name)["rocketmq"] == "5.3.3":
            assert _clamped(name, key, lower) == query["answer"], query
        elif name not in DIFFERENCES and len(reader.queue(key).segments) == 1:
            upper = reader.offset_at(key, query["time"], Boundary.UPPER)
            assert min(upper, lower) - 1 <= query["answer"] <= max(upper, lower), query
