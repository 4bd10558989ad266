"""Content of an archive as rows, and its verification.

::

    verify          each object that the last manifests and their parts name: is it there, with its size?
    verify, deep    piece ─► digest ─► records, their CRCs ─► pack made again ─► equal to the pack, and to the runs
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final, NamedTuple

import numpy as np

from ..entries.pack_making import made_pack
from ..errors import SegmentLogError
from ..files.segments import SegmentFile
from ..format.archive_manifest import ArchivedFile, Manifest, PrunedQueue
from ..format.archive_part import NO_TIME, PACK_HEADER, ArchivedQueue, Part, Piece, Runs, gaps
from ..format.checksums import check_crcs
from ..format.message import Bytes, Problem
from ..format.properties import Properties
from ..format.walk import walk
from ..log.commit_log import FoundRecords
from ..objects import manifests
from ..objects.object_store import ObjectStore
from ..objects.requests import at_once
from .content import MANIFESTS_KEPT, KnownParts, Span, names_of

_FETCH_BYTES: Final = 8 << 20
_FETCHES: Final = 4


class PushedManifest(NamedTuple):
    """One manifest: its number, its time by the clock of the object store, and its bytes."""

    number: int
    modified_ms: int
    bytes: int


class ArchivedRange(NamedTuple):
    """Messages of one queue in an archive; none if all are pruned."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int  # one past the last
    messages: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveContent:
    """Content of an archive, by its newest manifest.

    Attributes
    ----------
    manifest
        Number of the newest manifest.
    store
        Facts about the store: ``id``, ``path``, time of the last push.
    start, stop
        Physical offsets of the log.
    gaps
        Ranges of the log that the archive does not have.
    pieces, queues, files, pushes
        Pieces of the log, queues by name, other files, manifests.
    """

    manifest: int
    store: dict[str, str]
    start: int
    stop: int
    gaps: tuple[Span, ...]
    pieces: tuple[Piece, ...]
    queues: tuple[ArchivedRange, ...]
    files: tuple[ArchivedFile, ...]
    pushes: tuple[PushedManifest, ...]


class ArchiveFinding(NamedTuple):
    """A fault of an archive."""

    key: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveCheck:
    """Result of a verification.

    Attributes
    ----------
    manifest
        Number of the newest manifest.
    objects, bytes
        Objects that it names, and their sizes together.
    records
        Records that were read; 0 unless it was deep.
    findings
        Faults, by object.
    """

    manifest: int
    objects: int
    bytes: int
    records: int
    findings: tuple[ArchiveFinding, ...]

    @property
    def is_sound(self) -> bool:
        """True without findings."""
        return not self.findings


def describe(objects: ObjectStore) -> ArchiveContent:
    """Return the content of an archive, from its newest manifest and the heads of its parts."""
    number, manifest = manifests.newest(objects)
    parts = manifests.heads_of(objects, manifest)
    pieces = tuple(piece for part in parts for piece in part.pieces)
    pushes = tuple(PushedManifest(at, info.modified_ms, info.size) for at, info in manifests.listed(objects))
    return ArchiveContent(
        manifest=number,
        store=manifest.store,
        start=manifest.start,
        stop=manifest.stop,
        gaps=tuple(gaps(pieces, manifest.start)),
        pieces=pieces,
        queues=tuple(sorted([*_ranges(parts), *map(_pruned, manifest.pruned)])),
        files=manifest.files,
        pushes=pushes,
    )


def _ranges(parts: Sequence[Part]) -> Iterator[ArchivedRange]:
    found: dict[ArchivedQueue, list[int]] = {}
    for part in parts:
        columns = (part.totals[name].tolist() for name in ("first", "last", "rows", "bytes"))
        for queue, first, last, rows, size in zip(part.queues, *columns, strict=True):
            known = found.setdefault(queue, [first, last + 1, 0, 0])
            known[:] = [min(known[0], first), max(known[1], last + 1), known[2] + rows, known[3] + size]
    for queue, values in found.items():
        yield ArchivedRange(*queue, *values)


def _pruned(queue: PrunedQueue) -> ArchivedRange:
    return ArchivedRange(*queue.queue, queue.max_offset, queue.max_offset, 0, 0)


def fetched(objects: ObjectStore, key: str, size: int) -> Iterator[tuple[int, Bytes]]:
    """Read an object from its start to its end, some ranges at a time: where each begins, and its bytes."""
    ranges = [(at, min(at + _FETCH_BYTES, size)) for at in range(0, size, _FETCH_BYTES)]
    for first in range(0, len(ranges), _FETCHES):
        some = ranges[first : first + _FETCHES]
        gets = [partial(objects.get, key, *each) for each in some]
        for (start, _), data in zip(some, at_once(gets), strict=True):
            yield start, data


