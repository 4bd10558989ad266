"""Store: what ``segmentlog.open`` returns, a store directory for reading.

::

    segmentlog.open(path) ──► Store ──┬─ topics, queues, groups, lag, segments ──► MetadataTable
                                      ├─ delayed, deliveries, dead_letters, transactions, trace ─► SystemRows
                                      ├─ scan ──► Scan ──► Arrow, pandas, Polars, DuckDB
                                      ├─ get ───► Message        find ──► Lookup ──► as a scan
                                      └─ follow ► Follow ──► batches as a broker appends

No lock is taken. Every call sees the current store: look-ups keep it open, all other calls open it again.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, NoReturn, Self
from weakref import WeakSet

import pyarrow as pa

from segmentlog.query.metadata import SCHEMAS, Metrics, Row, group_rows, lag_rows, queue_rows, segment_rows, topic_rows
from segmentlog.query.position import Earliest, Latest, Words
from segmentlog.query.request import Names, body_format_of, checked_names, scan_spec
from segmentlog.query.selection import Topics, group_progress, topic_pattern
from segmentlog.query.source import OpenedSource, StoreSource
from segmentlog.query.times import Clock
from segmentlog.store import (
    ConfigError,
    Message,
    OnCorrupt,
    OnLoss,
    ScanSpec,
    Snapshot,
    StoreClosedError,
)

from .arguments import Moment, Position, api_call, checked_flag, checked_topics, parsed, rules_of, window_of
from .kept import KeptFinder
from .rows import MetadataTable, html_table
from .scan import Scan, settled_scan

if TYPE_CHECKING:
    import os

    from segmentlog.query.body_columns import BodyFormat

    from .follow import Follow
    from .lookup import Lookup
    from .system_rows import SystemRows

_OF_WRITERS = ("append", "append_batch", "submit", "flush", "config", "retention")


class Store:
    """A store directory for reading. Safe in any number of threads, and picklable; made by ``segmentlog.open``."""

    def __init__(self, source: StoreSource, zone: tzinfo | None = None, opened: OpenedSource | None = None) -> None:
        self._source = source
        self._zone = zone
        self._opened = OpenedSource(source, source.open()) if opened is None else opened
        self.path = self._opened.path
        """The store directory."""
        self._is_closed = False
        self._finders = KeptFinder(self._opened.open)
        self._followers: WeakSet[Follow] = WeakSet()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<segmentlog.Store {self.path}>"

    if not TYPE_CHECKING:  # to a type checker a Store has its own attributes alone

        def __getattr__(self, name: str) -> NoReturn:
            problem = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _OF_WRITERS:
                problem = f"this store is open for reading: segmentlog.open(path, 'a') opens it for {name}"
            raise AttributeError(problem, name=name, obj=self)

    def _repr_html_(self) -> str:
        topics = self.topics().to_arrow()
        shown = ["topic", "queues", "messages", "firstStoreTimestamp", "lastStoreTimestamp"]
        return html_table(repr(self), topics.select(shown), topics.num_rows)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._source, self._zone)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all followers, and refuse further calls. Scans and look-ups that were made stay usable."""
        with self._lock:
            self._is_closed = True
            for follower in self._followers:
                follower.close()
        self._finders.clear()

    @api_call
    def topics(self) -> MetadataTable:
        """Return the topics, RocketMQ's own included: one row each, the columns of ``metadata=topics`` in Spark."""
        snapshot = self._snapshot()
        queues = [bounds for topic in snapshot.topics() for bounds in snapshot.queues(topic)]
        return _table(f"Topics of {self.path}", "topics", topic_rows(snapshot, queues))

    @api_call
    def queues(self, topic: Names | None = None) -> MetadataTable:
        """Return the queues of some topics, or of all: one row each; `UnknownQueueError` for an unknown topic."""
        snapshot = self._snapshot()
        topics = snapshot.topics() if topic is None else checked_topics(topic, snapshot.topics(), self.path)
        return queues_of(f"Queues of {self.path}", snapshot, topics)

    @api_call
    def groups(self) -> MetadataTable:
        """Return the positions of all consumer groups: one row per position."""
        snapshot = self._snapshot()
        rows = [row for _, each in group_progress([snapshot], None) for row in group_rows(snapshot, each)]
        return _table(f"Consumer groups of {self.path}", "groups", rows)

    @api_call
    def lag(self, group: str | None = None) -> MetadataTable:
        """Measure the lag of a consumer group, or of all: one row per queue of the topics that it has positions in.

        Null is unknown, 0 is caught up. `ConfigError` if the group has no position in this store.
        """
        if not isinstance(group, str | None):
            raise ConfigError(f"group={group!r} is not text", fix="Pass the name of a consumer group")
        snapshot = self._snapshot()
        rows = [row for _, each in group_progress([snapshot], group) for row in lag_rows(snapshot, each)]
        return _table(f"Lag of {group or self.path}", "lag", rows)

    @api_call
    def segments(self) -> MetadataTable:
        """Return the segments of the CommitLog: one row each, oldest first."""
        return _table(f"Segments of {self.path}", "segments", segment_rows(self._snapshot()))

    @api_call
    def metrics(self) -> MetadataTable:
        """Measure what monitoring needs: ends, sizes, lag, sync and disk, one row per metric, topic and group.

        A number that is unknown has no row. ``segmentlog metrics --listen`` serves the same numbers to Prometheus.
        """
        return _table(f"Metrics of {self.path}", "metrics", Metrics(self._snapshot()).rows())

    @api_call
    def delayed(
        self, topics: Names | None = None, *, start: Moment | None = None, end: Moment | None = None
    ) -> "SystemRows":
        """Describe the delayed messages, pending and delivered, of delay levels and of timers.

        Parameters
        ----------
        topics
            Real topics of the rows, which need not exist; by default all, and rows whose topic is unknown.
        start, end
            Store times, half-open, of the records in RocketMQ's own topics of such messages.

        Returns
        -------
        SystemRows
            The columns of ``metadata=delayed`` in Spark; null is unknown.

        Raises
        ------
        ConfigError
            If an argument makes no sense.
        """
        return self._system_rows("delayed", topics, start, end)

    @api_call
    def deliveries(
        self, topics: Names | None = None, *, start: Moment | None = None, end: Moment | None = None
    ) -> "SystemRows":
        """Describe how often each delayed message was delivered; arguments and errors as of `delayed`.

        The columns of `delayed`, then ``delivery`` (``once``, ``late``, ``missing``, ``repeated``, ``pending``,
        ``deleted``, ``rolled``), ``deliveries`` and the physical offsets of the first and the last delivery.
        """
        return self._system_rows("deliveries", topics, start, end)

    @api_call
    def dead_letters(
        self, topics: Names | None = None, *, start: Moment | None = None, end: Moment | None = None
    ) -> "SystemRows":
        """Count the dead letters of each consumer group and original topic; arguments and errors as of `delayed`.

        The column ``resend`` has the command that sends the letters of a row again.
        """
        return self._system_rows("dead-letters", topics, start, end)

    @api_call
    def transactions(
        self, topics: Names | None = None, *, start: Moment | None = None, end: Moment | None = None
    ) -> "SystemRows":
        """Describe the half messages of transactions, and their outcome; arguments and errors as of `delayed`."""
        return self._system_rows("transactions", topics, start, end)

    @api_call
    def trace(
        self, topics: Names | None = None, *, start: Moment | None = None, end: Moment | None = None
    ) -> "SystemRows":
        """Describe the entries of message traces; arguments and errors as of `delayed`."""
        return self._system_rows("trace", topics, start, end)

    @api_call
    def scan(
        self,
        topics: Names,
        *,
        start: Position | None = None,
        end: Position | None = None,
        tags: Names | None = None,
        sql: str | None = None,
        columns: Names | None = None,
        properties: Names = (),
        body_as: str | None = None,
        schema: "pa.Schema | str | os.PathLike[str] | None" = None,
        on_corrupt: OnCorrupt | str = OnCorrupt.FAIL,
        on_loss: OnLoss | str = OnLoss.FAIL,
        check_crc: bool = False,
    ) -> Scan:
        """Describe a scan. Arguments are checked and queue offsets settled here; messages are read later.

        Parameters
        ----------
        topics
            One topic or several; ``"^order"`` is each topic that begins so, ``"^order.*s$"`` a regular expression.
        start, end
            First message and end of each queue, half-open. A position is a store time, ``"earliest"``, ``"latest"``,
            ``"last:10"``, ``"group:etl"``, or ``"table:delta:PATH"`` (after what a backfill wrote, ``docs/lake.md``). A
            mapping has offsets, times or such texts by queue, and reads these queues only. At a time a queue begins
            with its first message stored at or after it. By default everything that the queues hold now.
        tags, sql
            ``"A || B"`` or a list: messages with one of these tags. A SQL92 filter as of RocketMQ; both must hold.
        columns
            Columns, in order (``docs/options.md``); ``"*"`` for all, by default those up to ``storeTimestamp``.
        properties
            Properties of messages that become further text columns.
        body_as, schema
            Format and columns of bodies, such as ``"json"`` and ``"id string, total double"`` (``docs/python.md``).
            They follow the other columns. A body that does not parse has nulls, and the reason in ``bodyError``.
        on_corrupt, on_loss, check_crc
            Treatment of damaged records, and of messages that are gone when they are read. Whether every body that is
            read is compared with its CRC-32.

        Raises
        ------
        ConfigError, MissingExtraError, FilterSyntaxError
            If an argument makes no sense, or needs a package that is not installed, or RocketMQ refuses ``sql``.
        UnknownQueueError, OffsetOutOfRangeError
            If the store holds no such topic or queue, or a queue does not hold an offset.
        """
        spec = scan_spec(
            columns=columns,
            properties=properties,
            tags=tags,
            sql=sql,
            on_corrupt=on_corrupt,
            on_loss=on_loss,
            check_crc=checked_flag("check_crc", check_crc),
        )
        bodies = body_format_of(body_as, schema)
        return scan_of(self._source, self._snapshot(), topics, start, end, spec, bodies, self._clock())

    @api_call
    def get(
        self,
        *,
        message_id: str | None = None,
        unique_key: str | None = None,
        physical_offset: int | None = None,
        topic: str | None = None,
        queue: int | None = None,
        offset: int | None = None,
    ) -> Message | None:
        """Return one message, or None if the store does not hold it.

        Parameters
        ----------
        message_id
            Its offset message id (column ``msgId``).
        unique_key
            Its ``UNIQ_KEY``, in ``topic`` if that is passed. Of several messages the oldest is returned.
        physical_offset
            Where its record begins in the CommitLog, in bytes.
        topic, queue, offset
            Its topic, queue id and queue offset, all three.

        Raises
        ------
        ConfigError
            If the arguments name no single place, or more than one.
        FormatError
            If ``message_id`` is not an offset message id.
        CorruptRecordError
            If the body contradicts its CRC, or cannot be inflated.
        """
        from .lookup import get_message  # noqa: PLC0415 - loads pyarrow.compute, which takes long

        self._check_open()
        return get_message(
            self._finders,
            message_id=message_id,
            unique_key=unique_key,
            physical_offset=physical_offset,
            topic=topic,
            queue=queue,
            offset=offset,
        )

    @api_call
    def find(
        self,
        topics: Names,
        *,
        keys: Names | pa.Array | None = None,
        unique_keys: Names | pa.Array | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
        newest_first: bool = False,
        columns: Names | None = None,
        properties: Names = (),
        on_corrupt: OnCorrupt | str = OnCorrupt.FAIL,
        on_loss: OnLoss | str = OnLoss.FAIL,
    ) -> "Lookup":
        """Find all messages that carry one of some keys. The search takes place here, rows are decoded later.

        Parameters
        ----------
        topics
            As of `scan`.
        keys, unique_keys
            One key or up to millions, in ``KEYS`` or in ``UNIQ_KEY``; one of the two.
        start, end
            Store times, half-open.
        newest_first
            Order of the rows; by default the oldest is first.
        columns, properties, on_corrupt, on_loss
            As of `scan`.

        Returns
        -------
        Lookup
            Complete and exact; what the index does not answer is scanned, and ``coverage`` says so.

        Raises
        ------
        ConfigError
            If an argument makes no sense.
        UnknownQueueError
            If the store holds no such topic.
        """
        spec = scan_spec(columns=columns, properties=properties, on_corrupt=on_corrupt, on_loss=on_loss)
        from .lookup import look_up  # noqa: PLC0415 - as in `get`

        self._check_open()
        with self._finders.borrowed() as (snapshot, finder):
            names = checked_topics(topics, snapshot.topics(), self.path)
            asked = {"keys": keys, "unique_keys": unique_keys}
            return look_up(
                finder, names, **asked, start=start, end=end, newest_first=newest_first, spec=spec, clock=self._clock()
            )

    @api_call
    def follow(
        self,
        topics: Names,
        *,
        start: Position | None = None,
        tags: Names | None = None,
        sql: str | None = None,
        columns: Names | None = None,
        properties: Names = (),
        on_corrupt: OnCorrupt | str = OnCorrupt.FAIL,
        on_loss: OnLoss | str = OnLoss.FAIL,
        poll_s: float = 0.05,
        timeout_s: float | None = None,
    ) -> "Follow":
        """Follow some topics: an iterator of batches that waits for further messages.

        Parameters
        ----------
        topics
            As of `scan`; queues and topics that are added later are read, too.
        start
            As of `scan`; by default the messages from now on.
        tags, sql, columns, properties, on_corrupt, on_loss
            As of `scan`.
        poll_s
            Seconds between two looks for new queues and messages of other machines; longer while nothing comes.
        timeout_s
            End the iteration when nothing was appended for so many seconds; by default never.

        Raises
        ------
        ConfigError, FilterSyntaxError, UnknownQueueError, OffsetOutOfRangeError
            As of `scan`.
        DataLossError
            While iterating: if messages were deleted before they were read and ``on_loss`` is ``"fail"``, or if a
            queue was recreated or truncated.
        """
        from .follow import Follow, checked_seconds  # noqa: PLC0415 - loads what watches queues

        spec = scan_spec(
            columns=columns, properties=properties, tags=tags, sql=sql, on_corrupt=on_corrupt, on_loss=on_loss
        )
        pause = checked_seconds("poll_s", poll_s)
        timeout = None if timeout_s is None else checked_seconds("timeout_s", timeout_s)
        wanted = topic_pattern(checked_names("topics", topics))  # of topics that are created later, too
        names = checked_topics(topics, self._snapshot().topics(), self.path)
        first = parsed("start", start, Latest(), names, self._clock())
        follower = Follow(self._source, wanted or Topics(names), first, spec, poll_s=pause, timeout_s=timeout)
        with self._lock:
            self._followers.add(follower)
            if self._is_closed:
                follower.close()
        return follower

    def _system_rows(self, kind: str, topics: Names | None, start: Moment | None, end: Moment | None) -> "SystemRows":
        self._check_open()
        from segmentlog.query.system_frames import SystemWindow  # noqa: PLC0415 - loads pyarrow.compute

        from .system_rows import SystemRows  # noqa: PLC0415 - as above

        start_ms, stop_ms = window_of(start, end, self._clock())
        wanted = None if topics is None else Topics(checked_names("topics", topics))
        return SystemRows(self._source, kind, SystemWindow(topics=wanted, start_ms=start_ms, stop_ms=stop_ms))

    def _clock(self) -> Clock:
        return Clock.system(self._zone, "open(path, tz=…)")

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError("this Store was closed", path=self.path, fix="segmentlog.open(path) opens it again")

    def _snapshot(self) -> Snapshot:
        self._check_open()
        return self._opened.open()


