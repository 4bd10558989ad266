"""Scan tasks: ranges of queues as a plan cuts them and a worker reads them.

::

    ScanTask     (PlannedRange, PlannedRange, …)  rows  bytes
                  └ key [start, stop)   entries from the ConsumeQueue, in the file that begins at base
                    or walk (from, to)  entries derived from that span of the CommitLog

Tasks hold integers and strings only: they cross to Spark's workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..types import QueueKey

_PACK_BYTES_MIN: Final = 32 << 20  # a task costs as much as reading about this
_PACK_ENTRIES_MIN: Final = 4 << 20
_SLACK: Final = 64


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
