"""Confirmed offset of a store: published by its master, read by other processes.

::

    replicas ──► master ──► ConfirmationFile.publish ──► .segmentlog/confirmed ──► readers with readFrom=confirmed
                                                                              └──► commits with replication=sync

    log   [rec][rec][rec][rec][rec]
                    ▲ confirmed        a failover keeps the records before it
    open after a crash, the log ends earlier   ──► lowered to that end before anything is appended
    open after a broker had the store          ──► deleted: the broker may have appended without replicas

A published offset never falls while the store keeps its records. Publishing costs one small write, and no sync.
"""

from typing import Self

from ..errors import Remedy, UnconfirmedError
from ..files.fs import FileSystem
from ..files.small_file import read_front, replace_file
from ..files.store_lock import is_signed
from ..files.writable_fs import WritableFileSystem
from ..format import confirmation as confirmations
from ..format.confirmation import NOT_CONFIRMED, Confirmation
from ..format.store_paths import StorePaths


def find_confirmation(fs: FileSystem, path: str) -> Confirmation | None:
    """Read the confirmation of a store; None if no master ever published one since a broker wrote the store."""
    paths = StorePaths(path)
    data = read_front(fs, paths.confirmed, confirmations.FILE_BYTES)
    return None if data is None or not is_signed(paths.lock) else confirmations.decode(data)


def confirmed_offset(fs: FileSystem, path: str) -> int:
    """Return the physical offset below which all records are confirmed; `UnconfirmedError` if the store has none."""
    found = find_confirmation(fs, path)
    if found is None:
        raise UnconfirmedError(
            "confirmed messages were asked for, and no master publishes a confirmed offset in this store",
            path=path,
            fix="Run `segmentlog serve --in-sync-replicas 2` on it. Of a replica, read the master's store",
            remedies=(Remedy.READ_APPENDED,),
        )
    return found.offset


def settle_confirmation(fs: WritableFileSystem, path: str, end: int, *, was_ours: bool) -> None:
    """Make the confirmation fit a log that recovery ends at ``end``; called before the first record is appended."""
    # `was_ours` is False if a broker had the store since the confirmation was published.
    paths = StorePaths(path)
    data = read_front(fs, paths.confirmed, confirmations.FILE_BYTES)
    if data is None:
        return
    if not was_ours:
        fs.unlink(paths.confirmed)
        fs.sync_dir(paths.ours)
        return
    found = confirmations.decode(data)
    if found.offset > end:
        _replace(fs, path, found._replace(sequence=found.sequence + 1, offset=end))


class ConfirmationFile:
    """Publishes the offset that ``needed`` copies confirm, for the only master of a store. Not thread-safe."""

    def __init__(self, fs: WritableFileSystem, path: str, needed: int) -> None:
        paths = StorePaths(path)
        found = find_confirmation(fs, path) or NOT_CONFIRMED
        # What a slot held before may be in the page cache only: the first statement is made on the device.
        self.last = Confirmation(found.sequence + 1, found.offset, needed, 1)  # the last statement
        _replace(fs, path, self.last)
        self._file = fs.open(paths.confirmed)

    def publish(self, offset: int, copies: int) -> None:
        """State an offset, unless a greater one was stated, and the number of copies in sync."""
        # If the file cannot be written, the last statement holds.
        last = self.last
        stated = Confirmation(last.sequence + 1, max(offset, last.offset), last.needed, copies)
        self._file.write(confirmations.position_of(stated), confirmations.encode(stated))
        self.last = stated

    def close(self) -> None:
        """State that no replica is in sync, and put the last offset onto the device."""
        try:
            self.publish(self.last.offset, 1)
            self._file.sync()
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _replace(fs: WritableFileSystem, path: str, stated: Confirmation) -> None:
    paths = StorePaths(path)
    content = bytearray(confirmations.FILE_BYTES)
    slot = confirmations.encode(stated)
    at = confirmations.position_of(stated)
    content[at : at + len(slot)] = slot
    replace_file(fs, paths.confirmed, bytes(content), paths.making_confirmed)
