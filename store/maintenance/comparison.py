"""CommitLogs of two stores compared: a replica with its master, a copy with its original, an archive with its store.

::

    physical offset   a.start                                     a.stop
    A                 [ window | window | window | window | window ]
    B                      [ window | window | window | window |]
                           ▲ common start      │                 ▲ later end
                                               └ bytes differ ──► records of both, found by a walk ──► runs by queue

Logs that share physical offsets hold the same bytes. So windows are compared as bytes, and records are only looked for
in windows that differ. A record is found by the window that holds its first different byte.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..dispatch.rules import queues_of
from ..files.segments import SegmentFile
from ..format.message import Bytes, Ints, Mask, Problem, Records
from ..log.commit_log import CommitLog
from ..read.snapshot import Snapshot
from ..types import QueueKey

WINDOW_BYTES: Final = 32 << 20
_BACK_BYTES: Final = 1 << 16
_PROBE_BYTES: Final = 1 << 17
_PROBES: Final = 64
_WORD: Final = 8


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two stores: arguments of `Snapshot.open`."""

    path: str
    commit_log_paths: tuple[str, ...] = ()

    def open(self) -> Snapshot:
        """Open the store, as it is now."""
        return Snapshot.open(self.path, commit_log_paths=self.commit_log_paths)


class Difference(NamedTuple):
    """A run of messages of one queue that differ in the same way.

    Attributes
    ----------
    kind
        ``missing in A``, ``missing in B``, ``differs``; ``damaged in A`` or ``damaged in B`` if the CRC of one record
        denies it.
    topic, queue_id, start, stop
        The messages, by queue offset, half-open.
    messages
        How many.
    offset_a, file_a, offset_b, file_b
        Physical offset of the first message, and its file, in A and in B; None where it is missing.
    """

    kind: str
    topic: str | None
    queue_id: int | None
    start: int
    stop: int
    messages: int
    offset_a: int | None
    file_a: str | None
    offset_b: int | None
    file_b: str | None

    @property
    def place(self) -> int:
        """Physical offset in A, else in B."""
        return next((each for each in (self.offset_a, self.offset_b) if each is not None), 0)


class LogSpan(NamedTuple):
    """Physical offsets of a log, half-open."""

    start: int
    stop: int


class LogWindow(NamedTuple):
    """Physical offsets of two logs that are compared at once: of at most one segment of each."""

    a: Side
    b: Side
    start: int
    stop: int


def log_span(snapshot: Snapshot) -> LogSpan:
    """Return where the records of a store begin and end."""
    return LogSpan(snapshot.log.min_offset, max(snapshot.readable_stop(), snapshot.log.min_offset))


def log_windows(a: Side, b: Side, *, both: bool = False, window_bytes: int = WINDOW_BYTES) -> list[LogWindow]:
    """Cut two logs into windows, from the later start to the later end; with ``both`` to the earlier end."""
    snapshots = a.open(), b.open()
    spans = [log_span(each) for each in snapshots]
    start = max(each.start for each in spans)
    stop = (min if both else max)(each.stop for each in spans)
    files = [segment for each in snapshots for segment in each.log.segments]
    cuts = {edge for each in files for edge in (each.base, each.stop)} | {*range(start, stop, window_bytes), stop}
    edges = sorted(each for each in cuts if start <= each <= stop)
    return [LogWindow(a, b, *edge) for edge in pairwise(edges)]


def logs_align(a: Side, b: Side) -> bool:
    """Tell whether two logs share physical offsets: a record is at the same place in both, with the same bytes."""
    windows = log_windows(a, b, both=True)
    one, two = a.open().log, b.open().log
    for number in np.unique(np.linspace(0, len(windows) - 1, _PROBES, dtype=np.int64)) if windows else ():
        window = windows[int(number)]
        stop = min(window.start + _PROBE_BYTES, window.stop)
        first, second = (_LogRecords(each, window.start, stop) for each in (one, two))
        for position in np.intersect1d(first.starts, second.starts).tolist():
            if first.record(position) == second.record(position):
                return True
    return False


