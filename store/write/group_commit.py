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
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Generic, TypeVar

from ..errors import NoSpaceError, StoreFailedError
from .attachments import Acknowledger, WriterMetrics


class Failure:
    """The first failure of one store, shared by all its parts. Thread-safe."""

    def __init__(self, path: str) -> None:
        self.path = path  # store directory
        self._cause: BaseException | None = None
        self.fatal_put = _FatalPut(self)
        """Context that notes every error, an interrupt included: how much of a put was written is not known then.

        It raises `StoreFailedError` instead of an ordinary error: space was reserved, so no device is full.
        """

    def note(self, cause: BaseException) -> None:
        """Record a failure; only the first one counts."""
        self._cause = self._cause or cause

    def fatal(self) -> AbstractContextManager[None]:
        """Context that notes every error, an interrupt and a full disk included: for syncs and later steps."""
        return self._noting(())

    def fatal_unless_full(self) -> AbstractContextManager[None]:
        """Context that notes every error but a full disk: for work that can be tried again."""
        return self._noting((NoSpaceError,))

    def fatal_if_interrupted(self) -> AbstractContextManager[None]:
        """Context that notes interrupts only: for several steps between which the caller must not be left."""
        return self._noting((Exception,))

    @contextmanager
    def _noting(self, passed: tuple[type[Exception], ...]) -> Iterator[None]:
        """Context that notes every error, an interrupt included, except errors of the passed types."""
        try:
            yield
        except passed:
            raise
        except BaseException as error:
            self.note(error)
            raise

    def check(self) -> None:
        """Return if no failure was noted."""
        if self._cause is not None:
            raise StoreFailedError(
                "writing failed before, and the contents of the device are not known: "
                f"{str(self._cause) or type(self._cause).__name__}",
                path=self.path,
                fix="Close the store, check the disk, and open the store again: recovery keeps whole records",
            ) from self._cause


class _FatalPut:
    """See `Failure.fatal_put`. A class and not a generator, which costs 1 µs more per put."""

    __slots__ = ("_failure",)

    def __init__(self, failure: Failure) -> None:
        self._failure = failure

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._failure.note(error)
            if isinstance(error, Exception):
                self._failure.check()


Asked = TypeVar("Asked")


class _Waiter(Generic[Asked]):
    """A thread that waits; its lock is held until another thread wakes it."""

    __slots__ = ("asked", "gathered", "leads", "lock")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.leads = False
        self.gathered: list[_Waiter[Asked]] = []  # the threads that it works for and has to wake
        self.lock = threading.Lock()
        self.lock.acquire()

    def wake(self) -> None:
        """End its wait; does nothing if that was done before."""
        if self.lock.locked():
            self.lock.release()


class Combiner(Generic[Asked]):
    """Gathers the requests of threads while one thread works."""

    def __init__(self, work: Callable[[list[Asked]], None]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._is_led = False
        self._waiting: list[_Waiter[Asked]] = []

    def ask(self, asked: Asked) -> None:
        """Return when ``work`` was called with this request, and has ended."""
        # Only the thread that calls `work` gets its error. So the caller has to check whether its request was served,
        # and to call again if not. Sooner or later it is the thread that calls `work`.
        waiter = _Waiter(asked)
        is_over = False
        try:
            with self._lock:
                self._waiting.append(waiter)
                waiter.leads = not self._is_led
                self._is_led = True
            if not waiter.leads:
                waiter.lock.acquire()
            if waiter.leads:
                with self._lock:
                    waiter.gathered, self._waiting = self._waiting, []
                self._work([each.asked for each in waiter.gathered])
            is_over = not waiter.leads
        finally:
            if not is_over:
                try:
                    self._leave(waiter)
                except BaseException:  # a Ctrl-C, which must not leave the other threads waiting for ever
                    self._leave(waiter)
                    raise

    def _leave(self, waiter: _Waiter[Asked]) -> None:
        """Remove a thread that is done or was interrupted: the next thread leads, and the gathered threads wake up."""
        # It may be repeated from any point at which it was interrupted: a thread that is woken twice has left by then.
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            if waiter.leads:
                waiter.leads = False
                if self._waiting:
                    self._waiting[0].leads = True
                else:
                    self._is_led = False
            if self._waiting and self._waiting[0].leads:  # before all others wake up
                self._waiting[0].wake()
        for each in waiter.gathered:
            each.wake()


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
        self, sync: Callable[[], int], flushed: int, failure: Failure, metrics: WriterMetrics | None = None
    ) -> None:
        self._sync = sync
        self._failure = failure
        self._metrics = metrics
        self._syncs = Combiner(self._sync_for)
        self.flushed = flushed  # physical offset up to which the log is on the device

    def wait(self, offset: int) -> None:
        """Return when all bytes below a physical offset are on the device."""
        while self.flushed < offset:
            self._syncs.ask(offset)

    def _sync_for(self, offsets: list[int]) -> None:
        if max(offsets) <= self.flushed:  # a sync that was under way served them
            return
        self._failure.check()
        try:
            began = time.perf_counter() if self._metrics is not None else 0.0
            self.flushed = max(self.flushed, self._sync())
            if self._metrics is not None:
                self._metrics.fsync(time.perf_counter() - began)
        except BaseException as error:
            self._failure.note(error)
            if isinstance(error, Exception):
                self._failure.check()
            raise
