"""Push: a store copied into its archive, incremental and verified, beside a running broker.

::

    newest manifest ─► pieces that the log still has ─► put new pieces, packs, files ─► put parts ─► publish the next
         ▲             (digests, from the last one back)                                  │ taken by another manifest
         └────────────────────────────────────────────────────────────────────────────────┘ archiver

    log       [ segment 0        ][ segment 1        ][ segment 2 … ]
    before    [ piece 0          ][ piece 1 ][ piece 2 ]
    pieces    [ piece 0          ][ piece 1          ][ new  │              up to the readable stop: no batch in flight
    objects   [                  ][         ][   ][  ][      │              small ones of a full segment become one

A crash leaves objects without a manifest. The same push uses them again; a later one deletes them after a day.
"""

import json
import logging
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import takewhile
from typing import Final, NamedTuple
from urllib.parse import unquote

import numpy as np

from ..config import StoreConfig
from ..directory.archive import check_beside, check_ids
from ..directory.documents import iso_seconds
from ..directory.file_sizes import stored_sizes
from ..directory.group_offsets import offsets_path
from ..directory.layout import list_compacted_topics
from ..directory.own_state import ELSEWHERE, early_end, is_store_id, read_checkpoint, store_id
from ..entries.pack_making import made_pack
from ..errors import (
    ConfigError,
    CorruptError,
    FormatError,
    MissingFileError,
    Remedy,
    SegmentLogError,
    StoreInUseError,
    StoreIOError,
    UnreadableError,
)
from ..files.fresh_directory import make_like, permissions
from ..files.fs import LocalFileSystem, release
from ..files.segments import SegmentFile
from ..files.small_file import DOCUMENT_BYTES_MAX, read_whole
from ..format.archive_manifest import ArchivedFile, Manifest, PartName
from ..format.archive_part import PACK_HEADER, LogObject, LogRange, Part, Piece
from ..format.documents import parse
from ..format.index_file import IndexProof
from ..format.message import Bytes, Problem, Records
from ..format.store_paths import CONFIG, INDEX, DLedgerPaths, StorePaths
from ..format.walk import walk
from ..index.proof import proof_of
from ..index.table import index_files, read_header
from ..log.commit_log import FoundRecords
from ..objects.manifests import heads_of, newest_or_empty, publish
from ..objects.object_store import ObjectStore
from ..read.snapshot import Snapshot
from .content import Held, Span, ends_without, parts_with, remove_orphans, settled

_log = logging.getLogger(__name__)

ORPHANS_AFTER_S: Final = 86_400
_PUBLISH_BYTES: Final = 16 << 30  # a push of days is published in parts, so that its objects are never orphans for long
_ROUNDS_MAX: Final = 100  # lost in a row: each was won by another archiver
_CHECKED_ROWS: Final = 1 << 17
_OBJECT_BYTES_MIN: Final = 4 << 20
"""Objects of a full segment that are smaller in the mean become one: larger ones are sent once, and cost no more."""
_INDEX_BYTES_MAX: Final = 64 << 20  # of an index file that is being written: it is sent again by each push
_OTHER_PLACE: Final = "Name the archive of this store, or an empty place"


@dataclass(frozen=True, kw_only=True, slots=True)
class PushReport:
    """Result of a push.

    Attributes
    ----------
    manifest
        Number of the newest manifest.
    start, stop
        Physical offsets of the log that the archive has.
    pieces, records, sent_bytes
        Pieces and records that were added, and bytes of all objects that were sent.
    reused
        Objects that an interrupted push had left and that were used.
    removed
        Objects without a manifest that were deleted.
    gaps
        Ranges of the log that retention deleted before this push.
    damage
        Ranges of added pieces that hold no whole records, if they were kept.
    replaced
        Range of the archive that the log does not have any more, after a failover or a truncation; None if there is
        none.
    warnings
        Sentences about gaps, damage, replaced pieces and files that were left out.
    """

    manifest: int
    start: int
    stop: int
    pieces: int
    records: int
    sent_bytes: int
    reused: int
    removed: int
    gaps: tuple[Span, ...]
    damage: tuple[Span, ...]
    replaced: Span | None
    warnings: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """False if messages are missing or damaged, or were replaced."""
        return not self.gaps and not self.damage and self.replaced is None


