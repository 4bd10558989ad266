"""Input and memory of retention: the files of a store as arrays, and what one run leaves for the next.

RocketMQ keeps the same in fields of ``CleanCommitLogService``, ``RunningFlags`` and ``ReferenceResource``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple

from ..format.message import Ints, Mask
from ..types import QueueKey

MANUAL_RUNS: Final = 20  # runs that one manual trigger starts
UNKNOWN_MS: Final = (1 << 63) - 1  # store time of a message that may exist and was not found: it counts as young


class FileKind(Enum):
    """Kind of a file that retention deletes; the name of its directory."""

    LOG = "commitlog"
    QUEUE = "consumequeue"
    INDEX = "index"


class FileId(NamedTuple):
    kind: FileKind
    base: int  # number in its name: first byte in its log or queue; of an index file the time it was made
    queue: QueueKey | None = None  # queue of a ConsumeQueue file, else None

    def __str__(self) -> str:
        queue = f"{self.queue.topic}/{self.queue.queue_id}/" if self.queue is not None else ""
        return f"{self.kind.value}/{queue}{self.base:0{17 if self.kind is FileKind.INDEX else 20}d}"


class LogFiles(NamedTuple):
    """CommitLog segments by base: (n,) int64 each, bytes and ms since the epoch; ``held`` (n,) bool."""

    # `held`: a reference keeps RocketMQ from deleting it. Our readers never do: an unlinked file stays mapped.

    base: Ints
    size: Ints
    modified_ms: Ints
    held: Mask

    def up_to(self, base: int) -> "LogFiles":
        """Return the segments whose base offset is at most ``base``."""
        kept = self.base <= base
        return LogFiles(self.base[kept], self.size[kept], self.modified_ms[kept], self.held[kept])


class QueueFiles(NamedTuple):
    """ConsumeQueue files by queue and base."""

    queues: Sequence[QueueKey]
    queue_of: Ints  # (n,) int64: place in ``queues``, ascending, and byte offset in the queue
    base: Ints
    # (n,) int64: physical offset in the last place of the file, for all but the last file of a queue
    last_physical: Ints
    held: Mask  # (n,) bool


class IndexFiles(NamedTuple):
    """Index files by name: (n,) int64 name, and physical offset of the last record; ``held`` (n,) bool."""

    name: Ints
    end_physical: Ints
    held: Mask


class Moment(NamedTuple):
    """A time: ms since the epoch, and the local hour, 0 to 23."""

    ms: int
    hour: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """State that a run leaves for the next run."""

    manual_left: int = 0  # runs that a manual trigger still starts
    disk_full: bool = False  # whether puts are refused
    queues_cleaned_to: int = 0  # start of the log when queues and index were cleaned last; 0 after a start
    retried_ms: int = 0  # time when a first file that could not be deleted was looked for last; 0 after a start
    # files that could not be deleted, and when that was tried first, ms
    hung: Mapping[FileId, int] = field(default_factory=dict)

    def triggered(self) -> "Memory":
        """Return the memory after a manual trigger (``executeDeleteFilesManually``)."""
        return replace(self, manual_left=MANUAL_RUNS)


class Unread(NamedTuple):
    """Physical offset of the first message that a protected group has not read, and which group and queue it is."""

    physical_offset: int
    text: str


def nothing_unread() -> Unread:
    """Return the answer of a store without protected groups."""
    return Unread((1 << 63) - 1, "")


def no_message(topic: str, stop: int) -> int | None:  # noqa: ARG001 - see State.newest
    """Return the answer of a store that has no messages of a topic."""
    return None


class State(NamedTuple):
    """State of a store before a run."""

    log: LogFiles
    # returns queue and index files for a start of the log; asked only if the start moved. Files of a queue after its
    # first one with an entry of the log may be missing, but for the last
    below: Callable[[int], tuple[QueueFiles, IndexFiles]]
    bytes: int  # bytes of all files; used only if brokers share the disk
    memory: Memory  # of the run before
    # called only if a segment would be deleted
    unread: Callable[[], Unread] = nothing_unread
    # returns the store time in ms of the newest message of a topic below a physical offset, where a segment ends.
    # None without one, and `UNKNOWN_MS` if that is not known. Asked only for topics with a minimum age, and only if
    # the segment would be deleted
    newest: Callable[[str, int], int | None] = no_message
