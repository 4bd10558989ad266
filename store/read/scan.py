"""Scans: planned ranges in, Arrow record batches out.

::

    ConsumeQueue ──► Chunks (entry_batches): entries that can match, some thousand at a time
                       nothing of the record  │
                       wanted: batch at once ◄┤
                                              ▼
    CommitLog map ──► Records ──► does each state this offset, size, queue and queue offset?
                                              │   no: ask the log itself (heal), else it is damaged
                                              ▼
                     CRC, store time, exact tags, then bodies ──► Decoder ──► RecordBatches

After a range, the scan has seen exactly the messages that the plan promised, or it reports what is missing.
RocketMQ: ``DefaultMessageStore.getMessage``.
"""

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Generic, Protocol, Self, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from ..entries.choose import StoreView
from ..entries.healed import Block, heal
from ..entries.tasks import ScanTask
from ..entries.walk_cache import WalkCache
from ..errors import CorruptError, DataLossError, MissingObjectError
from ..files.notices import warn_once
from ..files.segments import SegmentFile
from ..format.buffers import booleans, numbers, repeated
from ..format.consume_queue import is_plausible
from ..format.message import Ints, Mask, Problem, Records, gather
from ..format.message_decode import (
    ENTRY_COLUMNS,
    Decoder,
    Inflated,
    Origin,
    inflate_in_pieces,
    select,
)
from ..format.naming import LMQ_PREFIX
from ..log.commit_log import MAPS_MAX, RUN_BYTES_MAX, CommitLog, Run
from .entry_batches import Chunk, Chunks, batches_of, report_loss
from .matching import Matcher, record_batch
from .spec import BATCH_ROWS, OnCorrupt, Predicate, ScanSpec

_log = logging.getLogger(__name__)

_INFLATED_BATCHES = 4
_SEARCHED_BYTES = 1 << 20
_AHEAD_BYTES = 48 << 20
_SIZE = np.dtype(">i4")
_Piece: TypeAlias = tuple[Chunk, list[Run]]


def scan(store: StoreView, task: ScanTask, spec: ScanSpec) -> Iterator[pa.RecordBatch]:
    """Read the messages of a task.

    Batches have the schema ``select(spec.columns, spec.property_columns)``, are never empty, and own their memory.
    Messages of one queue come in the order of their queue offsets. With ``FAIL``, the first damage raises
    `CorruptRecordError` or `CorruptQueueError`, the first loss `DataLossError`.
    """
    yield from _Scan(store, task, spec).batches()


class RowsOfRecords(Protocol):
    """Facts about n rows that are known before their records are read."""

    def take(self, rows: Mask | slice) -> Self:
        """Some of the rows."""


RowsT = TypeVar("RowsT", bound=RowsOfRecords)


