"""Drives the stream reader as Spark does, in this process: offsets travel as JSON, partitions as pickles."""

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.connector.stream.offsets import StreamOffset
from segmentlog.store import MessageStore, Outgoing

if TYPE_CHECKING:
    from segmentlog.connector.stream.reader import SegmentLogStreamReader

Row = tuple[str, int, int]
"""Topic, queue id, queue offset."""


class Stream:
    """One query over stores: each `batch` is a micro-batch."""

    def __init__(
        self, path: Path | str | None, checkpoint: str | None = None, *, available_now: bool = False, **options: str
    ) -> None:
        source = SegmentLogDataSource(options if path is None else {"path": str(path)} | options)
        self.reader: SegmentLogStreamReader = source.streamReader(source.schema())
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self.offset = checkpoint if checkpoint is not None else json.dumps(self.reader.initialOffset())
        self.started = self.offset
        """The offset at which the last batch began."""

    def batch(self, limit: ReadLimit | None = None) -> list[Row] | None:
        """Run a micro-batch: its rows, in order; None when there is none to run."""
        batches = self.batches(limit)
        return None if batches is None else _rows(batches)

    def batches(self, limit: ReadLimit | None = None) -> list[pa.RecordBatch] | None:
        """Run a micro-batch; return the rows of its tasks, in order; None without a batch to run."""
        found = self.reader.latestOffset(json.loads(self.offset), limit or self.reader.getDefaultReadLimit())
        end = json.dumps(found)
        if end == self.offset:
            return None
        assert end == StreamOffset.from_json(end).to_json()
        self.started, self.offset = self.offset, end
        read = self._read(self.started, end)
        self.reader.commit(json.loads(end))
        return read

    def rows(self, start: str, end: str) -> list[Row]:
        return _rows(self._read(start, end))

    def _read(self, start: str, end: str) -> list[pa.RecordBatch]:
        partitions = self.partitions(start, end)
        return [batch for each in partitions for batch in self.reader.read(pickle.loads(pickle.dumps(each)))]

    def partitions(self, start: str, end: str) -> list[Any]:
        return list(self.reader.partitions(json.loads(start), json.loads(end)))

    def all(self) -> list[Row]:
        rows: list[Row] = []
        while (found := self.batch()) is not None:
            rows += found
        return rows

    def positions(self) -> dict[str, int]:
        return {str(key): offset for (_, key), offset in StreamOffset.from_json(self.offset).positions().items()}


def _rows(batches: list[pa.RecordBatch]) -> list[Row]:
    found: list[Row] = []
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("topic", "queueId", "queueOffset"))
        found += zip(*columns, strict=True)
    return found


EVERYTHING = ReadAllAvailable()


def put(store: MessageStore, total: int, topic: str = "T", queues: int = 2, body: bytes = b"body") -> None:
    """Append messages to queues in turn, and wait until readers see them."""
    for number in range(total):
        store.append(Outgoing(topic=topic, body=body, queue_id=number % queues))
    store.wait_dispatched()
