"""Appends of single messages that are put together and acknowledged together.

::

    group append          many threads that append and wait
    thread 1   encode ──► ask ── leads: put, sync for 1 ──► acknowledged
    thread 2      encode ──► ask ───────────────────── leads: put, sync for 2, 3, 4 ──► acknowledged
    thread 3         encode ──► ask ──────────────────────────────────────────────────► acknowledged
    thread 4            encode ──► ask ───────────────────────────────────────────────► acknowledged

    asynchronous append   one thread that has many appends under way
    caller    encode ──► submit ──► AppendFuture ──► …  ──► result(): where it is, or why not
                            │                            ▲
    thread    take all ─────┘──► put together ──► wait: device, replicas
                                                    meanwhile the next ones gather

One write, one sync and one wait for replicas serve all messages that gathered. With a group append each thread sleeps
and wakes per message; an asynchronous append avoids that. Its messages are appended in the order in which they were
submitted. RocketMQ: ``CommitLog.asyncPutMessage``, ``GroupCommitService``, ``DefaultMessageStore.asyncPutMessage``.
"""

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ..encode.message import Appended, Encoded
from ..errors import SegmentLogError, StoreClosedError
from .group_commit import Combiner, GroupCommit
from .put_path import PutPath
from .workers import await_end

_log = logging.getLogger(__name__)

_TOGETHER_BYTES: Final = 4 << 20  # are copied side by side; at most a segment, see `PutPath.catch_up`


class GroupAppend:
    """Appends single messages, and waits for ``commit`` before each is acknowledged. Thread-safe."""

    def __init__(self, put_path: PutPath, commit: GroupCommit) -> None:
        self._put_path = put_path
        self._commit = commit
        self._waits = commit.is_needed
        self._puts = Combiner(self._put)

    def append(self, encoded: Encoded) -> Appended:
        """Append one message; return when it is acknowledged. Raises as `PutPath.put` and the acknowledgers."""
        while encoded.appended is None:
            if self._waits:
                self._puts.ask(encoded)
            else:  # without a wait for the device, threads hardly ever wait for each other
                self._put_path.put([encoded])
        if self._waits:
            self._commit.wait(encoded.appended.physical_offset + encoded.appended.size)
        return encoded.appended

    def _put(self, gathered: list[Encoded]) -> None:
        """Put all messages and wait for their commit; on an error put at least the first, the caller's, or raise."""
        for run in runs([len(encoded.record) for encoded in gathered], self._put_path.segment_bytes):
            try:
                self._put_path.put(gathered[run])
            except SegmentLogError:
                if gathered[0].appended is None:
                    self._put_path.put(gathered[:1])
                return  # the other threads ask again
        last = gathered[-1].appended
        if last is not None:
            with suppress(SegmentLogError):  # each thread waits for its own message, and gets the error
                self._commit.wait(last.physical_offset + last.size)


def runs(sizes: Iterable[int], segment_bytes: int) -> Iterator[slice]:
    """Cut records of some sizes into runs of at most 4 MiB or a segment; a larger record is a run of its own."""
    most = min(_TOGETHER_BYTES, segment_bytes)
    start = stop = size = 0
    for each in sizes:
        if stop > start and size + each > most:
            yield slice(start, stop)
            start, size = stop, 0
        stop += 1
        size += each
    yield slice(start, stop)


_IN_FLIGHT_BYTES: Final = 64 << 20  # of records; beyond it a caller waits for the message that it submits


class _NoLock:
    """Lock that is always free."""

    def acquire(self) -> None:
        """Do nothing."""

    release = acquire
    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        pass


class _Waiters:
    """List of the waiters of a future, as `concurrent.futures.wait` and ``as_completed`` use it."""

    def __init__(self, future: "AppendFuture") -> None:
        self._future = future

    def append(self, waiter: Any) -> None:
        """Tell a waiter when the future is done."""

        def tell(future: "Future[Appended]") -> None:
            (waiter.add_result if future.exception() is None else waiter.add_exception)(future)

        self._future.add_done_callback(tell)

    def remove(self, waiter: object) -> None:
        """Do nothing: a waiter that is told too late ignores it."""


