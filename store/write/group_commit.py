"""Group commit: appends wait until their bytes are safe, and one sync serves all appends that wait.

::

    thread 1   put ──► wait(end 1) ── leads: sync ─────────────► flushed up to end 1 ──► acknowledged
    thread 2      put ──► wait(end 2) ─────────────────── leads: sync ──────► flushed up to end 4
    thread 3         put ──► wait(end 3) ───────────────────────────────────► acknowledged, without a sync of its own

    GroupCommit  ──► Flusher    the device           Flush.SYNC
                 └─► replica    another process      each is an Acknowledger

A failed sync is final: the kernel marks pages clean that never reached the device, so the next sync would succeed
and prove nothing. From then on nothing is acknowledged. RocketMQ: ``GroupCommitService``, which answers
FLUSH_DISK_TIMEOUT and continues; ``GroupTransferService`` for replicas.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from .failure import Failure
from .flat_combining import Combiner
from .metrics import WriterMetrics


class Acknowledger(Protocol):
    """A place that must hold the bytes of an append before the append is acknowledged. Thread-safe."""

    def wait(self, offset: int) -> None:
        """Return when this place holds all bytes of the log below a physical offset."""


class GroupCommit:
    """Waits for several acknowledgers. Thread-safe."""

    def __init__(self, acknowledgers: Sequence[Acknowledger]) -> None:
        self._acknowledgers = tuple(acknowledgers)

    @property
    def is_needed(self) -> bool:
        """True if appends wait for an acknowledger."""
        return bool(self._acknowledgers)

    def wait(self, offset: int) -> None:
        """Return when every acknowledger holds all bytes below a physical offset; raises what they raise."""
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
        self.flushed = flushed
        """Physical offset up to which the log is on the device."""

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
