"""Expired segments in an archive in object storage, before retention deletes them.

::

    expired segment ─► does the newest manifest name all its bytes? ─ no ─► push ─► asked again
                                 └ yes ─► digests of the local bytes, sizes of the objects ─► retention may delete it
"""

import threading
from collections.abc import Callable, Generator, Sequence
from hashlib import sha256
from typing import Final

from ..errors import StoreIOError
from ..files.fs import LocalFileSystem
from ..files.segments import SegmentFile
from ..format.naming import segment_name
from ..objects.manifests import heads_of, newest_or_empty
from ..objects.object_store import ObjectStore
from ..objects.opening import open_objects
from ..retention.state import FileId, FileKind
from .push import push

_WAIT_S: Final = 0.05


class RemoteArchive:
    """Archive at a URL, as retention asks for one: see `retention.clean.Archiving`. Not thread-safe."""

    def __init__(self, store: str, log_directories: Sequence[str], url: str) -> None:
        self.path = url
        self._store = store
        self._log_directories = log_directories
        self._fs = LocalFileSystem()

    def path_of(self, file: FileId) -> str:
        return f"{self.path}/log/{segment_name(file.base)}" if file.kind is FileKind.LOG else self.path

    def copy(self, file: FileId, found: SegmentFile) -> Generator[float, None, None]:
        """Push the store, unless the archive has a segment; files of queues and index are in its packs and files."""
        # In a thread: an open store does not wait for the object store. The thread of an interrupted run goes on
        # alone, and leaves at most objects without a manifest.
        if file.kind is not FileKind.LOG:
            return
        errors: list[BaseException] = []
        thread = threading.Thread(target=_noting(errors, lambda: self._archive(found)), daemon=True)
        thread.start()
        while thread.is_alive():
            yield _WAIT_S
        for error in errors:
            raise error

    def _archive(self, found: SegmentFile) -> None:
        objects = open_objects(self.path)
        if self._has(objects, found):
            return
        push(self._store, objects, commit_log_paths=self._log_directories)
        if not self._has(objects, found):
            raise StoreIOError(
                f"the archive does not have all bytes of {found.path}", path=self.path, errno=5, fix="Push the store"
            )

    def _has(self, objects: ObjectStore, found: SegmentFile) -> bool:
        at = found.base
        manifest = newest_or_empty(objects)[1]
        pieces = (piece for part in heads_of(objects, manifest) for piece in part.pieces)
        for key, start, stop, digest in (
            each for piece in pieces if piece.segment == found.base for each in piece.ranges
        ):
            info = objects.head(key)
            if start != at or info is None or info.size != stop - start:
                return False
            local = self._fs.map(found.path, start - found.base, stop - found.base)
            if sha256(local.data).hexdigest() != digest:
                return False
            at = stop
        return at == found.stop


def _noting(errors: list[BaseException], work: Callable[[], None]) -> Callable[[], None]:
    """Return a function for a thread, which keeps the error of the work."""

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            errors.append(error)

    return run


def archive_at(store: str, log_directories: Sequence[str], archive: str | None) -> RemoteArchive | None:
    """Return the archive that the settings of retention name, if it is a URL."""
    return RemoteArchive(store, log_directories, archive) if archive is not None and "://" in archive else None
