"""RocketMQ message stores: the same bytes, read and written without a broker.

Start at `StoreReader.open`. Ask it for `topics`, `queues`, `offset_at`; make a `plan` of queue ranges; `scan` each
task of the plan into Arrow batches. To write, `MessageStore.open` a directory and `append`. What can go wrong is in
the error tree under `SegmentLogError`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .config import (
    BATCH_BYTES,
    BATCH_ROWS,
    MAX_BODY_BYTES,
    BatchPlacement,
    Flush,
    OnChangedReplay,
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
from .plan import PlannedRange, ScanTask, TaskLimits
from .store_reader import StoreReader
from .types import Boundary, Mark, PhysicalOffset, QueueKey, QueueOffset, QueueRange

if TYPE_CHECKING:
    from .allocation import allocate_averagely, allocate_by_circle, allocate_consistent_hash
    from .backlog import Backlog, backlogs, store_times, stored_bytes
    from .batch_sink import commit_batch, last_commit, open_in_turn, prepare_store, refuse_broker, stored_config
    from .consumer_groups import (
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
    from .format.broker_config import ClientQueue
    from .format.hashing import java_hash_array
    from .format.ledger import QueueSpan
    from .group_progress import client_progress
    from .group_writer import Recorded
    from .identity import ensure_store_id, store_id
    from .marks import mark_of, record_sizes
    from .message import Message
    from .message_store import MessageStore
    from .outgoing import Appended, Outgoing
    from .put_path import AppendedBatch
    from .queue_watch import QueueWatch, Sighting
    from .rebuild import RebuiltQueues, rebuild_index, rebuild_queues
    from .recovery import Recovery
    from .replays import BatchId, CommittedBatch
    from .salvaging import SalvageReport, salvage
    from .staging import Staged, Staging, discard_jobs, discard_staged, sweep_staging
    from .topics import topic_queues
    from .verification import Finding, Kind, VerifyReport, verify

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
    "allocation": ("allocate_averagely", "allocate_by_circle", "allocate_consistent_hash"),
    "backlog": ("Backlog", "backlogs", "store_times", "stored_bytes"),
    "batch_sink": ("commit_batch", "last_commit", "open_in_turn", "prepare_store", "refuse_broker", "stored_config"),
    "consumer_groups": (
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
    "group_progress": ("client_progress",),
    "group_writer": ("Recorded",),
    "identity": ("ensure_store_id", "store_id"),
    "marks": ("mark_of", "record_sizes"),
    "message": ("Message",),
    "message_store": ("MessageStore",),
    "outgoing": ("Appended", "Outgoing"),
    "put_path": ("AppendedBatch",),
    "queue_watch": ("QueueWatch", "Sighting"),
    "rebuild": ("RebuiltQueues", "rebuild_index", "rebuild_queues"),
    "recovery": ("Recovery",),
    "replays": ("BatchId", "CommittedBatch"),
    "salvaging": ("SalvageReport", "salvage"),
    "staging": ("Staged", "Staging", "discard_jobs", "discard_staged", "sweep_staging"),
    "topics": ("topic_queues",),
    "verification": ("Finding", "Kind", "VerifyReport", "verify"),
}
"""Where the names live that not every process needs: a task that reads should not pay for loading what writes."""

_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    return value
