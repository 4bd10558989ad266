"""Replication server: one thread that serves the log of an open store to slaves, RocketMQ's and ours.

::

    accept ──► allowed? ──► a place? ──► Follower ──► frames: header, view of the mapped segment ──► socket
                  │ no         │ no         ▲ reports                                                  │ full: kept, and
                  └─► closed   └─► closed   └──► Quorum.acknowledge                     writable: sent ◄┘

    wake ──► a byte through a pipe, only while the thread sleeps

    a replica knows of a greater epoch   by TLS: StaleMasterError, noted on the device; no further append is confirmed
                                         without: logged, and `claimed_epoch`, as any process could send it

    no descriptor is free ──► accept fails: connections wait in the backlog, and the next look, a second later, tries
                              again; a listening socket that stays readable would keep the thread busy

    Places    connections of an address, oldest first          s silent: no request yet     r requested
    10.1.0.7  [s r s s s]                  full: its oldest silent connection is closed, and frees the place
    10.1.0.9  [r r r r r]                  full, and all have requests: the new connection is refused
    all       [s r s s s][r r …][s]        full: the oldest silent connection of the address with most of them is closed

A connection keeps 7 bytes of a report, and views of one frame: bodies are in the page cache. Bytes of a batch in flight
are not sent before the batch is committed, since a crash would undo them. RocketMQ: ``DefaultHAService``; its slaves
send their request 5 s after they connected.
"""

import contextlib
import errno
import ipaddress
import logging
import selectors
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn, Self

from ..errors import ReplicationError, SegmentLogError, StaleMasterError
from ..files.fs import LocalFileSystem
from ..files.os_errors import descriptor_budget
from ..files.writable_fs import LocalWritableFileSystem
from ..log.commit_log import CommitLog
from ..log.epochs import EpochWatch, check_current, stale_master, supersede
from .link import Acceptor, Link, left_of
from .master import Follower
from .protocol import Greeting
from .quorum import Confirmer, Quorum
from .served_log import FollowedLog, HistoryFeed
from .settings import ServerConfig

if TYPE_CHECKING:
    from ..write.message_store import MessageStore

_log = logging.getLogger(__name__)


LINE_EVERY_S: Final = 60.0  # seconds between two log lines of a subject
_SUBJECTS_MAX: Final = 1024
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_READ_BYTES: Final = 16 << 10
_CHECK_S: Final = 1.0  # between two looks at idle connections: for heartbeats, and for silent peers
_NO_DESCRIPTORS: Final = (
    "connections wait, this process may have no more files open: raise the limit (ulimit -n), or open fewer "
    "stores at once"
)
_FRAMES_AT_ONCE: Final = 16  # per connection and round: no slave keeps other slaves waiting


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.create_server((host, port), family=family, backlog=socket.SOMAXCONN)
    made.settimeout(0.0)
    return made


class Places:
    """Connections by address: at most ``most`` at the same time, ``of_address`` per address. Not thread-safe."""

    def __init__(self, most: int, of_address: int) -> None:
        self._most = most
        self._of_address = of_address
        self._count = 0
        self._silent: dict[str, dict[int, bool]] = {}  # per address: silent or not, by number and in order of arrival

    def victim_of(self, address: str) -> int | None:
        """Return the connection to close for a new one of an address; None if a place is free."""
        held = self._silent.get(address, {})
        if len(held) >= self._of_address:
            taken = f"all {self._of_address} places of this address are taken"
        elif self._count >= self._most:
            taken = f"all {self._most} places are taken"
            held = max(self._silent.values(), key=lambda each: sum(each.values()))
        else:
            return None
        for number, is_silent in held.items():
            if is_silent:
                return number
        raise ReplicationError(taken)

    def add_connection(self, address: str, number: int) -> None:
        """Assign a place to a connection, which has sent no request."""
        self._silent.setdefault(address, {})[number] = True
        self._count += 1

    def note_request(self, address: str, number: int) -> None:
        """Note that a connection has sent its request: it keeps its place."""
        self._silent[address][number] = False

    def remove_connection(self, address: str, number: int) -> None:
        """Free the place of a connection that ended."""
        held = self._silent[address]
        del held[number]
        self._count -= 1
        if not held:
            del self._silent[address]


