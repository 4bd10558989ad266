"""Metadata frames of stores: topics, queues, groups, lag, segments, and messages in RocketMQ's own topics.

::

    .option("metadata", "lag") ────► MetadataReader ── one partition ──► one Arrow batch, of the columns that are wanted
    .option("metadata", "trace") ──► MetadataReader ── one partition per store ──► batches, one after the other

Every frame has fixed columns, all nullable; null is unknown, and never 0. Sizes are sums over the ConsumeQueues, 20
bytes for each message, so a schema without ``bytes`` is cheaper to read.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.types import DataType, StructField, StructType

from segmentlog.query.extras import optional_module
from segmentlog.query.frames import system_batches
from segmentlog.query.metadata import (
    SCHEMAS,
    Metrics,
    Row,
    group_rows,
    lag_by_queue,
    lag_rows,
    queue_rows,
    segment_rows,
    topic_rows,
)
from segmentlog.query.request import EVERY_COLUMN
from segmentlog.query.selection import Topics, check_topics, group_progress
from segmentlog.store import ConfigError, QueueKey, SegmentLogError, Snapshot
from segmentlog.store.follow import QueueLag, measure_lag
from segmentlog.store.groups import GroupProgress

from .errors import CheckpointError, in_spark_words
from .options.option import Mode, local_path
from .options.read_options import OF_SYSTEM_TOPICS, MetadataOptions, parse_metadata_options, parse_read_options
from .options.read_table import MetadataKind
from .read import check_fields, no_column, open_stores, select_queues
from .setup.spark_versions import to_arrow_schema, to_spark_type
from .setup.worker_tuning import SentToWorkers, settle_worker
from .stream.offsets import StreamOffset, sum_if_known

_GAUGES: Final = {
    "segmentlog_lag_messages": "Messages that wait to be read",
    "segmentlog_lag_bytes": "Stored bytes of the messages that wait to be read",
    "segmentlog_lag_seconds": "By how much the next message is older than the newest one",
    "segmentlog_lag_unknown_queues": "Queues of which it is not known what waits",
}
_SHARE: Final = 10  # at most one part in so many of the time goes into measuring
COLUMNS: Final[dict[MetadataKind, dict[str, DataType]]] = {
    kind: {field.name: to_spark_type(field.type) for field in SCHEMAS[kind.value]} for kind in MetadataKind
}
"""The columns of each frame, in order."""


@dataclass(frozen=True, slots=True)
class LagReport:
    """Lag of a consumer group or a running stream, of each queue and of all together.

    Whatever is not known is None, and so is a total with such a part: unknown is not zero. Zero means caught up.

    Attributes
    ----------
    name
        The group's name, or the query's, or its id if it has none.
    queues
        By broker name, topic and queue id.
    """

    name: str
    queues: tuple[QueueLag, ...]

    @property
    def messages(self) -> int | None:
        """Messages that wait; None if that is not known of every queue."""
        return sum_if_known(queue.messages for queue in self.queues)

    @property
    def bytes(self) -> int | None:
        """Bytes that wait; None if that is not known of every queue."""
        return sum_if_known(queue.bytes for queue in self.queues)

    @property
    def time_ms(self) -> int | None:
        """The longest of the queues' times; None if that is not known of every queue."""
        times = [queue.time_ms for queue in self.queues if queue.time_ms is not None]
        return max(times, default=0) if len(times) == len(self.queues) else None

    @property
    def unknown(self) -> int:
        """Queues of which it is not known how many messages wait."""
        return sum(queue.messages is None for queue in self.queues)

    def __str__(self) -> str:
        parts = [
            "messages unknown" if self.messages is None else f"{self.messages} messages",
            "bytes unknown" if self.bytes is None else f"{self.bytes} bytes",
            "time unknown" if self.time_ms is None else f"{self.time_ms / 1000:.3f} s",
        ]
        unknown = f", {self.unknown} of them unknown" if self.unknown else ""
        return f"{self.name}: {', '.join(parts)} behind in {len(self.queues)} queues{unknown}"


