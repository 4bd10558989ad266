"""Result of a look-up: which records, asked by which key, and how completely the log was searched.

::

    Found   hits       (physical offset, asked)  (physical offset, asked)  …     in log order, oldest or newest first
              │ batches()
              ▼
            RecordBatch   native columns …, asked

    coverage  log      [ ······· ════════ ═══════════ ·· ════════ ······ )        ═ by the index   · by a scan
                          expired  file 1    file 2     no  file 4   not indexed yet
                          file     1..1      1..2     entry

Only the physical offsets of the records are held. Rows are decoded when they are read, so that a million hits with
large bodies need no more memory than a batch.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..dispatch.rules import tags_codes
from ..errors import DataLossError, MissingObjectError, Remedy
from ..format.buffers import booleans, numbers, only_chunk, slices, text
from ..format.message import Ints, Mask, Problem, Records
from ..format.message_decode import Origin, select
from ..format.naming import SCHEDULE_TOPIC
from ..log.commit_log import CommitLog, Run
from ..read.scan import RecordBatches
from ..read.spec import OnCorrupt, OnLoss, Predicate, ScanSpec

ASKED = "asked"
"""The column with the key, id or offset that found a row."""


class Source(Enum):
    """Method by which a span of the log was searched."""

    INDEX = "index"
    """Through an index file whose chains are whole."""
    SCAN = "scan"
    """By reading each of its records."""


@dataclass(frozen=True, slots=True)
class CoveredRange:
    """A span of the log, half-open, and how it was searched."""

    start: int
    stop: int
    source: Source
    reason: str  # the index file, or why none answers for the span

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Coverage:
    """All of the log that could be read, in order and without gaps."""

    ranges: tuple[CoveredRange, ...]

    @property
    def indexed_bytes(self) -> int:
        """Bytes of log that an index answered for."""
        return sum(len(each) for each in self.ranges if each.source is Source.INDEX)

    @property
    def scanned_bytes(self) -> int:
        """Bytes of log that were scanned."""
        return sum(len(each) for each in self.ranges if each.source is Source.SCAN)

    def scanned(self) -> Iterator[CoveredRange]:
        """The spans that were scanned."""
        return (each for each in self.ranges if each.source is Source.SCAN)


class IndexSpan(NamedTuple):
    """A span of the log that one index file answers for."""

    start: int
    stop: int
    path: str


def cover(start: int, stop: int, spans: Iterable[IndexSpan], reasons: Sequence[str]) -> Coverage:
    """Cut a log into ranges that index files answer for, by ``spans`` that may overlap, and ranges to scan."""
    # `reasons` tell why existing index files answer for nothing.
    ranges: list[CoveredRange] = []
    at = start
    last = ""
    for span in sorted(spans):
        lo, hi = max(span.start, at), min(span.stop, stop)
        if lo >= hi:
            continue
        if lo > at:
            why = "before the first index file" if not last else "between indexed records"
            ranges.append(CoveredRange(at, lo, Source.SCAN, _because(why, reasons)))
        ranges.append(CoveredRange(lo, hi, Source.INDEX, span.path))
        at, last = hi, span.path
    if at < stop:
        why = "after the last indexed record" if last else "no index file answers for this log"
        ranges.append(CoveredRange(at, stop, Source.SCAN, _because(why, reasons)))
    return Coverage(tuple(ranges))


def _because(why: str, reasons: Sequence[str]) -> str:
    return f"{why}; {'; '.join(reasons)}" if reasons else why


def without(span: IndexSpan, holes: Iterable[tuple[int, int]]) -> Iterator[IndexSpan]:
    """Cut ascending holes out of a span."""
    at = span.start
    for start, stop in holes:
        if at < start:
            yield span._replace(start=at, stop=start)
        at = max(at, stop)
    if at < span.stop:
        yield span._replace(start=at)


class Hits(NamedTuple):
    """Records that were found, and the asked row that found each."""

    physical_offset: Ints  # (n,)
    asked: Ints  # (n,) index among the keys, ids or offsets asked for


_log = logging.getLogger(__name__)


class Order(Enum):
    """The order of the rows of a result: that of the log."""

    OLDEST_FIRST = "oldest-first"
    NEWEST_FIRST = "newest-first"


class Found:
    """Records that a look-up found. Not thread-safe; refers to the store that was asked.

    ``asked`` are the keys, ids or offsets, k rows, which the result states as its last column. ``coverage`` is None for
    look-ups that need no search, since they name the place.
    """

    def __init__(  # noqa: PLR0917 - one place makes them
        self, log: CommitLog, broker_name: str, asked: pa.Table, hits: Hits, coverage: Coverage | None, order: Order
    ) -> None:
        backwards = order is Order.NEWEST_FIRST
        self._log = log
        self._broker_name = broker_name
        self._hits = hits
        self._order = order
        self.asked = asked
        self.coverage = coverage
        self._column = only_chunk(asked.column(asked.num_columns - 1))
        self.physical_offset = hits.physical_offset[::-1] if backwards else hits.physical_offset
        """(n,) int64, where each record is."""
        self.asked_index = hits.asked[::-1] if backwards else hits.asked
        """(n,) int64, which of ``asked`` found it."""

    def __len__(self) -> int:
        return self.physical_offset.size

    def apart(self) -> "Found":
        """Return the same result with a view of the log of its own, so that another thread may use the finder."""
        return Found(self._log.again(), self._broker_name, self.asked, self._hits, self.coverage, self._order)

    def missing(self) -> pa.Table:
        """Rows of ``asked`` that found nothing."""
        without = np.ones(self.asked.num_rows, np.bool_)
        without[self.asked_index] = False
        rows = self.asked.take(numbers(np.flatnonzero(without)))
        return rows.cast(pa.schema([(field.name, _plain(field.type)) for field in rows.schema]))

    def schema(self, spec: ScanSpec) -> pa.Schema:
        """The columns of ``spec``, then ``asked``."""
        return select(spec.columns, spec.property_columns).append(pa.field(ASKED, self._column.type))

    def batches(self, spec: ScanSpec) -> Iterator[pa.RecordBatch]:
        """Decode the rows: batches of `schema`.

        Of ``spec`` the predicate is not applied. Raises `CorruptRecordError` at the first damaged record, and
        `DataLossError` if retention deleted records since they were found, if ``spec`` has that fail.
        """
        schema = self.schema(spec)
        for rows, batch in fetch(self._log, self.physical_offset, spec, self._broker_name):
            asked = self._column.take(numbers(self.asked_index[rows]))
            yield pa.RecordBatch.from_arrays([*batch.columns, asked], schema=schema)

    def to_table(self, spec: ScanSpec) -> pa.Table:
        """All rows at once; see `batches`."""
        return pa.Table.from_batches(self.batches(spec), self.schema(spec))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind


def fetch(log: CommitLog, offsets: Ints, spec: ScanSpec, broker_name: str) -> Iterator[tuple[Ints, pa.RecordBatch]]:
    """Decode the records at (n,) physical offsets, in the wanted order; an offset may occur several times.

    ::

        offsets, in the order wanted ──► runs in one segment ──► Records ──► CRC, inflate ──► Decoder ──► batches
                                                                               │
                                                           damaged: as ScanSpec.on_corrupt has it

    Yields which of the offsets the rows are of, (k,) int64, and the rows, in memory of their own. The predicate of
    ``spec`` is not applied. Raises `CorruptRecordError`, and `DataLossError` for a record of a deleted segment,
    unless ``spec`` skips them.
    """
    for start in range(0, offsets.size, spec.batch_rows):
        rows = np.arange(start, min(start + spec.batch_rows, offsets.size))
        yield from _Fetch(log, spec, broker_name).batches(rows, offsets[rows])


def _report_loss(log: CommitLog, spec: ScanSpec, count: int, first: int) -> None:
    error = DataLossError(
        f"{count} records, the first at physical offset {first}, are no longer in the CommitLog",
        path=log.directories[0],
        offset=first,
        fix="Retention removed them since they were found: look again",
        remedies=(Remedy.SKIP_LOST,),
    )
    if spec.on_loss is OnLoss.FAIL:
        raise error
    _log.warning("%s", error)


class _Rows(NamedTuple):
    """Rows wanted, with the topic that each record stated before its CRC was compared."""

    row: Ints
    offset: Ints
    topic: pa.StringArray

    def take(self, some: Mask | slice) -> "_Rows":
        if isinstance(some, slice):
            topics = self.topic.slice(some.start, some.stop - some.start)
        else:
            topics = self.topic.filter(booleans(some))
        return _Rows(self.row[some], self.offset[some], topics)


class _Fetch(RecordBatches[_Rows]):
    """Rows of one segment on their way."""

    def __init__(self, log: CommitLog, spec: ScanSpec, broker_name: str) -> None:
        super().__init__(log, spec, Predicate())
        self._broker_name = broker_name

    def batches(self, row: Ints, offsets: Ints) -> Iterator[tuple[Ints, pa.RecordBatch]]:
        runs = self._log.runs(offsets)
        self._log.fetch(runs)
        for run in runs:
            yield from self._of_run(run, row[run.first : run.last], offsets[run.first : run.last])

    def _of_run(self, run: Run, row: Ints, offsets: Ints) -> Iterator[tuple[Ints, pa.RecordBatch]]:
        try:
            located = None if run.segment is None else self._log.records(run, offsets)
        except (DataLossError, MissingObjectError):
            located = None
        if located is None:
            _report_loss(self._log, self._spec, row.size, int(offsets[0]))
            return
        part, records = located
        records.flag_problem(records.field("physical_offset") != offsets, Problem.PHYSICAL_OFFSET)
        rows = _Rows(row, offsets, text(slices(records.buffer, records.topic_start, records.topic_length)))
        for some, batch in self.of_segment(part, records, rows):
            yield some.row, batch

    def _after_damage(self, records: Records, rows: _Rows) -> Mask | None:
        bad = records.problem != Problem.OK
        if not bad.any():
            return None
        first = int(np.flatnonzero(bad)[0])
        problem, offset = Problem(int(records.problem[first])), int(rows.offset[first])
        error = self._log.corrupt(problem, offset, "a record that a look-up found")
        if self._spec.on_corrupt is OnCorrupt.FAIL:
            raise error
        _log.warning("%d damaged records; the first: %s", int(bad.sum()), error)
        return ~bad if self._spec.on_corrupt is OnCorrupt.SKIP else None

    def _origin(self, records: Records, rows: _Rows) -> Origin:
        """Queue columns as the records state them."""
        codes = np.zeros(len(records), np.int64)
        if "tagsCode" in self._spec.columns:
            codes = tags_codes(records, "")
            scheduled = records.has_topic(SCHEDULE_TOPIC.encode(), slice(None))
            if scheduled.any():
                codes[scheduled] = tags_codes(records.take(scheduled), SCHEDULE_TOPIC)
        return Origin(
            topics=rows.topic,
            queue_id=records.field("queue_id"),
            queue_offset=records.field("queue_offset"),
            physical_offset=rows.offset,
            size=records.field("total_size"),
            tags_code=codes,
            broker_name=self._broker_name,
        )
