"""Recorded state of a store: its id, how much of it is on the device, whether it was closed, and its last owner.

::

    .segmentlog/id        32 hex digits and a line end       kept when the store is copied or moved
    .segmentlog/durable   durable point                      format.durable_point
    checkpoint            store times that were flushed      format.checkpoint
    abort                 exists while the store is open; ours ends in " segmentlog"
    lock                  ours begins with a signature; brokers overwrite the file

    was ours = durable point, and abort is ours, and the lock is signed: no other process wrote the store since

Recovery and readers of a crashed store ask the same questions here. Only stores that we write have an id.
"""

import re
import uuid
from typing import Final, NamedTuple

from ..files.fs import FileSystem, LocalFileSystem
from ..files.small_file import read_front, read_whole, replace_file
from ..files.writable_fs import WritableFileSystem
from ..format import checkpoint as checkpoints
from ..format import durable_point
from ..format.checkpoint import Checkpoint
from ..format.durable_point import DurablePoint
from ..format.store_paths import StorePaths

_ID: Final = re.compile(rb"[0-9a-f]{32}")
_ID_BYTES_MAX: Final = 64  # the id, its line end, and bytes that an editor may have added
ABORT_SIGNATURE: Final = b" segmentlog\n"
"""Ends the file ``abort`` of a store that we have open, after our process id; RocketMQ does not read it."""
ELSEWHERE: Final = "Is another directory in the broker's storePathCommitLog?"
"""The question about a log that ends too early."""
_ABORT_BYTES_MAX: Final = 64  # more than a process id and our signature have; a longer file is not ours


def store_id(path: str, fs: FileSystem | None = None) -> str | None:
    """Id of a store; None if it has none, as the stores of brokers."""
    found = read_whole(fs or LocalFileSystem(), StorePaths(path).store_id, _ID_BYTES_MAX)
    whole = None if found is None else _ID.fullmatch(found.strip())
    return None if whole is None else whole[0].decode("ascii")


def is_store_id(text: str) -> bool:
    return _ID.fullmatch(text.encode("utf-8", "replace")) is not None


def ensure_store_id(fs: WritableFileSystem, path: str) -> str:
    """Return the id of a store, created if it has none; the caller holds its lock and created ``.segmentlog``."""
    # A file that holds no id is replaced: no reader can have remembered it.
    known = store_id(path, fs)
    if known is not None:
        return known
    made = uuid.uuid4().hex
    paths = StorePaths(path)
    replace_file(fs, paths.store_id, made.encode("ascii") + b"\n", paths.making_state)
    return made


def read_durable_point(fs: FileSystem, path: str) -> DurablePoint | None:
    """Return the durable point of a store; None if there is none, or it is damaged."""
    return durable_point.decode(read_front(fs, StorePaths(path).durable_point, durable_point.FILE_BYTES) or b"")


def read_checkpoint(fs: FileSystem, path: str) -> Checkpoint:
    """Return the checkpoint of a store; all zeros if there is none."""
    return checkpoints.decode(read_front(fs, StorePaths(path).checkpoint, checkpoints.CHECKPOINT_BYTES) or b"")


def early_end(newest_ms: int, flushed_ms: int) -> str | None:
    """Say that the records of a log end before one that was flushed, as its checkpoint says; None if they do not."""
    if newest_ms >= flushed_ms:
        return None
    return (
        f"the log ends too early: its newest record was stored at {newest_ms} ms, and its broker flushed one of "
        f"{flushed_ms} ms"
    )


class OwnState(NamedTuple):
    """Recorded state of one store."""

    point: DurablePoint | None  # durable point; None if there is none
    checkpoint: Checkpoint  # all zeros if there is none
    was_aborted: bool  # whether it was not closed
    was_ours: bool  # whether we were its last owner: no broker wrote it since the durable point

    @classmethod
    def read(cls, fs: FileSystem, path: str, *, is_signed: bool) -> "OwnState":
        """Read the state of a store directory."""
        # `is_signed` is whether the lock says that no other process opened the store since we last had it. The file
        # `abort` tells too, but 4.x leaves an existing one as it is.
        paths = StorePaths(path)
        point = read_durable_point(fs, path)
        abort = read_front(fs, paths.abort, _ABORT_BYTES_MAX + 1)
        was_ours = is_signed and point is not None and abort is not None and abort.endswith(ABORT_SIGNATURE)
        return cls(
            point=point,
            checkpoint=read_checkpoint(fs, path),
            was_aborted=abort is not None,
            was_ours=was_ours,
        )

    @property
    def crash_point(self) -> DurablePoint | None:
        """The durable point, if all records and entries after it were written by us; None if that is unknown."""
        return self.point if self.was_ours else None

    @property
    def sealed_from(self) -> int | None:
        """Physical offset from which on every record ends in a right ``__CRC32#``; None if that is not known."""
        # Opening a store puts the durable point at the end of the log: records after it are the last owner's.
        point = self.crash_point
        return point.queues if point is not None and point.has_record_crc else None
