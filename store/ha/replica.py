"""Replica of a running broker: follows the broker's log over its replication port, and appends it to a store.

::

    connect ──► Handshake: epochs differ? ──► adopted on the device before anything of them is appended, or refused
    connect ──► Slave ──► report ─────────────────────────────────────────────► master
                  ▲                                                               │ frames
                  └── end ◄── MessageStore.append_encoded ◄── new bytes ◄── Slave ◄┘
                                  whole records, dispatched: readers see them

    connection lost, silence, a jump   ──► pause with backoff ──► connect again, from where the log ends
    another log, three times           ──► DivergedLogError: nothing is truncated
    an older master, three times       ──► StaleMasterError: it is told

    empty store, FIRST   report 0 ──► base of the last segment ──► bisection: the first segment that the master serves

Readers, Spark included, open the store's directory meanwhile. RocketMQ: ``HAClient``.
"""

import logging
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from ..config import StoreConfig
from ..directory.file_sizes import stored_config
from ..dispatch.dispatcher import DispatchRequest, ReplicatedRecords
from ..errors import (
    ConfigError,
    DivergedLogError,
    FormatError,
    NoSpaceError,
    ReplicationError,
    SegmentLogError,
    StaleMasterError,
)
from ..files.fs import LocalFileSystem
from ..files.small_file import DOCUMENT_BYTES_MAX
from ..files.writable_fs import LocalWritableFileSystem
from ..format.store_paths import StorePaths
from ..log.commit_log import CommitLog
from ..log.epochs import find_epochs, greatest_epoch, write_epochs
from ..write.attachments import Attachments
from ..write.message_store import MessageStore
from ..write.put_path import LogListener
from .first_segment import find_first, serves
from .handshake import Greeting, Handshake, check_greeting, question, refusal
from .incoming import IncomingBatches
from .intake import BUFFER_BYTES, Intake
from .link import Link, connect
from .pacing import Backoff, TokenBucket
from .settings import Address, Begin, ReplicaConfig, ReplicaMetrics, ReplicaState, ReplicaStatus
from .slave import Slave

_log = logging.getLogger(__name__)

_HELD_BYTES: Final = 64 << 10  # compared with the master's bytes on every connection
_STOP_S: Final = 0.2  # within which a stop is noticed
_TOLD_S: Final = 2.0  # for a stale master to read that it is one; then it closes the connection
_TORN_HEARTBEATS: Final = 2  # after which a record that is not whole is damage; a master sends whole ones
_CONFIRMATIONS: Final = 3  # connections that have to find the same damage or difference before it is believed


class _Newest:
    """Store time of the newest record; a log listener."""

    def __init__(self) -> None:
        self.ms = 0

    def add(self, request: DispatchRequest) -> None:
        """Note the store time of the last record."""
        if isinstance(request.records, ReplicatedRecords):
            self.ms = max(self.ms, request.records.newest)


