"""Parts of a CommitLog that are examined at the same time, and merged in the order of the log.

::

    segment    [r0][r1][r2][r3][r4][r5][r6]…[B]
    parts      [ part 0      | part 1       ]        each begins with the first record that begins in it
                 start … end   start … end           regular: whole records side by side, and queue offsets without gaps
                             └─ equal ─┘             merged: a part begins where the one before it ends

Nearly all segments are regular, and a few numbers per queue are all that the merged result needs of them. The caller
examines any other segment as a whole: damage, gaps, stale records, lost messages.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple, Protocol, TypeVar

import numpy as np

from ..dispatch.derive import DerivedQueue, all_entries_of, joined, records_of
from ..dispatch.entry_placement import Placement, QueueRun
from ..files.fs import FileSystem
from ..files.segments import SegmentFile
from ..format.checksums import check_crcs
from ..format.consume_queue import ENTRY, from_columns
from ..format.message import Bytes, Ints, Problem, Records, is_filler
from ..format.naming import LMQ_PREFIX, SCHEDULE_TOPIC, segment_name
from ..format.properties import Properties
from ..format.store_paths import StorePaths
from ..format.walk import walk
from ..index.writer import indexed_keys
from ..log.commit_log import FRONT_BYTES, CommitLog, FoundRecords
from ..queues.consume_queue import ConsumeQueue
from ..types import QueueKey
from .index_check import IndexPart

_NEAR_BYTES: Final = 256 << 20
_PART_BYTES: Final = 64 << 20
_WINDOW_BYTES: Final = 8 << 20
_WINDOW_BYTES_MAX: Final = 32 << 20
_WINDOW_RECORDS: Final = 1 << 15  # if a window has few records, numpy's calls cost more than its loops
_FIRST_BYTES: Final = 1 << 19

Part = TypeVar("Part")
Result = TypeVar("Result")


class Spread(Protocol):
    """Runs a function of a module on parts, elsewhere and at the same time if it can; results in their order."""

    def __call__(self, work: Callable[[Part], Result], parts: Sequence[Part], /) -> Iterable[Result]: ...


def one_by_one(work: Callable[[Part], Result], parts: Sequence[Part], /) -> Iterable[Result]:
    """Do the work here, a part at a time."""
    return map(work, parts)


@dataclass(frozen=True, slots=True)
class LogPart:
    """Records that begin in a range of one segment, and what is compared with them."""

    fs: FileSystem
    before: SegmentFile | None
    segment: SegmentFile
    start: int  # positions in the segment, half-open
    stop: int
    records_max: int  # of the log
    checked: bool = False  # by their CRCs
    queues: str | None = None  # the store whose ConsumeQueues are compared
    index: IndexPart | None = None

    @property
    def span(self) -> tuple[int, int]:
        """Physical offsets, half-open."""
        return self.segment.base + self.start, self.segment.base + self.stop

    def front(self) -> Bytes:
        """Return the end of the segment before."""
        if self.before is None:
            return np.empty(0, np.uint8)
        try:
            return self.fs.map(self.before.path)[-FRONT_BYTES:]
        except FileNotFoundError:
            return np.empty(0, np.uint8)


class Regular(NamedTuple):
    """A regular part; or a segment whose records follow each other from its start to a blank, or to the log's end."""

    start: int  # physical offset of the first record
    end: int  # after the last record
    after: int  # where the next record can begin
    is_ended: bool  # by a blank record
    newest: int  # store time in ms
    records: int
    runs: tuple[QueueRun, ...]
    entries: tuple[bytes, ...]  # of each run, as in a file, if nothing is compared
    is_held: bool  # whether the queues and the index are as the records state


def near(spread: Spread, parts: Sequence[LogPart]) -> Spread:
    """Return where to do the work: a short log costs less than to start other processes."""
    return spread if sum(part.stop - part.start for part in parts) > _NEAR_BYTES else one_by_one