def push(
    store: str | os.PathLike[str],
    objects: ObjectStore,
    *,
    commit_log_paths: Sequence[str | os.PathLike[str]] = (),
    keep_damage: bool = False,
    check_crcs: bool = True,
    orphans_after_s: float | None = None,
) -> PushReport:
    """Copy what is new in a store into its archive."""
    snapshot = Snapshot.open(store, commit_log_paths=commit_log_paths)
    if objects.url.startswith("file://"):
        place = os.path.abspath(unquote(objects.url.removeprefix("file://")))
        check_beside(place, snapshot.path)
        make_like(place, snapshot.path)
    return _Push(objects=objects, snapshot=snapshot, keep_damage=keep_damage, check_crcs=check_crcs).run(
        orphans_after_s
    )


class _Made(NamedTuple):
    """A piece that was put, as a part with this piece alone."""

    part: Part
    records: int  # that no former piece had
    damage: tuple[Span, ...]

    @property
    def piece(self) -> Piece:
        return self.part.pieces[0]


@dataclass(slots=True)
class _Round:
    """Changes of one manifest; they count once it is published."""

    made: list[_Made] = field(default_factory=list)
    gaps: list[Span] = field(default_factory=list)
    damage: list[Span] = field(default_factory=list)
    replaced: Span | None = None
    proofs: dict[str, IndexProof | None] = field(default_factory=dict)  # of index files that changed
    is_partial: bool = False


class _Pieces:
    """Pieces of a manifest, from the last one back: its parts are read when a piece of them is asked for."""

    def __init__(self, objects: ObjectStore, manifest: Manifest) -> None:
        self._objects, self._manifest = objects, manifest
        self._count = manifest.piece_count
        self._parts: dict[PartName, Part] = {}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: int) -> Piece:
        manifest = self._manifest
        if at == self._count - 1 and manifest.last is not None:
            return manifest.last
        if manifest.own_part is not None:
            return manifest.own_part.pieces[at]
        first = self._count
        for name in reversed(manifest.parts):
            first -= name.pieces
            if at >= first:
                break
        if name not in self._parts:
            (self._parts[name],) = heads_of(self._objects, manifest, [name])
        return self._parts[name].pieces[at - first]


