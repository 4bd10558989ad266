"""Writer metrics: the measurements that an open store passes to an injected collector.

::

    append ──► put_lock_wait ──► write ──► fsync ──► acknowledged
                                   └─► dispatch ──► dispatch_lag          visible to readers

RocketMQ: ``StoreStatsService``, ``DefaultMessageStore.dispatchBehindBytes``.
"""

from typing import Protocol


class WriterMetrics(Protocol):
    """Collector of measurements.

    Methods are called by the threads that append, flush and dispatch, at the same time and partly under the put lock.
    So an implementation is thread-safe, returns at once and raises nothing.
    """

    def fsync(self, seconds: float) -> None:
        """Receive the duration of one sync of the log, which serves all appends that waited for it."""

    def put_lock_wait(self, seconds: float) -> None:
        """Receive how long one put waited for the put lock."""

    def dispatch_lag(self, seconds: float) -> None:
        """Receive the age of the oldest record of a round when it became visible: seconds since its put."""
