"""Packed queues: entries of an archive's queues, by its manifest and by ranged reads of its packs.

::

    manifest   runs of a queue      [A/0: piece 0, rows 0-2, offsets 0-2][A/0: piece 3, rows 7-9, offsets 3-5]
                                       │ bounds, rows and bytes are known from here: nothing is read
    pack       │ A/0 rows │ B/0 rows │ B/1 rows │
                 ▲──────▲ one range of the object, without the rows of other queues

    rises      the queue offsets of a queue rise from run to run: a part of it is read by itself
    otherwise  damaged or repeated offsets: all of its rows are read, and `rising` decides as for a log

An archive ends where its last piece ends. RocketMQ has no archive.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from ..dispatch.derive import NO_ENTRIES, DerivedQueue, joined, rising_of
from ..format.archive_part import ENTRY, NO_TIME, RUN, Runs
from ..format.message import Ints, Mask
from ..types import QueueBounds, QueueKey, QueueRange
from .archive_runs import ArchiveRuns
from .pack_rows import PackRows, Rows
from .proven import part_of
from .queue_entries import QueueEntries, ids_of, part_of_queue
from .tasks import PlannedRange, ScanTask, TaskLimits

if TYPE_CHECKING:
    from ..directory.archived_store import ArchivedStore

_PROBE_ROWS: Final = (1 << 16) // ENTRY.itemsize


class PackedQueues(Mapping[QueueKey, DerivedQueue], QueueEntries):
    """Entries of all queues of an archive, as of one manifest. Not thread-safe."""

    look_every_s = 1.0
    has_times = True
    lists_empty = True

    def __init__(self, archived: "ArchivedStore") -> None:
        self.archive = archived
        self.runs = ArchiveRuns(archived)
        self._rows_of = PackRows(archived.fs, archived.root, archived.pieces)
        self._whole: dict[QueueKey, DerivedQueue] = {}
        self._is_new = True

    def of(self, archived: "ArchivedStore") -> "PackedQueues":
        """The queues as of another manifest, which are these if it is the same."""
        return self if archived is self.archive else PackedQueues(archived)

    @property
    def stop(self) -> int:
        """One past the last byte of the log that the archive has."""
        return self.archive.manifest.stop

    def revision(self, data_stop: Callable[[], int], mark: object) -> object:  # noqa: ARG002 - the manifest tells
        """As `QueueEntries.revision`: the number of this manifest at first, then of the newest: a list of objects."""
        is_new, self._is_new = self._is_new, False
        return self.archive.number if is_new else self.archive.newest_number()

    def changed(self, before: Self, keys: Iterable[QueueKey]) -> tuple[set[QueueKey], set[QueueKey]]:
        """As `QueueEntries.changed`."""
        # A growing archive keeps its log. After a cut, the archive may hold other messages at the same offsets.
        if self.archive.continues(before.archive):
            return {key for key in keys if self.span(key) != before.span(key)}, set()
        return set(keys), set(keys)

    # What statistics tell

    @cached_property
    def ids(self) -> Mapping[str, Sequence[int]]:
        """As `QueueEntries.ids`."""
        return ids_of(self)

    def rises(self, key: QueueKey) -> bool:
        """Return whether the offsets of a queue rise, so that no record is left out; False for no queue."""
        number = self.runs.number(key)
        return number is not None and bool(self.runs.totals["rises"][number])

    def runs_of(self, key: QueueKey) -> Runs:
        """The runs of one queue, by piece."""
        number = self.runs.number(key)
        return np.empty(0, RUN) if number is None else self.runs.of_one(number)

    def span(self, key: QueueKey) -> tuple[int, int] | None:
        """The first queue offset, and one past the last, by the manifest; None for no queue."""
        number = self.runs.number(key)
        if number is None:
            return None
        total = self.runs.totals[number]
        if total["rises"]:
            return int(total["first"]), int(total["last"]) + 1
        offsets = self[key].queue_offset
        return (int(offsets[0]), int(offsets[-1]) + 1) if offsets.size else None

    def bounds(self, keys: Sequence[QueueKey]) -> list[QueueBounds]:
        """As `QueueEntries.bounds`."""
        return [QueueBounds(key, *(self.span(key) or (0, 0))) for key in keys]

    def total(self, wanted: QueueRange) -> int:
        """As `QueueEntries.total`, without entries where runs are whole."""
        return self._measured(wanted)[1]

    def count(self, ranges: Sequence[QueueRange]) -> int | None:
        """As `QueueEntries.count`."""
        parts = [self.runs.number(each.key) for each in ranges if not self._is_whole(each)]
        self.runs.load([number for number in parts if number is not None])
        return sum(self._measured(each)[0] for each in ranges)

    def deleted(self, ranges: Sequence[QueueRange]) -> list[QueueRange]:
        """As `QueueEntries.deleted`: offsets that a queue lacks between pieces that do not follow each other."""
        rising = [wanted for wanted in ranges if self.rises(wanted.key)] if self._holes else []
        numbers = np.array([self.runs.number(wanted.key) for wanted in rising], np.int64)
        found = []
        for piece in self._holes:
            before, after = self.runs.beside(piece, numbers)
            for at in np.flatnonzero((before >= 0) & (before + 1 < after)).tolist():
                wanted = rising[at]
                start, stop = max(wanted.start, int(before[at]) + 1), min(wanted.stop, int(after[at]))
                if start < stop:
                    found.append(QueueRange(wanted.key, start, stop))
        return found

    @cached_property
    def _holes(self) -> list[int]:
        return self.archive.holes()

    def _is_whole(self, wanted: QueueRange) -> bool:
        return self.rises(wanted.key) and self.span(wanted.key) == (wanted.start, wanted.stop)

    def _measured(self, wanted: QueueRange) -> tuple[int, int]:
        """Return the messages of a range, and the bytes of their records."""
        key, start, stop = wanted.key, wanted.start, wanted.stop
        if self._is_whole(wanted):
            total = self.runs.totals[self.runs.number(key)]
            return int(total["rows"]), int(total["bytes"])
        if not self.rises(key):
            sizes = self.entries(key, start, stop).size
            return sizes.size, int(sizes.sum())
        runs = self._at(key, start, stop)
        inside = (runs["first"] >= start) & (runs["last"] < stop)
        rows, size = int(runs["rows"][inside].sum()), int(runs["bytes"][inside].sum())
        for run in runs[~inside]:
            some = self._derived(run, *_rows_between(run, start, stop))
            sizes = part_of_queue(some, start, stop).size
            rows, size = rows + sizes.size, size + int(sizes.sum())
        return rows, size

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self.runs.keys)

    def __len__(self) -> int:
        return len(self.runs.keys)

    # What packs tell

    def __getitem__(self, key: QueueKey) -> DerivedQueue:
        """All entries of a queue, which may be many: `entries` reads a part."""
        if self.runs.number(key) is None:
            raise KeyError(key)
        runs = self.runs_of(key)
        if key not in self._whole:
            parts = [self._derived(run, 0, int(run["rows"])) for run in runs]
            self._whole = {key: rising_of(self.archive.root, key, joined(parts))}
        return self._whole[key]

    def entries(self, key: QueueKey, start: int, stop: int) -> DerivedQueue:
        """As `QueueEntries.entries`."""
        if self.runs.number(key) is None:
            return NO_ENTRIES
        if not self.rises(key):
            return part_of_queue(self[key], start, stop)
        parts = [self._derived(run, *_rows_between(run, start, stop)) for run in self._at(key, start, stop)]
        return part_of_queue(joined(parts), start, stop)

    def planned(self, wanted: QueueRange) -> list[PlannedRange]:
        """As `QueueEntries.planned`."""
        rows = self.entries(wanted.key, wanted.start, wanted.stop).size.size
        span = self.archive.pieces[0].segment, self.stop
        return [PlannedRange(wanted.key, wanted.start, wanted.stop, rows, span)] if rows else []

    def narrowed(self, piece: PlannedRange) -> PlannedRange:
        """As `QueueEntries.narrowed`: only queues with damaged offsets are `planned`, and are read as a whole."""
        return piece

    def tasks(self, ranges: Sequence[QueueRange], limits: TaskLimits) -> tuple[list[ScanTask], Sequence[QueueRange]]:
        """As `QueueEntries.tasks`: of all queues whose offsets rise, by the manifest."""
        from .packs_plan import plan_runs  # noqa: PLC0415 - look-ups need no plan

        return plan_runs(self, ranges, limits)

    def places(self, key: QueueKey, queue_offsets: Ints) -> Ints:
        """As `QueueEntries.places`."""
        return self._times_at(key, queue_offsets)[1]

    def times(self, key: QueueKey, queue_offsets: Ints) -> tuple[Ints, Mask]:
        """As `QueueEntries.times`."""
        times, places = self._times_at(key, queue_offsets)
        return times, places >= 0

    def _times_at(self, key: QueueKey, queue_offsets: Ints) -> tuple[Ints, Ints]:
        """Store times in ms and physical offsets at (n,) ascending queue offsets; -1 in the second for no message."""
        times, places = np.zeros(queue_offsets.size, np.int64), np.full(queue_offsets.size, -1, np.int64)
        number = self.runs.number(key)
        if queue_offsets.size == 0 or number is None:
            return times, places
        known = None if self.rises(key) else self[key]
        if known is None and (ends := self._at_ends(self.runs.totals[number], queue_offsets)) is not None:
            return ends
        for run in (
            self._at(key, int(queue_offsets[0]), int(queue_offsets[-1]) + 1) if known is None else self.runs_of(key)
        ):
            at = np.flatnonzero((queue_offsets >= run["first"]) & (queue_offsets <= run["last"]))
            if known is not None:
                at = np.arange(queue_offsets.size)
            for number in at.tolist():
                rows = self._around(run, int(queue_offsets[number]))
                found = np.flatnonzero(rows["queue_offset"] == queue_offsets[number])
                if known is not None:  # of several records with this offset, the one that `rising` keeps
                    place = self.archive.pieces[run["piece"]].segment + rows["position"][found]
                    found = found[np.isin(place, known.physical_offset)]
                if found.size:
                    times[number] = rows["store_time"][found[0]]
                    places[number] = self.archive.pieces[run["piece"]].segment + int(rows["position"][found[0]])
        return times, places

    @staticmethod
    def _at_ends(total: np.void, queue_offsets: Ints) -> tuple[Ints, Ints] | None:
        """Store times and physical offsets of the first and the last message of a queue; None for other messages."""
        is_first, is_last = queue_offsets == total["first"], queue_offsets == total["last"]
        if not (is_first | is_last).all() or NO_TIME in {total["first_time"], total["last_time"]}:
            return None
        times = np.where(is_first, total["first_time"], total["last_time"])
        return times, np.where(is_first, total["first_offset"], total["last_offset"])

    def times_rise(self) -> bool:
        """As `QueueEntries.times_rise`."""
        firsts, lasts = self._times
        return not ((np.diff(firsts) < 0).any() or (firsts > lasts).any())

    def around(self, bounds: QueueBounds, time_ms: int) -> tuple[int, int]:
        """As `QueueEntries.around`, by the times of pieces."""
        # Times of runs, and of pieces, bound those of their records, unless the clock of the broker was set back.
        key = bounds.key
        runs = self.runs_of(key)
        if not runs.size or not self.rises(key) or not self.times_rise():
            return super().around(bounds, time_ms)
        firsts, lasts = runs["first_time"], runs["last_time"]
        both = np.stack([firsts, lasts], axis=1).ravel()
        if firsts[0] == NO_TIME or (both[1:] < both[:-1]).any():
            firsts, lasts = (each[runs["piece"]] for each in self._times)
        low = int(np.searchsorted(lasts, time_ms, side="left"))  # all before are earlier
        high = int(np.searchsorted(firsts, time_ms, side="right"))  # from here on all are later
        start = int(runs["last"][low - 1]) if low else int(runs["first"][0])
        stop = int(runs["first"][high]) if high < runs.size else int(runs["last"][-1]) + 1
        return start, stop

    @cached_property
    def _times(self) -> tuple[Ints, Ints]:
        pieces = self.archive.pieces
        with_records = [piece for piece in pieces if piece.records]
        firsts, lasts = np.zeros((2, len(pieces)), np.int64)
        for number, piece in enumerate(pieces):
            before = max(number - 1, 0)
            firsts[number] = piece.first_time if piece.records else lasts[before]
            lasts[number] = piece.last_time if piece.records else lasts[before]
        if len(with_records) < len(pieces) and with_records:
            firsts[firsts == 0] = lasts[lasts == 0] = with_records[0].first_time
        return firsts, lasts

    # What `WalkCache` asks of the entries of a log

    def reach(self, start: int, stop: int) -> int:
        """Return ``stop``: packs have all records of an archive."""
        return max(start, stop)

    def part(self, key: QueueKey, start: int, stop: int) -> DerivedQueue:
        """Entries of one queue from the records that begin in ``[start, stop)``."""
        runs = self.runs_of(key)
        runs = runs[(runs["last_offset"] >= start) & (runs["first_offset"] < stop)]
        return part_of(joined([self._derived(run, 0, int(run["rows"])) for run in runs]), start, stop)

    # Reads of packs

    def expect(self, wanted: Iterable[tuple[QueueKey, int, int]]) -> None:
        """Note which queue offsets will be asked for, so that neighbours are read together."""
        wanted = [each for each in wanted if self.rises(each[0])]
        self.runs.load([number for key, _, _ in wanted if (number := self.runs.number(key)) is not None])
        spans: dict[int, list[tuple[int, int]]] = {}
        for key, start, stop in wanted:
            for run in self._at(key, start, stop):
                low, high = _rows_between(run, start, stop)
                if low < high:
                    row = int(run["row"])
                    spans.setdefault(int(run["piece"]), []).append((row + low, row + high))
        self._rows_of.expect(spans)

    def _at(self, key: QueueKey, start: int, stop: int) -> Runs:
        """Runs with queue offsets in ``[start, stop)``, of a queue whose offsets rise."""
        runs = self.runs_of(key)
        return runs[np.searchsorted(runs["last"], start) : np.searchsorted(runs["first"], stop)]

    def _derived(self, run: np.void, low: int, high: int) -> DerivedQueue:
        """Entries of rows ``[low, high)`` of a run."""
        row = int(run["row"])
        (found,) = self._rows_of.derived([(int(run["piece"]), row + low, row + high)])
        return found

    def _around(self, run: np.void, queue_offset: int) -> Rows:
        """Return rows of a run, among them the row of a queue offset if there is one."""
        low, high = _rows_between(run, queue_offset, queue_offset + 1)
        count, row = int(run["rows"]), int(run["row"])
        if high - low > 1 or count <= _PROBE_ROWS:
            low, high = 0, count
        else:
            low -= low % _PROBE_ROWS
            high = min(low + _PROBE_ROWS, count)
        return self._rows_of.rows(int(run["piece"]), row + low, row + high)


def _rows_between(run: np.void, start: int, stop: int) -> tuple[int, int]:
    """Rows of a run that have the queue offsets ``[start, stop)``, and perhaps others."""
    rows, first = int(run["rows"]), int(run["first"])
    if rows != int(run["last"]) - first + 1:  # offsets are missing: only the rows tell which
        return 0, rows
    return min(max(start - first, 0), rows), min(max(stop - first, 0), rows)
