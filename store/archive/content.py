"""Content of an archive: pieces taken from or added to a manifest, and the objects that no manifest names.

::

    manifest   pieces  p0 p1 p2      runs (p0,q0) (p0,q1) (p1,q0) …     queues q0 q1
    cut        pieces     p1 p2      runs (p0,q0) …                     counted again from 0; unused queues left out

    objects    log/… queues/… files/… manifests/…
    kept       those that the last 20 manifests and those of the last day name; others once they are a day old
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ..format.archive_manifest import ArchivedQueue, Manifest, Piece, Runs
from ..format.store_paths import MANIFESTS
from ..objects import manifests
from ..objects.object_store import ObjectInfo, ObjectStore
from ..types import QueueKey

Span = tuple[int, int]
MANIFESTS_KEPT: Final = 20


def with_pieces(manifest: Manifest, kept: slice) -> Manifest:
    """Return a manifest with some of the pieces only."""
    first, stop, _ = kept.indices(len(manifest.pieces))
    if (first, stop) == (0, len(manifest.pieces)):
        return manifest
    inside = (manifest.runs["piece"] >= first) & (manifest.runs["piece"] < stop)
    runs = manifest.runs[inside].copy()
    runs["piece"] -= first
    used, runs["queue"] = np.unique(runs["queue"], return_inverse=True)
    queues: tuple[ArchivedQueue, ...] = tuple(manifest.queues[at] for at in used.tolist())
    return replace(manifest, pieces=manifest.pieces[first:stop], queues=queues, runs=runs)


def joined(manifest: Manifest, added: Sequence[tuple[Piece, Sequence[QueueKey], Runs]]) -> Manifest:
    """Return a manifest with further pieces; the runs of each count in its queues."""
    numbers: dict[QueueKey, int] = {QueueKey(*queue): at for at, queue in enumerate(manifest.queues)}
    parts = [manifest.runs]
    for at, (_, queues, runs) in enumerate(added, len(manifest.pieces)):
        part = runs.copy()
        part["piece"] = at
        part["queue"] = np.array([numbers.setdefault(key, len(numbers)) for key in queues], np.int32)[runs["queue"]]
        parts.append(part[np.argsort(part["queue"], kind="stable")])
    pieces = (*manifest.pieces, *(piece for piece, _, _ in added))
    known = tuple(ArchivedQueue(key.topic, key.queue_id) for key in numbers)
    return replace(manifest, pieces=pieces, queues=known, runs=np.concatenate(parts))


def names_of(manifest: Manifest) -> Iterator[tuple[str, int]]:
    """Keys and sizes of all objects that a manifest names."""
    for piece in manifest.pieces:
        yield piece.key, piece.stop - piece.start
        if piece.pack_size:  # a piece without records has none
            yield piece.pack_key, piece.pack_size
    for file in manifest.files:
        yield file.key, file.size


def orphans(objects: ObjectStore, after_s: float) -> list[ObjectInfo]:
    """Objects that none of the last manifests names, and that are older than some seconds; older manifests too."""
    listed = [info for _, info in manifests.listed(objects)]
    if not listed:
        return []
    # By the clock of the object store, if that is later: it wrote the manifests. A clock may be set back between two.
    before_ms = max(time.time_ns() // 1_000_000, *(info.modified_ms for info in listed)) - after_s * 1000
    kept = [info for info in listed[:-MANIFESTS_KEPT] if info.modified_ms > before_ms] + listed[-MANIFESTS_KEPT:]
    named = {key for info in kept for key, _ in names_of(manifests.read(objects, info))}
    named |= {info.key for info in kept}
    old = (info for info in objects.list() if info.key not in named and info.modified_ms <= before_ms)
    return [info for info in old if info.key.startswith(manifests.PARTS)]


def remove_orphans(objects: ObjectStore, after_s: float) -> int:
    """Delete `orphans`; return their number."""
    found = [info.key for info in orphans(objects, after_s)]
    # Old manifests first: each that exists names objects that exist.
    found.sort(key=lambda key: not key.startswith(MANIFESTS))
    if found:
        objects.delete(found)
    return len(found)