class RecordBatches(ABC, Generic[RowsT]):
    """Batches of located records: checksums compared, bodies inflated, columns decoded.

    ::

        Records, rows ──► CRC ──► damage: `_after_damage` ──► predicate ──► inflate ──► Decoder ──► still there? batch
                                                                             │ damage   ▲           │ no: damage
                                                                    bodies of the predicate
    """

    def __init__(self, log: CommitLog, spec: ScanSpec, predicate: Predicate) -> None:
        self._log = log
        self._spec = spec
        self._schema = select(spec.columns, spec.property_columns)
        self._predicate = predicate
        self._matcher = Matcher(predicate)

    @abstractmethod
    def _origin(self, records: Records, rows: RowsT) -> Origin:
        """Queue columns of the rows."""

    @abstractmethod
    def _after_damage(self, records: Records, rows: RowsT) -> Mask | None:
        """Apply `on_corrupt` and `on_loss`; return a mask of the rows to keep, or None for all."""

    def of_segment(
        self, segment: SegmentFile | None, records: Records, rows: RowsT
    ) -> Iterator[tuple[RowsT, pa.RecordBatch]]:
        """Yield batches of the records of one segment, which own their memory, with their rows."""
        name = segment.path.rpartition("/")[2] if segment else ""
        if self._spec.check_crc:
            self._log.check_crcs(segment, records)
        keep = self._after_damage(records, rows)
        if keep is not None:
            records, rows = records.take(keep), rows.take(keep)
        keep = self._matcher.by_records(records)
        if keep is not None:
            records, rows = records.take(keep), rows.take(keep)
        if not len(records):
            return
        if not self._spec.reads_bodies or self._spec.raw_body:
            yield from self._matching(records, rows, name, None)
            return
        limit = _INFLATED_BATCHES * self._spec.batch_bytes
        for part, inflated in inflate_in_pieces(records, self._spec.max_body_bytes, limit):
            piece, piece_rows, bodies = records, rows, inflated
            if part != slice(0, len(records)):
                piece, piece_rows = records.take(part), rows.take(part)
            keep = self._after_damage(piece, piece_rows) if (piece.problem == Problem.INFLATE).any() else None
            if keep is not None:
                piece, piece_rows, bodies = piece.take(keep), piece_rows.take(keep), inflated.kept(keep)
            if len(piece):
                yield from self._matching(piece, piece_rows, name, bodies)

    def _matching(
        self, records: Records, rows: RowsT, segment: str, inflated: Inflated | None
    ) -> Iterator[tuple[RowsT, pa.RecordBatch]]:
        """Search the bodies, and decode the rows that match."""
        if self._predicate.bodies:
            keep = self._by_bodies(records, self._origin(records, rows), inflated)
            cut = self._cut(records, slice(0, len(records)))
            if cut is not None:  # a body that was zeroed while it was searched is damage, not a row that does not match
                records.flag_problem(cut, Problem.MAGIC)
                self._after_damage(records, rows)
                keep &= ~cut
            if not keep.any():
                return
            if not keep.all():
                records, rows = records.take(keep), rows.take(keep)
                inflated = inflated.kept(keep) if inflated else None
        yield from self._decoded(records, rows, segment, inflated)

    def _by_bodies(self, records: Records, origin: Origin, inflated: Inflated | None) -> Mask:
        """Return which bodies match, (n,) bool."""
        decoder = Decoder(records, origin, "", inflated)
        keep = np.empty(len(records), np.bool_)
        # Few bodies at a time: they are still in the processor's cache when they are searched.
        limits = replace(self._spec, batch_bytes=min(self._spec.batch_bytes, _SEARCHED_BYTES), batch_rows=BATCH_ROWS)
        for part in batches_of(origin.size, limits):
            keep[part] = self._matcher.by_bodies(decoder.column("body", part))
        return keep

    def _decoded(
        self, records: Records, rows: RowsT, segment: str, inflated: Inflated | None
    ) -> Iterator[tuple[RowsT, pa.RecordBatch]]:
        """Decode rows, all of them unless the log was cut meanwhile."""
        decoder = Decoder(records, self._origin(records, rows), segment, inflated)
        for part in batches_of(decoder.origin.size, self._spec):
            columns = [decoder.column(name, part) for name in self._spec.columns]
            columns += [decoder.property_column(name, part) for name in self._spec.property_columns]
            batch = record_batch(columns, self._schema, part.stop - part.start)
            if self._cut(records, part) is not None:
                yield from self._after_cut(records, rows, segment, inflated, part.start)
                return
            yield rows.take(part), batch

    def _after_cut(
        self, records: Records, rows: RowsT, segment: str, inflated: Inflated | None, start: int
    ) -> Iterator[tuple[RowsT, pa.RecordBatch]]:
        """Decode rows from ``start`` on, some of which were zeroed after they had been checked."""
        rest = slice(start, len(records))
        cut = self._cut(records, slice(0, len(records)))
        if cut is not None:
            records.flag_problem(cut, Problem.MAGIC)
        records, rows = records.take(rest), rows.take(rest)
        keep = self._after_damage(records, rows)
        stays = np.arange(rest.stop) >= start
        if keep is not None:
            records, rows = records.take(keep), rows.take(keep)
            stays[start:] = keep
        if len(records):
            yield from self._decoded(records, rows, segment, inflated.kept(stays) if inflated else None)

    @staticmethod
    def _cut(records: Records, rows: slice) -> Mask | None:
        """Mask of all records that were zeroed since they were checked; None for none, as nearly always.

        Recovery and replication overwrite the end of a log with zeros, from lower offsets on, in the very pages that
        are mapped here. If the size of a record is still there, what was copied before was whole.
        """
        looked: Ints | slice = rows
        if records.problem[rows].any():
            looked = rows.start + np.flatnonzero(records.problem[rows] == Problem.OK)
        gone = gather(records.buffer, records.positions[looked], _SIZE) != records.field("total_size")[looked]
        if not gone.any():
            return None
        cut = np.zeros(len(records), np.bool_)
        cut[looked] = gone
        return cut