class AppendFuture(Future[Appended]):
    """Future of an append that is under way; `MessageStore.append_async` makes it. Thread-safe."""

    # A subclass without the lock of the base class, which a Ctrl-C can leave held: the store's thread would wait for it
    # for ever. Each waiting thread has a lock of its own instead, and leaves it in the list of callbacks. That costs a
    # tenth, too.

    _condition: Any = _NoLock()  # `concurrent.futures.wait` takes it; appending to a list is atomic without

    def __init__(self) -> None:
        # Without the call of the base class: its attributes are properties here.
        self._outcome: Appended | BaseException | None = None
        self._callbacks: list[Callable[[Future[Appended]], object]] = []

    @property
    def _state(self) -> str:  # type: ignore[override] # read by `concurrent.futures.wait`
        return "RUNNING" if self._outcome is None else "FINISHED"

    @property
    def _waiters(self) -> _Waiters:  # type: ignore[override] # appended to by the same
        return _Waiters(self)

    def __repr__(self) -> str:
        return f"<AppendFuture {self._state.lower()}>"

    def cancel(self) -> bool:
        """Return False: what was submitted is appended."""
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return self._outcome is None

    def done(self) -> bool:
        return self._outcome is not None

    def result(self, timeout: float | None = None) -> Appended:
        """Return where the message is, when the append is acknowledged; ``timeout`` in seconds. It may be called again.

        Raises `TimeoutError` if the append is still under way, and the errors of `MessageStore.append`. After an error
        of an acknowledger, like `NoReplicaError`, the message is in the log.
        """
        outcome = self._outcome
        if outcome is None:
            outcome = self._wait(timeout)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def exception(self, timeout: float | None = None) -> BaseException | None:
        outcome = self._wait(timeout) if self._outcome is None else self._outcome
        return outcome if isinstance(outcome, BaseException) else None

    def add_done_callback(self, fn: Callable[[Future[Appended]], object]) -> None:
        """Call a function with this future when it is done: in the store's thread, so that it must not wait."""
        self._callbacks.append(fn)
        if self._outcome is not None:
            self._call_back(Exception)

    def end(self, outcome: Appended | BaseException) -> None:
        """Let `result` return a place, or raise an error. The store calls it once."""
        self._outcome = outcome
        if self._callbacks:
            self._call_back(BaseException)  # the store's thread goes on

    def _wait(self, timeout: float | None) -> Appended | BaseException:
        ended = threading.Lock()
        ended.acquire()
        self.add_done_callback(lambda _: ended.release())
        ended.acquire(timeout=-1 if timeout is None else max(timeout, 0))
        if self._outcome is None:
            raise TimeoutError
        return self._outcome

    def _call_back(self, caught: type[BaseException]) -> None:
        """Call each callback once, whichever thread takes it from the list."""
        while self._callbacks:
            with suppress(IndexError):  # another thread took the last
                callback = self._callbacks.pop(0)
                try:
                    callback(self)
                except caught:
                    _log.exception("a callback of an append failed")


@dataclass(slots=True)
class _Submitted:
    """A message that is to be appended, the append that waits for it, and the error that it ended with."""

    encoded: Encoded
    pending: AppendFuture
    error: BaseException | None = None


class AsyncAppend:
    """Appends what any thread submits, in a thread of its own, which runs from the first message on. Thread-safe."""

    # `commit` is what an append waits for before it is acknowledged. Without `is_threaded`, `submit` appends.

    def __init__(
        self, put_path: PutPath, commit: GroupCommit, after_put: Callable[[], None], path: str, *, is_threaded: bool
    ) -> None:
        self._put_path = put_path
        self._commit = commit
        self._after_put = after_put
        self._path = path
        self._is_threaded = is_threaded
        self._lock = threading.Lock()
        self._submitted: queue.SimpleQueue[_Submitted | None] = queue.SimpleQueue()
        self._last: AppendFuture | None = None
        self._is_stopping = False
        self._threads: list[threading.Thread] = []  # a second one if a Ctrl-C came while the first one started
        self._running = threading.Lock()  # held by the thread that appends
        self._submitted_bytes = 0  # written under the lock
        self._done_bytes = 0  # written by the thread: two counters, as the two share no lock

    def submit(self, encoded: Encoded) -> AppendFuture:
        """Submit a message; wait for it if too many bytes are under way; `StoreClosedError` after `stop`."""
        pending = AppendFuture()
        submitted = _Submitted(encoded, pending)
        if not self._is_threaded:
            self._append([submitted])
            return pending
        with self._lock:
            if self._is_stopping:
                raise StoreClosedError("this store is being closed", path=self._path, fix="Open it again")
            if not any(each.is_alive() for each in self._threads):
                self._start()
            self._submitted_bytes += len(encoded.record)
            self._last = pending
            self._submitted.put(submitted)
        if (
            self._submitted_bytes - self._done_bytes > _IN_FLIGHT_BYTES
            and threading.current_thread() not in self._threads
        ):
            pending.exception()
        return pending

    def stop(self) -> None:
        """Refuse further messages, and return when those that were submitted are done. May be repeated."""
        with self._lock:
            self._is_stopping = True
        if self._last is not None:
            self._last.exception()
        self._submitted.put(None)
        await_end(self._threads, [self._running])

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="segmentlog-append", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        with self._running:
            while (first := self._submitted.get()) is not None:
                self._append(self._gathered(first))
            self._submitted.put(None)  # a second thread ends, too

    def _gathered(self, first: _Submitted) -> list[_Submitted]:
        gathered = [first]
        while not self._submitted.empty():  # no other thread takes any
            following = self._submitted.get()
            if following is None:
                self._submitted.put(None)
                break
            gathered.append(following)
        return gathered

    def _append(self, gathered: list[_Submitted]) -> None:
        """Append messages, and end them all, whatever happens."""
        try:
            for run in runs([len(each.encoded.record) for each in gathered], self._put_path.segment_bytes):
                self._put(gathered[run])
            self._acknowledge([each for each in gathered if each.error is None])
        except BaseException as error:
            for each in gathered:
                each.error = each.error or error
            if not self._is_threaded:
                raise
        finally:
            self._done_bytes += sum(len(each.encoded.record) for each in gathered)
            for each in gathered:
                outcome = each.error or each.encoded.appended
                assert outcome is not None
                each.pending.end(outcome)

    def _put(self, together: list[_Submitted]) -> None:
        """Put messages together; if there is no room for all of them, one by one."""
        try:
            self._put_path.put([each.encoded for each in together])
        except SegmentLogError as error:
            if len(together) == 1:
                together[0].error = error
                return
            for each in together:
                self._put([each])

    def _acknowledge(self, put: list[_Submitted]) -> None:
        if not put:
            return
        last = put[-1].encoded.appended
        assert last is not None
        try:
            self._commit.wait(last.physical_offset + last.size)
        except SegmentLogError as error:
            for each in put:
                each.error = error
        self._after_put()
