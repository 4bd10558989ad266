"""Attachments of an open store: interfaces of the other parties that take part in its appends.

::

    put ──► record in the log ──► log listeners: dispatcher, then these       under the put lock
              └──► group commit ──► acknowledgers: device, then these         before the append returns
              └──► metrics: put_lock_wait, fsync, dispatch_lag

A replication master is a listener and an acknowledger. RocketMQ: ``HAService`` in ``CommitLog.handleDiskFlushAndHA``,
``StoreStatsService``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..dispatch.dispatcher import DispatchRequest


class LogListener(Protocol):
    """A part that learns of each new end of the log; the dispatcher is the first one."""

    def add(self, request: DispatchRequest) -> None:
        """Receive records in the order of the log, under the put lock: it returns at once; an error fails the store."""


class Acknowledger(Protocol):
    """A place that must hold the bytes of an append before the append is acknowledged. Thread-safe."""

    def wait(self, offset: int) -> None:
        """Return when this place holds all bytes of the log below a physical offset."""


class WriterMetrics(Protocol):
    """Collector of measurements: thread-safe, returns at once and raises nothing, partly under the put lock."""

    def fsync(self, seconds: float) -> None:
        """Receive the duration of one sync of the log, which serves all appends that waited for it."""

    def put_lock_wait(self, seconds: float) -> None:
        """Receive how long one put waited for the put lock."""

    def dispatch_lag(self, seconds: float) -> None:
        """Receive the age of the oldest record of a round when it became visible: seconds since its put."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attachments:
    """Parties that one opened store serves.

    Attributes
    ----------
    acknowledgers
        Hold each append before it is acknowledged, in addition to the device.
    listeners
        Learn of each end of the log, in the order of the log.
    metrics
        Collector of the writer's measurements; None measures nothing.
    """

    acknowledgers: Sequence[Acknowledger] = ()
    listeners: Sequence[LogListener] = ()
    metrics: WriterMetrics | None = None


NO_ATTACHMENTS = Attachments()  # a store that only its own device acknowledges
