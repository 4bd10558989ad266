"""Newest manifest of an archive, and the publication of the next one: the only place where archivers meet.

::

    archiver A   newest ─► 12     put pieces, packs      put 13 if absent ─► ours: published
    archiver B   newest ─► 12     put pieces, packs      put 13 if absent ─► taken: read 13, begin again from it
    answer lost  newest ─► 12     put pieces, packs      put 13 if absent ─► error or taken: compare the content of 13

An empty place is manifest 0, without content. Numbers have no gap: where 13 is missing, 12 is the newest, whatever
was left out of a list.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np

from ..errors import CorruptError, NotAStoreError, StoreIOError, UnsupportedStoreError
from ..format.archive_manifest import Manifest, PartName, manifest_key
from ..format.archive_part import Part
from ..format.store_paths import MANIFESTS, PARTS
from .object_store import PROBE, ObjectInfo, ObjectStore
from .requests import at_once

_MANIFEST: Final = re.compile(re.escape(MANIFESTS) + r"(\d{10})\.arrow")
NAMES: Final = ("log/", "queues/", "files/", PARTS, MANIFESTS, PROBE)
"""Beginnings of the names of all objects of an archive."""


def listed(objects: ObjectStore, *, is_confirmed: bool = True) -> Iterator[tuple[int, ObjectInfo]]:
    """All manifests with their numbers, ascending."""
    for info in objects.list(MANIFESTS, is_confirmed=is_confirmed):
        found = _MANIFEST.fullmatch(info.key)
        if found is not None:
            yield int(found[1]), info
        elif info.size:  # not the mark of a folder
            raise _not_an_archive(objects, info.key)


def latest(objects: ObjectStore) -> tuple[int, ObjectInfo] | None:
    """Return the newest manifest; None if there is none. Costs one list, and one request for the next number."""
    found = max(listed(objects, is_confirmed=False), default=None)
    if found is not None and objects.head(manifest_key(found[0] + 1)) is None:
        return found
    return max(listed(objects), default=None)  # published meanwhile, or the list was not whole


def read(objects: ObjectStore, info: ObjectInfo) -> Manifest:
    """Read one manifest."""
    data = objects.get(info.key, 0, info.size, info.etag)
    return Manifest.decode(data.tobytes(), f"{objects.url}/{info.key}")


def heads_of(objects: ObjectStore, manifest: Manifest, names: Sequence[PartName] | None = None) -> list[Part]:
    """Return the parts of a manifest, or some of them, without their runs."""
    if manifest.own_part is not None:
        return [manifest.own_part]
    names = manifest.parts if names is None else names
    data = at_once([partial(objects.get, each.key, 0, each.head_size) for each in names])
    return [decoded(name, each.tobytes(), objects.url) for name, each in zip(names, data, strict=True)]


def whole_part(objects: ObjectStore, name: PartName) -> Part:
    """Return a part with all its runs."""
    data = objects.get(name.key, 0, name.size)
    part = decoded(name, data[: name.head_size].tobytes(), objects.url)
    return part.with_runs(data.data, f"{objects.url}/{name.key}")


def decoded(name: PartName, head: bytes, root: str) -> Part:
    """Read the head of a part, and compare it with what the manifest states of it."""
    place = f"{root}/{name.key}"
    part = Part.decode(head, place)
    pieces = part.pieces
    stated = len(pieces), pieces[0].start if pieces else 0, pieces[-1].stop if pieces else 0, part.run_count
    if stated != (name.pieces, name.start, name.stop, name.runs) or part.size != name.size:
        raise CorruptError(
            "the part has other pieces, runs or bytes than the manifest states",
            path=place,
            fix="Run `segmentlog archive verify`, and push the store into an empty place",
        )
    return part


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
    found = latest(objects)
    if found is not None:
        return found[0], read(objects, found[1])
    # An interrupted first push leaves objects without a manifest; the next push uses them.
    foreign = next((info.key for info in objects.list() if info.size and not info.key.startswith(NAMES)), None)
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
