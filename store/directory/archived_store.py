"""Archived store: an archive in object storage as of one manifest, and the files that it has, as a store has them.

::

    manifests/0000000012.arrow ──► parts/… ──► ROOT/commitlog/00000000001073741824    of objects that follow each other
                             │             ├─► ROOT/dledger-archived/data/…           of a DLedger log
                             │             └─► ROOT/queues/…                          packs; there is no consumequeue/
                             └───────────────► ROOT/index/…  ROOT/config/…            of one object each

    ROOT is the URL. A later manifest is another `ArchivedStore`: see `newer`.

A place with a ``commitlog/`` and without a manifest is a plain copy of a store directory, and is read as one.
"""

import errno
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from ..errors import MissingObjectError, NotAStoreError
from ..format.archive_manifest import Manifest, PartName
from ..format.archive_part import RUN, Part, Piece, Runs, gaps
from ..format.message import Ints
from ..format.naming import segment_name
from ..format.store_paths import COMMIT_LOG, CONSUME_QUEUE, archived_log
from ..objects.manifests import decoded, latest
from ..objects.object_store import ObjectInfo, ObjectStore
from ..objects.remote_fs import ObjectPart, RemoteFile, RemoteFileSystem

if TYPE_CHECKING:
    from ..objects.block_cache import BlockCache

_SHOWN_MAX: Final = 5
_SEGMENT: Final = re.compile(rf"{COMMIT_LOG}/(\d{{20}})")


class HeldSegment(NamedTuple):
    """Bytes of a segment that an archive has, and the store time of its first record."""

    bytes: int
    first_time: int | None


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ArchivedStore:
    """One archive, as of one manifest.

    Attributes
    ----------
    root
        Its URL.
    number, manifest, parts
        The manifest, and the heads of its parts.
    pieces
        Pieces of all parts, ascending.
    fs
        Its files.
    """

    root: str
    number: int
    manifest: Manifest
    parts: tuple[Part, ...]
    pieces: tuple[Piece, ...]
    fs: RemoteFileSystem
    objects: ObjectStore
    cache: "BlockCache | None"
    looked: float
    """When the newest manifest was looked for, by the monotonic clock."""

    @classmethod
    def open(cls, objects: ObjectStore, root: str, cache: "BlockCache | None" = None) -> Self:
        """Open an archive as of its newest manifest; `NotAStoreError` if there is none."""
        found = latest(objects)
        if found is None:
            raise NotAStoreError("there is no manifest of an archive", path=root)
        return cls._at(objects, root, cache, found, {})

    def newer(self) -> Self:
        """The archive as of its newest manifest; the same object where this is it. Costs a list of objects."""
        found = latest(self.objects)
        if found is None or found[0] == self.number:
            return self
        known = dict(zip(self.manifest.parts, self.parts, strict=False))
        return self._at(self.objects, self.root, self.cache, found, known)

    @classmethod
    def _at(
        cls,
        objects: ObjectStore,
        root: str,
        cache: "BlockCache | None",
        found: tuple[int, ObjectInfo],
        known: Mapping[PartName, Part],
    ) -> Self:
        number, info = found
        looked = time.monotonic()
        read = RemoteFileSystem.listed(objects, root, [info], cache)
        manifest = Manifest.decode(read.read(f"{root}/{info.key}", 0, info.size), f"{root}/{info.key}")
        parts = _parts(objects, root, cache, manifest, known)
        pieces = tuple(piece for part in parts for piece in part.pieces)
        fs = RemoteFileSystem(objects, root, files_of(manifest, pieces), cache)
        return cls(
            root=root,
            number=number,
            manifest=manifest,
            parts=parts,
            pieces=pieces,
            fs=fs,
            objects=objects,
            cache=cache,
            looked=looked,
        )

    @property
    def age_s(self) -> float:
        """Seconds since its manifest was seen to be the newest."""
        return time.monotonic() - self.looked

    def segments(self) -> dict[int, HeldSegment]:
        """Bytes and first store time of each segment, by base offset."""
        found: dict[int, HeldSegment] = {}
        for piece in self.pieces:
            size, first = found.get(piece.segment, HeldSegment(0, None))
            first = piece.first_time if first is None and piece.records else first
            found[piece.segment] = HeldSegment(size + piece.stop - piece.start, first)
        return found

    def holes(self) -> list[int]:
        """Numbers of the pieces before which the archive lacks a part of the log that retention deleted."""
        # Segments that are missing for another reason are damage.
        ends = {end for _, end in {*gaps(self.pieces, self.manifest.start)} - {*self.manifest.damage}}
        return [number for number, piece in enumerate(self.pieces) if piece.start in ends]

    def newest_number(self) -> int:
        """Number of the newest manifest. Costs a list of objects."""
        found = latest(self.objects)
        return self.number if found is None else found[0]

    def continues(self, before: "ArchivedStore") -> bool:
        """Return whether this archive has the log of an earlier manifest, and what was appended to it."""
        # The pieces of a full segment are merged, so the last piece of the earlier manifest may be gone.
        is_same = before.manifest.cuts is not None and before.manifest.cuts == self.manifest.cuts
        return is_same or before.manifest.last is None or before.manifest.last in self.pieces

    def runs(self, number: int, queues: Ints) -> Runs:
        """Read the runs of some queues of a part, ascending by queue and then by piece."""
        part = self.parts[number]
        if part.runs is not None:
            return part.runs[np.isin(part.runs["queue"], queues)]
        path = f"{self.root}/{self.manifest.parts[number].key}"
        blocks = part.blocks_of(queues)
        spans = part.spans_of(blocks)
        self.fs.fetch([(path, *span) for span in spans])
        found = [np.empty(0, RUN)]
        for block, (start, stop) in zip(blocks.tolist(), spans, strict=True):
            runs = part.runs_of_block(block, self.fs.map(path, start, stop).data, path)
            found.append(runs[np.isin(runs["queue"], queues)])
        return np.concatenate(found)