def parts_of(log: CommitLog, fs: FileSystem, stop: int, part_bytes: int = _PART_BYTES) -> list[LogPart]:
    """Cut the segments of a log before ``stop`` into parts."""
    parts: list[LogPart] = []
    for before, segment in pairwise([None, *log.segments]):
        assert segment is not None
        end = min(segment.size, stop - segment.base)
        # Parts of equal length: a short last one may have no record that begins in it.
        cuts = np.linspace(0, end, max(1, end // part_bytes) + 1, dtype=np.int64).tolist() if end > 0 else []
        parts += [LogPart(fs, before, segment, *cut, log.records_max) for cut in pairwise(cuts)]
    return parts


def walk_part(part: LogPart) -> Regular | None:
    """Examine the records of a part; None if it is not regular."""
    try:
        view = part.fs.map(part.segment.path)
    except FileNotFoundError:  # retention
        return None
    walked = _Walked()
    at = part.start
    while at < part.stop:
        is_first = not walked.records
        # The first record of a part has to be searched, all others follow one.
        stop = min(at + (_FIRST_BYTES if is_first else walked.window_bytes()), part.stop)
        found = walk(view, part.segment.base, at, stop, part.segment.lead)
        if not found.positions.size:
            if is_first and not found.blank and stop < part.stop:
                at = stop  # within a long record
                continue
            if is_first or found.damage or not found.blank:
                return None
            walked.is_ended = True
            break
        # The rest of a record before the first one is no damage; that of a header shows nowhere else.
        is_damaged = any(not is_first or begin > at for begin, _ in found.damage)
        if is_damaged or not walked.add(part, found.records, found.sizes, is_aligned=not is_first):
            return None
        at = walked.end
        if found.blank:
            walked.is_ended = True
            break
        if at + part.segment.lead < stop:
            return None  # damage, or zeros
    return walked.merged(part)


@dataclass(slots=True)
class _Walked:
    start: int = 0
    end: int = 0  # position in the segment
    is_ended: bool = False
    newest: int = 0
    records: int = 0
    queues: dict[QueueKey, list[DerivedQueue]] = field(default_factory=dict)
    keys: list[tuple[Ints, Ints]] = field(default_factory=list)
    places: list[Ints] = field(default_factory=list)

    def window_bytes(self) -> int:
        """Bytes to examine at once, by the mean size of the records so far."""
        size = (self.end - self.start) // self.records
        return min(max(_WINDOW_BYTES, size * _WINDOW_RECORDS), _WINDOW_BYTES_MAX)

    def add(self, part: LogPart, records: Records, sizes: Ints, *, is_aligned: bool) -> bool:
        """Add the records of a window; False if they are not regular."""
        positions = records.positions
        starts = positions - part.segment.lead
        if (is_aligned and starts[0] != self.end) or (starts[1:] != positions[:-1] + sizes[:-1]).any():
            return False
        properties = Properties(records)
        if part.checked:
            check_crcs(records, properties, part.front)
            if (records.problem != Problem.OK).any():
                return False
        if is_filler(records).any():
            return False
        if not self.records:
            self.start = int(starts[0])
        self.end = int(positions[-1] + sizes[-1])
        self.newest = max(self.newest, int(records.field("store_timestamp").max()))
        self.records += len(records)
        unnamed: list[str] = []
        found = FoundRecords(part.segment, records)
        every = list(all_entries_of(found, lambda topic, _: unnamed.append(topic), properties))
        for key, entries in every:
            self.queues.setdefault(key, []).append(entries)
        if part.index is not None:
            hashes, rows = indexed_keys(records, properties)
            self.keys.append((hashes, positions[rows]))
            self.places.append(positions)
        # A queue twice: a record states the topic of a light queue as its own.
        return not unnamed and len(dict(every)) == len(every)

    def _is_indexed(self, part: LogPart, index: IndexPart) -> bool:
        return index.holds(part.fs, part.segment.base, (part.start, part.stop), np.concatenate(self.places), self.keys)

    def merged(self, part: LogPart) -> Regular | None:
        base = part.segment.base
        if not self.records:
            return None
        is_held = part.index is None or self._is_indexed(part, part.index)
        runs: list[QueueRun] = []
        encoded: list[bytes] = []
        for key, pieces in self.queues.items():
            derived = joined(pieces)
            offsets = derived.queue_offset
            is_held &= offsets[0] >= 0 and not (np.diff(offsets) != 1).any()
            if not is_held:
                break
            run = QueueRun(key, int(offsets[0]), int(offsets[-1]) + 1, *derived.physical_offset[[0, -1]].tolist())
            runs.append(run)
            if part.queues is None:
                encoded.append(from_columns(ENTRY, *derived[1:]).tobytes())
            else:
                is_held &= _is_held(part, part.queues, run, derived)
        start, end = base + self.start, base + self.end
        after, found = part.segment.stop if self.is_ended else end, (tuple(runs), tuple(encoded), is_held)
        return Regular(start, end, after, self.is_ended, self.newest, self.records, *found)


def _is_held(part: LogPart, path: str, run: QueueRun, derived: DerivedQueue) -> bool:
    """Tell whether the ConsumeQueue has exactly these entries."""
    directory = StorePaths(path).consume_queue(run.key)
    held = ConsumeQueue(part.fs, directory, run.key, missing_max=part.records_max).entries(run.start, run.stop)
    same = np.array_equal(held["physical_offset"], derived.physical_offset)
    same = same and np.array_equal(held["size"], derived.size)
    return same and (run.key.topic == SCHEDULE_TOPIC or np.array_equal(held["tags_code"], derived.tags_code))


def _is_light(key: QueueKey) -> bool:
    return key.topic.startswith(LMQ_PREFIX)


def by_segment(
    parts: Sequence[LogPart], walked: Iterable[Regular | None]
) -> Iterator[tuple[SegmentFile, Regular | None]]:
    """Join the parts of each segment; None for a segment that is not regular."""
    found: list[Regular | None] = []
    for number, (part, result) in enumerate(zip(parts, walked, strict=True)):
        found.append(result)
        if number + 1 == len(parts) or parts[number + 1].segment != part.segment:
            is_last = number + 1 == len(parts)
            yield part.segment, _segment(part.segment, found, is_last=is_last)
            found = []


def _segment(segment: SegmentFile, found: Sequence[Regular | None], *, is_last: bool) -> Regular | None:
    parts = [each for each in found if each is not None]
    if len(parts) < len(found):
        return None
    ends = [segment.base, *(each.end for each in parts)]
    if any(each.start != end for each, end in zip(parts, ends, strict=False)):
        return None
    if not (parts[-1].is_ended or is_last) or any(each.is_ended for each in parts[:-1]):
        return None
    is_held = all(each.is_held for each in parts)
    runs: dict[QueueKey, QueueRun] = {}
    entries: dict[QueueKey, list[bytes]] = {}
    topics: dict[str, int] = {}
    for each in parts:
        for number, run in enumerate(each.runs):
            before = runs.get(run.key)
            is_held &= before is None or before.stop == run.start
            runs[run.key] = run if before is None else before._replace(stop=run.stop, last=run.last)
            topics.setdefault(run.key.topic, len(topics))
            if each.entries:
                entries.setdefault(run.key, []).append(each.entries[number])
    # As `derive_segments` orders them: topics as they come, their queues by number, light queues as they come.
    light = [key for key in runs if _is_light(key)]
    plain = sorted((key for key in runs if not _is_light(key)), key=lambda key: (topics[key.topic], key.queue_id))
    keys = [*plain, *light]
    return parts[-1]._replace(
        start=parts[0].start,
        newest=max(each.newest for each in parts),
        records=sum(each.records for each in parts),
        runs=tuple(runs[key] for key in keys),
        entries=tuple(b"".join(entries.get(key, ())) for key in keys),
        is_held=is_held,
    )


def followed(
    log: CommitLog,
    walked: Iterable[tuple[SegmentFile, Regular | None]],
    placement: Placement,
    stop: int,
    *,
    are_entered: bool = False,
) -> Iterator[tuple[int, SegmentFile, Regular | FoundRecords]]:
    """Follow the queues through the log: yield the number of each segment, from 1 on, the segment, and its records.

    Those of a regular segment whose queues and index are as it states are in the placement then; the caller has to
    place the records of any other. ``are_entered`` is as of `Placement.extend`.
    """
    newest, is_stale = 0, False
    for number, (segment, regular) in enumerate(walked, 1):
        found: Regular | FoundRecords | None = regular
        if (
            regular is not None
            and regular.is_held
            and placement.extend(regular.runs, regular.start, regular.end, regular.after, are_entered=are_entered)
        ):
            newest = max(newest, regular.newest)
        else:
            found, newest, is_stale = records_of(log, segment, stop, newest)
        if found is not None:
            yield number, segment, found
        if is_stale:
            return


def log_segment(log: logging.Logger, base: int, number: int, count: int, text: str) -> None:
    """Log how far a pass over the log is."""
    log.info(
        "CommitLog segment %s (%d of %d): %s",
        segment_name(base),
        number,
        count,
        text,
        extra={"done": number, "of": count},
    )
