"""Group commit: any number of appenders wait, one of them syncs for all.

::

    thread 1   put ──► wait(end 1) ── leads: sync ─────────────► done, up to end 1 ──► acknowledged
    thread 2      put ──► wait(end 2) ─────────────────── leads: sync ──────► done, up to end 4
    thread 3         put ──► wait(end 3) ───────────────────────────────────► acknowledged, without a sync of its own

A sync that fails is final: the kernel marks pages clean that never reached the device, so the next sync would succeed
and mean nothing. From then on nothing is acknowledged. RocketMQ: ``CommitLog.GroupCommitService``, which answers
FLUSH_DISK_TIMEOUT and goes on.
"""

from collections.abc import Callable

from .failure import Failure
from .flat_combining import Combiner


class Flusher:
    """Knows up to where the log is on the device, and gets it there.

    Parameters
    ----------
    sync
        Syncs, and gives the offset up to which everything is on the device then.
    flushed
        Up to where it is already.
    failure
        Where a failed sync is noted.
    """

    def __init__(self, sync: Callable[[], int], flushed: int, failure: Failure) -> None:
        self._sync = sync
        self._failure = failure
        self._syncs = Combiner(self._sync_for)
        self.flushed = flushed

    def wait(self, offset: int) -> None:
        """Come back when everything below ``offset`` is on the device.

        Raises
        ------
        StoreFailedError
            If a sync failed, now or before: whether those bytes are there is not known.
        """
        while self.flushed < offset:
            self._syncs.ask(offset)

    def _sync_for(self, offsets: list[int]) -> None:
        if max(offsets) <= self.flushed:  # they came during a sync that was for them, too
            return
        self._failure.check()
        try:
            self.flushed = max(self.flushed, self._sync())
        except BaseException as error:
            self._failure.note(error)
            if isinstance(error, Exception):
                self._failure.check()
            raise