def compare_windows(window: LogWindow) -> tuple[Difference, ...]:
    """Return the messages of which a byte in the window differs, in the order of the log."""
    logs = window.a.open().log, window.b.open().log
    views = [_bytes(log, window.start, window.stop) for log in logs]
    if _are_equal(*views):
        return ()
    start = _front(logs, window.start)
    one, two = (_LogRecords(each, start, window.stop) for each in logs)
    common, rows_a, rows_b = np.intersect1d(one.starts, two.starts, assume_unique=True, return_indices=True)
    first = _FirstDifference(logs, start, window)
    found: list[Difference] = []
    for name, part, held in (("B", one, rows_a), ("A", two, rows_b)):
        rows = np.setdiff1d(np.arange(part.starts.size), held)
        rows = rows[first.is_here(part.starts[rows], part.stops[rows], whole=True)]
        places, nowhere = part.places(rows), [None] * rows.size
        sides = (places, nowhere) if name == "B" else (nowhere, places)
        found += _runs(part, rows, np.full(rows.size, f"missing in {name}"), *sides)
    differ = first.is_here(common, one.stops[rows_a], whole=False)
    rows_a, rows_b = rows_a[differ], rows_b[differ]
    wrong_a, wrong_b = one.denied(rows_a), two.denied(rows_b)
    kinds = np.select([wrong_a & ~wrong_b, wrong_b & ~wrong_a], ["damaged in A", "damaged in B"], "differs")
    found += _runs(one, rows_a, kinds, one.places(rows_a), two.places(rows_b))
    return tuple(sorted(found, key=lambda each: (each.place, each.kind)))


def merged(found: Iterable[Difference]) -> list[Difference]:
    """Join runs that continue each other across windows."""
    runs: list[Difference] = []
    last: dict[tuple[str, str | None, int | None], int] = {}
    for each in found:
        key = each.kind, each.topic, each.queue_id
        at = last.get(key)
        if at is not None and runs[at].stop == each.start:
            runs[at] = runs[at]._replace(stop=each.stop, messages=runs[at].messages + each.messages)
            continue
        last[key] = len(runs)
        runs.append(each)
    return runs


def _bytes(log: CommitLog, start: int, stop: int) -> Bytes:
    """Return the bytes of a span as far as one segment has them."""
    segment = log.find(start)
    return np.empty(0, np.uint8) if segment is None else log.view(segment)[start - segment.base : stop - segment.base]


def _are_equal(one: Bytes, two: Bytes) -> bool:
    if one.size != two.size:
        return False
    words = one.size // _WORD * _WORD
    return np.array_equal(one[:words].view(np.uint64), two[:words].view(np.uint64)) and np.array_equal(
        one[words:], two[words:]
    )


def _front(logs: Sequence[CommitLog], start: int) -> int:
    """Return a place before the record that reaches across ``start`` in a log, if one does."""
    fronts = [start]
    for log in logs:
        segment = log.find(start - 1)
        if segment is None or segment.base == start:
            continue
        back = _BACK_BYTES
        while True:
            lo = max(segment.base, start - back)
            part = _LogRecords(log, lo, start)
            if part.starts.size or lo == segment.base:
                fronts.append(int(part.starts[-1]) if part.starts.size else lo)
                break
            back *= 4
    return min(fronts)


