"""Archived store: the newest manifest of an archive in object storage, and the files that it has, as a store has them.

::

    manifests/0000000012.arrow ──► ROOT/commitlog/00000000001073741824    of pieces, which follow each other
                                   ROOT/index/…  ROOT/config/…            of one object each
                                   ROOT/queues/…                          packs; there is no consumequeue/

    ROOT is the URL. A later manifest replaces all of it at once: see `refresh`.

A place with a ``commitlog/`` and without a manifest is a plain copy of a store directory, and is read as one.
"""

import errno
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ..errors import MissingObjectError, NotAStoreError
from ..format.archive_manifest import Manifest
from ..format.naming import segment_name
from ..format.store_paths import COMMIT_LOG, CONSUME_QUEUE
from ..objects.manifests import listed, read
from ..objects.object_store import ObjectInfo, ObjectStore
from ..objects.remote_fs import ObjectPart, RemoteFile, RemoteFileSystem

if TYPE_CHECKING:
    from ..objects.block_cache import BlockCache

_SHOWN_MAX: Final = 5
_SEGMENT: Final = re.compile(rf"{COMMIT_LOG}/(\d{{20}})")


class GrowingFileSystem(RemoteFileSystem):
    """Files of an archive, to which later manifests add."""

    def __init__(self, objects: ObjectStore, root: str, cache: "BlockCache | None") -> None:
        self._growing = objects, root, cache
        self.show({})

    def show(self, files: Mapping[str, RemoteFile]) -> None:
        """Have these files from now on; bytes that were read stay valid."""
        objects, root, cache = self._growing
        super().__init__(objects, root, files, cache)


class ArchivedStore:
    """One archive, as of its newest manifest. Not thread-safe."""

    def __init__(self, objects: ObjectStore, root: str, cache: "BlockCache | None" = None) -> None:
        self._objects = objects
        self.root = root
        self.number = 0
        self.manifest = Manifest()
        self.fs = GrowingFileSystem(objects, self.root, cache)
        if not self.refresh():
            raise NotAStoreError("there is no manifest of an archive", path=self.root)

    def refresh(self) -> bool:
        """Read the newest manifest if there is a newer one; return whether there was. Costs one list of objects."""
        found = max(listed(self._objects), default=None)
        if found is None or found[0] == self.number:
            return False
        self.number, self.manifest = found[0], read(self._objects, found[1])
        self.fs.show(files_of(self.manifest))
        return True

    @property
    def store_id(self) -> str | None:
        """Id of the store that was pushed."""
        return self.manifest.store.get("id")


def files_of(manifest: Manifest) -> dict[str, RemoteFile]:
    """Files that a manifest has, by name below the root: segments, packs, and other files of the store."""
    files = {each.path: RemoteFile(each.key, each.size) for each in manifest.files}
    parts: dict[int, list[ObjectPart]] = {}
    for piece in manifest.pieces:
        part = ObjectPart(piece.key, piece.start - piece.segment, 0, piece.stop - piece.start)
        parts.setdefault(piece.segment, []).append(part)
        files[piece.pack_key] = RemoteFile(piece.pack_key, piece.pack_size)
    for segment, found in parts.items():
        name = f"{COMMIT_LOG}/{segment_name(segment)}"
        files[name] = RemoteFile(name, found[-1].start + found[-1].length, None, tuple(found))
    return files


def opened(objects: ObjectStore, root: str, cache: "BlockCache | None" = None) -> "ArchivedStore | RemoteFileSystem":
    """Open an archive, or else the files of a plain copy of a store directory.

    Raises
    ------
    NotAStoreError
        If there is neither.
    MissingObjectError
        If the copy lacks a segment between two others.
    """
    with suppress(NotAStoreError):
        return ArchivedStore(objects, root, cache)
    found = list(objects.list())
    names = dict.fromkeys(each.key.partition("/")[0] for each in found)
    if COMMIT_LOG in names or CONSUME_QUEUE in names:
        _check_segments(found, root)
        return RemoteFileSystem.listed(objects, root, found, cache)
    there = f"it holds {', '.join(sorted(names)[:_SHOWN_MAX])}" if names else "there is nothing"
    raise NotAStoreError(
        f"no store or archive here: {there}",
        path=root,
        fix="Name the place that `segmentlog archive push` was given, or the copy of a directory with commitlog/",
    )


def _check_segments(found: Iterable[ObjectInfo], root: str) -> None:
    """Raise `MissingObjectError` if the log of a copy lacks a segment between two others."""
    # Sizes may be those of short files; a store's segments have one size.
    log = [(int(name[1]), each.size) for each in found if (name := _SEGMENT.fullmatch(each.key))]
    size = max((size for _, size in log), default=0)
    for (one, _), (other, _) in pairwise(log):
        if other - one > size:
            raise MissingObjectError(
                f"the list of this copy has segments at {one} and {other}, and none at {one + size} between them",
                path=f"{root}/{COMMIT_LOG}/{segment_name(one + size)}",
                fix="If the object is there, the object store left it out of its list: try again. Otherwise copy it",
                errno=errno.ENOENT,
            )
