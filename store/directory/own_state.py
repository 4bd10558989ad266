"""Recorded state of a store: how much of it is on the device, whether it was closed, and its last owner.

::

    .segmentlog/durable   durable point                      format.durable_point
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
from ..format import checkpoint as checkpoints
from ..format import durable_point
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
        Its durable point; None if it has none.
    checkpoint
        Its checkpoint; all zeros if it has none.
    was_aborted
        Whether it was not closed.
    was_ours
        Whether it was not closed by us: no broker wrote it since the durable point.
    """

    point: DurablePoint | None
    checkpoint: Checkpoint
    was_aborted: bool
    was_ours: bool

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
        return cls(
            point=point,
            checkpoint=checkpoints.decode(checkpoint or b""),
            was_aborted=abort is not None,
            was_ours=was_ours,
        )

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
