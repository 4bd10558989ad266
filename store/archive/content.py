"""Content of an archive: its parts as they grow, are merged and cut, and the objects that no manifest names.

::

    manifest   parts   [ 8 pushes        ][ push ][ push ]
    push       cut     [ 8 pushes        ][ push ]         the pieces of a segment that became full are left out
               joined  [ 8 pushes        ][ push ][ rest + new ]
               merged  [ 8 pushes        ][ 8 pushes       ]      as soon as 8 parts are not larger than the last one,
                                                                  or have a million runs

    objects    log/… queues/… parts/… files/… manifests/…
    kept       those that the last 20 manifests and those of the last day name; others once they are a day old

Each run is written again once per power of 8 of the runs in its part, and never again in a part of a million runs. So
an archive of n pushes has some log(n) parts, and one for each million runs.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final

import numpy as np

from ..errors import SegmentLogError
from ..format.archive_manifest import Manifest, PartName, PrunedQueue
from ..format.archive_part import SEALED_RUNS, ArchivedQueue, Part, Piece
from ..format.message import Bytes
from ..format.naming import LMQ_PREFIX
from ..format.store_paths import MANIFESTS, PARTS
from ..objects import manifests
from ..objects.object_store import ObjectInfo, ObjectStore

Span = tuple[int, int]
Held = Part | PartName
"""A part that is to be written, or one that an object has."""
MANIFESTS_KEPT: Final = 20
MERGED_PARTS: Final = 8


def cut(part: Part, first: int, stop: int) -> Part:
    """Return a part with pieces ``[first, stop)`` only."""
    assert part.runs is not None
    runs = part.runs[(part.runs["piece"] >= first) & (part.runs["piece"] < stop)].copy()
    runs["piece"] -= first
    return Part.of(part.pieces[first:stop], part.queues, runs)


def joined(parts: Sequence[Part]) -> Part:
    """Return some neighbouring parts as one."""
    if len(parts) == 1:
        return parts[0]
    numbers: dict[ArchivedQueue, int] = {}
    pieces: list[Piece] = []
    found = []
    for part in parts:
        assert part.runs is not None
        local = np.array([numbers.setdefault(queue, len(numbers)) for queue in part.queues], np.int32)
        runs = part.runs.copy()
        runs["piece"] += len(pieces)
        runs["queue"] = local[runs["queue"]] if local.size else 0
        pieces += part.pieces
        found.append(runs)
    return Part.of(pieces, [*numbers], np.concatenate(found))


def parts_with(objects: ObjectStore, manifest: Manifest, first: int, stop: int) -> list[Held]:
    """Return what has pieces ``[first, stop)``: the names of whole parts, and parts that are cut."""
    if manifest.own_part is not None:
        return [cut(manifest.own_part, first, stop)] if first < stop else []
    found: list[Held] = []
    at = 0
    for name in manifest.parts:
        low, high = max(first - at, 0), min(stop - at, name.pieces)
        at += name.pieces
        if (low, high) == (0, name.pieces):
            found.append(name)
        elif low < high:
            found.append(cut(manifests.whole_part(objects, name), low, high))
    return found


def ends_without(
    manifest: Manifest, heads: Sequence[Part], held: Sequence[Held], *, is_cut: bool = False
) -> tuple[PrunedQueue, ...]:
    """Return the queues that none of the held parts has, with their ends, by the heads of all parts of a manifest.

    Where the log was cut, a queue ends where its first message in the archive was: those before that one are pruned.
    Light queues are left out: there may be one for each device that ever connected.
    """
    by_name = dict(zip(manifest.parts, heads, strict=False))
    left = {queue for each in held for queue in (each if isinstance(each, Part) else by_name[each]).queues}
    ends = {each.queue: each.max_offset for each in manifest.pruned}
    for part in heads[::-1] if is_cut else heads:
        # Where damage made offsets fall, they say nothing: such a queue is gone.
        edge = part.totals["first"] if is_cut else part.totals["last"] + 1
        ends |= dict(zip(part.queues, np.where(part.totals["rises"], edge, 0).tolist(), strict=True))
    ended = sorted((queue, end) for queue, end in ends.items() if end > 0 and queue not in left)
    return tuple(PrunedQueue(*queue, end) for queue, end in ended if not queue.topic.startswith(LMQ_PREFIX))


def settled(objects: ObjectStore, held: Sequence[Held], put: Callable[[str, Bytes], object]) -> tuple[PartName, ...]:
    """Merge parts of which there are many, put those that are new, and return the names of all."""
    left = [each for each in held if _runs(each) or isinstance(each, PartName) or each.pieces]
    if left and isinstance(left[-1], Part):
        while (count := _mergeable([_runs(each) for each in left], [isinstance(each, Part) for each in left])) > 1:
            parts = [each if isinstance(each, Part) else manifests.whole_part(objects, each) for each in left[-count:]]
            left[-count:] = [joined(parts)]
    return tuple(each if isinstance(each, PartName) else _put(each, put) for each in left)


def _runs(held: Held) -> int:
    return held.runs if isinstance(held, PartName) else held.run_count


def _mergeable(runs: Sequence[int], are_new: Sequence[bool]) -> int:
    """Return how many parts at the end become one: new ones, and all that are not larger if they are many."""
    count = next((at for at, is_new in enumerate(reversed(are_new)) if not is_new), len(runs))
    if count > 1:
        return count
    level = _level(runs[-1])
    small = (at for at, size in enumerate(reversed(runs)) if _level(size) > level or size >= SEALED_RUNS)
    count = next(small, len(runs))
    return count if count >= MERGED_PARTS or (count > 1 and sum(runs[-count:]) >= SEALED_RUNS) else 1


def _level(runs: int) -> int:
    return int(np.log(max(runs, 1)) / np.log(MERGED_PARTS))


def _put(part: Part, put: Callable[[str, Bytes], object]) -> PartName:
    data, head_bytes = part.encode()
    records = [piece for piece in part.pieces if piece.records]
    name = PartName(
        start=part.pieces[0].start,
        stop=part.pieces[-1].stop,
        pieces=len(part.pieces),
        runs=part.run_count,
        first_time=records[0].first_time if records else 0,
        last_time=records[-1].last_time if records else 0,
        size=len(data),
        head_size=head_bytes,
        digest=sha256(data).hexdigest(),
    )
    put(name.key, np.frombuffer(data, np.uint8))
    return name


def names_of(manifest: Manifest, parts: Iterable[Part]) -> Iterator[tuple[str, int]]:
    """Keys and sizes of all objects that a manifest names; ``parts`` are its parts."""
    for name in manifest.parts:
        yield name.key, name.size
    for part in parts:
        yield from names_of_pieces(part.pieces)
    for file in manifest.files:
        yield file.key, file.size


def names_of_pieces(pieces: Iterable[Piece]) -> Iterator[tuple[str, int]]:
    """Keys and sizes of the objects of some pieces."""
    for piece in pieces:
        for each in piece.ranges:
            yield each.key, each.stop - each.start
        if piece.pack_size:  # a piece without records has none
            yield piece.pack_key, piece.pack_size


class KnownParts:
    """Parts of several manifests, each of which is read once."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._known: dict[PartName, Part] = {}

    def of(self, manifest: Manifest) -> list[Part]:
        """Return the parts of a manifest, without their runs."""
        if manifest.own_part is not None:
            return [manifest.own_part]
        unknown = [name for name in manifest.parts if name not in self._known]
        self._known |= dict(zip(unknown, manifests.heads_of(self._objects, manifest, unknown), strict=True))
        return [self._known[name] for name in manifest.parts]

    def readable(self, manifest: Manifest) -> tuple[list[Part], dict[str, str]]:
        """Return the parts of a manifest that can be read, and the problems of the others by their keys."""
        found, unread = [], {}
        for name in manifest.parts:
            try:
                found += self.of(replace(manifest, parts=(name,)))
            except SegmentLogError as error:
                unread[name.key] = error.problem
        return ([manifest.own_part] if manifest.own_part is not None else found), unread


