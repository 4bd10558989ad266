"""Prune: an archive without its oldest segments.

::

    manifest 12   [ segment 0 ][ segment 1 ][ segment 2 …     newest store time of segment 0 is before the limit,
                                                              or the objects of all segments are too many bytes
    manifest 13               [ segment 1 ][ segment 2 …      published; objects stay while one of the last manifests
                                                              names them, and for the grace time
    queue A/0     [ 0 to 499  ][ 500 to 699 ]                 all of its messages are pruned: the manifest keeps its
                                                              end, 700, until a push has its next message

A stream that has read A/0 to its end has lost nothing. A directory tells that by the last file of a queue, which
retention never deletes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..errors import StoreInUseError
from ..format.archive_manifest import ArchivedFile
from ..format.archive_part import Piece
from ..format.index_file import HEADER, decode_header
from ..format.store_paths import INDEX
from ..objects.manifests import heads_of, newest, publish
from ..objects.object_store import ObjectStore
from .content import ends_without, names_of_pieces, orphans, parts_with, remove_orphans, settled
from .push import ORPHANS_AFTER_S

_ROUNDS_MAX: Final = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class PruneReport:
    """Result of a prune.

    Attributes
    ----------
    manifest
        Number of the newest manifest.
    pieces, bytes
        Pieces that it does not name any more, and the sizes of their objects.
    start
        Physical offset where the archive begins.
    removed
        Objects that were deleted, or would be.
    """

    manifest: int
    pieces: int
    bytes: int
    start: int
    removed: int


def prune(
    objects: ObjectStore,
    before_ms: int | None,
    *,
    max_bytes: int | None = None,
    grace_s: float = ORPHANS_AFTER_S,
    dry_run: bool = False,
) -> PruneReport:
    """Leave out the oldest segments of an archive, by age, by size, or by both; at least one stays."""
    for _ in range(_ROUNDS_MAX):
        number, former = newest(objects)
        heads = heads_of(objects, former)
        pieces = [piece for part in heads for piece in part.pieces]
        count = max(_expired(pieces, before_ms), _beyond(pieces, max_bytes))
        start = pieces[count].start if pieces else 0
        files = tuple(each for each in former.files if not count or not _is_old(objects, start, each))
        if count and not dry_run:
            held = parts_with(objects, former, count, len(pieces))
            changed = replace(former, files=files, own_part=None, pruned=ends_without(former, heads, held))
            if not publish(objects, number + 1, replace(changed, parts=settled(objects, held, objects.put))):
                continue
        gone = dict(names_of_pieces(pieces[:count])) | {each.key: each.size for each in {*former.files} - {*files}}
        removed = len(orphans(objects, grace_s)) if dry_run else remove_orphans(objects, grace_s)
        return PruneReport(
            manifest=number + (count > 0 and not dry_run),
            pieces=count,
            bytes=sum(gone.values()),
            start=start,
            removed=removed,
        )
    raise StoreInUseError(
        "other archivers published manifests all the time", path=objects.url, fix="Run one archiver at a time"
    )


def _beyond(pieces: Sequence[Piece], max_bytes: int | None) -> int:
    """Count the pieces of the segments in front that are too much."""
    kept, size = len(pieces), 0
    if max_bytes is None:
        return 0
    for at in reversed(range(len(pieces))):
        size += pieces[at].stop - pieces[at].start + pieces[at].pack_size
        is_newest = pieces[at].segment == pieces[-1].segment
        if size > max_bytes and not is_newest:
            break
        if at == 0 or pieces[at - 1].segment != pieces[at].segment:
            kept = at
    return kept


def _expired(pieces: Sequence[Piece], before_ms: int | None) -> int:
    """Count the pieces of the segments in front whose records are all older."""
    if before_ms is None:
        return 0
    expired = 0
    for at, piece in enumerate(pieces):
        if piece.segment != pieces[at - 1].segment:
            expired = at
        if piece.records and piece.last_time >= before_ms:
            break
    return expired


def _is_old(objects: ObjectStore, start: int, file: ArchivedFile) -> bool:
    """Return whether an index file has only records before the archive's start."""
    if not file.path.startswith(f"{INDEX}/"):
        return False
    header = decode_header(objects.get(file.key, 0, HEADER.itemsize).tobytes())
    return 0 < header.end_physical_offset < start
