"""Replica of a running broker: follows the broker's log over its replication port, and appends it to a store.

::

    connect ──► Handshake: epochs differ? ──► adopted on the device before any byte of them is appended, or refused
    connect ──► Slave ──► report ──────────────────────────────────────────────────────► master
                  ▲                                                                        │ frames
                  └── end ◄── MessageStore.append_encoded ◄── new bytes ◄── Slave ◄── Intake
                                  whole records, dispatched: readers see them

    Intake      awaited bytes           ──► handled at once: the master may be waiting for the report
                bytes of a stream       ──► gathered for at most 10 ms, and until 1 ms brings none: a piece costs some
                                            1 ms beside its bytes, so 1000 small pieces per second would take a core
    TokenBucket fills with `bytes_per_s`, holds one second's worth; each read empties it

    connection lost, silence, a jump   ──► Backoff: pause of 0.25 s, doubled up to 30 s, with jitter: replicas of one
                                           master spread out ──► connect again, from the end of the log
    another log, three times           ──► DivergedLogError: nothing is truncated
    an older master, three times       ──► StaleMasterError, and the master gets a refusal

    empty store, FIRST   report 0 ──► base of the last segment ──► bisection, a connection per question:
        segments   0   1   2   3   4   5   6 last          0 to 2 expired
        asked      ✗           ✓   .   .                   bytes: served; a heartbeat or silence: expired
                       ✗   ✗   ▲ first

Readers, Spark included, open the store's directory meanwhile. RocketMQ: ``HAClient``, which handles each read, connects
again after 5 s, has no limit, and starts at the last segment.
"""

import logging
import random
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
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
from ..log.commit_log import CommitLog
from ..log.epochs import find_epochs, greatest_epoch, write_epochs
from ..write.attachments import Attachments, LogListener
from ..write.message_store import MessageStore
from .incoming import IncomingBatches
from .link import Link, connect
from .protocol import Greeting, Handshake, check_greeting, question, refusal
from .settings import Address, Begin, ReplicaConfig, ReplicaState, ReplicaStatus
from .slave import Slave

_log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.25  # mean of the first pause between connections in seconds
LONGEST_PAUSE_S: Final = 30.0  # largest mean of a pause in seconds
BUFFER_BYTES: Final = 4 << 20  # bytes that are handled together at most
_GATHER_S: Final = 0.01
_GATHER_STEP_S: Final = 0.001
_HELD_BYTES: Final = 64 << 10  # compared with the master's bytes on every connection
_PROBE_BYTES: Final = 64 << 10
_STOP_S: Final = 0.2  # within which a stop is noticed
_REFUSAL_S: Final = 2.0  # for a stale master to read the refusal; then it closes the connection
_TORN_HEARTBEATS: Final = 2  # after which a record that is not whole is damage; a master sends whole ones
_CONFIRMATIONS: Final = 3  # connections that have to find the same damage or difference before it is believed


class _NewestRecord:
    """Store time of the newest record; a log listener."""

    def __init__(self) -> None:
        self.ms = 0

    def add(self, request: DispatchRequest) -> None:
        if isinstance(request.records, ReplicatedRecords):
            self.ms = max(self.ms, request.records.newest)


