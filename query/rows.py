"""Rows of Python as tables of Arrow."""

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

QUEUE_SPANS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("messages", pa.int64()),
        ("firstOffset", pa.int64()),
        ("lastOffset", pa.int64()),
    ]
)


def table_of(rows: Iterable[Sequence[object]], schema: pa.Schema) -> pa.Table:
    """Make a table of rows, each with a value per column of the schema."""
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


class QueueSpans:
    """Appended messages by queue: their number, first and last queue offset. Not thread-safe."""

    def __init__(self) -> None:
        self._spans: dict[tuple[str, int], tuple[int, int | None, int | None]] = {}

    def add(self, topic: str, queue_id: int, messages: int, first: int | None, last: int | None) -> None:
        """Add messages that follow those of the same queue so far; None for offsets that are unknown."""
        count, begin, end = self._spans.get((topic, queue_id), (0, None, None))
        span = count + messages, first if begin is None else begin, end if last is None else last
        self._spans[topic, queue_id] = span

    @property
    def messages(self) -> int:
        """Number of the messages of all queues."""
        return sum(count for count, _, _ in self._spans.values())

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self._spans}

    def table(self) -> pa.Table:
        """Return a row per queue, by topic and queue: columns of `QUEUE_SPANS`."""
        return table_of([(*key, *span) for key, span in sorted(self._spans.items())], QUEUE_SPANS)
