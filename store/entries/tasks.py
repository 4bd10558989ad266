"""Scan tasks: ranges of queues as a plan cuts them and a worker reads them.

::

    ScanTask     (PlannedRange, PlannedRange, …)  rows  bytes
                  └ key [start, stop)   entries from the ConsumeQueue, in the file that begins at base
                    or walk (from, to)  entries derived from that span of the CommitLog
                    or rows of a pack   of an archive, with its pieces: `ArchivedRanges`

Tasks hold integers and strings only: they cross to Spark's workers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

import numpy as np

from ..format.message import Ints
from ..types import QueueKey

if TYPE_CHECKING:
    from ..format.archive_part import Piece
    from ..objects.block_cache import BlockCache
    from ..objects.object_store import ObjectStore

_PACK_BYTES_MIN: Final = 32 << 20  # a task costs as much as reading about this
_PACK_ENTRIES_MIN: Final = 4 << 20
_SLACK: Final = 64
_PIECES_BEFORE: Final = 1
_PIECES_AFTER: Final = 2


class PlannedRange(NamedTuple):
    """A run of one queue, as a task will read it: a tuple, since a task may have ten thousand of them.

    Attributes
    ----------
    key, start, stop
        The messages, half-open.
    rows
        Number of messages; fewer than ``stop - start`` only where queue offsets are known to be missing.
    walk
        None to read the ConsumeQueue; else the physical span ``(start, stop)`` of the log to derive the entries from.
    base
        Bytes of the queue before the file that holds all entries, as the plan found it; None where there is none. It
        only saves the task a listing: a task that does not find the entries there looks for them.
    """

    key: QueueKey
    start: int
    stop: int
    rows: int
    walk: tuple[int, int] | None = None
    base: int | None = None

    def __str__(self) -> str:
        return f"{self.key}[{self.start}, {self.stop})"


class ArchivedColumns(NamedTuple):
    """Planned ranges of a task of an archive, as columns."""

    keys: Sequence[QueueKey]
    pieces: "Sequence[Piece]"
    queue: Ints  # (n,) indices into the keys
    numbers: Ints  # (5, n): start, stop, rows, and span of the log
    spans: Ints  # (3, n): index into the pieces, and rows of the pack


class ArchivedRanges(Sequence[PlannedRange]):
    """Planned ranges of a task of an archive, with the pieces of the log that have them: no manifest is read for them.

    Columns are made when the task is read, or crosses to its worker: a plan may have millions of ranges.
    """

    def __init__(self, found: Callable[[], ArchivedColumns]) -> None:
        self._found = found

    def at(self, place: "TaskPlace") -> "ArchivedRanges":  # noqa: ARG002
        """Return these ranges as they are read in a process that reaches the archive at ``place``."""
        return self

    @cached_property
    def _columns(self) -> ArchivedColumns:
        return self._found()

    @cached_property
    def held(self) -> "tuple[list[Piece], Ints]":
        """The pieces, ascending; of each range the number of its piece, its first row and one past its last, (3, n).

        The rows of a pack have the entries of the range, and perhaps others of its queue.
        """
        _, pieces, _, _, spans = self._columns
        used = np.unique(spans[0])
        # A record is mapped with some bytes around it.
        near = np.unique(used[:, None] + np.arange(-_PIECES_BEFORE, _PIECES_AFTER + 1))
        near = near[(near >= 0) & (near < len(pieces))]
        segments = {pieces[at].segment for at in used.tolist()}
        kept = [at for at in near.tolist() if pieces[at].segment in segments]
        number = np.searchsorted(np.array(kept, np.int64), spans[0])
        return [pieces[at] for at in kept], np.stack([number, *spans[1:]])

    def __len__(self) -> int:
        return self._columns.queue.size

    @overload
    def __getitem__(self, index: int) -> PlannedRange: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[PlannedRange]: ...

    def __getitem__(self, index: int | slice) -> PlannedRange | Sequence[PlannedRange]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        keys, _, queue, numbers, _ = self._columns
        start, stop, rows, low, high = numbers[:, index].tolist()
        return PlannedRange(keys[queue[index]], start, stop, rows, (low, high))

    def __iter__(self) -> Iterator[PlannedRange]:
        keys, _, queues, numbers, _ = self._columns
        for queue, start, stop, rows, low, high in zip(queues.tolist(), *numbers.tolist(), strict=True):
            yield PlannedRange(keys[queue], start, stop, rows, (low, high))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Callable[..., "ArchivedRanges"], tuple[Any, ...]]:
        # Only the queues and pieces of this task cross to its worker.
        known, _, queue, numbers, _ = self._columns
        queues, queue = np.unique(queue, return_inverse=True)
        keys = [tuple(known[number]) for number in queues.tolist()]
        pieces, spans = self.held
        return _unpickled, (keys, list(map(tuple, pieces)), queue.astype(np.uint32), numbers, spans.astype(np.int32))


def _unpickled(keys: Sequence[tuple[str, int]], pieces: Sequence[Any], *columns: Ints) -> ArchivedRanges:
    from ..format.archive_part import Piece  # noqa: PLC0415 - it loads pyarrow.compute, which takes long

    queue, numbers, spans = columns
    made = ArchivedColumns([QueueKey(*key) for key in keys], [Piece(*each) for each in pieces], queue, numbers, spans)
    return ArchivedRanges(lambda: made)


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Messages of one store that one task reads: ranges in order, and their size.

    Attributes
    ----------
    ranges, rows
        The messages, and their number.
    bytes
        Bytes that the task reads: stored records by the ConsumeQueue, or its entries alone.
    """

    ranges: Sequence[PlannedRange]
    rows: int
    bytes: int

    @property
    def is_self_contained(self) -> bool:
        """True for a task of an archive that names the objects and rows that it reads."""
        return isinstance(self.ranges, ArchivedRanges)

    def at(self, place: "TaskPlace") -> "ScanTask":
        """Return a self-contained task as it is read in a process that reaches its archive at ``place``."""
        assert isinstance(self.ranges, ArchivedRanges)
        return replace(self, ranges=self.ranges.at(place))


class TaskPlace(NamedTuple):
    """Place of an archive in object storage, of which self-contained tasks name the objects."""

    objects: "ObjectStore"
    root: str
    cache: "BlockCache | None"


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskLimits:
    """Limits of a task.

    Attributes
    ----------
    max_bytes
        Of stored records; one larger record still makes a task.
    max_records
        None for no limit.
    min_tasks
        Ranges are cut finer until there are at least so many tasks, where there are as many messages.
    parallelism
        How many tasks run at once: reads are cut into so many, or a multiple, unless that makes tasks too small.
    entries_only
        Whether tasks read the ConsumeQueue and nothing else: a message then weighs the 20 bytes of its entry.
    """

    max_bytes: int
    max_records: int | None = None
    min_tasks: int = 1
    parallelism: int = 1
    entries_only: bool = False


def smallest_task(total: int, limits: TaskLimits) -> int:
    """Bytes of a task that are worth its cost, and that keep all cores busy."""
    pack_min = _PACK_ENTRIES_MIN if limits.entries_only else _PACK_BYTES_MIN
    return min(limits.max_bytes, max(pack_min, _even_share(total, limits)))


def _even_share(total: int, limits: TaskLimits) -> int:
    """Size of tasks that keep all cores busy to the end: the same number per core, all about as large.

    A little is added, since ranges end where messages do: the remainder would be a small task of its own.
    """
    cores = max(limits.parallelism, 1)
    slack = total // _SLACK
    tasks = cores * max(1, -(-(total + slack) // (limits.max_bytes * cores)))
    return -(-(total + slack) // tasks) + 1
