"""Kept queues: entries of all queues of a log, derived once and kept in files outside the store.

::

    CommitLog   [ segment 0     ][ segment 1     ][ segment 2  …0000]
                       │                │                │
    directory   0000….arrow      0001….arrow      0002….arrow            one file per segment, replaced as a whole
                covers all       covers all       covers ───►│ the rest is walked; extended when it is worth a write

    file        Arrow IPC, one batch      queue_offset  position  size  tags_code      24 bytes per record
                  by queue, each in the   │ A/0 rows │ B/0 rows │ B/1 rows │
                  order of the log
                metadata  segment   its size, inode and time; header of its first and of the last covered record
                          runs      topic, queue id, rows, first and last offset and position, whether offsets rise

A file is used if nothing wrote to its segment since, or if the same run of the broker did, which only appends. After a
crash, a truncation or a replacement of the segment, and if the file is damaged, the segment is walked again. All files
can be deleted at any time.
"""

import json
import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..dispatch.derive import (
    NO_ENTRIES,
    NO_GAPS,
    DerivedQueue,
    Gaps,
    all_entries_of,
    by_queue,
    derive_queues,
    joined,
    rising,
    rising_of,
)
from ..files.cache_directory import CacheDirectory
from ..files.fs import FileSystem
from ..files.segments import SegmentFile
from ..format.message import BURNT_OFFSETS_MAX, MIN_RECORD_BYTES
from ..format.naming import segment_name
from ..log.commit_log import CommitLog, FoundRecords
from ..types import QueueKey
from .proven import part_of, prove_entries
from .queue_entries import AllQueues

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

_log = logging.getLogger(__name__)

_VERSION: Final = 2
_HEADER_BYTES: Final = 64  # up to the store timestamp: no two records of a log have the same
_SUFFIX: Final = ".arrow"
WORTH_BYTES: Final = 64 << 20
"""Bytes of log whose walk costs more than to write the file of a segment, or to open a database."""
_SCHEMA: Final = pa.schema(
    [("queue_offset", pa.int64()), ("position", pa.int32()), ("size", pa.int32()), ("tags_code", pa.int64())]
)
_THREADS: Final = min(os.cpu_count() or 1, 4)  # a walk holds some 300 bytes per record of its segment
Stamp: TypeAlias = tuple[int, int] | None


class FileRun(NamedTuple):
    """Consecutive rows of a file: the records of one queue in one segment."""

    start: int
    rows: int
    first: int  # queue offsets
    last: int
    first_position: int
    last_position: int
    rises: int  # 1 if `rising` keeps all of them as they are


class Columns(NamedTuple):
    """Rows of a file."""

    queue_offset: npt.NDArray[np.int64]
    position: npt.NDArray[np.int32]
    size: npt.NDArray[np.int32]
    tags_code: npt.NDArray[np.int64]


class KeptSegment(NamedTuple):
    """Content of one file: the entries of a segment's records up to a physical offset."""

    facts: Mapping[str, Any]  # of the metadata: they identify the bytes of the segment
    base: int
    covered: int  # physical offset
    newest: int  # store time in ms
    runs: Mapping[QueueKey, FileRun]
    columns: Columns

    def entries(self, key: QueueKey) -> DerivedQueue:
        """Entries of one queue in the order of the log."""
        run = self.runs.get(key)
        if run is None:
            return NO_ENTRIES
        rows = DerivedQueue(*(column[run.start :][: run.rows].astype(np.int64, copy=False) for column in self.columns))
        return rows._replace(physical_offset=rows.physical_offset + self.base)


class _Walked(NamedTuple):
    """Entries of a segment as kept, and those of a walk over the rest."""

    stamp: list[int] | None
    covered: int
    last: int  # position of the last record
    gaps: Gaps
    runs: dict[QueueKey, FileRun]
    columns: Columns


_Walk: TypeAlias = "Future[_Walked | None]"