def _parts(
    objects: ObjectStore,
    root: str,
    cache: "BlockCache | None",
    manifest: Manifest,
    known: Mapping[PartName, Part],
) -> tuple[Part, ...]:
    """Read the heads of parts that are not known."""
    if manifest.own_part is not None:
        return (manifest.own_part,)
    names = {name.key: RemoteFile(name.key, name.size) for name in manifest.parts if name not in known}
    read = RemoteFileSystem(objects, root, names, cache)
    read.fetch((f"{root}/{name.key}", 0, name.head_size) for name in manifest.parts)
    return tuple(
        known[name] if name in known else decoded(name, read.read(f"{root}/{name.key}", 0, name.head_size), root)
        for name in manifest.parts
    )


def files_of(manifest: Manifest, pieces: Iterable[Piece]) -> dict[str, RemoteFile]:
    """Files that an archive has, by name below the root: segments, packs, parts, and other files of the store."""
    files = {each.path: RemoteFile(each.key, each.size) for each in manifest.files}
    files |= {name.key: RemoteFile(name.key, name.size) for name in manifest.parts}
    return files | files_of_pieces(pieces)


def files_of_pieces(pieces: Iterable[Piece]) -> dict[str, RemoteFile]:
    """Segments and packs of some pieces, by name below the root."""
    files: dict[str, RemoteFile] = {}
    parts: dict[str, list[ObjectPart]] = {}
    for piece in pieces:
        base = piece.segment
        found = parts.setdefault(f"{archived_log('', piece.lead)}/{segment_name(base)}", [])
        found += [ObjectPart(each.key, each.start - base, 0, each.stop - each.start) for each in piece.ranges]
        files[piece.pack_key] = RemoteFile(piece.pack_key, piece.pack_size)
    for name, found in parts.items():
        files[name] = RemoteFile(name, found[-1].start + found[-1].length, None, tuple(found))
    return files


def opened(
    objects: ObjectStore, root: str, cache: "BlockCache | None" = None
) -> tuple[RemoteFileSystem, ArchivedStore | None]:
    """Open an archive, or else a plain copy of a store directory; return its files, and the archive if it is one.

    Raises
    ------
    NotAStoreError
        If there is neither.
    MissingObjectError
        If the copy lacks a segment between two others.
    """
    with suppress(NotAStoreError):
        archived = ArchivedStore.open(objects, root, cache)
        return archived.fs, archived
    found = list(objects.list())
    names = dict.fromkeys(each.key.partition("/")[0] for each in found)
    if COMMIT_LOG in names or CONSUME_QUEUE in names:
        _check_segments(found, root)
        return RemoteFileSystem.listed(objects, root, found, cache), None
    there = f"it holds {', '.join(sorted(names)[:_SHOWN_MAX])}" if names else "there is nothing"
    raise NotAStoreError(
        f"no store or archive here: {there}",
        path=root,
        fix="Name the place that `segmentlog archive push` was given, or the copy of a directory with commitlog/",
    )


def _check_segments(found: Iterable[ObjectInfo], root: str) -> None:
    """Raise `MissingObjectError` if the log of a copy lacks a segment between two others."""
    # The segments of a store have one size, that of the largest file: others may be short.
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
