"""RocketMQ message stores: the same bytes, read and written without a broker.

Start at `StoreReader.open`. Ask it for `topics`, `queues`, `offset_at`; make a `plan` of queue ranges; `scan` each
task of the plan into Arrow batches. To write, `MessageStore.open` a directory and `append`. What can go wrong is in
the error tree under `SegmentLogError`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .config import (
    BatchPlacement,
    Flush,
    OnChangedReplay,
    OnDamage,
    Services,
    StoreConfig,
)
from .errors import (
    BatchGapError,
    ChangedReplayError,
    ConfigError,
    CorruptError,
    CorruptQueueError,
    CorruptRecordError,
    DamagedLogError,
    DataLossError,
    ExistingFileError,
    FileTooLargeError,
    FormatError,
    IllegalMessageError,
    MissingFileError,
    NoSpaceError,
    NotAStoreError,
    OffsetOutOfRangeError,
    Remedy,
    SegmentLogError,
    StoreClosedError,
    StoreFailedError,
    StoreInUseError,
    StoreIOError,
    UnknownQueueError,
    UnreadableError,
    UnsafeFileError,
    UnsupportedStoreError,
)
from .format.message_decode import NATIVE_SCHEMA, QUEUE_COLUMNS
from .format.naming import is_system_topic, topic_problem
from .read.plan import PlannedRange, ScanTask, TaskLimits
from .read.spec import (
    BATCH_BYTES,
    BATCH_ROWS,
    MAX_BODY_BYTES,
    OnCorrupt,
    OnLoss,
    Predicate,
    PropertyFilter,
    QueueSource,
    ScanSpec,
    Tags,
)
from .read.store_reader import StoreReader
from .types import Boundary, Mark, PhysicalOffset, QueueBounds, QueueKey, QueueOffset, QueueRange

if TYPE_CHECKING:
    from .directory.store_id import ensure_store_id, store_id
    from .directory.topics import topic_queues
    from .encode.message import Appended, Outgoing
    from .format.broker_config import ClientQueue
    from .format.hashing import java_hash_array
    from .format.ledger import QueueSpan
    from .groups.admin import (
        GroupChange,
        GroupProgress,
        MessageModel,
        Move,
        ToEarliest,
        ToLatest,
        ToOffset,
        ToTime,
        clone_group,
        commit_offsets,
        delete_group,
        list_groups,
        publish_progress,
        reset_group,
    )
    from .groups.allocation import allocate_averagely, allocate_by_circle, allocate_consistent_hash
    from .groups.offsets import client_progress, group_offsets
    from .groups.writer import Recorded
    from .maintenance.rebuild import RebuiltQueues, rebuild_index, rebuild_queues
    from .maintenance.salvaging import SalvageReport, salvage
    from .maintenance.verification import Finding, Kind, VerifyReport, verify
    from .read.lag import Backlog, backlogs, store_times, stored_bytes
    from .read.message import Message
    from .read.probe import mark_of, record_sizes
    from .read.queue_watch import QueueWatch, Sighting
    from .recovery.decide import Recovery
    from .write.message_store import MessageStore
    from .write.put_path import AppendedBatch
    from .write.replays import BatchId, CommittedBatch
    from .write.sink import commit_batch, last_commit, open_in_turn, prepare_store, refuse_broker, stored_config
    from .write.staging import Staged, Staging, discard_jobs, discard_staged, sweep_staging

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "MAX_BODY_BYTES",
    "NATIVE_SCHEMA",
    "QUEUE_COLUMNS",
    "Appended",
    "AppendedBatch",
    "Backlog",
    "BatchGapError",
    "BatchId",
    "BatchPlacement",
    "Boundary",
    "ChangedReplayError",
    "ClientQueue",
    "CommittedBatch",
    "ConfigError",
    "CorruptError",
    "CorruptQueueError",
    "CorruptRecordError",
    "DamagedLogError",
    "DataLossError",
    "ExistingFileError",
    "FileTooLargeError",
    "Finding",
    "Flush",
    "FormatError",
    "GroupChange",
    "GroupProgress",
    "IllegalMessageError",
    "Kind",
    "Mark",
    "Message",
    "MessageModel",
    "MessageStore",
    "MissingFileError",
    "Move",
    "NoSpaceError",
    "NotAStoreError",
    "OffsetOutOfRangeError",
    "OnChangedReplay",
    "OnCorrupt",
    "OnDamage",
    "OnLoss",
    "Outgoing",
    "PhysicalOffset",
    "PlannedRange",
    "Predicate",
    "PropertyFilter",
    "QueueBounds",
    "QueueKey",
    "QueueOffset",
    "QueueRange",
    "QueueSource",
    "QueueSpan",
    "QueueWatch",
    "RebuiltQueues",
    "Recorded",
    "Recovery",
    "Remedy",
    "SalvageReport",
    "ScanSpec",
    "ScanTask",
    "SegmentLogError",
    "Services",
    "Sighting",
    "Staged",
    "Staging",
    "StoreClosedError",
    "StoreConfig",
    "StoreFailedError",
    "StoreIOError",
    "StoreInUseError",
    "StoreReader",
    "Tags",
    "TaskLimits",
    "ToEarliest",
    "ToLatest",
    "ToOffset",
    "ToTime",
    "UnknownQueueError",
    "UnreadableError",
    "UnsafeFileError",
    "UnsupportedStoreError",
    "VerifyReport",
    "allocate_averagely",
    "allocate_by_circle",
    "allocate_consistent_hash",
    "backlogs",
    "client_progress",
    "clone_group",
    "commit_batch",
    "commit_offsets",
    "delete_group",
    "discard_jobs",
    "discard_staged",
    "ensure_store_id",
    "group_offsets",
    "is_system_topic",
    "java_hash_array",
    "last_commit",
    "list_groups",
    "mark_of",
    "open_in_turn",
    "prepare_store",
    "publish_progress",
    "rebuild_index",
    "rebuild_queues",
    "record_sizes",
    "refuse_broker",
    "reset_group",
    "salvage",
    "store_id",
    "store_times",
    "stored_bytes",
    "stored_config",
    "sweep_staging",
    "topic_problem",
    "topic_queues",
    "verify",
]

_HOMES: Final = {
    "groups.allocation": ("allocate_averagely", "allocate_by_circle", "allocate_consistent_hash"),
    "read.lag": ("Backlog", "backlogs", "store_times", "stored_bytes"),
    "write.sink": ("commit_batch", "last_commit", "open_in_turn", "prepare_store", "refuse_broker", "stored_config"),
    "groups.admin": (
        "GroupChange",
        "GroupProgress",
        "MessageModel",
        "Move",
        "ToEarliest",
        "ToLatest",
        "ToOffset",
        "ToTime",
        "clone_group",
        "commit_offsets",
        "delete_group",
        "list_groups",
        "publish_progress",
        "reset_group",
    ),
    "format.broker_config": ("ClientQueue",),
    "format.hashing": ("java_hash_array",),
    "format.ledger": ("QueueSpan",),
    "groups.offsets": ("client_progress", "group_offsets"),
    "groups.writer": ("Recorded",),
    "directory.store_id": ("ensure_store_id", "store_id"),
    "read.probe": ("mark_of", "record_sizes"),
    "read.message": ("Message",),
    "write.message_store": ("MessageStore",),
    "encode.message": ("Appended", "Outgoing"),
    "write.put_path": ("AppendedBatch",),
    "read.queue_watch": ("QueueWatch", "Sighting"),
    "maintenance.rebuild": ("RebuiltQueues", "rebuild_index", "rebuild_queues"),
    "recovery.decide": ("Recovery",),
    "write.replays": ("BatchId", "CommittedBatch"),
    "maintenance.salvaging": ("SalvageReport", "salvage"),
    "write.staging": ("Staged", "Staging", "discard_jobs", "discard_staged", "sweep_staging"),
    "directory.topics": ("topic_queues",),
    "maintenance.verification": ("Finding", "Kind", "VerifyReport", "verify"),
}
"""Where the names live that not every process needs: a task that reads should not pay for loading what writes."""

_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    return value
