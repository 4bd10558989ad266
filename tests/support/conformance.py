"""Rows and queues of a store against what RocketMQ reads from it; the differences, each with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass

from segmentlog.store import QueueSource
from segmentlog.store.format.hashing import java_hash

from . import fixtures, reading


@dataclass(frozen=True)
class Difference:
    """A meant difference from RocketMQ's rows and queues; ``docs/compatibility.md`` has the same reason."""

    why: str
    more: int = 0
    """Rows that RocketMQ lacks; if it reads records outside of queues, exactly these records."""
    fewer: int = 0
    """Rows of RocketMQ that we do not have."""
    damaged: int = 0
    min_offsets: bool = False
    max_offsets: bool = False
    times: bool = True
    """Offsets by time may differ."""


_NOT_REBUILT = "Without `consumequeue/`, 5.1.0 reads no message. We read all from the CommitLog."
_REBUILT_IN_PART = "Without `consumequeue/`, RocketMQ loses 56 messages in the recovery of a crash. We read them."
_CUT = "RocketMQ cuts the log at a damaged record. A reader has 39 whole records after it, and one damaged row."
_GONE = "4.9.1 keeps the minimum offset 0 of a queue whose messages retention deleted. We have the first that exists."
_MOVED = "RocketMQ sets the minimum offset 1 for a queue that moved to RocksDB. We read the record of offset 0."
_LOST = "RocketMQ does not dispatch again what it had in a deleted queue. We read its 37 messages."
_NOT_AGREED = (
    "A message counts once the checkpoint states that its group has agreed on it. RocketMQ reads what its queues hold, "
    "up to three seconds more."
)
_DISPATCHED = (
    "RocketMQ 5 dispatches what no group agreed on when it recovers from a crash, and then reads it. We do not."
)
_REPLACED = "RocketMQ 5 leaves out messages that took the places of others, dispatched when it recovered. We read them."
_EXTENDED = (
    "The column `tagsCode` has the address in `consumequeue_ext/`, or, derived from the CommitLog, the tag's hash."
)

DIFFERENCES = {
    "cq-deleted-5.1.0": Difference(_NOT_REBUILT, more=250, min_offsets=True, max_offsets=True),
    "cq-ext-4.9.1": Difference(_EXTENDED, times=False),
    "cq-partial-4.9.1": Difference(_LOST, more=37, times=False),
    "cq-partial-5.3.3": Difference(_LOST, more=37, times=False),
    "crash-cq-deleted-4.9.1": Difference(_REBUILT_IN_PART, more=56),
    "crash-cq-deleted-5.3.3": Difference(_REBUILT_IN_PART, more=56, min_offsets=True),
    "crash-middle-4.9.1": Difference(_CUT, more=39, damaged=1, max_offsets=True),
    "crash-middle-5.3.3": Difference(_CUT, more=39, damaged=1, max_offsets=True),
    "dledger-crash-5.3.3": Difference(_NOT_AGREED, fewer=38, max_offsets=True),
    "dledger-truncated-5.3.3": Difference(_REPLACED, more=2, max_offsets=True),
    "dledger-uncommitted-5.3.3": Difference(_DISPATCHED, fewer=4, max_offsets=True),
    "queues-moved-5.5.0": Difference(_MOVED, more=1, min_offsets=True),
    "retention-4.9.1": Difference(_GONE, min_offsets=True),
}
NONE = Difference("", times=False)


def check_rows(name: str, rows: list[reading.Row], source: QueueSource, *, checks_crc: bool = True) -> None:
    """Assert that rows read with all columns and damaged ones as nulls are RocketMQ's, but for the differences.

    Without ``checks_crc``, a record whose only damage is in its body is read as it is stored.
    """
    difference = DIFFERENCES.get(name, NONE)
    damaged_rows = difference.damaged if checks_crc else 0
    more_rows = difference.more + difference.damaged - damaged_rows
    expected = {_place(m): m for m in fixtures.expected(name).messages if "error" not in m}
    damaged = [row for row in rows if reading.is_damaged(row)]
    found = {(row["topic"], row["physicalOffset"]): row for row in rows if not reading.is_damaged(row)}
    assert len(found) + len(damaged) == len(rows)

    assert len(expected.keys() - found.keys()) == difference.fewer, difference.why
    for place, message in expected.items():
        if place not in found:
            continue
        wanted = reading.expected_row(message)
        if source is QueueSource.COMMIT_LOG and name == "cq-ext-4.9.1":
            # The entry holds an address in consumequeue_ext/; the log has the hash itself.
            wanted["cqTagsCode"] = java_hash(message["tags"] or "")
        assert reading.described(found[place]) == wanted
    more = found.keys() - expected.keys()
    assert (len(more), len(damaged)) == (more_rows, damaged_rows), difference.why
    outside = {_place(record) for record in fixtures.expected(name).records}
    assert not more or not outside or more == outside or (name in fixtures.dledger() and more < outside), difference.why


def check_queues(name: str, queues: Mapping[tuple[str, int], tuple[int, int]]) -> None:
    difference = DIFFERENCES.get(name, NONE)
    listed = fixtures.expected(name).queues
    expected = {(queue["topic"], queue["queueId"]): (queue["minOffset"], queue["maxOffset"]) for queue in listed}
    assert expected.keys() == queues.keys() if not difference.more else expected.keys() <= queues.keys(), difference.why
    for key, (start, stop) in expected.items():
        our_start, our_stop = queues[key]
        assert our_start == start or difference.min_offsets, (key, difference.why)
        assert our_stop == stop or (difference.max_offsets and (our_stop > stop or name in fixtures.dledger())), key


def _place(line: fixtures.Line) -> tuple[str, int]:
    """Topic and physical offset of an expected line: light queues name records of other queues."""
    return line["topic"], line["phyOffset"]