def group_lag(path: str, group: str, *, consumer: str | None = None) -> LagReport:
    """Measure the lag of a consumer group of a store, in all queues of the topics that it has positions in.

    Parameters
    ----------
    path
        The store directory.
    group
        Which group.
    consumer
        The id of a broadcasting consumer, whose positions are its own; None for the group's.

    Raises
    ------
    ConfigError
        If the group, or the consumer, has no position in this store.
    """
    snapshot = Snapshot.open(path)
    for _, each in group_progress([snapshot], group):
        if each.consumer == consumer:
            return LagReport(group, tuple(lag_by_queue(snapshot, each)))
    problem = f"consumer `{consumer}` of group `{group}` has no position here"
    raise ConfigError(problem, path=snapshot.path, fix="The consumers of the frame `metadata=groups` have one")


def stream_lag(name: str, end: str, latest: str | None, stores: Mapping[str, Snapshot]) -> LagReport:
    """Measure the lag between the end of a stream's last micro-batch and the ends of its queues, as of its progress.

    Without ``latest`` the current ends of the stores count. Messages of other stores than ``stores``, by broker name,
    are counted, but have no sizes and times. `CheckpointError` if the offsets are not of this source.
    """
    positions = StreamOffset.from_json(end).positions()
    stops = {} if latest is None else StreamOffset.from_json(latest).positions()
    found: list[QueueLag] = []
    for broker_name in sorted({broker for broker, _ in {**positions, **stops}}):
        keys = sorted(key for broker, key in {**positions, **stops} if broker == broker_name)
        own = {key: positions.get((broker_name, key)) for key in keys}
        own_stops = {key: stops[broker_name, key] for key in keys if (broker_name, key) in stops}
        snapshot = stores.get(broker_name)
        if snapshot is None:
            found += [_counted(broker_name, key, own[key], own_stops.get(key)) for key in keys]
        else:
            found += measure_lag(snapshot, own, stops=own_stops)
    return LagReport(name, tuple(found))


def _counted(broker_name: str, key: QueueKey, position: int | None, stop: int | None) -> QueueLag:
    """Return the lag that offsets alone tell."""
    messages = None if position is None or stop is None else max(0, stop - position)
    nothing = 0 if messages == 0 else None
    return QueueLag(
        broker_name=broker_name,
        key=key,
        position=position,
        max_offset=stop,
        messages=messages,
        bytes=nothing,
        time_ms=nothing,
    )


# Gauges


class LagMetrics:
    """Shows lag as gauges. One serves all listeners and groups of a process; safe for threads.

    ::

        segmentlog_lag_messages{name="etl", broker="broker-a", topic="orders"}  1200
        segmentlog_lag_bytes   {…}                                              983040
        segmentlog_lag_seconds {…}                                              4.2
        segmentlog_lag_unknown_queues {…}                                       0

    ``name`` is the group or the query. What is not known has no series, rather than a 0 that looks like caught up.

    Parameters
    ----------
    registry
        The ``CollectorRegistry`` to register with; Prometheus' own default one, if not given.
    per_queue
        Whether each queue has its own series, with the label ``queue``; else one for each topic.

    Raises
    ------
    MissingExtraError
        If ``prometheus-client`` is not installed.
    """

    def __init__(self, registry: Any = None, *, per_queue: bool = False) -> None:
        prometheus = optional_module("prometheus-client", "gauges need", extra="metrics")
        self._per_queue = per_queue
        self._lock = threading.Lock()
        self._shown: dict[str, set[tuple[tuple[str, ...], str]]] = {}
        labels = ["name", "broker", "topic", *(["queue"] if per_queue else [])]
        where = {} if registry is None else {"registry": registry}
        self._gauges = {name: prometheus.Gauge(name, text, labels, **where) for name, text in _GAUGES.items()}

    def show(self, report: LagReport) -> None:
        """Set the gauges of a group or query; series of what is unknown, or gone since, go."""
        groups: dict[tuple[str, ...], list[QueueLag]] = {}
        for queue in report.queues:
            number = (str(queue.key.queue_id),) if self._per_queue else ()
            groups.setdefault((report.name, queue.broker_name, queue.key.topic, *number), []).append(queue)
        values = {
            (labels, name): value
            for labels, queues in groups.items()
            for name, value in _values(LagReport(report.name, tuple(queues))).items()
            if value is not None
        }
        with self._lock:
            for labels, name in self._shown.get(report.name, set()) - values.keys():
                self._gauges[name].remove(*labels)
            for (labels, name), value in values.items():
                self._gauges[name].labels(*labels).set(value)
            self._shown[report.name] = set(values)

    def forget(self, name: str) -> None:
        """Take away the series of a group or query that has ended."""
        self.show(LagReport(name, ()))


