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
    StoreInUseError,
    UnknownQueueError,
    UnreadableError,
    UnsafeFileError,
    UnsupportedStoreError,
)
from .format.message_decode import NATIVE_SCHEMA, QUEUE_COLUMNS
from .format.naming import is_system_topic
from .message import Message
from .plan import PlannedRange, ScanTask, TaskLimits
from .rebuild import QUEUE_SEGMENT_ENTRIES, RebuiltQueues, rebuild_queues
from .store_reader import StoreReader
from .types import Boundary, PhysicalOffset, QueueKey, QueueOffset, QueueRange

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "MAX_BODY_BYTES",
    "NATIVE_SCHEMA",
    "QUEUE_COLUMNS",
    "QUEUE_SEGMENT_ENTRIES",
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
    "RebuiltQueues",
    "ScanSpec",
    "ScanTask",
    "SegmentLogError",
    "StoreInUseError",
    "StoreReader",
    "TaskLimits",
    "UnknownQueueError",
    "UnreadableError",
    "UnsafeFileError",
    "UnsupportedStoreError",
    "is_system_topic",
    "rebuild_queues",
]