def orphans(objects: ObjectStore, after_s: float) -> list[ObjectInfo]:
    """Objects that none of the last manifests names, and that are older than some seconds; older manifests too."""
    listed = [info for _, info in manifests.listed(objects)]
    if not listed:
        return []
    # By the clock of the object store, if that is later: it wrote the manifests. A clock may be set back between two.
    before_ms = max(time.time_ns() // 1_000_000, *(info.modified_ms for info in listed)) - after_s * 1000
    kept = [info for info in listed[:-MANIFESTS_KEPT] if info.modified_ms > before_ms] + listed[-MANIFESTS_KEPT:]
    known = KnownParts(objects)
    named = {info.key for info in kept}
    for info in kept:
        manifest = manifests.read(objects, info)
        named |= {key for key, _ in names_of(manifest, known.of(manifest))}
    old = (info for info in objects.list() if info.key not in named and info.modified_ms <= before_ms)
    return [info for info in old if info.key.startswith(manifests.NAMES)]


def remove_orphans(objects: ObjectStore, after_s: float) -> int:
    """Delete `orphans`; return their number."""
    found = [info.key for info in orphans(objects, after_s)]
    # Old manifests first, then parts: each that exists names objects that exist.
    found.sort(key=lambda key: (not key.startswith(MANIFESTS), not key.startswith(PARTS)))
    if found:
        objects.delete(found)
    return len(found)
