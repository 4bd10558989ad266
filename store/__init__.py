"""RocketMQ message stores: the same bytes, read and written without a broker.

Start at `StoreReader.open`. Ask it for `topics`, `queues`, `offset_at`; make a `plan` of queue ranges; `scan` each
task of the plan into Arrow batches. To write, `MessageStore.open` a directory and `append`. What can go wrong is in
the error tree under `SegmentLogError`.
"""

from .config import (
    BATCH_BYTES,
    BATCH_ROWS,
    MAX_BODY_BYTES,
    BatchPlacement,
    Flush,
    OnCorrupt,
    OnDamage,
    OnLoss,
    Predicate,
    QueueBounds,
    QueueSource,
    ScanSpec,
    Services,
    StoreConfig,
)
from .errors import (
    ConfigError,
    CorruptError,
    CorruptQueueError,
    CorruptRecordError,
    DamagedLogError,
    DataLossError,
    FormatError,
    IllegalMessageError,
    NoSpaceError,
    NotAStoreError,
    OffsetOutOfRangeError,
    SegmentLogError,
    StoreClosedError,
    StoreFailedError,
    StoreInUseError,
    UnknownQueueError,
    UnreadableError,
    UnsafeFileError,
    UnsupportedStoreError,
)
from .format.message_decode import NATIVE_SCHEMA, QUEUE_COLUMNS
from .format.naming import is_system_topic
from .message import Message
from .message_store import MessageStore
from .outgoing import Outgoing
from .plan import PlannedRange, ScanTask, TaskLimits
from .put_path import Appended, AppendedBatch
from .rebuild import QUEUE_SEGMENT_ENTRIES, RebuiltQueues, rebuild_index, rebuild_queues
from .recovery import Recovery
from .salvaging import SalvageReport, salvage
from .store_reader import StoreReader
from .types import Boundary, PhysicalOffset, QueueKey, QueueOffset, QueueRange
from .verification import Finding, Kind, VerifyReport, verify

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "MAX_BODY_BYTES",
    "NATIVE_SCHEMA",
    "QUEUE_COLUMNS",
    "QUEUE_SEGMENT_ENTRIES",
    "Appended",
    "AppendedBatch",
    "BatchPlacement",
    "Boundary",
    "ConfigError",
    "CorruptError",
    "CorruptQueueError",
    "CorruptRecordError",
    "DamagedLogError",
    "DataLossError",
    "Finding",
    "Flush",
    "FormatError",
    "IllegalMessageError",
    "Kind",
    "Message",
    "MessageStore",
    "NoSpaceError",
    "NotAStoreError",
    "OffsetOutOfRangeError",
    "OnCorrupt",
    "OnDamage",
    "OnLoss",
    "Outgoing",
    "PhysicalOffset",
    "PlannedRange",
    "Predicate",
    "QueueBounds",
    "QueueKey",
    "QueueOffset",
    "QueueRange",
    "QueueSource",
    "RebuiltQueues",
    "Recovery",
    "SalvageReport",
    "ScanSpec",
    "ScanTask",
    "SegmentLogError",
    "Services",
    "StoreClosedError",
    "StoreConfig",
    "StoreFailedError",
    "StoreInUseError",
    "StoreReader",
    "TaskLimits",
    "UnknownQueueError",
    "UnreadableError",
    "UnsafeFileError",
    "UnsupportedStoreError",
    "VerifyReport",
    "is_system_topic",
    "rebuild_index",
    "rebuild_queues",
    "salvage",
    "verify",
]
