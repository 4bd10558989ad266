"""Receipt of appended messages: per queue, how many, and their first and last queue offset.

::

    batch, AppendedBatch ──► topic   queueId  messages  firstOffset  lastOffset
                             orders        0       120          400         519
                             orders        1         3            -           -      only checked, or delayed
"""

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from segmentlog.store import AppendedBatch

SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("messages", pa.int64()),
        ("firstOffset", pa.int64()),
        ("lastOffset", pa.int64()),
    ]
)
"""Columns of a receipt; the offsets are null if nothing was appended, or if all messages are delayed."""


class _Span(NamedTuple):
    messages: int
    first: int | None
    last: int | None


class Receipt:
    """Messages that were appended, or checked. Not thread-safe."""

    def __init__(self) -> None:
        self._spans: dict[tuple[str, int], _Span] = {}
        self.messages = 0  # number of all of them

    def add(self, batch: pa.RecordBatch, places: "AppendedBatch | None") -> None:
        """Add the rows of a batch, and the places where they were appended; None if they were only checked."""
        offsets = pa.nulls(batch.num_rows, pa.int64()) if places is None else pa.array(places.queue_offsets)
        if "properties" in batch.schema.names:  # a delayed message waits in another topic, at an offset of that one
            is_delayed = pc.is_valid(pc.map_lookup(batch["properties"], "DELAY", "last"))
            offsets = pc.if_else(is_delayed, pa.scalar(None, pa.int64()), offsets)
        rows = pa.table({"topic": batch["topic"], "queueId": batch["queueId"], "offset": offsets})
        found = rows.group_by(["topic", "queueId"]).aggregate(
            [("topic", "count"), ("offset", "min"), ("offset", "max")]
        )
        for row in found.to_pylist():
            key = row["topic"], row["queueId"]
            held = self._spans.get(key, _Span(0, None, None))
            first = row["offset_min"] if held.first is None else held.first
            last = held.last if row["offset_max"] is None else row["offset_max"]
            self._spans[key] = _Span(held.messages + row["topic_count"], first, last)
        self.messages += batch.num_rows

    def table(self) -> pa.Table:
        """Return a row per queue, by topic and queue."""
        rows = [(*key, *span) for key, span in sorted(self._spans.items())]
        return pa.table([list(each) for each in zip(*rows, strict=True)] or [[]] * len(SCHEMA), schema=SCHEMA)
