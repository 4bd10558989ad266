"""Epochs of a store: read by its master and replicas, written when it is promoted or follows another master.

::

    promote, replica, demote ──► .segmentlog/epochs        one writer at a time: the process with the store's lock
    replication server       ──► .segmentlog/superseded    the only file of these that a server writes

    superseded > newest epoch   the store was the master once, and must not be one again: `check_current`

Nothing deletes ``superseded``: the store is current again as soon as its newest epoch is as great. So the two writers
need no lock between them.
"""

from ..errors import StaleMasterError
from ..files.fs import FileSystem
from ..files.small_file import ReplacedFile, read_whole, replace_file
from ..files.writable_fs import WritableFileSystem
from ..format import epochs as codec
from ..format.epochs import Epochs
from ..format.store_paths import StorePaths


def find_epochs(fs: FileSystem, path: str) -> Epochs:
    """Read the epochs of a store; none if it was never promoted, nor the replica of a promoted one."""
    file = StorePaths(path).epochs
    data = read_whole(fs, file, codec.FILE_BYTES_MAX)
    return Epochs() if data is None else codec.decode(data, file)


def write_epochs(fs: WritableFileSystem, path: str, epochs: Epochs) -> None:
    """Replace the epochs of a store, on the device; the caller holds the store's lock."""
    paths = StorePaths(path)
    replace_file(fs, paths.epochs, codec.encode(epochs), paths.making_epochs)


def greatest_epoch(fs: FileSystem, path: str) -> int:
    """Return the greatest epoch that a store knows of: its newest one, or that of the master that replaced it."""
    return max(find_epochs(fs, path).newest, _superseded(fs, path))


def supersede(fs: WritableFileSystem, path: str, epoch: int) -> None:
    """Note on the device that the master of an epoch replaced this store."""
    if epoch > _superseded(fs, path):
        paths = StorePaths(path)
        replace_file(fs, paths.superseded, codec.encode_superseded(epoch), paths.making_superseded)


def check_current(fs: FileSystem, path: str) -> None:
    """Raise `StaleMasterError` if another master has replaced a store."""
    newest, epoch = find_epochs(fs, path).newest, _superseded(fs, path)
    if epoch > newest:
        raise stale_master(path, newest, epoch)


def stale_master(path: str, newest: int, epoch: int) -> StaleMasterError:
    """Return the error of a store of epoch ``newest`` that the master of ``epoch`` replaced."""
    return StaleMasterError(
        f"this store is the master of epoch {newest}, and the master of epoch {epoch} has replaced it",
        path=path,
        fix="Run `segmentlog demote` to make it a replica of that master, or `segmentlog promote` if this store is to "
        "be the master",
    )


class EpochWatch:
    """Epochs of a store that another process or thread may promote. Not thread-safe."""

    def __init__(self, fs: WritableFileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._file = ReplacedFile(fs, StorePaths(path).epochs)
        self.now = Epochs()  # epochs as of the last look
        self.look()

    def look(self) -> bool:
        """Read the epochs if the file was replaced; return whether they changed. Costs a system call or two."""
        if not self._file.look():
            return False
        before, self.now = self.now, find_epochs(self._fs, self._path)
        return self.now != before

    def close(self) -> None:
        self._file.close()


def _superseded(fs: FileSystem, path: str) -> int:
    file = StorePaths(path).superseded
    data = read_whole(fs, file, codec.SUPERSEDED_BYTES)
    return 0 if data is None else codec.decode_superseded(data, file)