class Replica:
    """Store that follows a master; a context manager. Use `open`, then `run` in a thread of your choice.

    `status` may be called by any thread.

    Parameters
    ----------
    store
        The store, open; the replica closes it.
    newest
        Listener attached to the store.
    master
        Address of the master's replication port.
    config, metrics
        See `open`.
    """

    def __init__(
        self,
        store: MessageStore,
        newest: _Newest,
        master: Address,
        config: ReplicaConfig,
        metrics: ReplicaMetrics | None,
    ) -> None:
        self.store = store
        """The store; other threads may read it, none may append."""
        self._newest = newest
        self._incoming = IncomingBatches(LocalWritableFileSystem(), store)
        self._master = master
        self._config = config
        self._metrics = metrics
        self._segment_bytes = store.config.segment_bytes
        self._first: int | None = None
        self._torn_heartbeats = 0
        self._backoff = Backoff(random.Random())  # noqa: S311 - it spreads pauses
        self._doubts: list[object] = []
        self._bucket = TokenBucket(config.bytes_per_s, time.monotonic())
        self._status = ReplicaStatus(
            state=ReplicaState.CONNECTING,
            end=store.end_offset,
            lag_bytes=0,
            lag_s=None,
            received_bytes=0,
            connections=0,
            problem="",
        )

    @classmethod
    def open(
        cls,
        path: str,
        master: Address,
        store_config: StoreConfig | None = None,
        *,
        config: ReplicaConfig | None = None,
        metrics: ReplicaMetrics | None = None,
        listeners: Sequence[LogListener] = (),
    ) -> Self:
        """Open the replica's store, or create it. Nothing is connected yet.

        Parameters
        ----------
        path
            Store directory; its parent exists.
        master
            Address of the master's replication port, a broker's ``haListenPort``.
        store_config
            How the store is written; None for the defaults with the file sizes of the existing store.
            ``segment_bytes`` is the master's; records are copied as they are, so ``record_crc`` has no effect.
        config
            Settings of the replica.
        metrics
            Collector of measurements.
        listeners
            Learn of each new end of the log, like the `Quorum` of a server that serves this replica.

        Raises what `MessageStore.open` does.
        """
        newest = _Newest()
        written = replace(store_config or stored_config(path, StoreConfig()), record_crc=False)
        store = MessageStore.open(path, written, attached=Attachments(listeners=[newest, *listeners]))
        try:
            return cls(store, newest, master, config or ReplicaConfig(), metrics)
        except BaseException:
            store.close()
            raise

    @property
    def status(self) -> ReplicaStatus:
        """Position and counters as of now."""
        return self._status

    def run(self, stop: threading.Event) -> None:
        """Follow the master until ``stop`` is set.

        Lost connections, a full disk and a silent master only pause it.

        Raises
        ------
        DivergedLogError
            If the master's log does not continue this one; nothing was truncated.
        StaleMasterError
            If another master has replaced this one.
        FormatError
            If the master's log is damaged.
        ConfigError
            If the master's segments are of another size.
        StoreFailedError, StoreClosedError
            As `MessageStore.append_encoded`.
        """
        try:
            while not stop.is_set():
                problem = self._attempt(stop)
                if problem:
                    self._set(state=ReplicaState.PAUSED, problem=problem)
                    if self._metrics is not None:
                        self._metrics.disconnected(problem)
                    pause_s = self._backoff.next_s()
                    _log.warning("%s: %s; connecting again in %.1f s", self._master, problem, pause_s)
                    stop.wait(pause_s)
        except Exception as error:
            self._set(state=ReplicaState.FAILED, problem=str(error) or type(error).__name__)
            _log.error("%s: the replica %s ended, it follows no more: %s", self._master, self.store.path, error)
            raise
        finally:
            if self._status.state is not ReplicaState.FAILED:
                self._set(state=ReplicaState.STOPPED)

    def close(self) -> None:
        """Close the store; `run` has returned."""
        self.store.close()

    def _attempt(self, stop: threading.Event) -> str:
        """Follow over one connection; return why it ended, or an empty text."""
        try:
            self._follow(stop)
        except (DivergedLogError, StaleMasterError, FormatError, ConfigError) as error:
            # A proxy or a broken network may be the cause: what is final has to be found more than once.
            doubt = str(error) if error.offset is None else (type(error), error.offset)
            self._doubts.append(doubt)
            if self._doubts.count(doubt) >= _CONFIRMATIONS:
                raise
            return error.described
        except (ReplicationError, NoSpaceError) as error:
            return error.described
        except OSError as error:
            return f"the connection failed: {error.strerror or error}"
        return ""

    def _follow(self, stop: threading.Event) -> None:
        self._set(state=ReplicaState.CONNECTING)
        with self._connect() as link:
            slave, intake, handshake = self._slave(), Intake(link), Handshake()
            self._incoming.connect()
            link.send_all(question(), self._config.connect_s)
            self._set(state=ReplicaState.VERIFYING, connections=self._status.connections + 1)
            while not stop.is_set():
                now = time.monotonic()
                self._report(link, slave, now)
                data: bytes | memoryview | None = self._read(intake, slave.wait_s(now))
                if data is not None and not handshake.is_over:
                    data = self._shake(handshake, data, link, intake)
                    if handshake.greeting is not None:
                        slave.accept_history(DOCUMENT_BYTES_MAX)
                if not data:
                    continue
                chunk = slave.receive(data, time.monotonic())
                self._incoming.take(slave.take_history())
                begin = slave.begin if chunk is None else chunk.offset
                if begin is not None and self._starts_too_late(begin):
                    self._first = find_first(self._serves, begin, self._segment_bytes)
                    _log.info("%s: the master's log begins at physical offset %d", self._master, self._first)
                    return
                if chunk is not None:
                    self._incoming.check(chunk.offset, has_history=handshake.greeting is not None)
                    self._append(chunk.offset, chunk.data)
                if slave.is_verified:
                    self._note(slave)

    def _report(self, link: Link, slave: Slave, now: float) -> None:
        report = slave.report(self.store.end_offset, now)
        if report:
            link.send_all(report, self._config.connect_s)

    def _append(self, offset: int, data: bytes) -> None:
        before = self.store.end_offset
        self._incoming.expect(offset + len(data))
        end = self.store.append_encoded(offset, data)
        self._incoming.settle()
        lag_s = self._status.lag_s
        if end > before:
            self._doubts.clear()
            self._backoff.reset()
            lag_s = max(time.time() - self._newest.ms / 1000, 0.0) if self._newest.ms else None
            if self._metrics is not None:
                self._metrics.appended(end - before if before else len(data), lag_s)
        self._set(end=end, lag_s=lag_s)

    def _note(self, slave: Slave) -> None:
        end = self.store.end_offset
        idle = slave.is_idle
        self._torn_heartbeats = self._torn_heartbeats + 1 if idle and end not in {0, slave.begin} else 0
        if self._torn_heartbeats >= _TORN_HEARTBEATS:
            raise FormatError(
                f"the master has nothing after physical offset {slave.begin}, and no whole record begins here",
                path=self.store.path,
                offset=end,
                fix="Examine the master's log with the job `verify`: a size in it is damaged",
            )
        self._set(
            state=ReplicaState.FOLLOWING,
            problem="",
            lag_bytes=0 if idle else max(slave.announced - end, 0),
            lag_s=0.0 if idle and self._status.lag_s is not None else self._status.lag_s,
        )

    def _connect(self) -> Link:
        return connect(self._master, self._config.connect_s, self._config.tls)

    def _slave(self) -> Slave:
        """Return the state machine of a new connection."""
        self._torn_heartbeats = 0
        now, end = time.monotonic(), self.store.end_offset
        held = self._held(end)
        if held:
            return Slave.following(end, held, self._segment_bytes, now)
        if end or self._first is not None:
            return Slave.from_base(self._first or end, self._segment_bytes, now)
        return Slave.from_last_segment(self._segment_bytes, now)

    def _held(self, end: int) -> bytes:
        """Return the last bytes of the log, of one segment; none if it is empty."""
        log = CommitLog(LocalFileSystem(), [StorePaths(self.store.path).commit_log])
        segment = log.find(end - 1) if end else None
        if segment is None:
            return b""
        stop = end - segment.base
        return log.view(segment, max(stop - _HELD_BYTES, 0), stop).tobytes()

    def _shake(self, handshake: Handshake, data: bytes | memoryview, link: Link, intake: Intake) -> bytes | memoryview:
        """Take the answer of a master of segmentlog out of its first bytes; return those of the log."""
        left = handshake.take(data)
        if handshake.greeting is not None:
            try:
                self._adopt(handshake.greeting)
            except StaleMasterError:
                with suppress(SegmentLogError, OSError):
                    self._tell(link, intake)
                raise
        return left

    def _adopt(self, greeting: Greeting) -> None:
        """Take the epochs of the master over, on the device: no byte of them was appended yet."""
        fs, path = LocalWritableFileSystem(), self.store.path
        ours = find_epochs(fs, path)
        check_greeting(ours, greatest_epoch(fs, path), self.store.end_offset, greeting)
        if greeting.epochs != ours:
            write_epochs(fs, path, greeting.epochs)
            _log.info("%s: the master is of epoch %d", self._master, greeting.epochs.newest)

    def _tell(self, link: Link, intake: Intake) -> None:
        """Tell a stale master of the greater epoch, and read on until it closes the connection."""
        link.send_all(refusal(greatest_epoch(LocalFileSystem(), self.store.path)), self._config.connect_s)
        until = time.monotonic() + _TOLD_S
        while (left := until - time.monotonic()) > 0:
            intake.read(BUFFER_BYTES, left)

    def _read(self, intake: Intake, wait_s: float) -> memoryview | None:
        """Receive what is there, as far as the limit allows; None if nothing came in time."""
        size = self._bucket.allowed(BUFFER_BYTES, time.monotonic())
        if not size:
            time.sleep(min(self._bucket.wait_s(BUFFER_BYTES), _STOP_S))
            return None
        data = intake.read(size, min(wait_s, _STOP_S))
        if data is not None:
            self._bucket.take(len(data))
            self._set(received_bytes=self._status.received_bytes + len(data))
            if self._metrics is not None:
                self._metrics.received(len(data))
        return data

    def _serves(self, base: int) -> bool:
        with self._connect() as link:
            return serves(link, base, self._segment_bytes, self._config.probe_s)

    def _starts_too_late(self, begin: int) -> bool:
        is_new = self._first is None and self.store.end_offset == 0
        return self._config.begin is Begin.FIRST and is_new and begin > 0

    def _set(self, **changed: object) -> None:
        self._status = replace(self._status, **changed)  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