def verify(objects: ObjectStore, *, deep: bool = False) -> ArchiveCheck:
    """Compare the objects of an archive with its manifests; ``deep`` reads them."""
    number, manifest = manifests.newest(objects)
    known = KnownParts(objects)
    findings = dict.fromkeys(_sizes(objects, known))
    named = dict(names_of(manifest, known.readable(manifest)[0]))
    records, faulty = 0, {finding.key for finding in findings}
    for part in _parts(objects, manifest, faulty, findings) if deep else ():
        for at, piece in enumerate(part.pieces):
            if not faulty & {each.key for each in piece.ranges}:
                count, found = _deep(objects, part, at, manifest.damage)
                records += count
                findings.update(dict.fromkeys(found))
    for file in manifest.files if deep else ():
        if file.key not in faulty:
            findings.update(dict.fromkeys(_digests(objects, file.key, file.size, file.digest)))
    return ArchiveCheck(
        manifest=number,
        objects=len(named),
        bytes=sum(named.values()),
        records=records,
        findings=tuple(findings),
    )


def _parts(
    objects: ObjectStore, manifest: Manifest, faulty: set[str], findings: dict[ArchiveFinding, None]
) -> Iterator[Part]:
    """Parts of a manifest with their runs; faults are added to ``findings``."""
    if manifest.own_part is not None:
        yield manifest.own_part
    for name in manifest.parts:
        found = [] if name.key in faulty else _digests(objects, name.key, name.size, name.digest)
        findings.update(dict.fromkeys(found))
        if name.key in faulty or found:
            continue
        try:
            part = manifests.whole_part(objects, name)
        except SegmentLogError as error:
            findings[ArchiveFinding(name.key, error.problem)] = None
        else:
            yield part


def _sizes(objects: ObjectStore, known: KnownParts) -> Iterator[ArchiveFinding]:
    """Objects of the last manifests that are missing, or have another size."""
    listed = list(manifests.listed(objects))
    sizes = {info.key: info.size for info in objects.list()}
    for _, info in listed[-MANIFESTS_KEPT:]:
        try:
            manifest = manifests.read(objects, info)
        except SegmentLogError as error:
            yield ArchiveFinding(info.key, error.problem)
            continue
        found, unread = known.readable(manifest)
        for key, size in names_of(manifest, found):
            if key not in sizes:
                yield ArchiveFinding(key, "this object is missing")
            elif sizes[key] != size:
                yield ArchiveFinding(key, f"this object has {sizes[key]} bytes, and the manifest states {size}")
            elif key in unread:
                yield ArchiveFinding(key, unread[key])


def _digests(objects: ObjectStore, key: str, size: int, digest: str, into: Bytes | None = None) -> list[ArchiveFinding]:
    """Read an object, into a buffer if one is passed; return its fault, if it has one."""
    found = sha256()
    try:
        for start, data in fetched(objects, key, size):
            found.update(data.data)
            if into is not None:
                into[start : start + data.size] = data
    except SegmentLogError as error:
        return [ArchiveFinding(key, error.problem)]
    return [] if found.hexdigest() == digest else [ArchiveFinding(key, "the bytes contradict their digest")]


def _deep(objects: ObjectStore, part: Part, at: int, damage: Sequence[Span]) -> tuple[int, list[ArchiveFinding]]:
    """Read a piece and its pack; return the number of records and the faults."""
    piece = part.pieces[at]
    unread = piece.start - piece.segment  # not fetched; positions are within the segment
    buffer = np.zeros(piece.stop - piece.segment, np.uint8)
    for key, start, stop, digest in piece.ranges:
        faults = _digests(objects, key, stop - start, digest, buffer[start - piece.segment :])
        if faults:
            return 0, faults
    records = walk(buffer, piece.segment, unread, buffer.size, piece.lead).records
    found: list[ArchiveFinding] = []
    first = piece.ranges[0].key
    if len(records) != piece.records:
        text = f"this piece has {len(records)} records, and its part states {piece.records}"
        found.append(ArchiveFinding(first, text))
    pack = made_pack(FoundRecords(SegmentFile(piece.segment, piece.segment_size, first, piece.lead), records))
    rows = pack.data[PACK_HEADER.itemsize - piece.pack_start :] if pack.data.size else pack.data
    if sha256(rows.data).hexdigest() != piece.pack_digest or not _same_runs(part, at, pack.runs, pack.queues):
        found.append(ArchiveFinding(first, "the records of this piece contradict its pack"))
    if piece.pack_size:
        found += _digests(objects, piece.pack_key, piece.pack_size, piece.pack_digest)
    check_crcs(records, Properties(records))
    for row in np.flatnonzero(records.problem != Problem.OK).tolist():
        offset = piece.segment + int(records.positions[row])
        if not any(start <= offset < stop for start, stop in damage):
            found.append(ArchiveFinding(first, f"the record at physical offset {offset} contradicts its CRC"))
    return len(records), found


def _same_runs(part: Part, at: int, runs: Runs, queues: Sequence[tuple[str, int]]) -> bool:
    """Return whether a part states these runs of a piece."""
    assert part.runs is not None
    stated = part.runs[part.runs["piece"] == at]
    left_out = {"piece", "queue"} | ({"first_time", "last_time"} if (stated["first_time"] == NO_TIME).any() else set())
    names = [name for name in runs.dtype.names or () if name not in left_out]
    by_queue = {tuple(part.queues[int(run["queue"])]): tuple(run[name] for name in names) for run in stated}
    made = {tuple(queues[int(run["queue"])]): tuple(run[name] for name in names) for run in runs}
    return by_queue == made
