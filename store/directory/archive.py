"""Archives of stores: a directory with the expired files of one store, under their names.

::

    ARCHIVE/  commitlog/  consumequeue/TOPIC/QUEUE_ID/  index/     files that the store does not have any more
              .segmentlog/archive-of                               id of the store, or its path if it has none

`retention/archive.py` makes the copies. RocketMQ has no archive.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..files.fs import FileSystem, resolved
from ..files.joined_fs import JoinedFileSystem
from ..files.segments import list_segments
from ..files.small_file import read_whole
from ..format.naming import segment_name
from ..format.store_paths import OURS, StorePaths, archived_log
from .layout import StoreLocation, is_directory
from .own_state import is_store_id, store_id

if TYPE_CHECKING:
    from .archived_store import ArchivedStore

_OWNER_BYTES_MAX = 1 << 13
_HEADER_BYTES = 64  # up to the store timestamp; it differs between any two records of a log
_NAMES_BEFORE = {OURS, "lost+found"}


def owner_of(fs: FileSystem, archive: str) -> str | None:
    """Return the id or path of the store that an archive belongs to; None for an empty directory."""
    found = read_whole(fs, StorePaths(archive).archive_of, _OWNER_BYTES_MAX)
    if found is not None:
        return found.decode("utf-8", "replace").strip()
    others = sorted({each.name for each in fs.list_dir(archive)} - _NAMES_BEFORE)
    if others:
        raise ConfigError(
            f"archive: this directory is not an archive, it holds {others[0]!r}",
            path=archive,
            fix="Name an empty directory, or the archive that retention of this store was given",
        )
    return None


def check_owner(fs: FileSystem, archive: str, path: str) -> str | None:
    """Return the owner of an archive; `ConfigError` if it is another store, or the archive is within the store."""
    # An archive that was begun before its store had an id knows only the store's path. Paths are not compared: they
    # differ where the store is mounted elsewhere.
    check_beside(archive, path)
    owner = owner_of(fs, archive)
    if owner is not None and is_store_id(owner):
        check_ids(owner, store_id(path, fs), archive)
    return owner


def check_beside(directory: str, path: str, argument: str = "archive") -> None:
    """Raise `ConfigError` if a directory that is written for a store is in the store's own, or around it."""
    one, two = resolved(directory), resolved(path)
    if os.path.commonpath([one, two]) in {one, two}:
        raise ConfigError(
            f"{argument}: this directory and that of the store have to be beside each other",
            path=directory,
            fix=f"Name a directory that is neither in {path} nor around it",
        )


def check_ids(owner: str, known: str | None, archive: str, fix: str = "Name the archive of this store") -> None:
    """Raise `ConfigError` if the id of an archive's store, empty if it has none, is not that of a store."""
    if owner and known is not None and owner != known:
        problem = f"archive: this is the archive of store {owner}, and the store is {known}"
        raise ConfigError(problem, path=archive, fix=fix)


def check_same_log(fs: FileSystem, path: str, commit_logs: Sequence[str], archived: "ArchivedStore") -> None:
    """Raise `ConfigError` unless an archive in object storage is of this store: by its id, and by a record of both."""
    check_ids(archived.manifest.store.get("id", ""), store_id(path, fs), archived.root)
    for segment in list_segments(fs, commit_logs):
        for piece in archived.pieces:
            if segment.base <= piece.start < segment.stop:
                first = piece.start + piece.lead
                mine = fs.read(segment.path, first - segment.base, _HEADER_BYTES)
                name = os.path.join(archived_log(archived.root, piece.lead), segment_name(piece.segment))
                if mine != archived.fs.read(name, first - piece.segment, _HEADER_BYTES)[: len(mine)]:
                    raise ConfigError(
                        f"archive: its record at physical offset {piece.start} differs from that of the store",
                        path=archived.root,
                        fix="Name the archive of this store",
                    )
                return


def join_archive(location: StoreLocation, archive: str | os.PathLike[str], commit_log: str) -> StoreLocation:
    """Return the location of a store that continues in its archive, whose segments follow those in ``commit_log``."""
    root = location.beside(archive)
    if not is_directory(location.fs, root):
        raise ConfigError("archive: directory not found", path=root, fix="Name the archive that retention was given")
    check_owner(location.fs, root, location.root)
    store, archived = location.paths, StorePaths(root)
    continued = {
        commit_log: archived.commit_log,
        store.consume_queues: archived.consume_queues,
        store.index: archived.index,
    }
    return StoreLocation(JoinedFileSystem(location.fs, continued), location.root)
