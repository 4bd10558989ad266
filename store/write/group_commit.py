"""Group commit: any number of appenders wait, one of them syncs for all.

::

    thread 1   put ──► wait(end 1) ── leads: sync ─────────────► done, up to end 1 ──► acknowledged
    thread 2      put ──► wait(end 2) ─────────────────── leads: sync ──────► done, up to end 4
    thread 3         put ──► wait(end 3) ───────────────────────────────────► acknowledged, without a sync of its own

A sync that fails is final: the kernel marks pages clean that never reached the device, so the next sync would succeed
and mean nothing. From then on nothing is acknowledged. RocketMQ: ``CommitLog.GroupCommitService``, which answers
FLUSH_DISK_TIMEOUT and goes on.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import NoSpaceError, StoreFailedError
from .flat_combining import Combiner


class Failure:
    """The first thing that went wrong with a store's disk; shared by all parts of the store."""

    def __init__(self, path: str) -> None:
        self.path = path
        """The store."""
        self._cause: BaseException | None = None

    def note(self, cause: BaseException) -> None:
        """Remember what went wrong; only the first counts."""
        self._cause = self._cause or cause

    @contextmanager
    def final(self) -> Iterator[None]:
        """Note whatever goes wrong inside: syncs, which cannot be tried again."""
        try:
            yield
        except BaseException as error:
            self.note(error)
            raise

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note what goes wrong inside, but for a lack of room: that can be tried again."""
        try:
            yield
        except NoSpaceError:
            raise
        except BaseException as error:
            self.note(error)
            raise

    def check(self) -> None:
        """Do nothing while nothing went wrong.

        Raises
        ------
        StoreFailedError
            From the first thing that did.
        """
        if self._cause is not None:
            raise StoreFailedError(
                "writing failed before, and what the device holds is not known: "
                f"{str(self._cause) or type(self._cause).__name__}",
                path=self.path,
                fix="Close it, look after the disk, and open it again: recovery finds what was kept",
            ) from self._cause


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
