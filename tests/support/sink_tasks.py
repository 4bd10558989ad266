"""Tasks of the sink without a JVM: the writer goes through pickle, and asks a stand-in whose task it is."""

import pickle
from collections.abc import Iterable
from unittest.mock import patch

import pyarrow as pa
from pyspark import cloudpickle

from segmentlog.connector.write import writer
from segmentlog.connector.write.writer import SegmentLogBatchWriter, SegmentLogStreamWriter, StagedMessage
from segmentlog.store import StoreConfig

SMALL = {
    "mappedFileSizeCommitLog": "64k",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
"""Options of a store with small files."""
CONFIG = StoreConfig(segment_bytes=64 << 10, queue_segment_entries=100, index_slots=100, index_entries=400)
"""The same sizes."""


class Context:
    """Task context, as far as a task uses it."""

    def __init__(self, partition: int, query: str | None, batch: int | None) -> None:
        self._partition = partition
        self._properties = {writer.QUERY_ID: query, writer.BATCH_ID: None if batch is None else str(batch)}

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return self._partition

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        return self._properties[name]


def run_task(
    of: SegmentLogBatchWriter | SegmentLogStreamWriter,
    batches: Iterable[pa.RecordBatch],
    partition: int = 0,
    query: str | None = None,
    batch: int | None = None,
) -> StagedMessage:
    """Run one task of a writer, unpickled as in a worker; return its message, as the driver gets it."""
    arrived = pickle.loads(cloudpickle.dumps(of))
    with patch.object(writer, "TaskContext") as context:
        context.get.return_value = Context(partition, query, batch)
        message = pickle.loads(pickle.dumps(arrived.write(iter(batches))))
    assert isinstance(message, StagedMessage)
    return message
