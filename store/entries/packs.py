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

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import numpy.typing as npt

from ..dispatch.derive import BURNT_OFFSETS_MAX, NO_ENTRIES, DerivedQueue, joined, rising_of
from ..errors import CorruptError, DataLossError, MissingObjectError, Remedy
from ..format.archive_manifest import ENTRY, Runs
from ..format.message import MIN_RECORD_BYTES, Ints, Mask
from ..objects.requests import GAP_BYTES, IN_FLIGHT, NEAR_BYTES
from ..types import QueueBounds, QueueKey, QueueRange
from .proven import part_of
from .queue_entries import QueueEntries, ids_of, part_of_queue
from .tasks import PlannedRange, ScanTask, TaskLimits

if TYPE_CHECKING:
    from ..directory.archived_store import ArchivedStore

_ROW: Final = ENTRY.itemsize
_NEAR_ROWS: Final = NEAR_BYTES // _ROW
_GAP_ROWS: Final = GAP_BYTES // _ROW
_BLOCK_ROWS: Final = (8 << 20) // _ROW
_PROBE_ROWS: Final = (1 << 16) // _ROW
_HELD_BYTES_MAX: Final = 128 << 20
_SOON_BYTES: Final = 16 << 20
Rows = npt.NDArray[np.void]


class PackedQueues(Mapping[QueueKey, DerivedQueue], QueueEntries):
    """Entries of all queues of an archive, as of one manifest. Not thread-safe."""

    look_every_s = 1.0
    has_times = True

    def __init__(self, archived: "ArchivedStore") -> None:
        self._archived = archived
        self.manifest = archived.manifest
        self._held: OrderedDict[tuple[int, int], Rows] = OrderedDict()  # by piece and first row
        self._held_bytes = 0
        self._expected: dict[int, tuple[Ints, Ints]] = {}
        self._whole: dict[QueueKey, DerivedQueue] = {}

    def newest(self) -> "PackedQueues":
        """Return the queues of the manifest that was read last, which are these if it is the same."""
        return self if self.manifest is self._archived.manifest else PackedQueues(self._archived)

    def refresh(self) -> int:
        """Look for a newer manifest, for one list of objects; return the number of the newest one."""
        self._archived.refresh()
        return self._archived.number

    def revision(self, data_stop: Callable[[], int], mark: object) -> object:  # noqa: ARG002 - the manifest tells
        """As `QueueEntries.revision`."""
        return self.refresh()

    def changed(self, before: Self, keys: Iterable[QueueKey]) -> tuple[set[QueueKey], set[QueueKey]]:
        """As `QueueEntries.changed`."""
        # A growing archive keeps its pieces; one that ended otherwise may hold other messages at the same offsets.
        if set(before.manifest.pieces[-1:]) <= set(self.manifest.pieces):
            return {key for key in keys if self.span(key) != before.span(key)}, set()
        return set(keys), set(keys)

    # What the manifest tells

    @cached_property
    def numbers(self) -> dict[QueueKey, int]:
        """Number of each queue in the runs."""
        return {QueueKey(*queue): number for number, queue in enumerate(self.manifest.queues)}

    @cached_property
    def ids(self) -> Mapping[str, Sequence[int]]:
        """As `QueueEntries.ids`."""
        return ids_of(self)

    @cached_property
    def keys_by_number(self) -> list[QueueKey]:
        """The queues, by their numbers."""
        return list(self.numbers)

    @cached_property
    def order(self) -> Ints:
        """Index into the manifest's runs, by queue and then by piece."""
        return np.argsort(self.manifest.runs["queue"], kind="stable")

    @cached_property
    def by_queue(self) -> Runs:
        """The runs, by queue and then by piece."""
        return self.manifest.runs[self.order]

    @cached_property
    def edges(self) -> Ints:
        """The first of `by_queue` of each queue, and one past the last."""
        return np.searchsorted(self.by_queue["queue"], np.arange(len(self.manifest.queues) + 1))

    @cached_property
    def rises(self) -> Mask:
        """Mask of the queues whose offsets rise, so that no record is left out."""
        runs, found = self.by_queue, np.ones(len(self.manifest.queues), np.bool_)
        found[runs["queue"][~runs["rises"]]] = False
        steps = np.diff(runs["first"]) - (runs["last"] - runs["first"])[:-1]
        possible = (runs["first_offset"][1:] - runs["last_offset"][:-1]) // MIN_RECORD_BYTES + BURNT_OFFSETS_MAX
        wrong = (steps <= 0) | (steps > possible)
        wrong &= runs["queue"][1:] == runs["queue"][:-1]
        found[runs["queue"][1:][wrong]] = False
        return found

    @cached_property
    def tiles(self) -> Ints:
        """One past the queue offsets of each of the manifest's runs: where the next run of its queue begins."""
        # Queue offsets between two runs belong to the first one: a scan looks there for damage in the log.
        return self._before_next("first", self.manifest.runs["last"] + 1)

    @cached_property
    def highs(self) -> Ints:
        """Physical offset before which the records of each of the manifest's runs begin, and no other of its queue."""
        runs = self.manifest.runs
        ends = runs["last_offset"] + 1
        return np.where(self.tiles > runs["last"] + 1, self._before_next("first_offset", ends), ends)

    def _before_next(self, name: str, otherwise: Ints) -> Ints:
        runs, found = self.by_queue, otherwise.copy()
        follows = np.flatnonzero(runs["queue"][1:] == runs["queue"][:-1])
        found[self.order[follows]] = runs[name][follows + 1]
        return found

    @cached_property
    def _segments(self) -> list[int]:
        return [piece.segment for piece in self.manifest.pieces]

    @cached_property
    def _counts(self) -> Ints:
        return np.diff(self.edges)

    @cached_property
    def _firsts(self) -> Ints:
        return np.append(self.by_queue["first"], 0)[self.edges[:-1]]

    @cached_property
    def _stops(self) -> Ints:
        return np.append(self.by_queue["last"], 0)[self.edges[1:] - 1] + 1

    def runs_of(self, key: QueueKey) -> Runs:
        """The runs of one queue, by piece."""
        number = self.numbers.get(key)
        return self.by_queue[:0] if number is None else self.by_queue[self.edges[number] : self.edges[number + 1]]

    def span(self, key: QueueKey) -> tuple[int, int] | None:
        """The first queue offset, and one past the last, by the manifest; None for no queue."""
        number = self.numbers.get(key)
        if number is None or self._counts[number] == 0:
            return None
        if self.rises[number]:
            return int(self._firsts[number]), int(self._stops[number])
        offsets = self[key].queue_offset
        return (int(offsets[0]), int(offsets[-1]) + 1) if offsets.size else None

    def bounds(self, keys: Sequence[QueueKey]) -> list[QueueBounds]:
        """As `QueueEntries.bounds`."""
        return [QueueBounds(key, *(self.span(key) or (0, 0))) for key in keys]

    def __iter__(self) -> Iterator[QueueKey]:
        with_runs = np.flatnonzero(self._counts)
        return (self.keys_by_number[number] for number in with_runs.tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self._counts))

    # What packs tell

    def __getitem__(self, key: QueueKey) -> DerivedQueue:
        """All entries of a queue, which may be many: `entries` reads a part."""
        runs = self.runs_of(key)
        if not runs.size:
            raise KeyError(key)
        if key not in self._whole:
            parts = [self._derived(run, self._rows(run, 0, int(run["rows"]))) for run in runs]
            self._whole = {key: rising_of(self._archived.root, key, joined(parts))}
        return self._whole[key]

    def entries(self, key: QueueKey, start: int, stop: int) -> DerivedQueue:
        """As `QueueEntries.entries`."""
        number = self.numbers.get(key)
        if number is None:
            return NO_ENTRIES
        if not self.rises[number]:
            return part_of_queue(self[key], start, stop)
        parts = [
            self._derived(run, self._rows(run, *_rows_between(run, start, stop))) for run in self._at(key, start, stop)
        ]
        return part_of_queue(joined(parts), start, stop)

    def planned(self, wanted: QueueRange) -> list[PlannedRange]:
        """As `QueueEntries.planned`."""
        rows = self.entries(wanted.key, wanted.start, wanted.stop).size.size
        span = self.manifest.pieces[0].segment, self.manifest.stop
        return [PlannedRange(wanted.key, wanted.start, wanted.stop, rows, span)] if rows else []

    def narrowed(self, piece: PlannedRange) -> PlannedRange:
        """As `QueueEntries.narrowed`: damaged queue offsets, the only ones that are `planned`, are read in any case."""
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
        if queue_offsets.size == 0 or key not in self.numbers:
            return times, places
        known = None if self.rises[self.numbers[key]] else self[key]
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
                    place = self._segments[run["piece"]] + rows["position"][found]
                    found = found[np.isin(place, known.physical_offset)]
                if found.size:
                    times[number] = rows["store_time"][found[0]]
                    places[number] = self._segments[run["piece"]] + int(rows["position"][found[0]])
        return times, places

    def times_rise(self) -> bool:
        """As `QueueEntries.times_rise`."""
        firsts, lasts = self._times
        return not ((np.diff(firsts) < 0).any() or (firsts > lasts).any())

    def around(self, bounds: QueueBounds, time_ms: int) -> tuple[int, int]:
        """As `QueueEntries.around`, by the times of pieces."""
        # Times of pieces bound those of their records, unless the clock of the broker was set back.
        key = bounds.key
        number = self.numbers.get(key)
        firsts, lasts = self._times
        if number is None or not self.rises[number] or not self.times_rise():
            return super().around(bounds, time_ms)
        runs = self.runs_of(key)
        low = int(np.searchsorted(lasts[runs["piece"]], time_ms, side="left"))  # all before are earlier
        high = int(np.searchsorted(firsts[runs["piece"]], time_ms, side="right"))  # from here on all are later
        start = int(runs["last"][low - 1]) if low else int(runs["first"][0])
        stop = int(runs["first"][high]) if high < runs.size else int(runs["last"][-1]) + 1
        return start, stop

    @cached_property
    def _times(self) -> tuple[Ints, Ints]:
        with_records = [piece for piece in self.manifest.pieces if piece.records]
        firsts, lasts = np.zeros((2, len(self.manifest.pieces)), np.int64)
        for number, piece in enumerate(self.manifest.pieces):
            before = max(number - 1, 0)
            firsts[number] = piece.first_time if piece.records else lasts[before]
            lasts[number] = piece.last_time if piece.records else lasts[before]
        if len(with_records) < len(self.manifest.pieces) and with_records:
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
        return part_of(joined([self._derived(run, self._rows(run, 0, int(run["rows"]))) for run in runs]), start, stop)

    # Reads of packs

    def expect(self, wanted: Iterable[tuple[QueueKey, int, int]]) -> None:
        """Note which queue offsets will be asked for, so that neighbours are read together."""
        spans: dict[int, list[tuple[int, int]]] = {}
        for key, start, stop in wanted:
            number = self.numbers.get(key)
            if number is not None and self.rises[number]:
                for run in self._at(key, start, stop):
                    low, high = _rows_between(run, start, stop)
                    if low < high:
                        row = int(run["row"])
                        spans.setdefault(int(run["piece"]), []).append((row + low, row + high))
        self._expected = {piece: _blocks(parts) for piece, parts in spans.items()}
        self._archived.fs.fetch_soon(self._first_expected())

    def _first_expected(self) -> Iterator[tuple[str, int, int]]:
        """Spans of packs that will be read: as many as may wait without being dropped for those of the log."""
        left = _SOON_BYTES
        for piece, blocks in self._expected.items():
            path = self._path(piece)
            for first, last in zip(*(each.tolist() for each in blocks), strict=True):
                left -= (last - first) * _ROW
                if left < 0:
                    return
                yield path, first * _ROW, last * _ROW

    def _at(self, key: QueueKey, start: int, stop: int) -> Runs:
        """Runs with queue offsets in ``[start, stop)``, of a queue whose offsets rise."""
        runs = self.runs_of(key)
        return runs[np.searchsorted(runs["last"], start) : np.searchsorted(runs["first"], stop)]

    def _derived(self, run: np.void, rows: Rows) -> DerivedQueue:
        physical = rows["position"].astype(np.int64) + self._segments[run["piece"]]
        return DerivedQueue(
            rows["queue_offset"].astype(np.int64),
            physical,
            rows["size"].astype(np.int64),
            rows["tags_code"].astype(np.int64),
        )

    def _around(self, run: np.void, queue_offset: int) -> Rows:
        """Return rows of a run, among them the row of a queue offset if there is one."""
        low, high = _rows_between(run, queue_offset, queue_offset + 1)
        if high - low > 1 or run["rows"] <= _PROBE_ROWS:
            return self._rows(run, 0, int(run["rows"]))
        low -= low % _PROBE_ROWS
        return self._rows(run, low, min(low + _PROBE_ROWS, int(run["rows"])))

    def _rows(self, run: np.void, low: int, high: int) -> Rows:
        """Rows ``[low, high)`` of a run."""
        piece, start, stop = int(run["piece"]), int(run["row"]) + low, int(run["row"]) + high
        if start >= stop:
            return np.empty(0, ENTRY)
        first, last = start, stop
        starts, stops = self._expected.get(piece, (np.empty(0, np.int64),) * 2)
        at = int(np.searchsorted(starts, start, side="right")) - 1
        if at >= 0 and stop <= stops[at]:
            first, last = int(starts[at]), int(stops[at])
        held = self._held.get((piece, first))
        if held is None or held.size < last - first:
            held = self._read(piece, first, last)
            self._held[piece, first] = held
            self._held_bytes += held.nbytes
            while self._held_bytes > _HELD_BYTES_MAX and len(self._held) > 1:
                self._held_bytes -= self._held.popitem(last=False)[1].nbytes
        else:
            self._held.move_to_end((piece, first))
        return held[start - first : stop - first]

    def _path(self, number: int) -> str:
        return os.path.join(self._archived.root, self.manifest.pieces[number].pack_key)

    def _read(self, number: int, first: int, last: int) -> Rows:
        piece, path = self.manifest.pieces[number], self._path(number)
        try:
            data = self._archived.fs.read(path, first * _ROW, (last - first) * _ROW)
        except (FileNotFoundError, MissingObjectError):
            raise DataLossError(
                f"the queue entries of bytes {piece.start} to {piece.stop} of the log are not in the archive any more",
                path=path,
                fix="The archive was pruned while it was read: start at a later offset, or open it again",
                remedies=(Remedy.SKIP_LOST,),
            ) from None
        rows = np.frombuffer(data, ENTRY, len(data) // _ROW)
        if rows.size < last - first:
            raise CorruptError(
                f"the pack has {piece.pack_size} bytes by the manifest, and ends before row {last}",
                path=path,
                offset=first * _ROW + len(data),
                fix="Run `segmentlog archive verify`, and push the store again",
            )
        return rows


def _rows_between(run: np.void, start: int, stop: int) -> tuple[int, int]:
    """Rows of a run that have the queue offsets ``[start, stop)``, and perhaps others."""
    rows, first = int(run["rows"]), int(run["first"])
    if rows != int(run["last"]) - first + 1:  # offsets are missing: only the rows tell which
        return 0, rows
    return min(max(start - first, 0), rows), min(max(stop - first, 0), rows)


def _blocks(spans: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    """First and last rows of the reads that cover some rows, as `gathered` cuts requests."""
    near = _joined(spans, _NEAR_ROWS)
    return near if near[0].size <= IN_FLIGHT else _joined(spans, _GAP_ROWS)


def _joined(spans: list[tuple[int, int]], gap: int) -> tuple[Ints, Ints]:
    """Join spans of rows up to a gap, and up to a block."""
    rows = np.array(sorted(spans), np.int64)
    starts, stops = rows[:, 0], np.maximum.accumulate(rows[:, 1])
    firsts, lasts = [int(starts[0])], [int(stops[0])]
    for start, stop in zip(starts[1:].tolist(), stops[1:].tolist(), strict=True):
        if start - lasts[-1] <= gap and stop - firsts[-1] <= _BLOCK_ROWS:
            lasts[-1] = max(lasts[-1], stop)
        else:
            firsts.append(start)
            lasts.append(stop)
    return np.array(firsts, np.int64), np.array(lasts, np.int64)