def _table(title: str, kind: str, rows: Iterable[Row]) -> MetadataTable:
    return MetadataTable(title, pa.Table.from_pylist(list(rows), SCHEMAS[kind]))


def queues_of(title: str, snapshot: Snapshot, topics: Sequence[str]) -> MetadataTable:
    """Return the rows of `Store.queues`."""
    queues = [bounds for each in topics for bounds in snapshot.queues(each)]
    return _table(title, "queues", queue_rows(snapshot, queues))


def scan_of(  # noqa: PLR0917 - the arguments of `Store.scan`, checked
    source: StoreSource,
    snapshot: Snapshot,
    topics: Names,
    start: Position | None,
    end: Position | None,
    spec: ScanSpec,
    bodies: "BodyFormat | None",
    clock: Clock,
) -> Scan:
    """Check topics and positions, and settle the scan; arguments as of `Store.scan`."""
    by_queue = isinstance(start, Mapping) or isinstance(end, Mapping)
    names = checked_topics(topics, snapshot.topics(), source.path) if by_queue else ()
    return settled_scan(
        source,
        snapshot,
        lambda held: Topics(checked_topics(topics, held.topics(), source.path)),
        (parsed("start", start, Earliest(), names, clock), parsed("end", end, Latest(), names, clock)),
        spec,
        bodies=bodies,
        rules=rules_of(spec.on_loss),
        words=Words(),
    )