@dataclass(kw_only=True)
class _Push:
    objects: ObjectStore
    snapshot: Snapshot
    keep_damage: bool
    check_crcs: bool

    def __post_init__(self) -> None:
        self._fs = LocalFileSystem()
        self._made: dict[tuple[int, int], _Made] = {}  # by span; a lost round uses them again
        self._warnings: dict[str, None] = {}
        self._sent_bytes = self._reused = 0
        self._round = _Round()

    def run(self, orphans_after_s: float | None) -> PushReport:
        rounds: list[_Round] = []
        lost = 0
        while lost < _ROUNDS_MAX:
            number, former = newest_or_empty(self.objects)  # before the log: its end is not older than the manifest
            self._check_owner(former)
            flushed_ms = read_checkpoint(
                self._fs, self.snapshot.path
            ).physic_timestamp  # before the log, which a broker may append to
            self.snapshot = self.snapshot.newer()
            self._round = _Round()
            made = self._next(former, self.snapshot.readable_stop())
            is_new = made is not former
            if is_new and not publish(self.objects, number + 1, made):
                lost += 1
                continue
            rounds.append(self._round)
            if not self._round.is_partial:
                self._check_end(made, flushed_ms)
                removed = self._clean(former, orphans_after_s)
                return self._report(number + is_new, made, rounds, removed)
        raise StoreInUseError(
            f"other archivers published {lost} manifests while this one worked",
            path=self.objects.url,
            fix="Run one archiver per store",
        )

    def _clean(self, former: Manifest, orphans_after_s: float | None) -> int:
        # All objects are listed and the last manifests read: once per hour, if pushes are more frequent.
        hour = former.pushed_ms // 3_600_000
        if orphans_after_s is None and hour == _now_ms() // 3_600_000:
            return 0
        try:
            return remove_orphans(self.objects, ORPHANS_AFTER_S if orphans_after_s is None else orphans_after_s)
        except (CorruptError, UnreadableError) as error:  # an older manifest may name any object; or no right to delete
            self._warn(f"no object was deleted: {error.problem} (in {error.path})")
            return 0

    def _check_end(self, made: Manifest, flushed_ms: int) -> None:
        # Unknown without records, and of a broker that is behind its group.
        if made.last is not None and made.last.records and not self.snapshot.log.is_agreed:
            early = early_end(made.last.last_time, flushed_ms)
            if early is not None:
                self._warn(f"{early}. {ELSEWHERE}")

    def _report(self, number: int, made: Manifest, rounds: Sequence[_Round], removed: int) -> PushReport:
        added = [each for part in rounds for each in part.made]
        return PushReport(
            manifest=number,
            start=made.start,
            stop=made.stop,
            pieces=len(added),
            records=sum(each.records for each in added),
            sent_bytes=self._sent_bytes,
            reused=self._reused,
            removed=removed,
            gaps=tuple(span for part in rounds for span in part.gaps),
            damage=tuple(span for part in rounds for span in part.damage),
            replaced=next((part.replaced for part in rounds if part.replaced), None),
            warnings=tuple(self._warnings),
        )

    def _warn(self, text: str) -> None:
        if text not in self._warnings:
            _log.warning("%s", text)
            self._warnings[text] = None

    # Whose archive it is

    def _check_owner(self, manifest: Manifest) -> None:
        owner = manifest.store.get("id", "")
        if is_store_id(owner):
            check_ids(owner, store_id(self.snapshot.path), self.objects.url, _OTHER_PLACE)

    def _agreeing(self, manifest: Manifest, pieces: "_Pieces", stop: int) -> int:
        """Return how many pieces the log still has, or had; `ConfigError` if the archive is of another log."""
        log = self.snapshot.log
        # What a DLedger group has agreed on stays: its brokers may be behind the archive, and have lost nothing.
        behind = sum(1 for _ in takewhile(lambda piece: piece.stop > stop, reversed(pieces))) if log.is_agreed else 0
        held = kept = len(pieces) - behind
        compared = False
        while kept:
            piece = pieces[kept - 1]
            if piece.stop <= log.min_offset and log.segments:
                break  # retention deleted it: there is nothing to compare
            if self._holds(piece, stop):
                compared = True
                break
            kept -= 1
        if not compared and kept < len(pieces) and (kept < held or pieces[kept].start < stop):
            compared = self._same_front(pieces[kept], stop)
            if not compared:
                raise ConfigError(
                    f"archive: its log [{manifest.start}, {manifest.stop}) is not the log of this store, which has "
                    f"[{log.min_offset}, {stop})",
                    path=self.objects.url,
                    fix=_OTHER_PLACE,
                )
        if kept == held:
            if pieces and not compared:
                self._check_path(manifest)
            return len(pieces)
        lost = pieces[kept].start, manifest.stop
        self._round.replaced = lost
        self._warn(f"the log was cut, and does not have [{lost[0]}, {lost[1]}) of the archive any more")
        return kept

    def _check_path(self, manifest: Manifest) -> None:
        """Refuse a store without an id at another path, if no piece can be compared."""
        if store_id(self.snapshot.path) is None and manifest.store.get("path") != self.snapshot.path:
            raise ConfigError(
                f"archive: this is the archive of {manifest.store.get('path')}, which ends at {manifest.stop}, and the "
                f"log of {self.snapshot.path} begins at {self.snapshot.log.min_offset}",
                path=self.objects.url,
                fix=_OTHER_PLACE,
            )

    def _holds(self, piece: Piece, stop: int) -> bool:
        segment = self.snapshot.log.find(piece.start)
        if segment is None or piece.stop > stop or (segment.base, segment.size) != (piece.segment, piece.segment_size):
            return False
        return all(_digest(self._bytes(segment, each)) == each.digest for each in piece.ranges)

    def _bytes(self, segment: SegmentFile, span: LogRange) -> Bytes:
        return self._fs.map(segment.path, span.start - segment.base, span.stop - segment.base)

    def _same_front(self, piece: Piece, stop: int) -> bool:
        """Return whether the log has the first record of a piece that it does not have as a whole."""
        size = min(piece.stop, stop) - piece.start
        segment = self.snapshot.log.find(piece.start)
        if segment is None or size <= 0 or segment.base != piece.segment:
            return False
        at = piece.start - segment.base
        size = min(size, segment.lead + int.from_bytes(self._fs.read(segment.path, at + segment.lead, 4), "big"))
        held = self._fs.map(segment.path, at, at + size)
        first = piece.ranges[0]
        size = min(size, first.stop - first.start)
        return size > 0 and np.array_equal(self.objects.get(first.key, 0, size), held[:size])

    # The next manifest

    def _next(self, former: Manifest, stop: int) -> Manifest:
        """Put what the archive lacks, and return the manifest with it."""
        pieces, part, log = _Pieces(self.objects, former), self._round, self.snapshot.log
        # A broker of a DLedger group that has received nothing yet, or has forgotten what its group agreed on: there is
        # nothing to compare.
        is_behind = stop <= log.min_offset and (log.is_agreed or (not log.segments and "dledger" in former.store))
        if pieces and is_behind:
            return former
        count = self._agreeing(former, pieces, stop)
        grown = self._grown(former, pieces, count, stop)
        kept, last = count - len(grown), pieces[count - 1] if count else None
        at = grown[0].start if grown else log.min_offset if last is None else last.stop
        first, size = at, 0
        for segment, start, end in self._missing(at, stop):
            known = grown if grown and start == first else ()
            made = self._made.get((start, end))
            if made is None or not self._holds(made.piece, stop):  # the log may have been cut since a lost round
                made = self._piece(segment, start, end, known)
            if made is None:
                break
            self._made[start, end] = made
            part.made.append(made)
            part.damage += made.damage
            last = made.piece
            size += end - start
            _log.info("%d bytes of the log are still to archive", stop - end, extra={"done": end - at, "of": stop - at})
            if size >= _PUBLISH_BYTES:
                part.is_partial = True
                break
        files = self._files(former, self._start(former, kept))
        changed = Manifest(self._state(former), last, former.parts, files, former.own_part)
        if not part.made and count == len(pieces) and changed.files == former.files:
            return former
        held: list[Held] = [*parts_with(self.objects, former, 0, kept), *(made.part for made in part.made)]
        parts = settled(self.objects, held, self._put)
        if part.replaced:
            pruned = ends_without(former, heads_of(self.objects, former), held, is_cut=True)
        else:
            queues = {queue for made in part.made for queue in made.part.queues}
            pruned = tuple(each for each in former.pruned if each.queue not in queues)
        return replace(changed, parts=parts, own_part=None, pruned=pruned)

    def _start(self, former: Manifest, kept: int) -> int:
        """The first physical offset of the next manifest."""
        made = self._round.made
        return former.start if kept or not made else made[0].piece.start

    def _grown(self, former: Manifest, pieces: "_Pieces", count: int, stop: int) -> tuple[Piece, ...]:
        """Return the last pieces, which become one, if their segment is full now and the log still has their bytes."""
        if not count or pieces[count - 1].is_last:
            return ()
        found = [pieces[count - 1]]
        segment = self.snapshot.log.find(found[0].start)
        if segment is None or segment.stop > stop:
            return ()
        while len(found) < count:
            before = pieces[count - 1 - len(found)]
            if before.segment != segment.base or before.stop != found[0].start:
                break
            found.insert(0, before)
        is_damaged = any(end > found[0].start for _, end in former.damage)
        return () if is_damaged or not all(self._holds(each, stop) for each in found) else tuple(found)

    def _missing(self, at: int, stop: int) -> Iterator[tuple[SegmentFile, int, int]]:
        """Spans of the log that the archive lacks from an offset on, one per segment; gaps are recorded."""
        for segment in self.snapshot.log.segments:
            start, end = max(segment.base, at), min(segment.stop, stop)
            if start >= end:
                continue
            if start > at:
                self._gap(at, start)
            yield segment, start, end
            at = end

    def _gap(self, start: int, stop: int) -> None:
        if stop <= self.snapshot.log.min_offset:
            self._round.gaps.append((start, stop))
            self._warn(f"retention deleted [{start}, {stop}) of the log before it was archived")
        elif self.keep_damage:
            self._round.damage.append((start, stop))
            self._warn(f"the segments of [{start}, {stop}) are missing in the log")
        else:
            path = self.snapshot.log.directories[0]
            raise _damaged(path, (start, stop), "its segment is missing", (Remedy.NAME_COMMIT_LOG,))

    def _piece(self, segment: SegmentFile, start: int, stop: int, known: Sequence[Piece]) -> _Made | None:
        """Examine a span and put its records; None if none begins there yet. ``known`` pieces have been put before."""
        base = segment.base
        try:
            view = self._fs.map(segment.path, 0, stop - base)
        except MissingFileError:
            raise MissingFileError(
                "retention deleted this segment before it was archived",
                path=segment.path,
                fix="Push again: the archive then has a gap. Push more often, or let retention archive what it deletes",
                errno=2,
            ) from None
        if view.size < stop - base:
            raise StoreIOError("the segment became shorter", path=segment.path, errno=5, fix="Push again")
        walked = walk(view, base, start - base, stop - base, segment.lead)
        is_last = stop == segment.stop
        if not is_last:
            stop = base + walked.end
            if stop <= start:
                return None
        spans = [(base + one, base + other) for one, other in walked.damage if base + one < stop]
        if is_last and not walked.blank and walked.end < view.size and not spans:
            spans.append((base + walked.end, stop))  # a blank record must have ended it
        times = walked.records.field("store_timestamp")
        pack = made_pack(FoundRecords(segment, walked.records))  # before the CRCs: they flag records
        damage = tuple(sorted([*spans, *self._denied(segment, walked.records)]))
        if damage and not self.keep_damage:
            raise _damaged(segment.path, damage[0], "it holds no whole record, or one that its CRC contradicts")
        for span in damage:
            self._warn(f"the archive has damaged bytes of the log at [{span[0]}, {span[1]})")
        piece = Piece(
            segment=base,
            segment_size=segment.size,
            start=start,
            records=len(walked.records),
            first_time=int(times[0]) if times.size else 0,
            last_time=int(times[-1]) if times.size else 0,
            pack_start=PACK_HEADER.itemsize if pack.data.size else 0,
            pack_size=pack.data.size,
            pack_digest=_digest(pack.data),
            objects=self._objects_of(segment, view, start, stop, known),
            lead=segment.lead,
        )
        if pack.data.size:
            self._put(piece.pack_key, pack.data)
        release(view)
        added = piece.records - sum(each.records for each in known)
        return _Made(Part.of([piece], pack.queues, pack.runs), added, damage)

    def _objects_of(
        self, segment: SegmentFile, view: Bytes, start: int, stop: int, known: Sequence[Piece]
    ) -> tuple[LogObject, ...]:
        """Put the bytes of a span that no object has, or all of them if those objects are small."""
        held = [LogObject(each.stop, each.digest) for piece in known for each in piece.ranges]
        if held and (stop - start) < (len(held) + 1) * _OBJECT_BYTES_MIN:
            held = []
        first = held[-1].stop if held else start
        data = view[first - segment.base : stop - segment.base]
        made = LogObject(stop, _digest(data))
        place = LogRange.of(segment.base, first, made)
        self._put(place.key, data)
        if _digest(data) != made.digest:  # a failover cut the log, and wrote it again, while it was sent
            self.objects.delete([place.key])
            raise StoreIOError(
                "the log was changed while it was archived", path=segment.path, offset=first, errno=5, fix="Push again"
            )
        return (*held, made)

    def _denied(self, segment: SegmentFile, records: Records) -> Iterator[Span]:
        """Spans of records that their CRCs contradict."""
        if not self.check_crcs:
            return
        for first in range(0, len(records), _CHECKED_ROWS):
            some = records.part(first, min(first + _CHECKED_ROWS, len(records)))
            sizes = some.field("total_size")
            self.snapshot.log.check_crcs(segment, some)
            for row in np.flatnonzero(some.problem != Problem.OK).tolist():
                begin = segment.base + int(some.positions[row])
                yield begin, begin + int(sizes[row])

    def _put(self, key: str, data: Bytes) -> None:
        """Put an object, unless an interrupted push left it."""
        found = self.objects.head(key)
        # An older one may be deleted as an orphan, by another archiver, before this push publishes it.
        is_young = found is not None and _now_ms() - found.modified_ms < ORPHANS_AFTER_S * 500
        if found is not None and found.size == data.size and is_young:
            self._reused += 1
            return
        info = self.objects.put(key, data)
        self._sent_bytes += data.size
        if info is None or info.size != data.size:
            found_size = "no object" if info is None else f"{info.size} bytes"
            raise StoreIOError(
                f"{data.size} bytes were sent, and the object store reports {found_size}",
                path=f"{self.objects.url}/{key}",
                errno=5,
                fix="Push again",
            )

    # Other files

    def _state(self, former: Manifest) -> dict[str, str]:
        """Facts about the store, and about this push."""
        sizes = stored_sizes(self._fs, self.snapshot.path, StoreConfig())
        spans = [*former.damage, *self._round.damage]
        shared = next(filter(None, map(DLedgerPaths.of_data, self.snapshot.log.directories)), None)
        proofs = {**former.proofs, **self._round.proofs}
        return {
            **({} if shared is None else {"dledger": shared.broker}),
            "id": store_id(self.snapshot.path) or former.store.get("id", ""),
            "path": self.snapshot.path,
            "mode": f"{permissions(self.snapshot.path):o}",
            "pushed_ms": str(_now_ms()),
            "push": uuid.uuid4().hex,
            "sizes": json.dumps(sizes),
            "index": json.dumps(any(index_files(self._fs, os.path.join(self.snapshot.path, INDEX)))),
            "damage": json.dumps(spans),
            "proofs": json.dumps({path: each for path, each in proofs.items() if each is not None}),
            # How often the log was cut: readers that follow the archive compare it.
            "cuts": str((former.cuts or 0) + (self._round.replaced is not None)),
        }

    def _files(self, former: Manifest, log_start: int) -> tuple[ArchivedFile, ...]:
        """Put the other files that a restored store needs. They are read after the log: the ledger may know more."""
        known = {each.path: each for each in former.files}
        # Index files stay after retention deleted them in the store: their segments are in the archive.
        found = {path: each for path, each in known.items() if path.startswith(f"{INDEX}/")}
        for path, data in self._small_files():
            found[path] = self._file(known.get(path), path, data)
        for path, data in self._index_files(known, log_start):
            found[path] = self._file(known.get(path), path, data)
            if found[path] != known.get(path):
                self._round.proofs[path] = proof_of(self.snapshot.log, path, data)
        return tuple(found[path] for path in sorted(found))

    def _file(self, known: ArchivedFile | None, path: str, data: Bytes) -> ArchivedFile:
        made = ArchivedFile(path, data.size, _digest(data))
        if made != known:
            self._put(made.key, data)
        return made

    def _small_files(self) -> Iterator[tuple[str, Bytes]]:
        root, paths = self.snapshot.path, StorePaths("")
        # The ledger before the history, whose last line may be newer; both are cut when they are restored.
        names = [paths.store_id, paths.ledger, paths.batch_history, paths.epochs, paths.group_positions]
        names.append(paths.checkpoint)
        config = self._fs.list_dir(os.path.join(root, CONFIG))
        names += [f"{CONFIG}/{each.name}" for each in config if each.is_file and each.name.endswith(".json")]
        left_out = self._stale_offsets()
        names = [name for name in names if name != left_out]
        for each in config:
            if each.is_dir:
                self._warn(f"{CONFIG}/{each.name} is not archived: configuration in RocksDB")
        compacted = list_compacted_topics(self._fs, root)
        if compacted:
            topics = ", ".join(sorted(compacted))
            self._warn(f"compaction/ is not archived: consumers of a restored broker get no messages of {topics}")
        for name in names:
            content = read_whole(self._fs, os.path.join(root, name), DOCUMENT_BYTES_MAX)
            if content is not None and name.endswith(".json"):
                content = self._document(name, content)
            if content is not None:
                yield name, np.frombuffer(content, np.uint8)

    def _stale_offsets(self) -> str | None:
        """Document of group offsets that brokers no longer write: an archive has no times of files that would tell."""
        paths = StorePaths("")
        with suppress(FormatError):  # of a damaged document; that is warned of when it is read
            counts = offsets_path(self._fs, self.snapshot.path)
            is_light = counts == StorePaths(self.snapshot.path).light_offsets
            return paths.consumer_offsets if is_light else paths.light_offsets
        return None

    def _document(self, name: str, content: bytes) -> bytes | None:
        """Return a whole document: a broker writes them in place, with a backup beside them."""
        path = os.path.join(self.snapshot.path, name)
        backup = read_whole(self._fs, f"{path}.bak", DOCUMENT_BYTES_MAX)
        for each in (content, backup):
            with suppress(SegmentLogError):
                if each:
                    parse(each.decode("utf-8", "replace"))
                    if each is backup and content:
                        times = [iso_seconds(self._fs, file) for file in (path, f"{path}.bak")]
                        self._warn(f"{name}, of {times[0]}, is damaged: its backup of {times[1]} is archived instead")
                    return each
        self._warn(f"{name} is not archived: it is damaged, and so is its backup")
        return None

    def _index_files(self, known: dict[str, ArchivedFile], log_start: int) -> Iterator[tuple[str, Bytes]]:
        """Index files: the full ones once, and the last one as of now if it is small."""
        paths = sorted(index_files(self._fs, os.path.join(self.snapshot.path, INDEX)))
        for path in paths:
            name = f"{INDEX}/{os.path.basename(path)}"
            try:
                size = self._fs.size(path) or 0
                if size > _INDEX_BYTES_MAX and (path == paths[-1] or name in known):
                    continue
                if 0 < read_header(self._fs, path).end_physical_offset < log_start:
                    continue  # of segments that the archive does not have
                yield name, self._fs.map(path) if size > _INDEX_BYTES_MAX else self._fs.map(path).copy()
            except MissingFileError:
                continue  # retention deleted it
            except SegmentLogError as error:
                self._warn(f"{name} is not archived: {error.problem}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _digest(data: Bytes) -> str:
    return sha256(data.data).hexdigest()


def _damaged(path: str, span: Span, problem: str, remedies: tuple[Remedy, ...] = ()) -> CorruptError:
    return CorruptError(
        f"the log is damaged up to {span[1]}: {problem}",
        path=path,
        offset=span[0],
        fix="`segmentlog verify` lists all damage, and `segmentlog salvage` copies the whole records",
        remedies=(*remedies, Remedy.KEEP_DAMAGE),
    )
