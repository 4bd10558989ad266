"""Parts of `resend`: connections to brokers, messages as they are sent, and the file of what was acknowledged."""

import calendar
import json
import os
import select
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar

from segmentlog.query.cursor import by_queue, check_some
from segmentlog.query.dead_letters import DLQ_TOPIC, ORIGIN_GROUP, RETRY_TOPIC, is_retry_topic, original_topic
from segmentlog.query.suggestions import did_you_mean, listing
from segmentlog.store import BrokerError, ConfigError, FormatError, QueueKey, QueueRange
from segmentlog.store.ha import SUCCESS, Address, Answer, AnswerReader, encode_request

from .state_file import StateFile

T = TypeVar("T")

# Connections

CONNECT_S: Final = 5.0
_Document: TypeAlias = dict[Any, Any]  # JSON as fastjson writes it
_ROUTE: Final = 105  # GET_ROUTEINFO_BY_TOPIC
_TOPICS: Final = 21  # GET_ALL_TOPIC_CONFIG
_NO_TOPIC: Final = 17  # TOPIC_NOT_EXIST
_WRITABLE: Final = 2  # bit of `perm`
_READ_BYTES: Final = 256 << 10
_TOPIC_QUEUES_MAX: Final = 1 << 16  # of all brokers; `queues` of the sink has the same bound
_NAME_MAX: Final = 1000  # RocketMQ's names have at most 127 or 255 letters
_CREATE: Final = "Create it: mqadmin updateTopic -t TOPIC. Or name another topic with --map-topic"
ORIGIN: Final = "SEGMENTLOG_ORIGIN"
"""Property of a message that was sent by this job: ``broker/topic/queue id/queue offset`` in the store."""
ORIGIN_ID: Final = "SEGMENTLOG_ORIGIN_UNIQ_KEY"
"""Property that has the original ``UNIQ_KEY``."""
_UNIQ_KEY: Final = "UNIQ_KEY"
DROPPED: Final = frozenset(
    {
        *("DELAY", "REAL_TOPIC", "REAL_QID"),  # delayed delivery; so is TIMER_*
        *("TRAN_MSG", "PGROUP", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"),  # transactions
        *("CHECK_IMMUNITY_TIME_IN_SECONDS", "__transactionId__"),
        *(RETRY_TOPIC, "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME"),  # retries and dead letters
        *("ORIGIN_MESSAGE_ID", DLQ_TOPIC, "DLQ_ORIGIN_MESSAGE_ID"),
        *("POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", ORIGIN_GROUP),  # pop consumers
        *("MSG_REGION", "TRACE_ON", "CLUSTER", "WAIT", "ARRIVE_TIME", "__CRC32#"),  # set or consumed by the broker
        *("MIN_OFFSET", "MAX_OFFSET", "INNER_NUM", "INNER_BASE", "INNER_MULTI_QUEUE_OFFSET", "DUP_INFO"),
        *("TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "FORWARD_QUEUE_ID", "REDIRECT"),
        *(ORIGIN, ORIGIN_ID),  # of an earlier job
    }
)
"""Properties that are not sent; `is_dropped` has their prefix as well. docs/jobs.md lists them."""
_DROPPED_PREFIX: Final = "TIMER_"
_SENT_FLAGS: Final = 0x1 | 0x2 | 0x700
"""Bits of sysFlag that describe body and tags: compressed, several tags, kind of compression."""
_BLOCK_BYTES: Final = 64
_DIGITS: Final = 20
_NEXT_AT: Final = len('{"next":')
_SYNC_S: Final = 1.0


class Queue(NamedTuple):
    """Queue of a topic on a broker."""

    broker: Address
    queue_id: int


class Connection:
    """Connection to a broker or name server, with any number of requests in flight and no thread. Not thread-safe.

    ::

        name server   105 ──► route of a topic  ──► brokers and their queues ─┐
        broker         21 ──► topicConfigTable  ──► queues of this broker ────┴─► Queue, Queue, …    of one topic

        submit(310, …) submit(310, …)  ──► bytes to send ──► socket ──► answers, in any order
                                           └────────── wait() ───────┘

    Close it, or use it as a context manager. RocketMQ: ``RequestCode``, ``TopicRouteData``,
    ``TopicConfigSerializeWrapper``, ``PermName``.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        try:
            self._socket = socket.create_connection(address, timeout=CONNECT_S)
        except OSError as error:
            raise BrokerError(
                f"{address} cannot be reached: {error.strerror or error}",
                fix="Check host and port: a broker's listenPort with --broker, a name server's with --namesrv",
            ) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)  # noqa: FBT003 - its own signature
        self._reader = AnswerReader()
        self._unsent = bytearray()
        self._opaque = 0
        self.problem: BrokerError | None = None
        """Reason why the connection is lost; None while it is not."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def submit(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> int:
        """Take a request, which `wait` sends; return its number."""
        self._opaque += 1
        self._unsent += encode_request(code, self._opaque, fields, body)
        return self._opaque

    def send(self) -> None:
        """Send as much as the socket takes."""
        try:
            while self._unsent and self.problem is None:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(error.strerror or str(error))

    def receive(self) -> list[Answer]:
        """Return the answers that are there; bytes that are no answers lose the connection."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            return self._lose(error.strerror or str(error))
        if not data:
            return self._lose("the other end closed it")
        try:
            return self._reader.feed(data)
        except FormatError as error:
            self.problem = BrokerError(f"{self.address}: {error.problem}", fix=error.fix)
            return []

    def ask(self, code: int, fields: Mapping[str, str], timeout_s: float) -> Answer:
        """Send one request and wait for its answer; there must be no other in flight."""
        opaque = self.submit(code, fields)
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            for _, answers in wait([self], left):
                for answer in answers:
                    if answer.opaque == opaque:
                        return answer
            if self.problem is not None:
                raise self.problem
        raise BrokerError(
            f"{self.address} has not answered request code {code} for {timeout_s:g} s",
            fix="Check that the address is a broker's listenPort or a name server's",
        )

    def _lose(self, reason: str) -> list[Answer]:
        fix = "Run the same command again when the broker is there: it continues"
        self.problem = BrokerError(f"the connection to {self.address} is lost: {reason}", fix=fix)
        return []


def wait(connections: Iterable[Connection], timeout_s: float) -> list[tuple[Connection, list[Answer]]]:
    """Send, and wait until a socket took more or has answers, or the time is over. See `Connection.problem`."""
    poll, by_file = select.poll(), {}  # not `select`: a process with many files has numbers beyond 1,024
    for each in connections:
        each.send()
        if each.problem is not None:
            return [(each, [])]
        by_file[each.fileno()] = each
        poll.register(each, select.POLLIN | (select.POLLOUT if each.has_unsent else 0))
    found = []
    for file, events in poll.poll(max(0.0, timeout_s) * 1000):
        if events & select.POLLOUT:
            by_file[file].send()
        if events & ~select.POLLOUT:
            found.append((by_file[file], by_file[file].receive()))
    return found


class Cluster:
    """Queues of topics that can be written, of one broker or of all masters that a name server knows."""

    def __init__(self, *, broker: Address | None = None, name_server: Address | None = None, timeout_s: float) -> None:
        self._broker = broker
        self._name_server = name_server
        self._timeout_s = timeout_s
        self._table: dict[str, int] | None = None  # queues by topic of the broker
        self._queues: dict[str, list[Queue]] = {}

    def queues(self, topic: str) -> list[Queue]:
        """Return the queues of a topic by broker and queue id; `BrokerError` if it cannot be written."""
        if topic not in self._queues:
            found = self._of_broker(topic) if self._name_server is None else self._of_route(topic)
            total = sum(count for _, count in found)
            if not total:
                raise BrokerError(
                    f"topic {topic} cannot be written: the permission of its queues says so",
                    fix="Change it: mqadmin updateTopicPerm -t TOPIC -p 6",
                )
            if total > _TOPIC_QUEUES_MAX:
                raise BrokerError(
                    f"topic {topic} has {total} queues, and at most {_TOPIC_QUEUES_MAX} are possible",
                    fix="Check it: mqadmin topicRoute -t TOPIC. Or name another topic with --map-topic",
                )
            self._queues[topic] = [Queue(broker, number) for broker, count in found for number in range(count)]
        return self._queues[topic]

    def _of_broker(self, topic: str) -> list[tuple[Address, int]]:
        assert self._broker is not None
        if self._table is None:
            self._table = self._asked(self._broker, _TOPICS, {}, _topics_in)
        if topic not in self._table:
            hint = did_you_mean(topic, self._table)
            raise BrokerError(f"broker {self._broker} has no topic {topic}", fix=f"{hint}{_CREATE}")
        return [(self._broker, self._table[topic])]

    def _of_route(self, topic: str) -> list[tuple[Address, int]]:
        assert self._name_server is not None
        masters, counts = self._asked(self._name_server, _ROUTE, {"topic": topic}, _route_in)
        gone = sorted(set(counts) - set(masters))
        if counts and not masters:
            raise BrokerError(f"topic {topic} has no master now, only replicas: {listing(gone)}", fix="Start a master")
        return [(masters[name], counts[name]) for name in sorted(set(counts) & set(masters))]

    def _asked(self, address: Address, code: int, fields: Mapping[str, str], read: Callable[[_Document], T]) -> T:
        with Connection(address) as connection:
            answer = connection.ask(code, fields, self._timeout_s)
        if answer.code == _NO_TOPIC:
            raise BrokerError(f"name server {address} knows no topic {fields.get('topic')}", fix=_CREATE)
        if answer.code != SUCCESS:
            fix = "Pass a broker's listenPort as --broker, or a name server's port as --namesrv"
            raise BrokerError(f"{address} refused request code {code}: {answer.code} {answer.remark}", fix=fix)
        problem = "is not JSON"
        try:
            document = answer.document() or {}
            problem = "cannot be used"
            return read(document)
        except (FormatError, ConfigError) as error:
            fix = "Check that the address is a broker's listenPort or a name server's"
            text = f"the answer of {address} to request code {code} {problem}: {error.problem}"
            raise BrokerError(text, fix=fix) from None


def _topics_in(document: _Document) -> dict[str, int]:
    """Return the number of queues that can be written by topic."""
    found = document.get("topicConfigTable")
    configs = found.items() if isinstance(found, dict) else ()
    return {str(name): _writable(config) for name, config in configs if isinstance(config, dict)}


def _route_in(document: _Document) -> tuple[dict[str, Address], dict[str, int]]:
    """Return the address of the master, and the number of queues that can be written, by broker of a topic."""
    masters = {}
    for each in _dicts(document.get("brokerDatas")):
        addresses = each.get("brokerAddrs")
        named = {str(number): address for number, address in addresses.items()} if isinstance(addresses, dict) else {}
        if "0" in named:  # the id of a master
            masters[_checked_name(each.get("brokerName"))] = Address.parse(str(named["0"]))
    counts = {_checked_name(each.get("brokerName")): _writable(each) for each in _dicts(document.get("queueDatas"))}
    return masters, counts


def _dicts(found: object) -> list[_Document]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or len(name) > _NAME_MAX:
        raise FormatError(f"{str(name)[:40]!r} is not a name of at most {_NAME_MAX} characters")
    return name


def _writable(config: _Document) -> int:
    """Return the number of queues that can be written."""
    count, permission = config.get("writeQueueNums"), config.get("perm")
    if not isinstance(count, int) or not isinstance(permission, int) or not permission & _WRITABLE:
        return 0
    return max(count, 0)


# Messages


def is_dropped(name: str) -> bool:
    """Tell whether a property is not sent."""
    return name in DROPPED or name.startswith(_DROPPED_PREFIX)


def target_topic(
    topic: str, retry_topic: str | None, dlq_topic: str | None, mapped: Mapping[str, str], group: str | None = None
) -> str | None:
    """Return the topic to which a message goes; None if a copy does not name its original topic."""
    return mapped[topic] if topic in mapped else original_topic(topic, retry_topic or dlq_topic, group)


class ResendJob(NamedTuple):
    """Messages of a store as a producer sends them once more.

    ::

        %DLQ%billing   RETRY_TOPIC=orders RECONSUME_TIME=16 UNIQ_KEY=7F…01 TAGS=paid          as it is in the store
        orders         TAGS=paid SEGMENTLOG_ORIGIN=broker-a/%DLQ%billing/0/17 …              as it is sent
                                 SEGMENTLOG_ORIGIN_UNIQ_KEY=7F…01 UNIQ_KEY=(of job and origin)

    Properties by which a broker would delay, roll back or retry the message are dropped, as are those that a broker
    sets itself. A message has an id of its own. With the original ``UNIQ_KEY``, a look-up would return two messages of
    one id, and a consumer that drops known ids would drop a dead letter. The id follows from job and origin: copies
    that a job sends twice, after a kill, have the same id. RocketMQ: ``MessageConst``, ``MessageClientIDSetter``,
    ``SendMessageRequestHeaderV2``.

    Identity of a job: random, and the time at which it began, in ms.
    """

    name: str
    started_ms: int


class Row(NamedTuple):
    """Message of the store, its body as stored."""

    offset: int
    body: bytes
    properties: list[tuple[str, str]]
    born_ms: int
    flag: int
    sys_flag: int


def origin_of(broker: str, key: QueueKey, offset: int) -> str:
    return f"{broker}/{key.topic}/{key.queue_id}/{offset}"


def unique_id(job: ResendJob, origin: str) -> str:
    """Return the id of a message. It holds the time of the job, from which RocketMQ's look-ups by id begin."""
    digest = blake2b(f"{job.name}/{origin}".encode(), digest_size=12).digest()
    return (digest[:10] + _since_month(job.started_ms) + digest[10:]).hex().upper()


@lru_cache(1)
def _since_month(time_ms: int) -> bytes:
    """Return the ms since the month began, as an id holds them."""
    date = time.gmtime(time_ms // 1000)
    month_ms = calendar.timegm((date.tm_year, date.tm_mon, 1, 0, 0, 0)) * 1000
    # Clients count from the month's beginning in a zone of their own: 14 hours at most.
    return max(0, time_ms - month_ms - 14 * 3_600_000).to_bytes(4, "big")


def properties_sent(row: Row, origin: str, job: ResendJob, source_topic: str, topic: str) -> dict[str, str]:
    """Return the properties of a message as it is sent to a topic, in their order."""
    found = {name: value for name, value in row.properties if not is_dropped(name)}
    if is_retry_topic(topic):  # a consumer shows such a message as one of this topic
        stored = dict(row.properties)
        named = stored.get(RETRY_TOPIC) or stored.get(DLQ_TOPIC)
        found[RETRY_TOPIC] = original_topic(source_topic, named, stored.get(ORIGIN_GROUP)) or source_topic
    former = found.pop(_UNIQ_KEY, None)
    found[ORIGIN] = origin
    if former is not None:
        found[ORIGIN_ID] = former
    found[_UNIQ_KEY] = unique_id(job, origin)
    return found


def encode_properties(properties: Iterable[tuple[str, str]]) -> str:
    """Return the text of properties in a record."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties)


def request_fields(row: Row, properties: str, topic: str, queue_id: int, group: str) -> dict[str, str]:
    """Return the fields of the request SEND_MESSAGE_V2, which have names of one letter."""
    return {
        "a": group,  # producerGroup
        "b": topic,
        "c": "TBW102",  # defaultTopic, by whose example a broker creates topics; the topic is known to exist
        "d": "4",  # defaultTopicQueueNums
        "e": str(queue_id),
        "f": str(row.sys_flag & _SENT_FLAGS),
        "g": str(row.born_ms),
        "h": str(row.flag),
        "i": properties,
        "j": "0",  # reconsumeTimes
        "k": "false",  # unitMode
        "m": "false",  # batch
    }


# State file


class Progress:
    """State file of a resend: what the broker acknowledged, so that a job that was killed continues.

    ::

        {"next":                   0,"job":"9f…","queues":1,"asked":{…}}          job; padded to 64 bytes
        {"next":                  18,"topic":"orders","queueId":0,"ranges":[[0,40]]}         next offset of a queue
                 └ overwritten in place, 20 digits within a sector

    A queue has at most one message in flight, so one offset states what was acknowledged. It is written when the answer
    arrives, before the queue's next message is sent. After the kill of the process at most one message per queue is
    sent twice; after a power cut those of the last second. A lock on the file keeps a second process out.

    Not thread-safe. Close it, or use it as a context manager.
    """

    def __init__(
        self, state: StateFile, job: ResendJob, ranges: Sequence[tuple[QueueRange, ...]], nexts: Sequence[int]
    ) -> None:
        self.job = job
        self.queues = {each[0].key: each for each in ranges}
        """Ranges of each queue that belong to the job."""
        self._state = state
        self._next = dict(zip(self.queues, nexts, strict=True))
        ends = accumulate(map(len, state.lines()))
        self._places = {key: end + _NEXT_AT for key, end in zip(self.queues, ends, strict=False)}
        """Places in the file of the digits of each queue."""
        self._synced = time.monotonic()

    @classmethod
    def open(cls, path: str, ranges: Sequence[QueueRange], asked: Mapping[str, object], *, again: bool) -> Self:
        """Begin a job, or continue that of the file.

        `ConfigError` if the file is of another job, or in use, or a new job has no messages; `FormatError` if it is
        something else.
        ``again`` begins a job that is finished once more.
        """
        state = StateFile.open(path)
        try:
            found = cls._read(state, asked)
            if found is None or (again and found.is_finished):
                state.replace(_begun(ranges, asked))
                found = cls._read(state, asked)
        except BaseException:
            state.close()
            raise
        assert found is not None
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.fsync(self._state.file)
        self._state.close()

    @property
    def is_finished(self) -> bool:
        return all(self._next[key] >= ranges[-1].stop for key, ranges in self.queues.items())

    def left(self) -> list[QueueRange]:
        """Return the ranges that were not acknowledged, by queue."""
        found = []
        for key, ranges in self.queues.items():
            start = self._next[key]
            found += [QueueRange(key, max(start, each.start), each.stop) for each in ranges if start < each.stop]
        return found

    def acknowledge(self, key: QueueKey, next_offset: int) -> None:
        """Record that all messages of a queue before an offset were acknowledged, or are not of the job."""
        self._next[key] = next_offset
        os.pwrite(self._state.file, b"%*d" % (_DIGITS, next_offset), self._places[key])
        now = time.monotonic()
        if now - self._synced >= _SYNC_S:
            os.fdatasync(self._state.file)
            self._synced = now

    @classmethod
    def _read(cls, state: StateFile, asked: Mapping[str, object]) -> Self | None:
        return state.load("resend", asked, partial(cls._decoded, state))

    @classmethod
    def _decoded(cls, state: StateFile, head: Any, rows: Sequence[Any]) -> Self:
        if len(rows) != head["queues"]:
            raise ValueError(f"it has {len(rows)} of {head['queues']} queues")
        lines = []
        for row in rows:
            key = QueueKey(row["topic"], row["queueId"])
            lines.append(tuple(QueueRange(key, start, stop) for start, stop in row["ranges"]))
        return cls(state, ResendJob(str(head["job"]), int(head["started"])), lines, [int(row["next"]) for row in rows])


def _begun(ranges: Sequence[QueueRange], asked: Mapping[str, object]) -> list[bytes]:
    """Return the lines of a new job; `ConfigError` if it has no messages."""
    check_some(ranges)
    queues = by_queue(ranges)
    job = ResendJob(uuid.uuid4().hex, time.time_ns() // 1_000_000)
    head = {"job": job.name, "started": job.started_ms, "queues": len(queues), "asked": dict(asked)}
    lines = [_line(0, head)]
    for key, found in queues.items():
        spans = sorted((each.start, each.stop) for each in found)
        lines.append(_line(spans[0][0], {"topic": key.topic, "queueId": key.queue_id, "ranges": spans}))
    return lines


def _line(next_offset: int, more: Mapping[str, object]) -> bytes:
    """Return a line whose length is a multiple of a block, so that the digits of all lines are within sectors."""
    text = f'{{"next":{next_offset:>{_DIGITS}},{json.dumps(more)[1:]}'.encode()
    return text.ljust(-(-(len(text) + 1) // _BLOCK_BYTES) * _BLOCK_BYTES - 1) + b"\n"
