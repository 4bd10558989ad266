"""Newest manifest of an archive, and the publication of the next one: the only place where archivers meet.

::

    archiver A   newest ─► 12     put pieces, packs      put 13 if absent ─► ours: published
    archiver B   newest ─► 12     put pieces, packs      put 13 if absent ─► taken: read 13, begin again from it
    answer lost  newest ─► 12     put pieces, packs      put 13 if absent ─► error or taken: compare the content of 13

An empty place is manifest 0, without content.
"""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from ..errors import CorruptError, NotAStoreError, StoreIOError, UnsupportedStoreError
from ..format.archive_manifest import Manifest, manifest_key
from ..format.store_paths import MANIFESTS
from .object_store import PROBE, ObjectInfo, ObjectStore

_MANIFEST: Final = re.compile(re.escape(MANIFESTS) + r"(\d{10})\.arrow")
PARTS: Final = ("log/", "queues/", "files/", MANIFESTS, PROBE)
"""Beginnings of the names of all objects of an archive."""


def listed(objects: ObjectStore) -> Iterator[tuple[int, ObjectInfo]]:
    """All manifests with their numbers, ascending."""
    for info in objects.list(MANIFESTS):
        found = _MANIFEST.fullmatch(info.key)
        if found is not None:
            yield int(found[1]), info
        elif info.size:  # not the mark of a folder
            raise _not_an_archive(objects, info.key)


def read(objects: ObjectStore, info: ObjectInfo) -> Manifest:
    """Read one manifest."""
    data = objects.get(info.key, 0, info.size, info.etag)
    return Manifest.decode(data.tobytes(), f"{objects.url}/{info.key}")


def newest(objects: ObjectStore) -> tuple[int, Manifest]:
    """Return the number and the content of the newest manifest.

    Raises
    ------
    NotAStoreError
        If there is no manifest.
    UnsupportedStoreError
        If something other than an archive is there.
    CorruptError
        If the manifest is damaged.
    """
    found = newest_or_empty(objects)
    if found[0] == 0:
        is_empty = next(iter(objects.list()), None) is None
        raise NotAStoreError(
            f"no archive here: {'there is nothing' if is_empty else 'there are pieces of the log, and no manifest'}",
            path=objects.url,
            fix="Name the place that `segmentlog archive push` was given; push again if its first push was interrupted",
        )
    return found


def newest_or_empty(objects: ObjectStore) -> tuple[int, Manifest]:
    """Return what `newest` returns; 0 and an empty manifest where an archive may be begun."""
    found = max(listed(objects), default=None)
    if found is not None:
        return found[0], read(objects, found[1])
    # An interrupted first push leaves objects without a manifest; the next push uses them.
    foreign = next((info.key for info in objects.list() if info.size and not info.key.startswith(PARTS)), None)
    if foreign is not None:
        raise _not_an_archive(objects, foreign)
    return 0, Manifest()


def publish(objects: ObjectStore, number: int, manifest: Manifest) -> bool:
    """Put the manifest with a number; False if another archiver has put one with this number before."""
    data = np.frombuffer(manifest.encode(), np.uint8)
    key = manifest_key(number)
    lost: StoreIOError | None = None
    try:
        if objects.put(key, data, if_absent=True) is not None:
            return True
    except StoreIOError as error:
        lost = error
    # The answer may have been lost after the object was written; a retry of the client then finds it taken, by us.
    found = objects.head(key)
    if found is not None:
        return found.size == data.size and np.array_equal(objects.get(key, 0, found.size, found.etag), data)
    if lost is not None:
        raise lost
    raise CorruptError(
        "the manifest was refused as if it existed, and does not exist",
        path=f"{objects.url}/{key}",
        fix="The object store has to support conditional writes (If-None-Match)",
    )


def _not_an_archive(objects: ObjectStore, key: str) -> UnsupportedStoreError:
    return UnsupportedStoreError(
        f"an archive or an empty place was expected, and {key!r} was found",
        path=objects.url,
        fix="Name the prefix of an archive, or an empty one for a new archive",
    )
