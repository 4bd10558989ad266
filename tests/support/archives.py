"""Archives as tests see them: the content of the newest manifest as one part, and manifests of parts that tests make.

::

    content(objects) ──► number, manifest, pieces, queues, runs of all of its parts
    publish_part(objects, number, part) ──► parts/… and manifests/NUMBER
    as_format1(manifest, part) ──► bytes of a manifest as releases before format 2 wrote it
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from segmentlog.store.archive import content as contents
from segmentlog.store.format.archive_format1 import _RUN_NAMES, _SCHEMA
from segmentlog.store.format.archive_manifest import ArchivedFile, Manifest
from segmentlog.store.format.archive_part import RUN, LogObject, Part, Piece, sealed
from segmentlog.store.objects import manifests
from segmentlog.store.objects.object_store import ObjectStore


class Content(NamedTuple):
    number: int
    manifest: Manifest
    part: Part  # all parts as one
    names: dict[str, int]  # keys and sizes of all objects

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return self.part.pieces

    @property
    def runs(self) -> "np.ndarray[Any, Any]":
        assert self.part.runs is not None
        return self.part.runs


def content(objects: ObjectStore) -> Content:
    """Read everything that the newest manifest states."""
    number, manifest = manifests.newest_or_empty(objects)
    return of_manifest(objects, manifest, number)


def of_manifest(objects: ObjectStore, manifest: Manifest, number: int = 0) -> Content:
    parts = [manifest.own_part] if manifest.own_part else [manifests.whole_part(objects, x) for x in manifest.parts]
    part = contents.joined(parts) if parts else Part.of((), (), np.empty(0, RUN))
    return Content(number, manifest, part, dict(contents.names_of(manifest, parts)))


def simple_piece(  # noqa: PLR0917 - as a manifest has them
    segment: int, segment_size: int, start: int, stop: int, records: int, times: tuple[int, int], rows: int, digest: str
) -> Piece:
    """Make a piece of one object, whose pack has the same digest."""
    pack = 32 + 32 * rows if rows else 0
    return Piece(
        segment, segment_size, start, records, *times, 32 * bool(rows), pack, digest, (LogObject(stop, digest),)
    )


def publish_part(
    objects: ObjectStore,
    number: int,
    part: Part,
    *,
    store: dict[str, str] | None = None,
    files: Sequence[ArchivedFile] = (),
) -> bool:
    """Put a part, and a manifest with it alone."""
    names = contents.settled(objects, [part], objects.put)
    last = part.pieces[-1] if part.pieces else None
    return manifests.publish(objects, number, Manifest(store or {}, last, names, tuple(files)))


def publish_parts(objects: ObjectStore, number: int, parts: Sequence[Part]) -> bool:
    """Put some parts, each by itself, and a manifest with them."""
    names = tuple(contents._put(part, objects.put) for part in parts)
    return manifests.publish(objects, number, Manifest({}, parts[-1].pieces[-1], names))


def as_format1(manifest: Manifest, part: Part) -> bytes:
    """Return the bytes of a manifest of format 1; packs keep their headers, which it cannot state."""
    assert part.runs is not None
    runs = part.runs[np.lexsort((part.runs["queue"], part.runs["piece"]))]
    kind = _SCHEMA.field("runs").type
    structs = pa.StructArray.from_arrays([pa.array(runs[name]) for name in _RUN_NAMES], fields=list(kind.value_type))
    row = pa.record_batch(
        [
            pa.array([list(manifest.store.items())], _SCHEMA.field("store").type),
            pa.array([[_piece1(each) for each in part.pieces]], _SCHEMA.field("pieces").type),
            pa.array([[each._asdict() for each in part.queues]], _SCHEMA.field("queues").type),
            pa.ListArray.from_arrays(pa.array([0, len(runs)], pa.int32()), structs).cast(kind),
            pa.array([[each._asdict() for each in manifest.files]], _SCHEMA.field("files").type),
        ],
        schema=_SCHEMA,
    )
    return sealed(b"SLARCHIV", 1, row)


def _piece1(piece: Piece) -> dict[str, Any]:
    (only,) = piece.objects
    known = {name: value for name, value in piece._asdict().items() if name not in {"objects", "pack_start"}}
    return known | {"stop": only.stop, "digest": only.digest}


def to_format1(objects: Any, number: int) -> None:
    """Write an archive of one object per piece as if an earlier release had pushed it: packs without headers."""
    found = content(objects)
    pieces = []
    for piece in found.pieces:
        data = objects.get(piece.pack_key, piece.pack_start, piece.pack_size)
        bare = piece._replace(pack_start=0, pack_size=data.size)
        objects.put(bare.pack_key, data)
        pieces.append(bare)
    objects.delete([key for key in objects.objects if key.startswith(("manifests/", "parts/"))])
    data = as_format1(found.manifest, replace(found.part, pieces=tuple(pieces)))
    objects.put(f"manifests/{number:010d}.arrow", np.frombuffer(data, np.uint8))
