"""Job ``resend``: messages of a store sent to live brokers, for dead letters and repairs.

::

    survey    properties of all messages ──► target topics, counts; refused before anything is sent
    send      queue orders/0   17 ──► in flight ──► acknowledged, recorded ──► 18 ──► …      one at a time: in order
              queue orders/1   40 ──► in flight ──► …                                        queues beside each other

A broker works on the requests of one connection in several threads, so only one message of a queue may be in flight.
A send that fails stops its queue: no later message overtakes it. RocketMQ: ``SendMessageProcessor``, ``ResponseCode``.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.query.cursor import by_queue, held_ranges
from segmentlog.query.dead_letters import DLQ_TOPIC, ORIGIN_GROUP, RETRY_TOPIC, is_retry_topic
from segmentlog.query.source import StoreSource
from segmentlog.store import (
    BrokerError,
    ConfigError,
    QueueKey,
    QueueRange,
    ScanSpec,
    SegmentLogError,
    Snapshot,
    is_system_topic,
)
from segmentlog.store.ha import Answer

from .report import Report
from .resending import (
    ORIGIN,
    Cluster,
    Connection,
    Progress,
    Queue,
    Row,
    encode_properties,
    origin_of,
    properties_sent,
    request_fields,
    target_topic,
    wait,
)

_log = logging.getLogger(__name__)

_SEND: Final = 310  # SEND_MESSAGE_V2
_STORED: Final = {0: "SEND_OK", 10: "FLUSH_DISK_TIMEOUT", 11: "SLAVE_NOT_AVAILABLE", 12: "FLUSH_SLAVE_TIMEOUT"}
_REFUSED: Final = {
    1: "SYSTEM_ERROR",
    2: "SYSTEM_BUSY",
    3: "REQUEST_CODE_NOT_SUPPORTED",
    13: "MESSAGE_ILLEGAL",
    14: "SERVICE_NOT_AVAILABLE",
    16: "NO_PERMISSION",
    17: "TOPIC_NOT_EXIST",
    26: "SUBSCRIPTION_GROUP_NOT_EXIST",
    215: "FLOW_CONTROL",
}
_BUSY: Final = frozenset({2, 215})  # the broker has not stored the message, and asks to come again
_NO_ANSWER: Final = "NO_ANSWER"
_UNREADABLE: Final = "UNREADABLE"
_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_QUEUES_MAX: Final = 64  # queues with a message in flight; each holds a batch of messages
_BATCH_BYTES: Final = 1 << 20
_BATCH_ROWS: Final = 256
_TASK_BYTES: Final = 32 << 20
_TOPICS: Final = (RETRY_TOPIC, DLQ_TOPIC, ORIGIN_GROUP)
"""Properties that name the original topic of a copy."""
_SHOWN_S: Final = 2.0
_COLUMNS: Final = ("topic", "queueId", "queueOffset", "body", "properties", "bornTimestamp", "flag", "sysFlag")
_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("toTopic", pa.string()),
        ("toQueueId", pa.int32()),
        ("status", pa.string()),
        ("messages", pa.int64()),
        ("firstOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("problem", pa.string()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class ResendSettings:
    """Settings of `run`.

    Attributes
    ----------
    map_topic
        Target topic by topic. Dead letters and retries go to their original topic without it.
    group
        Producer group.
    rate
        Messages per second at most; None for no limit.
    timeout_s
        Seconds until a request without an answer counts as failed.
    again
        Also send messages that a resend has sent, and begin a finished job once more.
    """

    map_topic: Mapping[str, str] = field(default_factory=dict)
    group: str = "segmentlog-resend"
    rate: int | None = None
    timeout_s: float = 10.0
    again: bool = False


def survey(
    source: StoreSource, ranges: Sequence[QueueRange], spec: ScanSpec, cluster: Cluster, settings: ResendSettings
) -> Report:
    """Return what `run` would send, and send nothing. Asks the brokers for their topics.

    Raises
    ------
    ConfigError
        If messages were sent before, or do not name their topic.
    BrokerError
        If a broker is away, or a target topic does not exist.
    """
    snapshot = source.open()
    found = _surveyed(snapshot, ranges, spec, settings)
    rows = []
    for (key, topic), each in sorted(found.items()):
        queue = _queue_of(key, cluster.queues(topic))
        rows.append(_row(key, topic, queue.queue_id, "WOULD_SEND", each.messages))
    numbers = {
        "messages": sum(each.messages for each in found.values()),
        "bytes": sum(each.size for each in found.values()),
    }
    return Report(numbers=numbers, table=pa.Table.from_pylist(rows, _SCHEMA))


def run(
    source: StoreSource,
    ranges: Sequence[QueueRange],
    spec: ScanSpec,
    cluster: Cluster,
    state: str,
    *,
    settings: ResendSettings,
    asked: Mapping[str, object],
    stop: threading.Event,
) -> Report:
    """Send messages until all are acknowledged or ``stop`` is set; continue the job of the state file.

    Parameters
    ----------
    source, ranges, spec
        The store, the messages and the filter. A job that continues keeps the ranges with which it began.
    state
        State file; it is made for a new job.
    asked
        What identifies the job: the file refuses another one.

    Returns
    -------
    Report
        A row per queue and status of the broker. It has findings if messages are left.

    Raises
    ------
    ConfigError, BrokerError
        As `survey`, or if the state file is of another job or in use; nothing was sent then.
    """
    snapshot = source.open()
    with Progress.open(state, ranges, asked, again=settings.again) as progress:
        left = progress.left()
        found = _surveyed(snapshot, left, spec, settings)
        total = sum(each.messages for each in found.values())
        if not left:
            _log.warning("%s: all messages of this job were sent before; --again sends them once more", state)
        targets = {topic: cluster.queues(topic) for _, topic in found}
        with closing(_Sender(snapshot, spec, progress, targets, settings)) as sender:
            began = time.monotonic()
            sender.send(left, total, stop)
        seconds = time.monotonic() - began
    numbers = {
        "sent": sender.sent,
        "left": total - sender.sent,
        "seconds": round(seconds, 3),
        "perSecond": round(sender.sent / max(seconds, 1e-9)),
    }
    return Report(numbers=numbers, table=sender.table(), has_findings=total > sender.sent)


@dataclass(slots=True)
class _Share:
    """Messages of a queue that go to one topic."""

    messages: int = 0
    size: int = 0


def _surveyed(
    snapshot: Snapshot, ranges: Sequence[QueueRange], spec: ScanSpec, settings: ResendSettings
) -> dict[tuple[QueueKey, str], _Share]:
    """Count messages by queue and target topic; refuse those that cannot be sent."""
    names = (ORIGIN, *_TOPICS)
    narrow = replace(spec, columns=("topic", "queueId", "queueOffset", "storeSize"), property_columns=names)
    found: dict[tuple[QueueKey, str], _Share] = {}
    before, example = 0, ""
    for batch in _batches(snapshot, ranges, narrow):
        groups = pa.table(batch).group_by(["topic", "queueId", *_TOPICS])
        for row in groups.aggregate([("storeSize", "count"), ("storeSize", "sum")]).to_pylist():
            key = QueueKey(row["topic"], row["queueId"])
            topic = _checked_target(key, row, settings)
            share = found.setdefault((key, topic), _Share())
            share.messages += row["storeSize_count"]
            share.size += row["storeSize_sum"]
        sent = batch.filter(pc.is_valid(batch[ORIGIN]))
        if sent.num_rows and not before:
            first = sent.slice(0, 1).to_pylist()[0]
            example = f"{first['topic']}/{first['queueId']} at offset {first['queueOffset']}, from {first[ORIGIN]}"
        before += sent.num_rows
    if before and not settings.again:
        raise ConfigError(
            f"{before} messages were sent by a resend before, the first is {example}",
            fix="Leave them out, such as with --from, or pass --again to send them once more",
        )
    return found


def _checked_target(key: QueueKey, properties: Mapping[str, str | None], settings: ResendSettings) -> str:
    retry, dlq, group = map(properties.get, _TOPICS)
    topic = target_topic(key.topic, retry, dlq, settings.map_topic, group)
    if topic is None:
        raise ConfigError(
            f"a message of {key} does not name its original topic", fix=f"Pass such as --map-topic '{key.topic}=orders'"
        )
    if is_system_topic(topic) and not is_retry_topic(topic):
        raise ConfigError(
            f"messages of {key} would go to {topic}, a topic of the broker",
            fix=f"Pass such as --map-topic '{key.topic}=orders'",
        )
    return topic


def _batches(snapshot: Snapshot, ranges: Sequence[QueueRange], spec: ScanSpec) -> Iterator[pa.RecordBatch]:
    for task in snapshot.plan(held_ranges(snapshot, ranges, spec.on_loss), max_bytes=_TASK_BYTES, spec=spec):
        yield from snapshot.scan(task, spec)


def _queue_of(key: QueueKey, queues: Sequence[Queue]) -> Queue:
    """Return the queue with the same number, else that of the number modulo their count."""
    return queues[key.queue_id % len(queues)]


def _row(key: QueueKey, topic: str | None, queue_id: int | None, status: str, messages: int) -> dict[str, object]:
    source = {"topic": key.topic, "queueId": key.queue_id}
    return {**source, "toTopic": topic, "toQueueId": queue_id, "status": status, "messages": messages}


@dataclass(slots=True)
class _Lane:
    """Messages of one queue, sent one after the other."""

    key: QueueKey
    rows: Iterator[Row]
    end: int
    row: Row | None = None
    topic: str = ""
    queue: Queue | None = None
    tries: int = 0
    ready_at: float = 0.0


@dataclass(slots=True)
class _Counted:
    messages: int = 0
    first: int | None = None
    last: int | None = None


class _Sender:
    """Sends the messages of all queues over one connection per broker. Not thread-safe."""

    def __init__(
        self,
        snapshot: Snapshot,
        spec: ScanSpec,
        progress: Progress,
        targets: Mapping[str, Sequence[Queue]],
        settings: ResendSettings,
    ) -> None:
        self._snapshot = snapshot
        self._spec = replace(
            spec,
            columns=_COLUMNS,
            property_columns=(),
            check_crc=True,
            raw_body=True,
            batch_bytes=_BATCH_BYTES,
            batch_rows=_BATCH_ROWS,
        )
        self._progress = progress
        self._targets = targets
        self._settings = settings
        self._connections: dict[object, Connection] = {}
        self._in_flight: dict[tuple[object, int], tuple[_Lane, float]] = {}  # in the order of their time limits
        self._ready: deque[_Lane] = deque()
        self._counts: dict[tuple[QueueKey, str, int, str], _Counted] = {}
        self._failed: list[dict[str, object]] = []
        self._next_send = 0.0
        self.sent = 0
        try:
            for queues in targets.values():
                for broker in {each.broker for each in queues} - set(self._connections):
                    self._connections[broker] = Connection(broker)
        except BrokerError:
            self.close()
            raise

    def close(self) -> None:
        for each in self._connections.values():
            each.close()

    def send(self, left: Sequence[QueueRange], total: int, stop: threading.Event) -> None:
        """Send the messages of some ranges; once ``stop`` is set, only wait for the answers."""
        waiting = deque(by_queue(left).items())
        shown = time.monotonic()
        while not stop.is_set() or self._in_flight:
            if not stop.is_set():
                while waiting and len(self._ready) + len(self._in_flight) < _QUEUES_MAX:
                    key, ranges = waiting.popleft()
                    self._ready.append(_Lane(key, self._rows(ranges), ranges[-1].stop))
                self._submit_ready()
            if not self._in_flight and not self._ready and not waiting:
                break
            self._receive()
            now = time.monotonic()
            self._expire(now)
            if now - shown >= _SHOWN_S:
                shown = now
                _log.info(
                    "%s of %s messages sent", f"{self.sent:,}", f"{total:,}", extra={"done": self.sent, "of": total}
                )

    def table(self) -> pa.Table:
        """Return a row per queue and status."""
        rows = []
        for (key, topic, queue_id, status), each in sorted(self._counts.items()):
            rows.append(
                _row(key, topic, queue_id, status, each.messages) | {"firstOffset": each.first, "lastOffset": each.last}
            )
        return pa.Table.from_pylist([*rows, *self._failed], _SCHEMA)

    def _rows(self, ranges: Sequence[QueueRange]) -> Iterator[Row]:
        for batch in _batches(self._snapshot, ranges, self._spec):
            columns = [batch[name].to_pylist() for name in ("queueOffset", "body", "properties")]
            born = pc.divide(batch["bornTimestamp"].cast(pa.int64()), 1000).to_pylist()
            yield from map(Row, *columns, born, batch["flag"].to_pylist(), batch["sysFlag"].to_pylist())

    def _submit_ready(self) -> None:
        """Submit a message of each queue that is ready, as far as the rate allows."""
        now = time.monotonic()
        for _ in range(len(self._ready)):
            lane = self._ready.popleft()
            if lane.ready_at > now or not self._is_allowed(now):
                self._ready.append(lane)
            else:
                self._submit(lane, now)

    def _is_allowed(self, now: float) -> bool:
        if self._settings.rate is None:
            return True
        if now < self._next_send:
            return False
        # Messages that could have been sent earlier do not raise the rate later.
        self._next_send = max(self._next_send, now - 0.1) + 1 / self._settings.rate
        return True

    def _submit(self, lane: _Lane, now: float) -> None:
        """Submit the next message of a queue, or the one that the broker was too busy for."""
        if lane.row is None:
            try:
                lane.row = next(lane.rows, None)
            except SegmentLogError as error:
                self._fail(lane, _UNREADABLE, str(error))
                return
            if lane.row is None:
                self._progress.acknowledge(lane.key, lane.end)
                return
            stored = dict(lane.row.properties) if lane.key.topic.startswith("%") else {}
            lane.topic = _checked_target(lane.key, stored, self._settings)
            lane.queue = _queue_of(lane.key, self._targets[lane.topic])
            lane.tries = 0
        assert lane.queue is not None
        connection = self._connections[lane.queue.broker]
        if connection.problem is not None:
            self._fail(lane, _NO_ANSWER, f"not sent: {connection.problem}")
            return
        origin = origin_of(self._snapshot.broker_name, lane.key, lane.row.offset)
        properties = properties_sent(lane.row, origin, self._progress.job, lane.key.topic, lane.topic)
        fields = request_fields(
            lane.row, encode_properties(properties.items()), lane.topic, lane.queue.queue_id, self._settings.group
        )
        opaque = connection.submit(_SEND, fields, lane.row.body)
        self._in_flight[lane.queue.broker, opaque] = lane, now + self._settings.timeout_s

    def _receive(self) -> None:
        """Wait for answers, and settle their messages."""
        alive = [each for each in self._connections.values() if each.problem is None]
        for connection, answers in wait(alive, self._pause()):
            for answer in answers:
                found = self._in_flight.pop((connection.address, answer.opaque), None)
                if found is not None:
                    self._settle(found[0], answer)
            if connection.problem is not None:
                self._lose(connection, connection.problem)

    def _pause(self) -> float:
        """Return the seconds until a send, a time limit or a line of progress is due."""
        now = time.monotonic()
        until = now + _SHOWN_S
        if self._in_flight:
            until = min(until, next(iter(self._in_flight.values()))[1])
        if self._ready:
            until = min(until, max(self._next_send, min(each.ready_at for each in self._ready)))
        return max(0.0, until - now)

    def _settle(self, lane: _Lane, answer: Answer) -> None:
        assert lane.row is not None
        assert lane.queue is not None
        status = _STORED.get(answer.code)
        if status is None and answer.code in _BUSY and lane.tries < len(_PAUSES_S):
            lane.ready_at = time.monotonic() + _PAUSES_S[lane.tries]
            lane.tries += 1
            self._ready.append(lane)
            return
        if status is None:
            name = _REFUSED.get(answer.code, f"CODE_{answer.code}")
            self._fail(lane, name, f"broker {lane.queue.broker} refused it with code {answer.code}: {answer.remark}")
            return
        self._progress.acknowledge(lane.key, lane.row.offset + 1)
        self.sent += 1
        count = self._counts.setdefault((lane.key, lane.topic, lane.queue.queue_id, status), _Counted())
        count.messages += 1
        place = answer.number("queueOffset")
        count.first = place if count.first is None else count.first
        count.last = place
        lane.row = None
        self._ready.append(lane)

    def _expire(self, now: float) -> None:
        """Stop queues whose message has no answer in time."""
        while self._in_flight:
            place, (lane, until) = next(iter(self._in_flight.items()))
            if until > now:
                return
            del self._in_flight[place]
            self._fail(lane, _NO_ANSWER, f"no answer for {self._settings.timeout_s:g} s; it may be stored")

    def _lose(self, connection: Connection, problem: BrokerError) -> None:
        """Stop the queues that have a message in flight on a connection."""
        for place in [each for each in self._in_flight if each[0] == connection.address]:
            lane, _ = self._in_flight.pop(place)
            self._fail(lane, _NO_ANSWER, f"it may be stored: {problem}")

    def _fail(self, lane: _Lane, status: str, problem: str) -> None:
        """Stop a queue: the messages after this one stay for a later run."""
        offset = "" if lane.row is None else f" offset {lane.row.offset}:"
        text = f"{lane.key}{offset} {problem}"
        _log.warning("%s", text)
        queue_id = None if lane.queue is None else lane.queue.queue_id
        self._failed.append(_row(lane.key, lane.topic or None, queue_id, status, 1) | {"problem": text})
