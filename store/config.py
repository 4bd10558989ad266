"""How a store is read: choices as types, defaults in one place."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from .types import QueueKey

BATCH_BYTES: Final = 8 << 20
BATCH_ROWS: Final = 1 << 16
MAX_BODY_BYTES: Final = 16 << 20
"""Four times RocketMQ's ``maxMessageSize``: no honest body inflates to more."""


class QueueSource(Enum):
    """Where queues are read from."""

    AUTO = "auto"
    """The ConsumeQueue; what is missing or damaged in it is derived from the CommitLog."""
    COMMIT_LOG = "commitlog"
    """The CommitLog alone, by a walk over all of it."""


class OnCorrupt(Enum):
    """What becomes of a damaged record."""

    FAIL = "fail"
    SKIP = "skip"
    NULL = "null"
    """Its row stays, with nulls in every column that comes from the record."""


class OnLoss(Enum):
    """What becomes of messages that were planned and are gone when they are read."""

    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicate:
    """Which messages of the planned ranges are wanted. All parts must hold.

    Attributes
    ----------
    tags
        Any of these; None for all. Matched by hash in the queue, then exactly on the record.
    store_time_start, store_time_stop
        Store timestamp in ms, half-open.
    physical_start, physical_stop
        Physical offset, half-open.
    """

    tags: frozenset[str] | None = None
    store_time_start: int | None = None
    store_time_stop: int | None = None
    physical_start: int | None = None
    physical_stop: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanSpec:
    """What a scan gives of each message, and how. Small and picklable: it crosses to Spark's workers.

    Attributes
    ----------
    columns
        Names from ``NATIVE_SCHEMA``, in output order.
    property_columns
        Single properties as further string columns, behind ``columns``.
    predicate
        Which messages.
    check_crc
        Whether body CRCs, and ``__CRC32#`` where a record has it, are compared.
    on_corrupt, on_loss
        What becomes of damage, and of what is gone.
    raw_body
        Whether compressed bodies are handed out as stored.
    max_body_bytes
        The most that one compressed body may inflate to.
    batch_bytes, batch_rows
        Where a record batch ends; a single larger message still makes a batch.
    """

    columns: tuple[str, ...]
    property_columns: tuple[str, ...] = ()
    predicate: Predicate = field(default_factory=Predicate)
    check_crc: bool = False
    on_corrupt: OnCorrupt = OnCorrupt.FAIL
    on_loss: OnLoss = OnLoss.FAIL
    raw_body: bool = False
    max_body_bytes: int = MAX_BODY_BYTES
    batch_bytes: int = BATCH_BYTES
    batch_rows: int = BATCH_ROWS


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """The queue offsets that a queue holds, half-open."""

    key: QueueKey
    min_offset: int
    max_offset: int

    def __len__(self) -> int:
        return self.max_offset - self.min_offset
