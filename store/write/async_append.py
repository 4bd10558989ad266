"""Appends of single messages that are put together and acknowledged together.

::

    group append          many threads that append and wait
    thread 1   encode ──► ask ── leads: put, sync for 1 ──► acknowledged
    thread 2      encode ──► ask ───────────────────── leads: put, sync for 2, 3, 4 ──► acknowledged
    thread 3         encode ──► ask ──────────────────────────────────────────────────► acknowledged
    thread 4            encode ──► ask ───────────────────────────────────────────────► acknowledged

    asynchronous append   one thread that has many appends under way
    caller    encode ──► submit ──► PendingAppend ──► …  ──► result(): where it is, or why not
                            │                            ▲
    thread    take all ─────┘──► put together ──► wait: device, replicas
                                                    meanwhile the next ones gather

One write, one sync and one wait for replicas serve all messages that gathered. With a group append each thread sleeps
and wakes per message; an asynchronous append avoids that. Its messages are appended in the order in which they were
submitted. RocketMQ: ``CommitLog.asyncPutMessage``, ``GroupCommitService``, ``DefaultMessageStore.asyncPutMessage``.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ..encode.message import Appended, Encoded
from ..errors import SegmentLogError, StoreClosedError
from .group_commit import Combiner, GroupCommit
from .put_path import PutPath
from .workers import await_end

_TOGETHER_BYTES: Final = 4 << 20  # are copied side by side; at most a segment, see `PutPath.catch_up`


class GroupAppend:
    """Appends single messages, and waits for ``commit`` before each is acknowledged. Thread-safe."""

    def __init__(self, put_path: PutPath, commit: GroupCommit) -> None:
        self._put_path = put_path
        self._commit = commit
        self._waits = commit.is_needed
        self._puts = Combiner(self._put)

    def append(self, encoded: Encoded) -> Appended:
        """Append one message; return when it is acknowledged.

        Raises
        ------
        NoSpaceError, StoreFailedError, StoreClosedError
            As `PutPath.put`.
        SegmentLogError
            As the acknowledgers; the message is in the log then.
        """
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


class PendingAppend:
    """An append that is under way; `MessageStore.append_async` makes it. Thread-safe."""

    __slots__ = ("_appended", "_ended", "_error")

    def __init__(self) -> None:
        self._appended: Appended | None = None
        self._error: BaseException | None = None
        self._ended = threading.Lock()  # held until it is done
        self._ended.acquire()

    @property
    def is_done(self) -> bool:
        """True if `result` returns at once."""
        return not self._ended.locked()

    def wait(self) -> None:
        """Return when it is done."""
        with self._ended:
            pass

    def result(self) -> Appended:
        """Return where the message is, when the append is acknowledged. It may be called again.

        Raises
        ------
        NoSpaceError
            If the disk is full; the message was not appended.
        StoreFailedError
            If the disk failed; whether the store holds the message after a restart is not known.
        SegmentLogError
            What an acknowledger of the store raises, like `NoReplicaError`; the message is in the log.
        """
        self.wait()
        if self._error is not None:
            raise self._error
        assert self._appended is not None
        return self._appended

    def end(self, outcome: Appended | BaseException | None) -> None:
        """Let `result` return a place, or raise an error. The store calls it once."""
        if isinstance(outcome, BaseException):
            self._error = outcome
        else:
            self._appended = outcome
        self._ended.release()


@dataclass(slots=True)
class _Submitted:
    """A message that is to be appended, the append that waits for it, and the error that it ended with."""

    encoded: Encoded
    pending: PendingAppend
    error: BaseException | None = None


class AsyncAppend:
    """Appends what any thread submits, in a thread of its own, which runs from the first message on. Thread-safe.

    Parameters
    ----------
    put_path
        The put path of the store.
    commit
        What an append waits for before it is acknowledged.
    after_put
        Called after each put.
    path
        Store directory, for errors.
    is_threaded
        False appends within `submit`.
    """

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
        self._last: PendingAppend | None = None
        self._is_stopping = False
        self._threads: list[threading.Thread] = []  # a second one if a Ctrl-C came while the first one started
        self._running = threading.Lock()  # held by the thread that appends
        self._submitted_bytes = 0  # written under the lock
        self._done_bytes = 0  # written by the thread: two counters, as the two share no lock

    def submit(self, encoded: Encoded) -> PendingAppend:
        """Submit a message; wait for it if too many bytes are under way.

        Raises
        ------
        StoreClosedError
            After `stop`.
        """
        pending = PendingAppend()
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
        if self._submitted_bytes - self._done_bytes > _IN_FLIGHT_BYTES:
            pending.wait()
        return pending

    def stop(self) -> None:
        """Refuse further messages, and return when those that were submitted are done. May be repeated."""
        with self._lock:
            self._is_stopping = True
        if self._last is not None:
            self._last.wait()
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
                each.pending.end(each.error or each.encoded.appended)

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