def _walked(
    step: Callable[[], FoundRecords], kept: KeptSegment | None, stop: int, stamp: list[int] | None
) -> _Walked | None:
    """Walk from the end of what is kept of a segment to ``stop``; None if there is no record. Runs in any thread."""
    found = step()
    if not len(found.records):
        return None
    segment = found.segment
    last = int(found.records.positions[-1])
    end = stop if stop == segment.stop else segment.base + last + int(found.records.field("total_size")[-1])
    before = () if kept is None else ((key, kept.entries(key)) for key in kept.runs)
    runs, columns = in_runs(segment.base, by_queue([*before, *all_entries_of(found)]))
    return _Walked(stamp, end, last, Gaps.of(found, None if kept is None else kept.covered), runs, columns)


class _Before:
    """What the readers of one log have derived so far."""

    def __init__(self) -> None:
        self.loaded: dict[str, KeptSegment] = {}  # by path
        self.dropped_for: set[str] | None = None  # names of the segments when files were last dropped


class KeptQueues:
    """Derived entries of one log: in memory, and in files if there is a directory for them. Not thread-safe.

    Parameters
    ----------
    log
        The log.
    fs
        Its file system.
    directory
        Directory of the files of all logs; None for no files.
    run
        Looks for the stamp of the abort file, which each run of a store's owner recreates; None if no owner runs.
    by_log_only
        Whether entries of a database, see `keep`, do not count.
    before
        What was derived before; each part is compared with its segment before it is used.
    """

    def __init__(
        self,
        log: CommitLog,
        fs: FileSystem,
        directory: str | None,
        run: Callable[[], Stamp],
        *,
        by_log_only: bool = False,
        before: "_Before | None" = None,
    ) -> None:
        self._log = log
        self._fs = fs
        self._look_for_run = run
        self._by_log_only = by_log_only
        self._before = _Before() if before is None else before
        self._loaded = self._before.loaded
        self._checked: set[str] = set()
        self._directory = directory

    def newer(self, log: CommitLog) -> "KeptQueues":
        """The entries of the same log, listed again; whether what is kept still holds for the segments is checked."""
        run, by_log_only = self._look_for_run, self._by_log_only
        return KeptQueues(log, self._fs, self._directory, run, by_log_only=by_log_only, before=self._before)

    @cached_property
    def _files(self) -> CacheDirectory | None:
        if self._directory is None:
            return None
        from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, and most stores have their queues

        name = sha256("\0".join(self._log.directories).encode()).hexdigest()[:16]
        return CacheDirectory(os.path.join(self._directory, name))

    @cached_property
    def _run(self) -> list[int] | None:
        return _listed(self._look_for_run())

    def queues(self, stop: int, start: int = 0, newest: int = 0) -> "LogQueues":
        """Entries of all queues from the records that begin in ``[start, stop)``; keeps what had to be derived.

        ``newest`` is a store time in ms that the records before ``start`` reached.
        """
        kept: list[KeptSegment] = []
        segments = list(self._log.overlapping(start, stop)) if start < stop else []
        at = segments[0].base if segments else stop
        with closing(self._walks(segments, stop)) as walks:
            for segment, known, walk in walks:
                if at < segment.base:
                    break
                found = known if walk is None else self._extended(segment, known, walk.result(), newest)
                if found is None:
                    break
                kept.append(found)
                at, newest = min(found.covered, stop), max(newest, found.newest)
        self._drop_deleted()
        tail = derive_queues(self._log, at, stop, newest) if at < stop else {}
        return LogQueues(self._log, kept, tail, (start, stop))

    def stamps(self) -> dict[str, Stamp]:
        """Return the stamps of the segments, to be taken before the entries for `keep`; empty without files."""
        return {} if self._files is None else {each.path: self._fs.stamp(each.path) for each in self._log.segments}

    def keep(self, queues: Mapping[QueueKey, DerivedQueue], stamps: Mapping[str, Stamp], stop: int) -> None:
        """Keep entries of a database from the records before ``stop``, as far as the log confirms that they are all."""
        newest = 0
        for segment in self._log.overlapping(self._log.min_offset, stop):
            known = self._load(segment)
            if known is None:
                end = min(stop, segment.stop)
                found = prove_entries(self._log, segment, end, queues) if segment.path in stamps else None
                if found is None:
                    return
                newest = max(newest, found.newest)
                runs, columns = in_runs(segment.base, found.queues)
                last, stamp = found.last - segment.base, _listed(stamps[segment.path])
                made = _Walked(stamp, found.covered, last, NO_GAPS, runs, columns)
                known = self._kept(segment, made, newest, by_log=False)
            newest = max(newest, known.newest)

    def reach(self, start: int, stop: int) -> int:
        """Physical offset up to ``stop`` before which all records from ``start`` on are kept; ``start`` for none."""
        at = start
        for segment in self._log.overlapping(start, stop):
            kept = self._load(segment) if segment.base <= at else None
            if kept is None:
                break
            at = max(at, min(kept.covered, stop))
            if kept.covered < segment.stop:
                break
        return at

    def part(self, key: QueueKey, start: int, stop: int) -> DerivedQueue:
        """Entries of one queue from the records that begin in ``[start, stop)``, all of which are kept."""
        loaded = map(self._load, self._log.overlapping(start, stop))
        return part_of(joined([kept.entries(key) for kept in loaded if kept is not None]), start, stop)

    # Segments

    def _load(self, segment: SegmentFile) -> KeptSegment | None:
        """Return what is kept of a segment, if it still holds."""
        if segment.path not in self._checked:
            self._checked.add(segment.path)
            known = self._loaded.pop(segment.path, None) or self._read(segment)
            if known is not None and not self._holds(segment, known.facts):
                known = self._read(segment)  # another process may know better
            if known is not None and self._holds(segment, known.facts):
                self._loaded[segment.path] = known
        return self._loaded.get(segment.path)

    def _holds(self, segment: SegmentFile, facts: Mapping[str, Any]) -> bool:
        if (facts["base"], facts["size"]) != (segment.base, segment.size):
            return False
        if self._by_log_only and not facts["by_log"]:
            return False
        stamp = _listed(self._fs.stamp(segment.path))
        # A later write is an append if the owner has run since: a broker truncates the log only when it starts.
        if stamp is None or (facts["stamp"] != stamp and (self._run is None or facts["run"] != self._run)):
            return False
        return all(self._header(segment, at) == header for at, header in facts["headers"])

    def _header(self, segment: SegmentFile, position: int) -> str | None:
        try:
            return self._fs.read(segment.path, position, _HEADER_BYTES).hex()
        except FileNotFoundError:
            return None

    def _walks(
        self, segments: Sequence[SegmentFile], stop: int
    ) -> "Generator[tuple[SegmentFile, KeptSegment | None, _Walk | None], None, None]":
        """Yield each segment with what is kept of it, and the walk over the rest if it is worth it.

        The walks of the next segments run in threads meanwhile.
        """
        ahead: deque[tuple[SegmentFile, KeptSegment | None, _Walk | None]] = deque()
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - most stores have their queues

        pool = ThreadPoolExecutor(_THREADS, "segmentlog-walk")
        try:
            for segment in segments:
                kept = self._load(segment)
                ahead.append((segment, kept, self._walk(pool, segment, kept, min(stop, segment.stop))))
                if len(ahead) > _THREADS:
                    yield ahead.popleft()
            while ahead:
                yield ahead.popleft()
        finally:
            pool.shutdown(cancel_futures=True)

    def _walk(self, pool: "Executor", segment: SegmentFile, kept: KeptSegment | None, stop: int) -> "_Walk | None":
        """Begin the walk to ``stop`` if what is kept then ends there, or the walk is worth it."""
        covered = segment.base if kept is None else kept.covered
        if covered >= stop or (kept is not None and stop < segment.stop and stop - covered < WORTH_BYTES):
            return None
        stamp = _listed(self._fs.stamp(segment.path))  # before the walk: what is written meanwhile changes it
        step = next(self._log.walks(covered, stop), None)
        return None if step is None else pool.submit(_walked, step, kept, stop, stamp)

    def _extended(
        self, segment: SegmentFile, kept: KeptSegment | None, walked: "_Walked | None", newest: int
    ) -> KeptSegment | None:
        """Return what is kept of a segment with what a walk found; ``newest`` is of the segments before, in ms."""
        if walked is None:
            return kept
        before = newest if kept is None else max(newest, kept.newest)
        if walked.gaps.stale(before).size:  # records after a truncation: the walk over all decides where the log ends
            return kept
        by_log = kept is None or kept.facts["by_log"]
        return self._kept(segment, walked, max(before, walked.gaps.newest), by_log=by_log)

    def _kept(self, segment: SegmentFile, walked: "_Walked", newest: int, *, by_log: bool) -> KeptSegment:
        """Keep entries; ``newest`` is the store time in ms that the records reach."""
        facts = {
            "version": _VERSION,
            "base": segment.base,
            "size": segment.size,
            "stamp": walked.stamp,
            "run": self._run,
            "by_log": by_log,
            "covered": walked.covered,
            "newest": newest,
            "headers": [[at, self._header(segment, at)] for at in (0, walked.last)],
        }
        made = KeptSegment(facts, segment.base, walked.covered, newest, walked.runs, walked.columns)
        self._loaded[segment.path] = self._write(made) or made
        return made

    # Files

    def _read(self, segment: SegmentFile) -> KeptSegment | None:
        """Return what the file of a segment says, if there is a whole one."""
        if self._files is None:
            return None
        name = _name(segment.base)
        try:
            content = self._files.read(name)
            return None if content is None else _parsed(content)
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            text = "%s cannot be used (%s): its segment of the CommitLog is walked again"
            _log.warning(text, self._files.path_of(name), error)
            return None

    def _write(self, made: KeptSegment) -> KeptSegment | None:
        """Write the file of a segment, and return it mapped, so that its columns need no memory of this process."""
        if self._files is None:
            return None
        table = json.dumps([[*key, *run] for key, run in made.runs.items()])
        schema = _SCHEMA.with_metadata({"segment": json.dumps(made.facts), "runs": table})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.record_batch([*map(pa.array, made.columns)], schema=schema))
        try:
            self._files.replace(_name(made.base), sink.getvalue())
            content = self._files.read(_name(made.base))
            return None if content is None else _parsed(content)
        except (OSError, ValueError) as error:
            _log.warning("queues that were derived from the CommitLog are not kept in files: %s", error)
            self._directory = self._files = None
            return None

    def _drop_deleted(self) -> None:
        """Delete the files of segments that the log no longer has."""
        there = {_name(segment.base) for segment in self._log.segments}
        before, self._before.dropped_for = self._before.dropped_for, there
        if self._files is None or (before is not None and before <= there):
            return
        for name in set(self._files.names()) - there:
            if name.endswith(_SUFFIX):
                self._files.remove(name)