class Intake:
    """Received bytes of one link, in pieces that are large enough to be handled together. Not thread-safe."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._buffer = memoryview(bytearray(BUFFER_BYTES))

    def read(self, most: int, wait_s: float) -> memoryview | None:
        """Return the next bytes, at most ``most``, a view until the next call; None if none came in time."""
        view = self._buffer[:most]
        got = self._link.receive(view)
        if got:  # a stream: the master sends further bytes without a report
            got = self._gather(view, got)
        elif self._link.wait(wait_s):
            got = self._link.receive(view)
        return view[:got] if got else None

    def _gather(self, view: memoryview, got: int) -> int:
        stop = time.monotonic() + _GATHER_S
        while got < len(view) and time.monotonic() < stop:
            time.sleep(_GATHER_STEP_S)
            more = self._link.receive(view[got:])
            if not more:
                break
            got += more
        return got


class Backoff:
    """Pauses between connections, which double. Not thread-safe."""

    def __init__(self, draw: random.Random | None = None) -> None:
        self._draw = draw or random.Random()  # noqa: S311 - it spreads pauses, and keeps no secret
        self._mean_s = FIRST_PAUSE_S

    def next_s(self) -> float:
        """Return the seconds to pause now: from half of the mean to one and a half of it."""
        mean_s = self._mean_s
        self._mean_s = min(2 * mean_s, LONGEST_PAUSE_S)
        return mean_s * self._draw.uniform(0.5, 1.5)

    def reset(self) -> None:
        self._mean_s = FIRST_PAUSE_S


class TokenBucket:
    """Bytes that may be received now, by a rate in bytes per second; None for no limit. Not thread-safe."""

    # `now` is the time in seconds of one monotonic clock.

    def __init__(self, rate: int | None, now: float) -> None:
        self._rate = rate
        self._level = float(rate or 0)
        self._at = now

    def allowed(self, most: int, now: float) -> int:
        """Return how many bytes may be received now, at most ``most``."""
        if self._rate is None:
            return most
        self._level = min(self._level + (now - self._at) * self._rate, float(self._rate))
        self._at = now
        return max(min(int(self._level), most), 0)

    def count_received(self, size: int) -> None:
        self._level -= size

    def wait_s(self, size: int) -> float:
        """Return the seconds until ``size`` bytes, or one second's worth, may be received."""
        if self._rate is None:
            return 0.0
        # The bucket never holds more than one second's worth: a larger piece would wait forever.
        return max(min(size, self._rate) - self._level, 0.0) / self._rate


