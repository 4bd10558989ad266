"""Appends of single messages that are put together and acknowledged together.

::

    group append          many threads that append and wait
    thread 1   encode ──► ask ── leads: put, sync for 1 ──► acknowledged
    thread 2      encode ──► ask ───────────────────── leads: put, sync for 2, 3, 4 ──► acknowledged
    thread 3         encode ──► ask ──────────────────────────────────────────────────► acknowledged
    thread 4            encode ──► ask ───────────────────────────────────────────────► acknowledged

    asynchronous append   one thread that has many appends under way
    caller    encode ──► submit ──► Future ──► …  ──► result(): where it is, or why not
                            │                      ▲
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
from typing import Final

from ..encode.message import Appended, Encoded
from ..errors import SegmentLogError, StoreClosedError
from .group_commit import Combiner, GroupCommit
from .housekeeping import join
from .put_path import PutPath

_log = logging.getLogger(__name__)

_TOGETHER_BYTES: Final = 4 << 20  # are copied side by side; at most a segment, see `PutPath.catch_up`
_IN_FLIGHT_BYTES: Final = 64 << 20  # of records; beyond it a caller waits for the message that it submits


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


@dataclass(slots=True)
class _Submitted:
    """A message that is to be appended, the future that the caller waits for, and the error that it ended with."""

    encoded: Encoded
    pending: Future[Appended]
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
        self._is_stopping = False
        self._thread: threading.Thread | None = None
        self._submitted_bytes = 0  # written under the lock
        self._done_bytes = 0  # written by the thread: two counters, as the two share no lock

    def submit(self, encoded: Encoded) -> Future[Appended]:
        """Submit a message; wait for it if too many bytes are under way; `StoreClosedError` after `stop`."""
        pending: Future[Appended] = Future()
        pending.set_running_or_notify_cancel()  # what was submitted is appended
        submitted = _Submitted(encoded, pending)
        if not self._is_threaded:
            self._append([submitted])
            return pending
        with self._lock:
            if self._is_stopping:
                raise StoreClosedError("this store is being closed", path=self._path, fix="Open it again")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="segmentlog-append", daemon=True)
                self._thread.start()
            self._submitted_bytes += len(encoded.record)
            self._submitted.put(submitted)
        if self._submitted_bytes - self._done_bytes > _IN_FLIGHT_BYTES and threading.current_thread() != self._thread:
            pending.exception()
        return pending

    def stop(self) -> None:
        """Refuse further messages, and return when those that were submitted are done. May be repeated."""
        with self._lock:
            self._is_stopping = True
        self._submitted.put(None)
        if self._thread is not None:
            join(self._thread)

    def _run(self) -> None:
        while (first := self._submitted.get()) is not None:
            self._append(self._gathered(first))

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
        """Append messages, and end all their futures, whatever happens."""
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
                self._end(each)

    def _end(self, ended: _Submitted) -> None:
        try:
            if ended.error is not None:
                ended.pending.set_exception(ended.error)
            else:
                assert ended.encoded.appended is not None
                ended.pending.set_result(ended.encoded.appended)
        except BaseException:
            if not self._is_threaded:
                raise
            _log.exception("a callback of an append failed")  # by SystemExit: other futures have to end, too

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