class RareLines:
    """Log lines that peers cause, limited to one per subject and minute: no peer fills the log. Not thread-safe."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._written: OrderedDict[str, tuple[float, int]] = (
            OrderedDict()
        )  # time of the line, and number of lines left out since

    def write(self, level: int, subject: str, text: str) -> None:
        """Log a line, unless the subject had one within the last minute."""
        now = time.monotonic()
        at, left_out = self._written.get(subject, (now - LINE_EVERY_S, 0))
        if now - at < LINE_EVERY_S:
            self._written[subject] = at, left_out + 1
            return
        self._log.log(level, "%s%s", text, f" ({left_out} more before)" if left_out else "")
        self._written[subject] = now, 0
        self._written.move_to_end(subject)
        if len(self._written) > _SUBJECTS_MAX:
            self._written.popitem(last=False)


@dataclass(slots=True)
class _Connection:
    link: Link
    host: str
    name: str
    follower: Follower
    acknowledged: int | None = None
    pending: list[memoryview] = field(default_factory=list)


class ReplicationServer:
    """Serves a store's log; a context manager. Its thread runs from the constructor to `close`.

    Parameters
    ----------
    store
        The log to serve: of a store in this process, which stays open longer than the server, or of other processes.
    quorum
        Receives the acknowledgements. It is attached to the store if appends have to wait for replicas. The offset that
        enough copies hold, two or more, is published for readers with ``readFrom=confirmed`` and commits with
        ``replication=sync``.
    config
        Settings.

    Raises
    ------
    OSError
        If the address is in use or does not exist.
    StoreInUseError
        If another server publishes confirmed offsets of this store.
    StaleMasterError
        If another master has replaced this store.
    """

    def __init__(self, store: "MessageStore | FollowedLog", quorum: Quorum, config: ServerConfig | None = None) -> None:
        self._fs = LocalWritableFileSystem()
        check_current(self._fs, store.path)
        self._config = config or ServerConfig()
        self.problem = ""
        """Reason why the thread ended unexpectedly; empty while it runs, and after `close`."""
        self.claimed_epoch: int | None = None
        """Greatest epoch that a peer without TLS claimed for another master of this log; None if no peer did."""
        self._store, self._quorum = store, quorum
        self._segment_bytes = store.config.segment_bytes
        self._acceptor = Acceptor(self._config.tls)
        self._allowed = [ipaddress.ip_network(text) for text in self._config.allowed]
        self._log = CommitLog.of_store(LocalFileSystem(), store.path)
        self._connections: dict[int, _Connection] = {}
        self._places = Places(descriptor_budget(self._config.connections_max, 4), self._config.connections_per_address)
        self._lines = RareLines(_log)
        self._confirmer = None if quorum.needed < 2 else Confirmer(store.path, quorum)
        try:
            self._listener = _listener(self._config.host, self._config.port)
        except BaseException:
            if self._confirmer is not None:
                self._confirmer.close()
            raise
        self.port: int = self._listener.getsockname()[1]
        """Port at which it listens."""
        self._epochs = EpochWatch(self._fs, store.path)
        self._history = HistoryFeed(self._fs, store.path)
        self._history_problem = ""  # reason why replicas of segmentlog get no rows; empty in general
        self._received = memoryview(bytearray(_READ_BYTES))
        self._woken, self._waker = socket.socketpair()
        self._woken.settimeout(0.0)
        self._waker.settimeout(0.0)
        self._is_asleep = False
        self._end = -1  # of the log, when all connections were looked at last
        self._check_at = 0.0
        self._active: set[int] = set()  # connections with a report, room or more to send
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._stop = threading.Event()
        quorum.serve_by(self._wake, self._confirm)
        self._thread = threading.Thread(target=self._run, name="segmentlog-replication", daemon=True)
        self._thread.start()

    @property
    def replicas(self) -> dict[str, int | None]:
        """Acknowledged physical offset per connected peer; None before it acknowledged anything."""
        return {each.name: each.acknowledged for each in list(self._connections.values())}

    @property
    def confirmed(self) -> int | None:
        """Physical offset that was published as confirmed; None if the quorum needs no replica."""
        return None if self._confirmer is None else self._confirmer.confirmed

    def close(self) -> None:
        """Close all connections and end the thread."""
        self._stop.set()
        self._wake()
        self._thread.join()

    def _wake(self) -> None:
        if self._is_asleep:
            self._is_asleep = False
            with contextlib.suppress(OSError):  # full: it wakes anyway
                self._waker.send(b"\0")

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._round()
        except Exception as error:  # noqa: BLE001 - `problem` has it, and waiting appends fail
            self.problem = str(error) or type(error).__name__
            _log.exception("%s: the replication server ended: no replica is served any more", self._store.path)
        finally:
            for number in list(self._connections):
                self._drop(number, "the server was closed")
            self._quorum.serve_by(lambda: None)
            self._epochs.close()
            self._history.close()
            if self._confirmer is not None:
                with contextlib.suppress(SegmentLogError, OSError):  # a lower bound stays, as after a crash
                    self._confirmer.close()
            self._selector.close()
            for each in (self._listener, self._woken, self._waker):
                each.close()

    def _confirm(self) -> None:
        """Publish the confirmed offset; acknowledgements count even if the file cannot be written."""
        if self._confirmer is None:
            return
        try:
            self._confirmer.publish()
        except (SegmentLogError, OSError):
            _log.exception("%s: the confirmed offset cannot be published", self._store.path)

    def _round(self) -> None:
        self._is_asleep = True
        self._active = self._send_all()
        ready = self._selector.select(0.0 if self._active else self._config.poll_s)
        self._is_asleep = False
        has_new = False
        for key, events in ready:
            if key.fileobj is self._listener:
                has_new = True
            elif key.fileobj is self._woken:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(_READ_BYTES)
            else:
                self._active.add(key.fd)
                if events & selectors.EVENT_READ:
                    self._run_guarded(key.fd, self._read)
        if has_new:  # last: a request that has arrived protects the place of its connection
            self._accept()

    def _run_guarded(self, number: int, step: Callable[[_Connection], bool]) -> bool:
        """Run a step of one connection; an error of its peer ends that connection only."""
        connection = self._connections.get(number)
        if connection is None:
            return False
        try:
            return step(connection)
        except StaleMasterError:
            raise
        except SegmentLogError as error:
            self._drop(number, error.problem)
        except OSError as error:
            self._drop(number, error.strerror or str(error))
        return False

    def _accept(self) -> None:
        try:
            connection, (host, port, *_) = self._listener.accept()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self._lines.write(logging.WARNING, "descriptors", f"{self._store.path}: {_NO_DESCRIPTORS}")
                self._selector.unregister(self._listener)  # until the next look
            return
        try:
            self._admit(connection, host, port)
        except (SegmentLogError, OSError) as error:
            connection.close()
            problem = error.problem if isinstance(error, SegmentLogError) else error.strerror or str(error)
            self._lines.write(logging.WARNING, host, f"{host}: the connection is refused: {problem}")

    def _admit(self, connection: socket.socket, host: str, port: int) -> None:
        """Assign a place to a connection, if necessary the place of a silent connection."""
        if not any(ipaddress.ip_address(host) in each for each in self._allowed):
            raise ReplicationError("its address is not allowed")
        victim = self._places.victim_of(host)
        link = self._acceptor.link(connection)
        if victim is not None:
            self._drop(victim, "it had sent no request when another connection needed its place")
        number = link.fileno()
        follower = Follower(self._segment_bytes, time.monotonic())
        self._connections[number] = _Connection(link, host, f"{host}:{port}", follower)
        self._places.add_connection(host, number)
        self._selector.register(link, selectors.EVENT_READ)

    def _read(self, connection: _Connection) -> bool:
        size = connection.link.receive(self._received)
        follower = connection.follower
        was_silent = not follower.has_requested
        follower.receive(bytes(self._received[:size]), self._store.end_offset, time.monotonic())
        if was_silent and follower.has_requested:
            self._places.note_request(connection.host, connection.link.fileno())
            self._log = self._log.again()  # retention may have deleted the first segment since
        if follower.refused_by is not None:
            self._step_down(connection, follower.refused_by)
        if follower.acknowledged is not None:
            self._quorum.acknowledge(connection.link.fileno(), follower.acknowledged)
            connection.acknowledged = follower.acknowledged  # last: an append may rely on what `replicas` states
        return True

    def _step_down(self, connection: _Connection, epoch: int) -> NoReturn:
        """End the server if a peer that showed a certificate knows of a greater epoch, else the connection."""
        path, newest = self._store.path, self._epochs.now.newest
        if epoch <= newest:
            raise ReplicationError(f"a slave refused this master of epoch {newest} for one of epoch {epoch}")
        if self._config.tls is None:
            self.claimed_epoch = max(epoch, self.claimed_epoch or 0)
            self._lines.write(
                logging.ERROR,
                f"claims of {connection.host}",
                f"{path}: {connection.name} claims that the master of epoch {epoch} has replaced this one, of epoch "
                f"{newest}. Without TLS any process could claim that, so this one serves on: find out which store is "
                "the master",
            )
            raise ReplicationError(f"it claims a master of epoch {epoch}, and showed no certificate")
        error = stale_master(path, newest, epoch)
        self._quorum.fail(error)  # first: no append is confirmed from here on, even if the file cannot be written
        try:
            supersede(self._fs, path, epoch)
        except (SegmentLogError, OSError):
            _log.exception("%s: epoch %d of the master that replaced this one cannot be written", path, epoch)
        raise error

    def _look_for_changes(self) -> None:
        """Look for new epochs and batches: replicas have to know of both before they get more bytes."""
        try:
            self._history.read_changes()
            self._history_problem = ""
        except (SegmentLogError, OSError) as error:
            if str(error) != self._history_problem:
                _log.exception("%s: replicas get no rows, since the batches of the log are not known", self._store.path)
            self._history_problem = str(error)
        if self._epochs.look():
            for number, each in list(self._connections.items()):
                greeting = each.follower.greeting
                if greeting is not None and greeting.epochs != self._epochs.now:
                    self._drop(number, "the store has another epoch")

    def _send_all(self) -> set[int]:
        """Send as much as connections take; return the connections that may take more at once."""
        # Idle connections get their turn after the end of the log moved, and once per second.
        now, chosen = time.monotonic(), self._active
        try:
            end = self._store.settled_offset
            if self._confirmer is not None:
                self._confirmer.note_end(end)
            if end != self._end or now >= self._check_at:
                if self._listener not in self._selector.get_map():
                    self._selector.register(self._listener, selectors.EVENT_READ)
                self._look_for_changes()  # after the end: bytes of a new epoch are appended after it is noted
                self._end, self._check_at = end, now + _CHECK_S
                chosen = set(self._connections)
        except OSError as error:  # too few descriptors, or a broken device
            problem = f"{self._store.path}: no bytes are sent to replicas until the store can be read again: {error}"
            self._lines.write(logging.WARNING, "look", problem)
            chosen, self._check_at = set(), 0.0
        return {number for number in chosen if self._run_guarded(number, lambda each: self._send(each, self._end))}

    def _send(self, connection: _Connection, end: int) -> bool:
        now = time.monotonic()
        connection.follower.check_silence(now)
        if connection.follower.is_asking:
            self._look_for_changes()
            answer = connection.follower.greet(Greeting(end, self._epochs.now))
            connection.pending.append(memoryview(answer))
        for _ in range(_FRAMES_AT_ONCE):
            connection.pending = connection.pending or self._next_pieces(connection.follower, end, now)
            if not connection.pending:
                return self._watch(connection, selectors.EVENT_READ)
            sent = connection.link.send(connection.pending)
            if not sent:
                self._watch(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
                return False
            connection.pending = left_of(connection.pending, sent)
        return True

    def _next_pieces(self, follower: Follower, end: int, now: float) -> list[memoryview]:
        """Return the pieces of the next frame; none if nothing is to be sent."""
        history = self._history
        if follower.greeting is not None and self._history_problem:
            raise ReplicationError(f"the batches of the log are not known: {self._history_problem}")
        position = follower.history_position(history.generation, history.size)
        if position is not None:
            lines = follower.history_frame(history.generation, history.lines_from(position))
            return [memoryview(each) for each in lines if each]
        frame = follower.next_frame(self._log.min_offset, end, now)
        return [] if frame is None else [memoryview(frame.header), *self._log_views(frame.start, frame.stop)]

    def _watch(self, connection: _Connection, events: int) -> bool:
        if self._selector.get_key(connection.link).events != events:
            self._selector.modify(connection.link, events)
        return False

    def _log_views(self, start: int, stop: int) -> list[memoryview]:
        """View bytes of the log, which are in one segment."""
        if start == stop:
            return []
        segment = self._log.find(start)
        if segment is None:
            self._log = self._log.again()
            segment = self._log.find(start)
        if segment is None:
            raise ReplicationError(f"the log has no byte at physical offset {start}: retention deleted it")
        return [self._log.view(segment, start - segment.base, stop - segment.base).data]

    def _drop(self, number: int, problem: str) -> None:
        connection = self._connections.pop(number)
        self._places.remove_connection(connection.host, number)
        subject = f"replica {connection.host}" if connection.follower.has_requested else connection.host
        self._lines.write(logging.INFO, subject, f"{connection.name}: the connection is closed: {problem}")
        self._quorum.forget(number)
        self._selector.unregister(connection.link)
        connection.link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
