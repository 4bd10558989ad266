"""Messages that come one by one, from many threads: put together, and synced together.

::

    thread 1   encode ──► ask ── leads: put, sync for 1 ──► acknowledged
    thread 2      encode ──► ask ───────────────────── leads: put, sync for 2, 3, 4 ──► acknowledged
    thread 3         encode ──► ask ──────────────────────────────────────────────────► acknowledged
    thread 4            encode ──► ask ───────────────────────────────────────────────► acknowledged

One write and one sync for all who wait. RocketMQ: ``CommitLog.asyncPutMessage``, where each takes the put lock, and
``GroupCommitService``.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from ..encode.message import Appended, Encoded
from ..errors import SegmentLogError, StoreFailedError
from .flat_combining import Combiner
from .group_commit import Flusher
from .put_path import PutPath

_TOGETHER_BYTES: Final = 4 << 20  # are copied side by side


class SinglePuts:
    """Puts single messages at the end of a log.

    Parameters
    ----------
    put_path
        Where they go.
    flusher
        Who gets them onto the device before they are acknowledged; None if they need not be there.
    """

    def __init__(self, put_path: PutPath, flusher: Flusher | None) -> None:
        self._put_path = put_path
        self._flusher = flusher
        self._puts = Combiner(self._put)

    def put(self, encoded: Encoded) -> Appended:
        """Put one message, and come back when it is as safe as it has to be; raises what `PutPath.put` does."""
        flusher = self._flusher
        while encoded.appended is None:
            if flusher is None:  # nobody waits for the device, so hardly anybody for each other
                self._put_path.put([encoded])
            else:
                self._puts.ask(encoded)
        if flusher is not None:
            flusher.wait(encoded.appended.physical_offset + encoded.appended.size)
        return encoded.appended

    def _put(self, gathered: list[Encoded]) -> None:
        """Put all of them and sync; where something is in the way at least the first, the caller's, or raise."""
        for together in _runs(gathered):
            try:
                self._put_path.put(together)
            except SegmentLogError:
                if gathered[0].appended is None:
                    self._put_path.put(gathered[:1])
                return  # the others ask again
        last = gathered[-1].appended
        if self._flusher is not None and last is not None:
            with suppress(StoreFailedError):  # each looks for itself
                self._flusher.wait(last.physical_offset + last.size)


def _runs(gathered: list[Encoded]) -> Iterator[list[Encoded]]:
    """Cut records into runs of a few megabytes; one may be larger."""
    run: list[Encoded] = []
    size = 0
    for encoded in gathered:
        if run and size + len(encoded.record) > _TOGETHER_BYTES:
            yield run
            run, size = [], 0
        run.append(encoded)
        size += len(encoded.record)
    yield run