class _LogRecords:
    """Whole records of one log that begin in a span, by physical offset."""

    def __init__(self, log: CommitLog, start: int, stop: int) -> None:
        self._log = log
        self._walked = walked = list(log.walk(start, stop))
        nothing = np.empty(0, np.int64)
        self.starts = np.concatenate([nothing, *(each.segment.base + each.records.positions for each in walked)])
        self.stops = self.starts + np.concatenate([nothing, *(each.records.field("total_size") for each in walked)])

    def _by_segment(self, rows: Ints) -> Iterator[tuple[SegmentFile, Records, slice]]:
        at = 0
        for segment, records in self._walked:
            lo, hi = np.searchsorted(rows, [at, at + len(records)])
            if lo < hi:
                yield segment, records.take(rows[lo:hi] - at), slice(lo, hi)
            at += len(records)

    def record(self, start: int) -> bytes:
        row = int(np.searchsorted(self.starts, start))
        for _, records, _ in self._by_segment(np.array([row])):
            at = int(records.positions[0])
            return records.buffer[at : at + int(self.stops[row] - self.starts[row])].tobytes()
        return b""

    def places(self, rows: Ints) -> list[tuple[int, str] | None]:
        """Return the physical offset and the file of records."""
        paths = np.empty(rows.size, object)
        for segment, _, some in self._by_segment(rows):
            paths[some] = segment.path
        return list(zip(self.starts[rows].tolist(), paths.tolist(), strict=True))

    def denied(self, rows: Ints) -> Mask:
        """Tell which records their CRCs deny."""
        wrong = np.zeros(rows.size, np.bool_)
        for segment, records, some in self._by_segment(rows):
            self._log.check_crcs(segment, records)
            wrong[some] = records.problem != Problem.OK
        return wrong

    def queues(self, rows: Ints) -> tuple[list[QueueKey], Ints, Ints]:
        """Return different queues, which of them each record states, and the queue offset that it states."""
        numbers: dict[QueueKey, int] = {}
        queue_of, offsets = np.zeros(rows.size, np.int64), np.zeros(rows.size, np.int64)
        for _, records, some in self._by_segment(rows):
            queues, of = queues_of(records, np.arange(len(records)))
            known = np.array([numbers.setdefault(key, len(numbers)) for key in queues.as_keys()], np.int64)
            queue_of[some], offsets[some] = known[of], records.field("queue_offset")
        return list(numbers), queue_of, offsets


class _FirstDifference:
    """Places where the bytes of two logs differ, from ``start`` to the end of a window."""

    def __init__(self, logs: Sequence[CommitLog], start: int, window: LogWindow) -> None:
        self._window = window
        one, two = (_filled(log, start, window.stop) for log in logs)
        self._places = np.flatnonzero(one != two) + start

    def is_here(self, starts: Ints, stops: Ints, *, whole: bool) -> Mask:
        """Tell of which records the first different byte is in the window.

        With ``whole``, a record without a different byte counts, too, if all of it is in the window. The other log may
        lack the file, and the record ends in zeros.
        """
        at = np.searchsorted(self._places, starts)
        first = np.append(self._places, np.iinfo(np.int64).max)[at]
        start, stop = self._window.start, self._window.stop
        here: Mask = (first >= start) & (first < np.minimum(stops, stop))
        return here | ((first >= stops) & (starts >= start) & (stops <= stop)) if whole else here


def _filled(log: CommitLog, start: int, stop: int) -> Bytes:
    """Copy a span of a log; zeros where there is no segment."""
    data = np.zeros(stop - start, np.uint8)
    for segment in log.overlapping(start, stop):
        lo, hi = max(start, segment.base), min(stop, segment.stop)
        data[lo - start : hi - start] = log.view(segment)[lo - segment.base : hi - segment.base]
    return data


_Places = Sequence[tuple[int, str] | None]


def _runs(part: _LogRecords, rows: Ints, kinds: npt.NDArray[np.str_], a: _Places, b: _Places) -> Iterator[Difference]:
    """Group records by kind and queue into runs of adjacent queue offsets."""
    keys, queue_of, offsets = part.queues(rows)
    kind_of = np.unique(kinds, return_inverse=True)[1] if rows.size else np.empty(0, np.int64)
    group = queue_of * 8 + kind_of
    order = np.argsort(group, kind="stable")
    begins = np.ones(rows.size, np.bool_)
    begins[1:] = (np.diff(group[order]) != 0) | (np.diff(offsets[order]) != 1)
    edges = [*np.flatnonzero(begins).tolist(), rows.size]
    for at, stop in pairwise(edges):
        row, last = int(order[at]), int(order[stop - 1])
        key = keys[int(queue_of[row])]
        offset_a, file_a = a[row] or (None, None)
        offset_b, file_b = b[row] or (None, None)
        yield Difference(
            str(kinds[row]),
            key.topic,
            key.queue_id,
            int(offsets[row]),
            int(offsets[last]) + 1,
            stop - at,
            offset_a,
            file_a,
            offset_b,
            file_b,
        )
