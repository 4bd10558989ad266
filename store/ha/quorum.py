"""Quorum of replicas: appends wait until enough of them hold the bytes (synchronous double write).

::

    append ──► put ──► wait(offset) ─────────────────────────────► acknowledged
                │                        ▲ replicas with a ≥ offset: enough
                └─► wake ──► server ──► frames ──► reports ──► acknowledge(replica, a)

    too few replicas in sync      NoReplicaError        SLAVE_NOT_AVAILABLE, at once
    not enough in time            ReplicaTimeoutError   FLUSH_SLAVE_TIMEOUT
    another master replaced us    StaleMasterError      from then on, each append; nothing more is confirmed

In all cases the record is in this log, and may be on some replicas. The master itself is one of ``in_sync_replicas``,
as in RocketMQ 5: 1 never waits. A replica is in sync if its gap is at most ``gap_bytes``. RocketMQ:
``GroupTransferService``, ``haMaxGapNotInSync``.
"""

import threading
import time
from collections.abc import Callable

from ..dispatch.dispatcher import DispatchRequest
from ..errors import ConfigError, NoReplicaError, ReplicaTimeoutError, StaleMasterError


class Quorum:
    """Acknowledger and log listener of a master; pass it to `MessageStore.open` as both. Thread-safe.

    Parameters
    ----------
    in_sync_replicas
        Copies that an append waits for, this store's own included (``inSyncReplicas``).
    timeout_s
        Longest wait of an append (``slaveTimeout``).
    gap_bytes
        Largest lag of a replica that counts as in sync (``haMaxGapNotInSync``).
    """

    def __init__(self, in_sync_replicas: int = 1, timeout_s: float = 3.0, gap_bytes: int = 256 << 20) -> None:
        if in_sync_replicas < 1 or timeout_s <= 0 or gap_bytes < 0:
            raise ConfigError(
                f"in_sync_replicas, timeout_s and gap_bytes are {in_sync_replicas}, {timeout_s} and {gap_bytes}",
                fix="Pass 1 or more, a positive number of seconds, and 0 or more",
            )
        self.needed = in_sync_replicas
        """Copies that an append waits for, this store's own included."""
        self._needed = in_sync_replicas - 1
        self._timeout_s = timeout_s
        self._gap_bytes = gap_bytes
        self._changed = threading.Condition()
        self._held: dict[int, int] = {}
        self._replaced: StaleMasterError | None = None
        self._reached = 0  # physical offset that enough replicas hold now
        self._wake: Callable[[], None] = _nothing
        self._confirm: Callable[[], None] = _nothing

    def add(self, request: DispatchRequest) -> None:  # noqa: ARG002 - a log listener
        """Wake the server: there are bytes to send."""
        self._wake()

    def wait(self, offset: int) -> None:
        """Return when enough replicas hold all bytes below a physical offset.

        Raises
        ------
        NoReplicaError
            If fewer are in sync than are needed.
        ReplicaTimeoutError
            If too few acknowledged in time.
        StaleMasterError
            If another master has replaced this one.
        """
        if self._replaced is None and (not self._needed or offset <= self._reached):
            return
        self._wake()
        deadline = time.monotonic() + self._timeout_s
        with self._changed:
            self._check_current(offset)
            while (holding := sum(held >= offset for held in self._held.values())) < self._needed:
                in_sync = sum(offset - held <= self._gap_bytes for held in self._held.values())
                if in_sync < self._needed:
                    raise NoReplicaError(
                        f"SLAVE_NOT_AVAILABLE: {in_sync} replicas are in sync, and {self._needed} are needed; the "
                        f"append is in this log below physical offset {offset}"
                    )
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ReplicaTimeoutError(
                        f"FLUSH_SLAVE_TIMEOUT: {holding} replicas acknowledged physical offset {offset} within "
                        f"{self._timeout_s} s, and {self._needed} are needed; the append is in this log"
                    )
                self._changed.wait(left)
                self._check_current(offset)

    def _check_current(self, offset: int) -> None:
        error = self._replaced
        if error is not None:
            problem = f"{error.problem}; the append is in this log below physical offset {offset}, and not confirmed"
            raise error.restated(problem) from error

    def fail(self, error: StaleMasterError) -> None:
        """Fail each append from now on, those that wait included; nothing more is confirmed."""
        with self._changed:
            self._replaced, self._reached = error, 0
            self._changed.notify_all()

    @property
    def confirmed(self) -> int | None:
        """Physical offset that enough replicas hold; None with too few, without a need for any, and after `fail`."""
        with self._changed:
            if self._replaced is not None:
                return None
            held = sorted(self._held.values(), reverse=True)
        return held[self._needed - 1] if 0 < self._needed <= len(held) else None

    def in_sync(self, end: int) -> int:
        """Return the number of replicas whose gap to an end of the log is small enough."""
        with self._changed:
            return sum(end - held <= self._gap_bytes for held in self._held.values())

    def acknowledge(self, replica: int, offset: int) -> None:
        """Note the physical offset up to which a replica holds the log."""
        with self._changed:
            self._held[replica] = offset
            self._tell()

    def forget(self, replica: int) -> None:
        """Note that a replica is gone."""
        with self._changed:
            self._held.pop(replica, None)
            self._tell()

    def serve_by(self, wake: Callable[[], None], confirm: Callable[[], None] | None = None) -> None:
        """Set what the server wants to be told.

        Parameters
        ----------
        wake
            Called when there are bytes to send; it returns at once.
        confirm
            Called after each acknowledgement, before appends that waited for it return: what was appended with its
            replicas is confirmed for other processes, too.
        """
        self._wake, self._confirm = wake, confirm or _nothing

    def _tell(self) -> None:
        reached = self.confirmed or 0
        self._reached = min(self._reached, reached)
        try:
            self._confirm()
        finally:
            self._reached = reached  # last: an append that returns at once was published, too
            self._changed.notify_all()


def _nothing() -> None:
    pass