class LogQueues(AllQueues):
    """Entries of all queues by the log, each put together when it is first asked for."""

    def __init__(
        self,
        log: CommitLog,
        kept: Sequence[KeptSegment],
        tail: Mapping[QueueKey, DerivedQueue],
        walked: tuple[int, int],
    ) -> None:
        super().__init__(log)
        self._kept = kept
        self._tail = tail
        self._walked = walked
        self._known: dict[QueueKey, DerivedQueue] = {}
        self._spans: dict[QueueKey, tuple[int, int]] = {}
        self.is_clean = True
        """False if queue offsets do not follow each other: which records are damaged depends on all records."""
        ends: dict[QueueKey, list[_RunEnds]] = {}
        for segment in kept:
            for key, run in segment.runs.items():
                ends.setdefault(key, []).append(_ends_of_run(segment, run, walked))
        for key, entries in tail.items():
            ends.setdefault(key, []).append(_ends_of(entries))
        for key, parts in ends.items():
            if all(each.is_clean for each in parts) and all(_follows(*pair) for pair in pairwise(parts)):
                self._spans[key] = parts[0].first, parts[-1].last + 1
            else:
                self.is_clean = False
                found = self._entries(key)
                if found.size.size:
                    self._known[key] = found
                    self._spans[key] = int(found.queue_offset[0]), int(found.queue_offset[-1]) + 1

    def span(self, key: QueueKey) -> tuple[int, int] | None:
        """As `AllQueues.span`; known from the first and the last record of each segment."""
        return self._spans.get(key)

    def __getitem__(self, key: QueueKey) -> DerivedQueue:
        if key not in self._spans:
            raise KeyError(key)
        if key not in self._known:
            self._known[key] = self._entries(key)
        return self._known[key]

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    def _entries(self, key: QueueKey) -> DerivedQueue:
        parts = [segment.entries(key) for segment in self._kept if key in segment.runs]
        parts = [part_of(part, *self._walked) for part in parts]  # a segment may begin before, and be kept beyond
        every = joined([*parts, *([self._tail[key]] if key in self._tail else [])])
        return rising_of(self._log.directories[0], key, every)