class _Scan(RecordBatches[Chunk]):
    """One scan under way."""

    def __init__(self, store: StoreView, task: ScanTask, spec: ScanSpec) -> None:
        super().__init__(store.log, spec, spec.predicate)
        self._store = store
        self._task = task
        self._ranges = task.ranges
        spans = (planned.walk for planned in task.ranges if planned.walk is not None)
        self._walks = WalkCache(store.log, {planned.key for planned in task.ranges}, spans, store.sources.kept)
        self._queue_ids = np.array([planned.key.queue_id for planned in task.ranges], np.int64)
        self._topics = sorted({planned.key.topic for planned in task.ranges})
        codes = {topic: code for code, topic in enumerate(self._topics)}
        self._topic_codes = np.array([codes[planned.key.topic] for planned in task.ranges], np.int64)

    def batches(self) -> Iterator[pa.RecordBatch]:
        chunks = Chunks(self._store, self._task, self._spec, self._walks, self._matcher)
        if self._spec.entries_only:
            for chunk in chunks:
                yield from self._queue_batches(chunk)
            return
        for piece, runs in self._fetched_ahead(piece for chunk in chunks for piece in self._pieces(chunk)):
            yield from self._located_batches(piece, runs)
            self._log.note_read(int(piece.entries["size"].sum(dtype=np.int64)))

    def _queue_batches(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Batches of queue columns, from the entries alone; implausible entries are damage."""
        sensible = is_plausible(chunk.entries)
        if not sensible.all():
            bad = np.flatnonzero(~sensible)
            error = self._damage(chunk, int(bad[0]), Problem.ENTRY)
            if self._spec.on_corrupt is OnCorrupt.FAIL:
                raise error
            _log.warning("%d damaged ConsumeQueue entries; the first: %s", bad.size, error.described)
            if self._spec.on_corrupt is OnCorrupt.SKIP:
                chunk, sensible = chunk.take(sensible), sensible[sensible]
        if chunk.queue_offset.size == 0:
            return
        origin = self._entries_origin(chunk)
        columns = {name: origin.column(name) for name in self._spec.columns}
        if not sensible.all():
            import pyarrow.compute as pc  # noqa: PLC0415 - only damage needs it, and loading it takes long

            for name in ENTRY_COLUMNS & columns.keys():
                columns[name] = pc.if_else(booleans(sensible), columns[name], pa.scalar(None, columns[name].type))
        yield record_batch(list(columns.values()), self._schema, len(origin))

    # Chunks to batches

    def _pieces(self, chunk: Chunk) -> Iterator[_Piece]:
        """Cut a chunk between runs into pieces of as many segments as stay mapped, or of 15 MiB in windows."""
        # Small rows of many queues may come from hundreds of segments.
        runs = self._runs(chunk)
        if not self._log.in_windows:
            edges = list(range(0, len(runs), MAPS_MAX))
        else:
            ends = np.cumsum([run.stop - run.start for run in runs])
            groups = (ends - 1) // RUN_BYTES_MAX
            edges = np.flatnonzero(np.diff(groups, prepend=-2)).tolist()  # the first is -1 without bytes
        for begin, end in pairwise([*edges, len(runs)]):
            first = runs[begin].first
            within = [run._replace(first=run.first - first, last=run.last - first) for run in runs[begin:end]]
            yield chunk.part(first, runs[end - 1].last), within

    def _fetched_ahead(self, pieces: Iterator[_Piece]) -> Iterator[_Piece]:
        """Pass pieces on while some 48 MiB of the following pieces are fetched."""
        if not self._log.in_windows:
            yield from pieces
            return
        held: deque[tuple[_Piece, int]] = deque()
        ahead = 0  # bytes of all that are held but the first
        for piece, runs in pieces:
            self._log.fetch_soon(runs)
            count = sum(run.stop - run.start for run in runs)
            ahead += count if held else 0
            held.append(((piece, runs), count))
            while ahead >= _AHEAD_BYTES:
                yield held.popleft()[0]
                ahead -= held[0][1]
        while held:
            yield held.popleft()[0]

    def _located_batches(self, chunk: Chunk, runs: list[Run]) -> Iterator[pa.RecordBatch]:
        located, problems = self._locate(chunk, runs)
        if any(bad.any() for bad in problems):
            chunk, confirmed = self._heal(chunk, np.concatenate(problems))
            located, problems = self._locate(chunk, self._runs(chunk), confirmed)
        start = 0
        for (segment, records), bad in zip(located, problems, strict=True):
            for _, batch in self.of_segment(segment, records, chunk.part(start, start + bad.size)):
                yield batch
            start += bad.size

    def _locate(
        self, chunk: Chunk, runs: list[Run], confirmed: Mask | None = None
    ) -> tuple[list[tuple[SegmentFile | None, Records]], list[Mask]]:
        """Records of each run of rows, and which of them contradict their entry."""
        located: list[tuple[SegmentFile | None, Records]] = []
        problems: list[Mask] = []
        for run in runs:
            part = chunk.part(run.first, run.last)
            segment, records = self._records(run, part, None if confirmed is None else confirmed[run.first : run.last])
            located.append((segment, records))
            problems.append((records.problem != Problem.OK) & (records.problem != Problem.GONE))
        return located, problems

    def _runs(self, chunk: Chunk) -> list[Run]:
        return self._log.runs(chunk.entries["physical_offset"], chunk.entries["size"])

    def _records(self, run: Run, part: Chunk, confirmed: Mask | None) -> tuple[SegmentFile | None, Records]:
        """Records of a run, and the segment, or the part of it that is mapped."""
        physical = part.entries["physical_offset"]
        if run.segment is None:
            records = Records(np.empty(0, np.uint8), physical)
            records.problem[:] = np.where(physical < self._log.min_offset, Problem.GONE, Problem.BEYOND_END)
            return None, records
        try:
            segment, records = self._log.records(run, physical)
        except (DataLossError, MissingObjectError):
            records = Records(np.empty(0, np.uint8), physical)
            records.problem[:] = Problem.GONE
            return run.segment, records
        records.flag_problem(records.field("physical_offset") != physical, Problem.PHYSICAL_OFFSET)
        records.flag_problem(records.field("total_size") != part.entries["size"], Problem.SIZE)
        self._check_queue(records, part, confirmed)
        return segment, records

    def _check_queue(self, records: Records, part: Chunk, confirmed: Mask | None) -> None:
        """Flag records of another queue, or of another place in it."""
        wrong_queue = records.field("queue_id") != self._queue_ids[part.range_index]
        wrong_place = records.field("queue_offset") != part.queue_offset
        if confirmed is not None:
            wrong_place &= ~confirmed
        codes = self._topic_codes[part.range_index]
        present = np.unique(codes) if codes.min() != codes.max() else codes[:1]
        for code in present.tolist():
            topic = self._topics[code]
            rows: Ints | slice = slice(None) if present.size == 1 else np.flatnonzero(codes == code)
            if topic.startswith(LMQ_PREFIX):  # a second queue for records of another topic
                wrong_queue[rows] = wrong_place[rows] = False
            else:
                wrong_queue[rows] |= ~records.has_topic(topic.encode(), rows)
        records.flag_problem(wrong_queue, Problem.QUEUE)
        records.flag_problem(wrong_place, Problem.QUEUE_OFFSET)

    def _heal(self, chunk: Chunk, bad: Mask) -> tuple[Chunk, Mask]:
        """Ask the log about rows whose record contradicts their entry."""
        entries = chunk.entries.copy()
        confirmed = np.zeros(bad.size, np.bool_)
        for index in np.unique(chunk.range_index[bad]):
            planned = self._ranges[index]
            if planned.walk is not None:
                continue  # these entries came from the log
            rows = np.flatnonzero(chunk.range_index == index)
            healed = heal(
                self._store, self._walks, planned.key, Block(chunk.queue_offset[rows], entries[rows]), bad[rows]
            )
            entries[rows] = healed.entries
            confirmed[rows] = healed.confirmed
            damaged = chunk.queue_offset[rows][healed.sound & bad[rows] & ~healed.confirmed]
            if damaged.size:
                place = self._log.directories[0]
                text = "%s has the records of damaged entries of ConsumeQueue %s, the first at queue offset %d"
                warn_once(_log, place, text, place, planned.key, int(damaged[0]))
        return chunk._replace(entries=entries), confirmed

    def _after_damage(self, records: Records, part: Chunk) -> Mask | None:
        """Apply `on_corrupt` and `on_loss`; return a mask of the rows to keep, or None for all."""
        bad = records.problem != Problem.OK
        if not bad.any():
            return None
        gone = records.problem == Problem.GONE
        if gone.any():
            first = int(np.flatnonzero(gone)[0])
            report_loss(
                self._store,
                self._spec,
                f"{int(gone.sum())} messages, the first {self._place(part, first)}, are no longer in the CommitLog,"
                f" which now begins at physical offset {self._store.log.min_offset}",
            )
        damaged = bad & ~gone
        if damaged.any():
            first = int(np.flatnonzero(damaged)[0])
            error = self._damage(part, first, Problem(int(records.problem[first])))
            if self._spec.on_corrupt is OnCorrupt.FAIL:
                raise error
            _log.warning("%d damaged records; the first: %s", int(damaged.sum()), error.described)
        drop = bad if self._spec.on_corrupt is OnCorrupt.SKIP else gone
        return ~drop if drop.any() else None

    def _damage(self, part: Chunk, row: int, problem: Problem) -> CorruptError:
        """The error for one damaged row: it is the record's, or the entry's where that cannot name any record."""
        planned = self._ranges[part.range_index[row]]
        entry = part.entries[row : row + 1]
        physical = int(entry["physical_offset"][0])
        log = self._store.log
        if planned.walk is None and not (is_plausible(entry)[0] and log.min_offset <= physical < log.stop):
            queue = self._store.sources.queues.queue(planned.key)
            return queue.corrupt(int(part.queue_offset[row]), self._place(part, row))
        return log.corrupt(problem, physical, self._place(part, row))

    def _origin(self, records: Records, rows: Chunk) -> Origin:  # noqa: ARG002 - entries tell all of it
        return self._entries_origin(rows)

    def _entries_origin(self, chunk: Chunk) -> Origin:
        codes = self._topic_codes[chunk.range_index]
        topics: pa.Array | str = self._topics[codes[0]]
        if (codes != codes[0]).any():
            topics = repeated(self._topics, 1).take(numbers(codes))
        return Origin(
            topics=topics,
            queue_id=self._queue_ids[chunk.range_index],
            queue_offset=chunk.queue_offset,
            physical_offset=chunk.entries["physical_offset"],
            size=chunk.entries["size"],
            tags_code=chunk.entries["tags_code"],
            broker_name=self._store.broker_name,
        )

    def _place(self, part: Chunk, row: int) -> str:
        return f"queue {self._ranges[part.range_index[row]].key} offset {int(part.queue_offset[row])}"
