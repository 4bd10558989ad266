"""Words of the store: offsets, queues, ranges, and what a look-up asks for. Imports nothing of ours.

All ranges are half-open, ``start`` inclusive and ``stop`` exclusive.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, NewType

if TYPE_CHECKING:  # a process that only states what it wants starts without numpy
    import numpy as np
    import numpy.typing as npt

_TIME_MIN: Final = -(1 << 63)

PhysicalOffset = NewType("PhysicalOffset", int)  # bytes from the start of the CommitLog (RocketMQ: phyOffset)

QueueOffset = NewType("QueueOffset", int)
"""Entries from the start of one ConsumeQueue (RocketMQ: queueOffset, logicOffset)."""


class Boundary(Enum):
    """Side of a time on which a message is searched: RocketMQ 5's ``BoundaryType``."""

    LOWER = "lower"
    """The first message stored at or after the time; one past the end when there is none."""
    UPPER = "upper"
    """The last message stored at or before the time; the first of the queue when there is none."""


class QueueSource(Enum):
    """Source of queue entries."""

    AUTO = "auto"
    """The ConsumeQueue; entries that are missing or damaged are derived from the CommitLog."""
    COMMIT_LOG = "commitlog"
    """The CommitLog alone, by a walk over all of it."""


class ReadFrom(Enum):
    """Part of a store that a reader sees (option ``readFrom``)."""

    APPENDED = "appended"
    """Every message that was appended."""
    CONFIRMED = "confirmed"
    """Messages that enough replicas hold: no failover to one of these undoes them."""


class KeyField(Enum):
    """Property that holds the key of a look-up."""

    KEYS = "keys"
    """``KEYS``, of which each piece between blanks is a key."""
    UNIQUE = "unique"
    """``UNIQ_KEY``, which the producer's client sets."""
    EITHER = "either"
    """One or the other; an index does not distinguish them."""


class Window(NamedTuple):
    """Store times, ms since 1970, half-open; None for no limit."""

    start_ms: int | None = None
    stop_ms: int | None = None

    def holds(self, store_times: "npt.NDArray[np.int64]") -> "npt.NDArray[np.bool_]":
        """(n,) bool, which of (n,) store times are within."""
        inside: npt.NDArray[np.bool_] = store_times >= (_TIME_MIN if self.start_ms is None else self.start_ms)
        return inside if self.stop_ms is None else inside & (store_times < self.stop_ms)


ALWAYS: Final = Window()


class QueueKey(NamedTuple):
    """One queue of one topic: a tuple, since ten thousand of them are looked up for each batch."""

    topic: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id}"


class MessageIdentity(NamedTuple):
    """Identity of a message: no other message at the same queue offset has both."""

    physical_offset: int
    store_time: int
    """Milliseconds since 1970, the broker's clock."""


@dataclass(frozen=True, order=True, slots=True)
class QueueRange:
    """A run of messages of one queue, by queue offset."""

    key: QueueKey
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"{self.key}[{self.start}, {self.stop})"


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """The queue offsets that a queue holds, half-open."""

    key: QueueKey
    min_offset: int
    max_offset: int

    def __len__(self) -> int:
        return self.max_offset - self.min_offset
