"""Rows of a store against what RocketMQ reads from it; the differences, each with its reason."""

from dataclasses import dataclass

from segmentlog.store import QueueSource
from segmentlog.store.format.hashing import java_hash

from . import fixtures, reading


@dataclass(frozen=True)
class Difference:
    why: str
    more: int = 0
    damaged: int = 0
    min_offsets: bool = False


_NOT_REBUILT = "5.1.0 forgets all messages when consumequeue/ is gone; they are whole in the CommitLog"
_REBUILT_IN_PART = "RocketMQ begins recovery in a later segment and forgets what lies before; the CommitLog has it all"
_CUT = "RocketMQ cuts the log at the damaged record; 39 whole records lie behind it"
_GONE = "4.9.1 keeps minimum 0 of a queue whose messages retention deleted, and reads a stray record through it"

_MOVED = "RocketMQ gives a queue that moved from files to RocksDB the minimum 1, although the record of 0 is there"

DIFFERENCES = {
    "queues-moved-5.5.0": Difference(_MOVED, more=1, min_offsets=True),
    "cq-deleted-5.1.0": Difference(_NOT_REBUILT, more=250, min_offsets=True),
    "crash-cq-deleted-4.9.1": Difference(_REBUILT_IN_PART, more=56),
    "crash-cq-deleted-5.3.3": Difference(_REBUILT_IN_PART, more=56, min_offsets=True),
    "crash-middle-4.9.1": Difference(_CUT, more=39, damaged=1),
    "crash-middle-5.3.3": Difference(_CUT, more=39, damaged=1),
    "retention-4.9.1": Difference(_GONE, min_offsets=True),
}


def check_rows(name: str, rows: list[reading.Row], source: QueueSource) -> None:
    """Assert that rows read with all columns and damaged ones as nulls are RocketMQ's, but for the differences."""
    difference = DIFFERENCES.get(name, Difference(""))
    expected = {_place(m): m for m in fixtures.expected(name).messages if "error" not in m}
    damaged = [row for row in rows if reading.is_damaged(row)]
    found = {(row["topic"], row["physicalOffset"]): row for row in rows if not reading.is_damaged(row)}
    assert len(found) + len(damaged) == len(rows)

    assert expected.keys() <= found.keys()
    for place, message in expected.items():
        wanted = reading.expected_row(message)
        if source is QueueSource.COMMIT_LOG and name == "cq-ext-4.9.1":
            # The entry holds an address in consumequeue_ext/; the log has the hash itself.
            wanted["cqTagsCode"] = java_hash(message["tags"] or "")
        assert reading.described(found[place]) == wanted
    more = found.keys() - expected.keys()
    if name.startswith("cq-partial"):
        # The deleted queue is one that only the log still knows; RocketMQ does not dispatch its records again.
        assert more == {_place(record) for record in fixtures.expected(name).records}
    else:
        assert (len(more), len(damaged)) == (difference.more, difference.damaged)


def _place(line: fixtures.Line) -> tuple[str, int]:
    """Topic and physical offset of an expected line: light queues name records of other queues."""
    return line["topic"], line["phyOffset"]
