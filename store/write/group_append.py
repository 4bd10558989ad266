"""Group append: single messages of many threads are put together and acknowledged together.

::

    thread 1   encode ──► ask ── leads: put, sync for 1 ──► acknowledged
    thread 2      encode ──► ask ───────────────────── leads: put, sync for 2, 3, 4 ──► acknowledged
    thread 3         encode ──► ask ──────────────────────────────────────────────────► acknowledged
    thread 4            encode ──► ask ───────────────────────────────────────────────► acknowledged

One write and one sync serve all threads that wait. RocketMQ: ``CommitLog.asyncPutMessage``, where each thread takes the
put lock, and ``GroupCommitService``.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from ..encode.message import Appended, Encoded
from ..errors import SegmentLogError
from .flat_combining import Combiner
from .group_commit import GroupCommit
from .put_path import PutPath

_TOGETHER_BYTES: Final = 4 << 20  # are copied side by side; at most a segment, see `PutPath.catch_up`


class GroupAppend:
    """Appends single messages. Thread-safe.

    Parameters
    ----------
    put_path
        The put path of the store.
    commit
        What an append waits for before it is acknowledged.
    """

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
