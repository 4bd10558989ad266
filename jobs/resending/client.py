"""Connection to brokers and name servers: requests in flight by number, without a thread.

::

    name server   105 ──► route of a topic  ──► brokers and their queues ─┐
    broker         21 ──► topicConfigTable  ──► queues of this broker ────┴─► Queue, Queue, …    of one topic

    submit(310, …) submit(310, …)  ──► bytes to send ──► socket ──► answers, in any order
                                       └────────── wait() ───────┘

RocketMQ: ``RequestCode``, ``TopicRouteData``, ``TopicConfigSerializeWrapper``, ``PermName``.
"""

import select
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Self, TypeAlias

from segmentlog.query.suggestions import did_you_mean, listing
from segmentlog.store import BrokerError, FormatError
from segmentlog.store.ha import SUCCESS, Address, Answer, AnswerReader, encode_request

CONNECT_S: Final = 5.0
_Document: TypeAlias = dict[Any, Any]  # JSON as fastjson writes it
_ROUTE: Final = 105  # GET_ROUTEINFO_BY_TOPIC
_TOPICS: Final = 21  # GET_ALL_TOPIC_CONFIG
_NO_TOPIC: Final = 17  # TOPIC_NOT_EXIST
_WRITABLE: Final = 2  # bit of `perm`
_READ_BYTES: Final = 256 << 10
_CREATE: Final = "Create it: mqadmin updateTopic -t TOPIC. Or name another topic with --map-topic"


class Queue(NamedTuple):
    """Queue of a topic on a broker."""

    broker: Address
    queue_id: int


class Connection:
    """A connection with any number of requests in flight. Not thread-safe. Close it, or use it as a context manager."""

    def __init__(self, address: Address) -> None:
        self.address = address
        try:
            self._socket = socket.create_connection(address, timeout=CONNECT_S)
        except OSError as error:
            raise BrokerError(
                f"{address} cannot be reached: {error.strerror or error}",
                fix="Check host and port: a broker's listenPort with --to, a name server's with --namesrv",
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
        self._table: _Document | None = None  # topics of the broker
        self._queues: dict[str, list[Queue]] = {}

    def queues(self, topic: str) -> list[Queue]:
        """Return the queues of a topic by broker and queue id; `BrokerError` if it cannot be written."""
        if topic not in self._queues:
            found = self._of_broker(topic) if self._name_server is None else self._of_route(topic)
            if not found:
                raise BrokerError(
                    f"topic {topic} cannot be written: the permission of its queues says so",
                    fix="Change it: mqadmin updateTopicPerm -t TOPIC -p 6",
                )
            self._queues[topic] = found
        return self._queues[topic]

    def _of_broker(self, topic: str) -> list[Queue]:
        assert self._broker is not None
        if self._table is None:
            document = self._document(self._broker, _TOPICS, {})
            found = document.get("topicConfigTable")
            self._table = found if isinstance(found, dict) else {}
        config = self._table.get(topic)
        if not isinstance(config, dict):
            names = [each for each in self._table if isinstance(each, str)]
            raise BrokerError(
                f"broker {self._broker} has no topic {topic}", fix=f"{did_you_mean(topic, names)}{_CREATE}"
            )
        return [Queue(self._broker, number) for number in _writable(config)]

    def _of_route(self, topic: str) -> list[Queue]:
        assert self._name_server is not None
        route = self._document(self._name_server, _ROUTE, {"topic": topic})
        masters: dict[str, Address] = {}
        for each in _dicts(route.get("brokerDatas")):
            addresses = each.get("brokerAddrs")
            if isinstance(addresses, dict):
                named = {str(number): address for number, address in addresses.items()}
                if "0" in named:  # the id of a master
                    masters[str(each.get("brokerName"))] = Address.parse(str(named["0"]))
        queues = {str(each.get("brokerName")): each for each in _dicts(route.get("queueDatas"))}
        gone = sorted(set(queues) - set(masters))
        if queues and not masters:
            raise BrokerError(f"topic {topic} has no master now, only replicas: {listing(gone)}", fix="Start a master")
        return [
            Queue(masters[name], number)
            for name in sorted(set(queues) & set(masters))
            for number in _writable(queues[name])
        ]

    def _document(self, address: Address, code: int, fields: Mapping[str, str]) -> _Document:
        with Connection(address) as connection:
            answer = connection.ask(code, fields, self._timeout_s)
        if answer.code == _NO_TOPIC:
            raise BrokerError(f"name server {address} knows no topic {fields.get('topic')}", fix=_CREATE)
        if answer.code != SUCCESS:
            fix = "Pass a broker's listenPort as --to, or a name server's port as --namesrv"
            raise BrokerError(f"{address} refused request code {code}: {answer.code} {answer.remark}", fix=fix)
        try:
            return answer.document() or {}
        except FormatError as error:
            raise BrokerError(f"the answer of {address} to request code {code} is not JSON: {error}") from None


def _dicts(found: object) -> list[_Document]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _writable(config: _Document) -> range:
    """Return the numbers of the queues that can be written."""
    count, permission = config.get("writeQueueNums"), config.get("perm")
    if not isinstance(count, int) or not isinstance(permission, int) or not permission & _WRITABLE:
        return range(0)
    return range(count)