class Replica:
    """Store that follows a master; a context manager. Use `open`, then `run` in a thread of your choice.

    `status` may be called by any thread.
    """

    def __init__(
        self,
        store: MessageStore,
        newest: _NewestRecord,
        master: Address,
        config: ReplicaConfig,
    ) -> None:
        self.store = store
        """The store; other threads may read it, and must not append."""
        self._newest = newest
        self._incoming = IncomingBatches(LocalWritableFileSystem(), store)
        self._master = master
        self._config = config
        self._segment_bytes = store.config.segment_bytes
        self._first: int | None = None
        self._torn_heartbeats = 0
        self._backoff = Backoff()
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
        listeners
            Learn of each new end of the log, like the `Quorum` of a server that serves this replica.

        Raises the errors of `MessageStore.open`.
        """
        newest = _NewestRecord()
        written = replace(store_config or stored_config(path, StoreConfig()), record_crc=False)
        store = MessageStore.open(path, written, attached=Attachments(listeners=[newest, *listeners]))
        try:
            return cls(store, newest, master, config or ReplicaConfig())
        except BaseException:
            store.close()
            raise

    @property
    def status(self) -> ReplicaStatus:
        """Position and counters as of now."""
        return self._status

    def run(self, stop: threading.Event) -> None:
        """Follow the master until ``stop`` is set.

        After a lost connection, with a full disk or a silent master, the replica pauses and connects again.

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
                problem = self._follow_once(stop)
                if problem:
                    self._set_status(state=ReplicaState.PAUSED, problem=problem)
                    pause_s = self._backoff.next_s()
                    _log.warning("%s: %s; connecting again in %.1f s", self._master, problem, pause_s)
                    stop.wait(pause_s)
        except Exception as error:
            self._set_status(state=ReplicaState.FAILED, problem=str(error) or type(error).__name__)
            _log.error("%s: the replica %s failed and has stopped following: %s", self._master, self.store.path, error)
            raise
        finally:
            if self._status.state is not ReplicaState.FAILED:
                self._set_status(state=ReplicaState.STOPPED)

    def close(self) -> None:
        """Close the store; `run` has returned."""
        self.store.close()

    def _follow_once(self, stop: threading.Event) -> str:
        """Follow over one connection; return the reason of its end, or an empty text after a stop."""
        try:
            self._follow(stop)
        except (DivergedLogError, StaleMasterError, FormatError, ConfigError) as error:
            # A proxy or a broken network may be the cause, so a final error has to be found on several connections.
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
        self._set_status(state=ReplicaState.CONNECTING)
        with self._connect() as link:
            slave, intake, handshake = self._new_slave(), Intake(link), Handshake()
            self._incoming.begin_connection()
            link.send_all(question(), self._config.connect_s)
            self._set_status(state=ReplicaState.VERIFYING, connections=self._status.connections + 1)
            while not stop.is_set():
                now = time.monotonic()
                self._send_report(link, slave, now)
                data: bytes | memoryview | None = self._read(intake, slave.wait_s(now))
                if data is not None and not handshake.is_over:
                    data = self._strip_answer(handshake, data, link, intake)
                    if handshake.greeting is not None:
                        slave.accept_history(DOCUMENT_BYTES_MAX)
                if not data:
                    continue
                chunk = slave.receive(data, time.monotonic())
                self._incoming.write_history(slave.take_history())
                begin = slave.begin if chunk is None else chunk.offset
                if begin is not None and self._starts_too_late(begin):
                    self._first = find_first_segment(self._is_served, begin, self._segment_bytes)
                    _log.info("%s: the master's log begins at physical offset %d", self._master, self._first)
                    return
                if chunk is not None:
                    self._incoming.check_known(chunk.offset, has_history=handshake.greeting is not None)
                    self._append(chunk.offset, chunk.data)
                if self._first is not None and slave.is_idle and not self.store.end_offset:
                    first, self._first = self._first, None  # to be looked for again
                    raise ReplicationError(f"the master has nothing from physical offset {first} on")
                if slave.is_verified:
                    self._note_progress(slave)

    def _send_report(self, link: Link, slave: Slave, now: float) -> None:
        report = slave.report(self.store.end_offset, now)
        if report:
            link.send_all(report, self._config.connect_s)

    def _append(self, offset: int, data: bytes) -> None:
        before = self.store.end_offset
        self._incoming.hide_before(offset + len(data))
        end = self.store.append_encoded(offset, data)
        self._incoming.show_whole()
        lag_s = self._status.lag_s
        if end > before:
            self._doubts.clear()
            self._backoff.reset()
            lag_s = max(time.time() - self._newest.ms / 1000, 0.0) if self._newest.ms else None
        self._set_status(end=end, lag_s=lag_s)

    def _note_progress(self, slave: Slave) -> None:
        end = self.store.end_offset
        idle = slave.is_idle
        self._torn_heartbeats = self._torn_heartbeats + 1 if idle and end not in {0, slave.begin} else 0
        if self._torn_heartbeats >= _TORN_HEARTBEATS:
            raise FormatError(
                f"the master has nothing after physical offset {slave.begin}, and no whole record begins here",
                path=self.store.path,
                offset=end,
                fix="Examine the master's log with `segmentlog verify`: a size in it is damaged",
            )
        self._set_status(
            state=ReplicaState.FOLLOWING,
            problem="",
            lag_bytes=0 if idle else max(slave.announced - end, 0),
            lag_s=0.0 if idle and self._status.lag_s is not None else self._status.lag_s,
        )

    def _connect(self) -> Link:
        return connect(self._master, self._config.connect_s, self._config.tls)

    def _new_slave(self) -> Slave:
        self._torn_heartbeats = 0
        now, end = time.monotonic(), self.store.end_offset
        held = self._held_bytes(end)
        if held:
            return Slave.following(end, held, self._segment_bytes, now)
        if end or self._first is not None:
            return Slave.from_base(self._first or end, self._segment_bytes, now)
        return Slave.from_last_segment(self._segment_bytes, now)

    def _held_bytes(self, end: int) -> bytes:
        """Return the last bytes of the log, within one segment; none of an empty log."""
        log = CommitLog.of_store(LocalFileSystem(), self.store.path)
        segment = log.find(end - 1) if end else None
        if segment is None:
            return b""
        stop = end - segment.base
        return log.view(segment, max(stop - _HELD_BYTES, 0), stop).tobytes()

    def _strip_answer(
        self, handshake: Handshake, data: bytes | memoryview, link: Link, intake: Intake
    ) -> bytes | memoryview:
        """Take the answer of a master of segmentlog out of its first bytes; return the bytes of the log."""
        left = handshake.strip_answer(data)
        if handshake.greeting is not None:
            try:
                self._adopt_epochs(handshake.greeting)
            except StaleMasterError:
                with suppress(SegmentLogError, OSError):
                    self._send_refusal(link, intake)
                raise
        return left

    def _adopt_epochs(self, greeting: Greeting) -> None:
        """Write the epochs of the master to the device before any of its bytes is appended."""
        fs, path = LocalWritableFileSystem(), self.store.path
        ours = find_epochs(fs, path)
        check_greeting(ours, greatest_epoch(fs, path), self.store.end_offset, greeting)
        if greeting.epochs != ours:
            write_epochs(fs, path, greeting.epochs)
            _log.info("%s: the master is of epoch %d", self._master, greeting.epochs.newest)

    def _send_refusal(self, link: Link, intake: Intake) -> None:
        """Send a stale master the greater epoch, and read until the master closes the connection."""
        link.send_all(refusal(greatest_epoch(LocalFileSystem(), self.store.path)), self._config.connect_s)
        until = time.monotonic() + _REFUSAL_S
        while (left := until - time.monotonic()) > 0:
            intake.read(BUFFER_BYTES, left)

    def _read(self, intake: Intake, wait_s: float) -> memoryview | None:
        """Return received bytes, as many as `bytes_per_s` allows; None if none came in time."""
        size = self._bucket.allowed(BUFFER_BYTES, time.monotonic())
        if not size:
            time.sleep(min(self._bucket.wait_s(BUFFER_BYTES), _STOP_S))
            return None
        data = intake.read(size, min(wait_s, _STOP_S))
        if data is not None:
            self._bucket.count_received(len(data))
            self._set_status(received_bytes=self._status.received_bytes + len(data))
        return data

    def _is_served(self, base: int) -> bool:
        with self._connect() as link:
            return serves_segment(link, base, self._segment_bytes, self._config.probe_s)

    def _starts_too_late(self, begin: int) -> bool:
        is_new = self._first is None and self.store.end_offset == 0
        return self._config.begin is Begin.FIRST and is_new and begin > 0

    def _set_status(self, **changed: object) -> None:
        self._status = replace(self._status, **changed)  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def find_first_segment(is_served: Callable[[int], bool], last: int, segment_bytes: int) -> int:
    """Return the base of the first segment that a master serves; the segment at ``last`` counts as served."""
    # A master that serves a segment has all later ones, too.
    if is_served(0):
        return 0
    bases = range(segment_bytes, last // segment_bytes * segment_bytes, segment_bytes)
    return segment_bytes * (1 + bisect_left(bases, True, key=is_served))  # noqa: FBT003 - what is looked for


def serves_segment(link: Link, base: int, segment_bytes: int, wait_s: float) -> bool:
    """Return whether a master sends bytes of the segment at a base offset within some seconds, on a new link."""
    deadline = time.monotonic() + wait_s
    slave = Slave.from_base(base, segment_bytes, time.monotonic())
    link.send_all(slave.report(0, time.monotonic()), wait_s)
    buffer = memoryview(bytearray(_PROBE_BYTES))
    while (left := deadline - time.monotonic()) > 0 and not slave.is_idle:
        if link.wait(left) and slave.receive(buffer[: link.receive(buffer)], time.monotonic()) is not None:
            return True
    return False
