"""The words of the store: offsets, queues, ranges. Imports nothing of ours.

All ranges are half-open, ``start`` inclusive and ``stop`` exclusive.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""Bytes from the start of the CommitLog (RocketMQ: phyOffset)."""

QueueOffset = NewType("QueueOffset", int)
"""Entries from the start of one ConsumeQueue (RocketMQ: queueOffset, logicOffset)."""


class Boundary(Enum):
    """Which message a time stands for: RocketMQ 5's ``BoundaryType``."""

    LOWER = "lower"
    """The first message stored at or after the time; one past the end when there is none."""
    UPPER = "upper"
    """The last message stored at or before the time; the first of the queue when there is none."""


class ReadFrom(Enum):
    """Part of a store that a reader sees (option ``readFrom``)."""

    APPENDED = "appended"
    """Every message that was appended."""
    CONFIRMED = "confirmed"
    """Messages that enough replicas hold: no failover to one of these undoes them."""


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