class _RunEnds(NamedTuple):
    """Ends of a run of records of one queue."""

    first: int
    last: int
    first_physical: int
    last_physical: int
    is_clean: bool


def _ends_of(entries: DerivedQueue) -> _RunEnds:
    offsets, physical = entries.queue_offset, entries.physical_offset
    return _RunEnds(int(offsets[0]), int(offsets[-1]), int(physical[0]), int(physical[-1]), is_clean=True)


def _ends_of_run(segment: KeptSegment, run: FileRun, span: tuple[int, int]) -> _RunEnds:
    first, last = segment.base + run.first_position, segment.base + run.last_position
    return _RunEnds(run.first, run.last, first, last, bool(run.rises) and span[0] <= first and last < span[1])


def _follows(before: _RunEnds, after: _RunEnds) -> bool:
    """Return whether `rising` keeps both."""
    possible = (after.first_physical - before.last_physical) // MIN_RECORD_BYTES + BURNT_OFFSETS_MAX
    return 0 < after.first - before.last <= possible


def in_runs(base: int, queues: Mapping[QueueKey, DerivedQueue]) -> tuple[dict[QueueKey, FileRun], Columns]:
    """Put the entries of the queues of a segment one after the other."""
    runs: dict[QueueKey, FileRun] = {}
    start = 0
    for key, entries in queues.items():
        count = entries.size.size
        ends = _ends_of(entries)
        positions = ends.first_physical - base, ends.last_physical - base
        rises = np.array_equal(rising(entries).queue_offset, entries.queue_offset)
        runs[key] = FileRun(start, count, ends.first, ends.last, *positions, int(rises))
        start += count
    offsets, physical, sizes, codes = joined([*queues.values()])
    return runs, Columns(offsets, (physical - base).astype(np.int32), sizes.astype(np.int32), codes)


def _name(base: int) -> str:
    return segment_name(base) + _SUFFIX


def _parsed(content: pa.Buffer) -> KeptSegment:
    """Read a file; `ValueError` if it is of another version."""
    batch = pa.ipc.open_file(content).get_batch(0)
    facts = json.loads(batch.schema.metadata[b"segment"])
    if facts["version"] != _VERSION:
        raise ValueError(f"it has version {facts['version']}, and not {_VERSION}")
    table = json.loads(batch.schema.metadata[b"runs"])
    runs = {QueueKey(topic, queue_id): FileRun(*run) for topic, queue_id, *run in table}
    columns = Columns(*(column.to_numpy() for column in batch.columns))
    return KeptSegment(facts, facts["base"], facts["covered"], facts["newest"], runs, columns)


def _listed(stamp: Stamp) -> list[int] | None:
    """Return a stamp as JSON has it."""
    return None if stamp is None else [*stamp]
