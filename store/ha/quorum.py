"""Quorum of replicas: appends wait until enough of them hold the bytes (synchronous double write).

::

    append ──► put ──► wait(offset) ─────────────────────────────► acknowledged
                │                        ▲ replicas with a ≥ offset: enough
                └─► wake ──► server ──► frames ──► reports ──► acknowledge(replica, a)

    too few replicas in sync      NoReplicaError        SLAVE_NOT_AVAILABLE, at once
    not enough in time            ReplicaTimeoutError   FLUSH_SLAVE_TIMEOUT
    another master replaced us    StaleMasterError      each append from then on; no further offset is confirmed

    log          [rec][rec][rec│rec][batch ....... │ ....]     acknowledgements end anywhere, RocketMQ's even in records
    noted ends        ▲             ▲                    ▲     ends of the log without a batch in flight
    held                       a1 ───┘ │            a2 ──┘
    confirmed         ◄── a1           └──► a2                 Confirmer: the last noted end that enough replicas hold

In all cases the record is in this log, and may be on some replicas. The master itself is one of ``in_sync_replicas``,
as in RocketMQ 5: 1 never waits. A replica is in sync if its gap is at most ``gap_bytes``. A confirmed offset, which
other processes read, is the end of a record, and a batch is confirmed as a whole. RocketMQ: ``GroupTransferService``,
``haMaxGapNotInSync``.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from ..dispatch.dispatcher import DispatchRequest
from ..errors import ConfigError, NoReplicaError, ReplicaTimeoutError, StaleMasterError, StoreInUseError
from ..files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from ..format.store_paths import StorePaths
from ..log.confirmed import ConfirmationFile

_ENDS_MAX: Final = 4096


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
        for name, number, least, words in (
            ("in_sync_replicas", in_sync_replicas, 1, "1 or more copies, the store's own included"),
            ("timeout_s", timeout_s, sys.float_info.min, "a number of seconds above 0"),
            ("gap_bytes", gap_bytes, 0, "0 bytes or more"),
        ):
            if not isinstance(number, int | float) or not number >= least:
                raise ConfigError(f"{name} is {number!r}", fix=f"Pass {words}")
        self.needed = in_sync_replicas
        """Copies that an append waits for, this store's own included."""
        self._needed = in_sync_replicas - 1
        self._timeout_s = timeout_s
        self._gap_bytes = gap_bytes
        self._changed = threading.Condition()
        self._held: dict[int, int] = {}
        self._replaced: StaleMasterError | None = None
        self._reached = 0  # physical offset that enough replicas hold now; read without the lock, so set last
        self._wake: Callable[[], None] = _nothing
        self._confirm: Callable[[], None] = _nothing

    def add(self, request: DispatchRequest) -> None:  # noqa: ARG002 - a log listener
        """Wake the server: bytes wait to be sent."""
        self._wake()

    def wait(self, offset: int) -> None:
        """Return when enough replicas hold all bytes below a physical offset.

        Raises `NoReplicaError` if fewer are in sync than are needed, `ReplicaTimeoutError` if too few acknowledged in
        time. After another master has replaced this one it raises `StaleMasterError`.
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
        """Fail each append from now on, waiting ones included; no further offset is confirmed."""
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
            self._publish_reached()

    def forget(self, replica: int) -> None:
        """Note that a replica is gone."""
        with self._changed:
            self._held.pop(replica, None)
            self._publish_reached()

    def serve_by(self, wake: Callable[[], None], confirm: Callable[[], None] | None = None) -> None:
        """Set the callbacks of the server."""
        # `wake` is called when bytes wait to be sent; it returns at once. `confirm` is called after each
        # acknowledgement, before appends that waited for it return: an acknowledged append is confirmed for other
        # processes, too.
        self._wake, self._confirm = wake, confirm or _nothing

    def _publish_reached(self) -> None:
        reached = self.confirmed or 0
        self._reached = min(self._reached, reached)
        try:
            self._confirm()
        finally:
            self._reached = reached  # last: an append that does not wait relies on the published offset
            self._changed.notify_all()


class Confirmer:
    """Publishes the offset of an existing store that a quorum of one replica or more holds. Not thread-safe."""

    def __init__(self, path: str, quorum: Quorum, fs: WritableFileSystem | None = None) -> None:
        fs = fs or LocalWritableFileSystem()
        self._quorum = quorum
        self._ends: deque[int] = deque()
        with ExitStack() as opened:
            try:
                lock = fs.lock_store(StorePaths(path).confirmed_lock)
            except StoreInUseError as error:
                raise StoreInUseError(
                    "another process serves this store to replicas", path=path, fix="Stop that process first"
                ) from error
            opened.callback(lock.release)
            self._file = opened.enter_context(ConfirmationFile(fs, path, quorum.needed))
            self._opened = opened.pop_all()

    @property
    def confirmed(self) -> int:
        """Physical offset that was published last."""
        return self._file.last.offset

    def note_end(self, end: int) -> None:
        """Note an end of the log at which no batch is in flight."""
        ends = self._ends
        if not ends or end > ends[-1]:
            ends.append(end)
        if len(ends) > _ENDS_MAX:  # an odd number: the newest stays. Fewer ends confirm later, never wrongly
            self._ends = deque(list(ends)[::2])

    def publish(self) -> None:
        """Publish the last noted end that enough replicas hold, if it or the number of replicas in sync changed."""
        held, offset = self._quorum.confirmed, self.confirmed
        in_sync = 1 + self._quorum.in_sync(self._ends[-1] if self._ends else offset)
        while held is not None and self._ends and self._ends[0] <= held:
            offset = max(offset, self._ends.popleft())
        if offset > self.confirmed or in_sync != self._file.last.copies:
            self._file.publish(offset, in_sync)

    def close(self) -> None:
        """State that no replica is in sync, and let another server publish."""
        self._opened.close()


def _nothing() -> None:
    pass
