"""RocketMQ message stores: the same bytes, read without a broker.

Start at `StoreReader.open`. Ask it for `topics`, `queues`, `offset_at`; make a `plan` of queue ranges; `scan` each
task of the plan into Arrow batches. What can go wrong is in the error tree under `SegmentLogError`.
"""

from .config import (
    BATCH_BYTES,
    BATCH_ROWS,
    MAX_BODY_BYTES,
    OnCorrupt,
    OnLoss,
    Predicate,
    QueueBounds,
    QueueSource,
    ScanSpec,
)
from .errors import (
    ConfigError,
    CorruptError,
    CorruptQueueError,
    CorruptRecordError,
    DataLossError,
    FormatError,
    NotAStoreError,
    OffsetOutOfRangeError,
    SegmentLogError,
    UnknownQueueError,
    UnsafeFileError,
    UnsupportedStoreError,
)
from .format.message_decode import NATIVE_SCHEMA, QUEUE_COLUMNS
from .format.naming import is_system_topic
from .message import Message
from .plan import PlannedRange, ScanTask, TaskLimits
from .store_reader import StoreReader
from .types import Boundary, PhysicalOffset, QueueKey, QueueOffset, QueueRange

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "MAX_BODY_BYTES",
    "NATIVE_SCHEMA",
    "QUEUE_COLUMNS",
    "Boundary",
    "ConfigError",
    "CorruptError",
    "CorruptQueueError",
    "CorruptRecordError",
    "DataLossError",
    "FormatError",
    "Message",
    "NotAStoreError",
    "OffsetOutOfRangeError",
    "OnCorrupt",
    "OnLoss",
    "PhysicalOffset",
    "PlannedRange",
    "Predicate",
    "QueueBounds",
    "QueueKey",
    "QueueOffset",
    "QueueRange",
    "QueueSource",
    "ScanSpec",
    "ScanTask",
    "SegmentLogError",
    "StoreReader",
    "TaskLimits",
    "UnknownQueueError",
    "UnsafeFileError",
    "UnsupportedStoreError",
    "is_system_topic",
]
