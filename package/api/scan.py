"""Scan: messages of some queues from a start to an end, read when a method asks for them.

::

    Store.scan(…) ──► Scan   ranges: orders/0[12, 40) orders/1[0, 31) …     settled once, so that results agree
                       │ to_batches()
                       ▼
                      plan ──► tasks ──► threads ──► batches, in the order of the tasks

The queue offsets are settled by ``Store.scan``. Messages that are appended later are not in the result, and messages
that retention deleted since are an error.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice
from queue import Full, Queue
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from segmentlog.query.cursor import held_ranges
from segmentlog.query.position import Position, Resolver, Rules, Words, asked_times, in_parts, within_times
from segmentlog.query.selection import Selection, select
from segmentlog.query.source import OpenedSource, StoreSource
from segmentlog.store import (
    NATIVE_SCHEMA,
    ConfigError,
    OnLoss,
    QueueRange,
    ScanSpec,
    ScanTask,
    SegmentLogError,
    Snapshot,
    TimeWindow,
)

from .arguments import checked_flag, in_api_words
from .rows import SHOWN_ROWS, Rows, checked_number, first_rows, html_table

if TYPE_CHECKING:
    from types import EllipsisType

    import polars as pl

    from segmentlog.query.body_columns import BodyFormat
    from segmentlog.query.body_search import JsonScalar

_log = logging.getLogger(__name__)

_TASK_BYTES: Final = 32 << 20
_BATCHES_A_TASK: Final = 4
_LOOK_S: Final = 0.1
"""Interval at which a thread that waits for room checks whether the scan was closed."""


class Scan(Rows):
    """Messages of some queues. Immutable and safe in any number of threads; made by ``Store.scan``.

    Every method reads the store, and reads it again at the next call. Messages of one queue come in the order of their
    queue offsets. Between queues there is no order.
    """

    def __init__(
        self,
        source: OpenedSource,
        ranges: Sequence[QueueRange],
        spec: ScanSpec,
        *,
        bodies: "BodyFormat | None" = None,
        window: TimeWindow | None = None,
    ) -> None:
        self._source = source
        self._spec = spec
        self._bodies = bodies
        self._window = window  # store times of all messages of the ranges
        fields = [NATIVE_SCHEMA.field(name) for name in spec.columns]
        schema = pa.schema([*fields, *(pa.field(name, pa.string()) for name in spec.property_columns)])
        self._schema = schema if bodies is None else bodies.widened(schema)
        self.ranges = tuple(ranges)
        """Queue offsets that are read, half-open, as settled when the scan was made."""

    def __repr__(self) -> str:
        return (
            f"<Scan of {sum(map(len, self.ranges))} queue offsets in {len(self.ranges)} queues of {self._source.path}>"
        )

    def _repr_html_(self) -> str:
        """Show what is read; the messages are not, since a filter may read all of them."""
        shown = self.ranges[:SHOWN_ROWS]
        columns = {
            "topic": [each.key.topic for each in shown],
            "queueId": [each.key.queue_id for each in shown],
            "start": [each.start for each in shown],
            "stop": [each.stop for each in shown],
        }
        return html_table(f"{self!r}: {', '.join(self.schema.names)}", pa.table(columns), len(self.ranges))

    @property
    def schema(self) -> pa.Schema:
        """The columns, then the properties, in the order in which they were asked for, then those of ``body_as``."""
        return self._schema

    def where_body(
        self,
        *,
        contains: str | bytes | None = None,
        regex: str | bytes | None = None,
        json_path: str | None = None,
        equals: "JsonScalar | EllipsisType" = ...,
        ignore_case: bool = False,
    ) -> "Scan":
        """Return a scan of those messages whose bodies fulfil all conditions, those of this scan included.

        Compressed bodies are searched inflated. Other columns are decoded only for messages that match.

        Parameters
        ----------
        contains
            A text that occurs in the body as UTF-8, or bytes that occur.
        regex
            A regular expression of RE2 that matches somewhere in the body. A text matches characters of UTF-8, and
            no bytes that are not UTF-8. A ``bytes`` argument matches single bytes.
        json_path, equals
            A path such as ``$.order.items[0].id``, and its value. A body that is not JSON does not match. Numbers
            are compared by value; of a key that occurs twice the last one counts.
        ignore_case
            Whether ``contains`` and ``regex`` ignore the case of letters.

        Raises
        ------
        ConfigError
            If there is no condition, or one makes no sense.
        """
        from segmentlog.query.body_search import body_filters  # noqa: PLC0415 - few scans search bodies

        added = body_filters(
            contains=contains,
            regex=regex,
            json_path=json_path,
            equals=equals,
            ignore_case=checked_flag("ignore_case", ignore_case),
        )
        if not added:
            raise ConfigError("where_body has no condition", fix="Pass contains, regex, or json_path and equals")
        predicate = replace(self._spec.predicate, bodies=(*self._spec.predicate.bodies, *added))
        spec = replace(self._spec, predicate=predicate)
        return Scan(self._source, self.ranges, spec, bodies=self._bodies, window=self._window)

    def to_batches(self, *, threads: int = 1) -> Generator[pa.RecordBatch, None, None]:
        """Read the messages as a stream of batches of at most 8 MiB of bodies, or one larger message.

        Parameters
        ----------
        threads
            Number of reading threads; with 1 the caller's own reads. More may help where the disk is slow. With n > 1
            threads up to (n + 1) · 32 MiB are read ahead, more where bodies are compressed.

        Yields
        ------
        RecordBatch
            Of `schema`, never empty. All memory is its own. To stop early, close the generator.

        Raises
        ------
        ConfigError
            If ``threads`` is not a number from 1 on.
        CorruptRecordError, CorruptQueueError
            At the first damage, if ``on_corrupt`` is ``"fail"``.
        DataLossError
            If messages are gone, and ``on_loss`` is ``"fail"``.
        """
        return self._rows(self.ranges, self._spec, checked_number("threads", threads, least=1))

    def count(self) -> int:
        """Count the messages.

        Without ``tags``, ``sql`` and `where_body` this reads the ConsumeQueues alone, 20 bytes per message; damage of
        records is not seen. With them it reads the records, and bodies only for `where_body`.
        """
        spec = replace(self._spec, columns=("queueOffset",), property_columns=())
        with in_api_words():
            snapshot, there = self._held(self._source.open([each.key for each in self.ranges]), self.ranges, spec)
            known = None if spec.predicate.reads_records else snapshot.count(there, spec)
            if known is not None:
                return known
            with closing(self._batches(snapshot, there, spec, 1)) as batches:
                return sum(batch.num_rows for batch in batches)

    def head(self, n: int = 10) -> pa.Table:
        """Read some ``n`` messages: each queue from its start, until there are enough."""
        checked_number("n", n)
        spec, ranges = self._spec, self.ranges
        if not spec.predicate.reads_records:
            spec = replace(spec, batch_rows=max(1, min(n, spec.batch_rows)))
            ranges = tuple(QueueRange(each.key, each.start, min(each.stop, each.start + n)) for each in ranges)
        return first_rows(self._rows(ranges, spec, 1), n, self.schema)

    def lazy(self) -> "pl.LazyFrame":
        """Return a LazyFrame of Polars, which reads the messages when it is collected.

        Only the columns of the query are decoded. Conditions on ``topic``, ``queueId``, ``queueOffset``,
        ``storeTimestamp`` and ``tags`` narrow what is read, also where retention or damage would be met otherwise.
        Polars does the rest of a filter.
        """
        from .lazy import lazy_frame  # noqa: PLC0415 - a reader of batches does not wait for it

        return lazy_frame(
            self.schema,
            self.ranges,
            self._spec,
            self._source.open,
            lambda ranges, spec: self._rows(ranges, spec, 1),
        )

    def _rows(
        self, ranges: Sequence[QueueRange], spec: ScanSpec, threads: int
    ) -> Generator[pa.RecordBatch, None, None]:
        """Read messages, and parse their bodies if columns of them were asked for."""
        if self._bodies is None:
            yield from self._read(ranges, spec, threads)
            return
        keep_body = "body" in spec.columns
        read = spec if keep_body else replace(spec, columns=(*spec.columns, "body"))
        with closing(self._read(ranges, read, threads)) as batches:
            for batch in batches:
                yield self._bodies.widen(batch, keep_body=keep_body)

    def _read(
        self, ranges: Sequence[QueueRange], spec: ScanSpec, threads: int
    ) -> Generator[pa.RecordBatch, None, None]:
        with in_api_words():
            snapshot, there = self._held(self._source.open([each.key for each in ranges]), ranges, spec)
            with closing(self._batches(snapshot, there, spec, threads)) as batches:
                yield from batches

    def _batches(
        self, snapshot: Snapshot, ranges: Sequence[QueueRange], spec: ScanSpec, threads: int
    ) -> Generator[pa.RecordBatch, None, None]:
        tasks = snapshot.plan(ranges, max_bytes=_TASK_BYTES, parallelism=threads, spec=spec)
        is_alone = threads == 1 or all(task.is_self_contained for task in tasks)  # each task has its own view
        opened = (lambda: snapshot) if is_alone else self._source.open
        yield from read_in_order(opened, tasks, spec, threads)

    def _held(
        self, snapshot: Snapshot, ranges: Sequence[QueueRange], spec: ScanSpec
    ) -> tuple[Snapshot, list[QueueRange]]:
        """Return a snapshot, and the parts of the ranges that it still holds."""
        if self._window is not None:
            part = snapshot.within(self._window)
            with suppress(SegmentLogError):
                return part, held_ranges(part, ranges, OnLoss.FAIL)
        return snapshot, held_ranges(snapshot, ranges, spec.on_loss)


def settled_scan(
    source: StoreSource,
    snapshot: Snapshot,
    wanted: Callable[[Snapshot], Selection],
    window: tuple[Position, Position],
    spec: ScanSpec,
    *,
    bodies: "BodyFormat | None",
    rules: Rules,
    words: Words,
) -> Scan:
    """Settle the queue offsets of a scan between two positions, and the store times of its messages.

    ``wanted`` returns what is read of the store, or of the part of it that holds these times.
    """
    start, end = window

    def ranges(stores: Sequence[Snapshot]) -> tuple[Snapshot, list[QueueRange]]:
        ((store, queues),) = select(stores, wanted(stores[0]))
        return store, Resolver(store, rules, words).plan(start, end, queues)

    times = asked_times(start, end, rules)
    store, found = in_parts([snapshot], times, ranges)
    spec = within_times(spec, store, start, end)
    return Scan(OpenedSource(source, snapshot), found, spec, bodies=bodies, window=times)


# Tasks read by several threads


class _TaskBatches:
    """Batches of one task, on their way from a thread to the caller."""

    def __init__(self, closed: threading.Event) -> None:
        self._closed = closed
        self._found: Queue[pa.RecordBatch | Exception | None] = Queue(_BATCHES_A_TASK)  # None at the end

    def read(self, batches: Iterator[pa.RecordBatch]) -> None:
        try:
            for batch in batches:
                if not self._give(batch):
                    return
            self._give(None)
        except Exception as error:  # noqa: BLE001 - raised in the caller's thread
            self._give(error)

    def _give(self, item: pa.RecordBatch | Exception | None) -> bool:
        """Wait for room; return False once the scan was closed."""
        while not self._closed.is_set():
            with suppress(Full):
                self._found.put(item, timeout=_LOOK_S)
                return True
        return False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (item := self._found.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item


def read_in_order(
    open_reader: Callable[[], Snapshot], tasks: Sequence[ScanTask], spec: ScanSpec, threads: int
) -> Generator[pa.RecordBatch, None, None]:
    """Scan tasks with some threads, each with a reader of its own; yield their batches in the order of the tasks.

    At most ``threads + 1`` tasks are held, each with at most `_BATCHES_A_TASK` batches. An error is raised after the
    batches before it. With one thread the caller's own reads.
    """
    if threads == 1 or len(tasks) < 2:
        snapshot = open_reader()
        for task in tasks:
            yield from snapshot.scan(task, spec)
        return
    own, closed = threading.local(), threading.Event()

    def batches(task: ScanTask) -> Iterator[pa.RecordBatch]:
        if not hasattr(own, "snapshot"):
            own.snapshot = open_reader()
        yield from own.snapshot.scan(task, spec)

    def submitted(task: ScanTask) -> _TaskBatches:
        found = _TaskBatches(closed)
        pool.submit(found.read, batches(task))
        return found

    pool, left = ThreadPoolExecutor(threads, "segmentlog-scan"), iter(tasks)
    try:
        held = deque(map(submitted, islice(left, threads + 1)))
        while held:
            yield from held.popleft()
            held.extend(map(submitted, islice(left, 1)))
    finally:
        closed.set()
        pool.shutdown(cancel_futures=True)