def _values(report: LagReport) -> Mapping[str, float | None]:
    time_ms = report.time_ms
    numbers = (report.messages, report.bytes, None if time_ms is None else time_ms / 1000, report.unknown)
    return dict(zip(_GAUGES, numbers, strict=True))


# Lag of running streams

logger = logging.getLogger(__name__)


class LagListener(StreamingQueryListener):
    """Lag of running streams, measured whenever Spark reports a query's progress.

    ::

        QueryProgressEvent ── sources[i].endOffset, latestOffset ──► stream_lag ──► log, callback, gauges
                              not ours: left out                     Snapshot, opened for the while

    Spark calls listeners on a thread of the driver. Measuring reads 20 bytes per waiting message. So progress that
    comes soon after a long measurement is left out, unless nothing waits.

    Reports the lag of a session's ``segmentlog`` streams: ``spark.streams.addListener(LagListener(path))``.

    Parameters
    ----------
    paths
        The store directories, as the queries have them. Without any, or for others, only messages are counted.
    broker_names
        The option ``brokerNames`` of the queries, if they have it.
    callback
        What to hand each report to; an error of its own is logged, and does not reach the query.
    metrics
        Gauges to show reports with.
    clock
        Seconds, for tests.

    Raises
    ------
    NotAStoreError, ConfigError
        If a path holds no store.
    """

    def __init__(
        self,
        *paths: str,
        broker_names: Iterable[str] = (),
        callback: Callable[[LagReport], object] | None = None,
        metrics: "LagMetrics | None" = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._options: dict[str, str] = {}
        if paths:
            names = tuple(broker_names)
            self._options = {"paths": _json(map(local_path, paths)), "subscribePattern": ".*"}
            self._options |= {"brokerNames": _json(names)} if names else {}
        self._callback = callback
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()
        self._not_before: dict[str, float] = {}
        self._names: dict[str, str] = {}
        self._open()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - as above
        """Measure, and report."""
        self.report(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - as above
        """Nothing has changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - as above
        """Take the query's gauges away: it has no lag any more, it is gone."""
        with self._lock:
            run = str(event.runId)
            self._not_before.pop(run, None)
            name = self._names.pop(run, None)
        if name is not None and self._metrics is not None:
            self._metrics.forget(name)

    def report(self, progress: StreamingQueryProgress) -> LagReport | None:
        """Measure the lag that a progress tells of, and report it; None if it is of no ``segmentlog`` stream.

        Never raises: what goes wrong is logged, since a listener that fails is of no use to the query.
        """
        try:
            with self._lock:
                made = self._measure(progress)
        except (SegmentLogError, OSError):
            logger.warning("the lag of query %s cannot be told", progress.name or progress.id, exc_info=True)
            return None
        if made is not None:
            self._hand_on(made)
        return made

    def _measure(self, progress: StreamingQueryProgress) -> LagReport | None:
        run, name = str(progress.runId), progress.name or str(progress.id)
        offsets = [(source.endOffset, _known(source.latestOffset)) for source in progress.sources]
        ours = {each: counted for each in offsets if (counted := _lag_by_offsets(name, *each)) is not None}
        if not ours:
            return None
        self._names[run] = name
        queues = [queue for counted in ours.values() for queue in counted.queues]
        if not self._options or all(queue.messages == 0 for queue in queues):
            return LagReport(name, tuple(queues))
        began = self._clock()
        if began < self._not_before.get(run, began):
            return None
        stores = self._open()
        queues = [queue for each in ours for queue in stream_lag(name, *each, stores).queues]
        ended = self._clock()
        self._not_before[run] = ended + (ended - began) * (_SHARE - 1)
        return LagReport(name, tuple(queues))

    def _open(self) -> Mapping[str, Snapshot]:
        """Open the stores again: lag counts up to what they hold now."""
        if not self._options:
            return {}
        return {
            snapshot.broker_name: snapshot for snapshot in open_stores(parse_read_options(self._options, Mode.BOTH))
        }

    def _hand_on(self, report: LagReport) -> None:
        logger.info("%s", report)
        if self._metrics is not None:
            self._metrics.show(report)
        if self._callback is not None:
            try:
                self._callback(report)
            except Exception:
                logger.exception("the callback of LagListener failed")


def _lag_by_offsets(name: str, end: str, latest: str | None) -> LagReport | None:
    """Return the lag that the offsets of a source alone tell; None if it is another source's."""
    try:
        return stream_lag(name, end, latest, {})
    except CheckpointError:
        return None


def _known(offset: str | None) -> str | None:
    """An offset of a progress: Spark has several ways to say that there is none."""
    return None if offset in {None, "", "null", "None"} else offset


def _json(texts: Iterable[str]) -> str:
    return json.dumps(list(texts))


# Frames about stores


def metadata_schema(given: Mapping[str, str], session_zone: tzinfo | None) -> StructType:
    """Make the schema that options ask for, of stores that exist; `SchemaError` for an unknown column."""
    options = parse_metadata_options(given, session_zone)
    open_stores(options.read)
    available = COLUMNS[options.kind]
    names = _chosen(options) or tuple(available)
    for name in names:
        if name not in available:
            raise no_column(name, available, f"option `columns` of `metadata={options.kind.value}`")
    return StructType([StructField(name, available[name]) for name in names])


def _chosen(options: MetadataOptions) -> tuple[str, ...] | None:
    """Return what the option ``columns`` names, with ``*`` as all of them."""
    return tuple(COLUMNS[options.kind]) if options.columns == (EVERY_COLUMN,) else options.columns


class MetadataReader(SentToWorkers, DataSourceReader):
    """Reads one metadata frame, with the columns that Spark expects."""

    def __init__(self, given: Mapping[str, str], schema: StructType, session_zone: tzinfo | None) -> None:
        options = parse_metadata_options(given, session_zone)
        check_fields(schema, COLUMNS[options.kind], _chosen(options))
        self._options = options
        self.target = to_arrow_schema(schema)

    @in_spark_words()
    def partitions(self) -> list[InputPartition]:
        """Plan one task, as the figures of a frame are of one moment; of messages, a task per store.

        An unknown topic or group is an error here. Topics of delayed messages and others need not exist yet.
        """
        stores = open_stores(self._options.read)
        if self._options.kind in (MetadataKind.GROUPS, MetadataKind.LAG):
            list(_progress(stores, self._options))
        elif self._options.kind in OF_SYSTEM_TOPICS:
            return [InputPartition(number) for number in range(len(stores))]
        elif self._options.kind is not MetadataKind.SEGMENTS:
            select_queues(stores, self._options.read)
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the stores, and yield the frame as one batch; of messages, the batches of one store."""
        if self._options.kind in OF_SYSTEM_TOPICS:
            settle_worker()
            with in_spark_words():
                store = self._options.read.sources[partition.value].open()
                for batch in system_batches(self._options.kind.value, store, self._options.window):
                    yield batch.select(self.target.names).cast(self.target)
            return
        with in_spark_words():
            stores = open_stores(self._options.read)
            rows = list(_rows(stores, self._options, frozenset(self.target.names)))
        settle_worker()
        columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in self.target]
        yield pa.RecordBatch.from_arrays(columns, schema=self.target)


def _rows(stores: Sequence[Snapshot], options: MetadataOptions, columns: frozenset[str]) -> Iterator[Row]:
    """Yield the rows of a frame; sizes and times of queues are measured only if ``columns`` has them."""
    match options.kind:
        case MetadataKind.TOPICS | MetadataKind.QUEUES:
            of_queues = topic_rows if options.kind is MetadataKind.TOPICS else queue_rows
            for store, queues in select_queues(stores, options.read):
                yield from of_queues(store, queues, columns)
        case MetadataKind.GROUPS | MetadataKind.LAG:
            of_group = group_rows if options.kind is MetadataKind.GROUPS else lag_rows
            for store, progress in _progress(stores, options):
                yield from of_group(store, progress)
        case _:
            for store in stores:
                yield from segment_rows(store) if options.kind is MetadataKind.SEGMENTS else Metrics(store).rows()


def _progress(stores: Sequence[Snapshot], options: MetadataOptions) -> Iterator[tuple[Snapshot, GroupProgress]]:
    """Groups that are asked for, and of each the positions in topics that are asked for."""
    wanted = options.read.topics
    if isinstance(wanted, Topics):
        there = {topic for store in stores for topic in store.topics()}
        # A group outlives the topics that it read.
        there |= {key.topic for _, each in group_progress(stores, None) for key in each.offsets}
        check_topics(wanted.names, sorted(there), path=", ".join(store.path for store in stores))
    for store, each in group_progress(stores, options.consumer_group):
        offsets = {key: offset for key, offset in each.offsets.items() if wanted.wants(key.topic)}
        yield store, GroupProgress(each.group, each.model, each.consumer, offsets)
