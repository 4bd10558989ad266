"""Recorded state of a store: how much of it is on the device, whether it was closed, and its last owner.

::

    .segmentlog/durable   durable point                      format.durable_point
    .segmentlog/cached    the same of the page cache         format.cached_point
    checkpoint            store times that were flushed      format.checkpoint
    abort                 there while it is open; ours ends in " segmentlog"
    lock                  ours begins with a signature; brokers overwrite the file

    was ours = durable point, and abort is ours, and the lock is signed: no other process wrote the store since

Recovery and readers of a crashed store ask the same questions here.
"""

from dataclasses import dataclass
from typing import Final

from ..files.fs import FileSystem
from ..files.small_file import read_front
from ..format import cached_point, durable_point
from ..format import checkpoint as checkpoints
from ..format.checkpoint import Checkpoint
from ..format.durable_point import DurablePoint
from ..format.store_paths import StorePaths

ABORT_SIGNATURE: Final = b" segmentlog\n"
"""Ends the file ``abort`` of a store that we have open, after our process id; RocketMQ does not read it."""
_ABORT_BYTES_MAX: Final = 64
"""More than a process id and our signature have; a longer file is not ours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnState:
    """Recorded state of one store.

    Attributes
    ----------
    point
        Its durable point; None if it has none. As long as the kernel runs that wrote a cached point, that one.
    checkpoint
        Its checkpoint; all zeros if it has none.
    was_aborted
        Whether it was not closed.
    was_ours
        Whether it was not closed by us: no broker wrote it since the durable point.
    on_device
        The durable point where ``point`` is a cached one; else None.
    """

    point: DurablePoint | None
    checkpoint: Checkpoint
    was_aborted: bool
    was_ours: bool
    on_device: DurablePoint | None = None

    @classmethod
    def read(cls, fs: FileSystem, path: str, *, is_signed: bool) -> "OwnState":
        """Read it from a store directory.

        Parameters
        ----------
        is_signed
            Whether no other process opened the store since we last had it, as far as the lock tells. The file ``abort``
            tells too, but 4.x leaves an existing one as it is.
        """
        paths = StorePaths(path)
        point = durable_point.decode(read_front(fs, paths.durable_point, durable_point.FILE_BYTES) or b"")
        abort = read_front(fs, paths.abort, _ABORT_BYTES_MAX + 1)
        checkpoint = read_front(fs, paths.checkpoint, checkpoints.CHECKPOINT_BYTES)
        was_ours = is_signed and point is not None and abort is not None and abort.endswith(ABORT_SIGNATURE)
        cached = _cached(fs, paths, point) if was_ours and point is not None else None
        return cls(
            point=cached or point,
            checkpoint=checkpoints.decode(checkpoint or b""),
            was_aborted=abort is not None,
            was_ours=was_ours,
            on_device=None if cached is None else point,
        )

    @property
    def was_kept(self) -> bool:
        """True if it was closed, and all of it is in the page cache."""
        return self.on_device is not None and self.point is not None and self.point.clean

    @property
    def crash_point(self) -> DurablePoint | None:
        """The durable point, if all records and entries after it were written by us; None if that is unknown."""
        return self.point if self.was_ours else None

    @property
    def sealed_from(self) -> int | None:
        """Physical offset from which on every record ends in a right ``__CRC32#``; None if that is not known.

        Opening a store puts the durable point at the end of the log: records after it are the last owner's.
        """
        point = self.crash_point
        return point.queues if point is not None and point.has_record_crc else None


def boot_id(fs: FileSystem) -> str:
    """Return the identity of the running kernel; empty where the system tells none."""
    return (read_front(fs, _BOOT_ID, 36) or b"").decode("ascii", "replace")


_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


def _cached(fs: FileSystem, paths: StorePaths, device: DurablePoint) -> DurablePoint | None:
    """Read the cached point, which counts for the running kernel only."""
    data = read_front(fs, paths.cached_point, cached_point.FILE_BYTES)
    return None if data is None else cached_point.decode(data, device.sequence, boot_id(fs))
