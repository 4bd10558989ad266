"""Group commit: appends wait until their bytes are safe, one sync serves all that wait, and a failed sync is final.

::

    thread 1   put ──► wait(end 1) ── leads: sync ─────────────► flushed up to end 1 ──► acknowledged
    thread 2      put ──► wait(end 2) ─────────────────── leads: sync ──────► flushed up to end 4
    thread 3         put ──► wait(end 3) ───────────────────────────────────► acknowledged, without a sync of its own

    GroupCommit  ──► Flusher    the device           Flush.SYNC
                 └─► replica    another process      each is an Acknowledger

    Failure    write, sync fails ──► note ──► check raises StoreFailedError in every later call
               disk is full      ──► fatal_unless_full: not noted, the call may be tried again
                                 └─► fatal: noted, since a sync cannot be tried again

After a failed sync the kernel marks pages clean that never reached the device: the next sync would succeed and prove
nothing. RocketMQ: ``GroupCommitService``, which answers FLUSH_DISK_TIMEOUT and continues; ``GroupTransferService``.

`Combiner` is flat combining (Hendler, Incze, Shavit and Tzafrir, SPAA 2010). Threads that take turns at a lock pay for
each turn, and in Python for getting the interpreter back as well. Here each thread sleeps once and is woken once.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Generic, TypeVar

from ..errors import NoSpaceError, StoreClosedError, StoreFailedError
from .attachments import Acknowledger, WriterMetrics


class Failure:
    """The first failure of one store, shared by all its parts. Thread-safe."""

    # Its contexts are objects that may be entered by many threads at once: a generator costs 1 µs more per put.

    def __init__(self, path: str) -> None:
        self.path = path  # store directory
        self._cause: BaseException | None = None
        self.fatal = _Noting(self)
        """Context that notes every error, a full disk and an interrupt included: for syncs and later steps."""
        self.fatal_unless_full = _Noting(self, passes=NoSpaceError)
        """Context that notes every error but a full disk: for work that can be tried again."""
        self.fatal_if_interrupted = _Noting(self, passes=Exception)
        """Context of calls that put: what an interrupt (Ctrl-C) left half done is found by the next open alone."""
        self.fatal_put = _Noting(self, converts=True)
        """Context of puts and syncs: it notes every error, and raises `StoreFailedError` for all but interrupts."""

    def note(self, cause: BaseException) -> None:
        """Record a failure; only the first one counts."""
        self._cause = self._cause or cause

    def check(self) -> None:
        """Return if no failure was noted."""
        if self._cause is None:
            return
        if isinstance(self._cause, Exception):
            problem = f"writing failed before, and the contents of the device are not known: {self._cause}"
            fix = "Close the store, check the disk, and open the store again: recovery keeps whole records"
        else:
            problem = f"a write was interrupted before ({type(self._cause).__name__}), and may be half done"
            fix = "Close the store and open it again: recovery keeps whole records"
        raise StoreFailedError(problem, path=self.path, fix=fix) from self._cause


class _Noting:
    """Context that notes errors, interrupts included, except errors of a passed type."""

    __slots__ = ("_converts", "_failure", "_passes")

    def __init__(self, failure: Failure, *, passes: type[Exception] | None = None, converts: bool = False) -> None:
        self._failure = failure
        self._passes = passes or ()
        self._converts = converts

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, self._passes):
            self._failure.note(error)
            if self._converts and isinstance(error, Exception):
                self._failure.check()


Asked = TypeVar("Asked")


class _Waiter(Generic[Asked]):
    """A thread that asks; its lock is held until another thread wakes it."""

    __slots__ = ("asked", "gathered", "leads", "lock")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.leads = False
        self.gathered: list[_Waiter[Asked]] = []  # the threads that it works for and has to wake
        self.lock = threading.Lock()
        self.lock.acquire()


class Combiner(Generic[Asked]):
    """Gathers the requests of threads while one thread works."""

    def __init__(self, work: Callable[[list[Asked]], None]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._is_led = False
        self._waiting: list[_Waiter[Asked]] = []

    def ask(self, asked: Asked) -> None:
        """Return when ``work`` was called with this request and has ended, or when it has to be asked again."""
        # Only the thread that calls `work` gets its error. So the caller has to check whether its request was served,
        # and to call again if not. Sooner or later it is the thread that calls `work`.
        waiter = _Waiter(asked)
        try:
            with self._lock:
                self._waiting.append(waiter)
                waiter.leads, self._is_led = not self._is_led, True
            if not waiter.leads:
                waiter.lock.acquire()
            if waiter.leads:
                self._lead(waiter)
        except BaseException:  # of the work, or an interrupt at any point: all other threads ask again
            with self._lock:
                released = waiter.gathered + self._waiting
                self._waiting, self._is_led = [], False
            _wake(released)
            raise

    def _lead(self, leader: _Waiter[Asked]) -> None:
        """Work for all that wait, pass the lead on, and wake them."""
        with self._lock:
            leader.gathered, self._waiting = self._waiting, []
        if leader.gathered:
            self._work([each.asked for each in leader.gathered])
        with self._lock:
            self._is_led = bool(self._waiting)
            for each in self._waiting[:1]:
                each.leads = True
            _wake(self._waiting[:1])  # before all others
        _wake(leader.gathered)


def _wake(waiters: Iterable[_Waiter[Asked]]) -> None:
    for each in waiters:
        try:
            each.lock.release()
        except RuntimeError:  # after an error another thread may have woken it before
            continue


class GroupCommit:
    """Waits for several acknowledgers. Thread-safe."""

    def __init__(self, acknowledgers: Sequence[Acknowledger]) -> None:
        self._acknowledgers = tuple(acknowledgers)

    @property
    def is_needed(self) -> bool:
        """True if appends wait for an acknowledger."""
        return bool(self._acknowledgers)

    def wait(self, offset: int) -> None:
        """Return when every acknowledger holds all bytes below a physical offset; raises their errors."""
        for each in self._acknowledgers:
            each.wait(offset)


class Flusher:
    """The device as an acknowledger: knows up to where the log is flushed, and flushes it. Thread-safe."""

    def __init__(
        self,
        sync: Callable[[], int],
        flushed: int,
        failure: Failure,
        *,
        check_owned: Callable[[], None],
        note: Callable[[int], None],
        metrics: WriterMetrics | None = None,
    ) -> None:
        self._sync = sync  # see `LogAppender.sync`
        self._failure = failure
        self._check_owned = check_owned
        self._note = note  # see `Durability.note_log`
        self._metrics = metrics
        self._syncs = Combiner(self._flush)
        self._lock = threading.Lock()
        self._stopped = False
        self.flushed = flushed  # physical offset up to which the log is on the device
        self.flushed_at = time.monotonic()

    def wait(self, offset: int) -> None:
        """Return when all bytes below a physical offset are on the device."""
        while self.flushed < offset:
            self._syncs.ask(offset)

    def _flush(self, offsets: list[int]) -> None:
        with self._lock:
            if max(offsets) <= self.flushed:  # a sync that was under way served them
                return
            if self._stopped:
                raise StoreClosedError("this store was closed", path=self._failure.path, fix="Open it")
            self._failure.check()
            began = time.perf_counter()
            with self._failure.fatal_put:
                end = self._sync()
                self._check_owned()  # after the sync: no other process had the store while these bytes were written
                self._note(end)
            self.flushed, self.flushed_at = end, time.monotonic()
            if self._metrics is not None:
                self._metrics.fsync(time.perf_counter() - began)

    def stop(self) -> None:
        """Wait for the sync that is under way; afterwards none is possible."""
        with self._lock:
            self._stopped = True
