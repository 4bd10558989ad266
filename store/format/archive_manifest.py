"""Manifest of an archive: what it holds, as of one push. It is never changed; the next push writes the next number.

::

    manifests/0000000012.arrow       put if absent: one of two archivers wins

    file      magic (8)  CRC-32 of the rest (4)  version (4)  Arrow IPC stream, zstd: one row with
                reader     least format that a reader has to know       features   what it has to know besides
                store      id, path and last push of the store
                last       the newest piece: a push compares it with the log
                parts      of the pieces, ascending: what a reader plans with, see `archive_part`
                files      other files of the store: index, config, checkpoint
                pruned     queues whose messages are all pruned, and the offsets of their next ones

    12        [ part: segments 0 to 499   ][ part: 500 to 563 ][ part: the last push ]
    13        [ the same object           ][ the same object  ][ part: the last two pushes, merged ]

A manifest is short, however long the archive is. In format 1 it had all pieces and runs itself, see `archive_format1`.

Whoever may write to the bucket may write a manifest: names and numbers are compared with each other when it is decoded.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from ..errors import CorruptError, UnsupportedStoreError
from . import archive_format1
from .archive_part import (
    HEADER_BYTES,
    PIECE,
    ArchivedQueue,
    Part,
    Piece,
    are_digests,
    check_seal,
    columns_of,
    list_of_pieces,
    only_row,
    pieces_of,
    require,
    rows_of,
    sealed,
)
from .durable_point import FileSizes
from .index_file import Geometry, IndexProof
from .message import Ints, Mask
from .naming import is_safe_path_component
from .store_paths import MANIFESTS, PARTS

MAGIC: Final = b"SLARCHIV"
VERSION: Final = 2
DLEDGER: Final = "dledger"
"""Asked of readers if the newest segments are those of a DLedger log, whose records have a lead."""
FEATURES: Final = frozenset({DLEDGER})
"""What a manifest may ask of a reader besides its format."""
_FIX: Final = "Delete this object: the manifest before it counts then"
_INT_MAX: Final = (1 << 31) - 1
_OFFSET_MAX: Final = 1 << 62
_HEAD_BYTES_MAX: Final = 1 << 30
_PART_BYTES_MAX: Final = 1 << 40

_PART: Final = pa.struct(
    [
        *(
            pa.field(name, pa.int64(), nullable=False)
            for name in ("start", "stop", "pieces", "runs", "first_time", "last_time", "size", "head_size")
        ),
        pa.field("digest", pa.string(), nullable=False),
    ]
)
_FILE: Final = pa.struct(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
    ]
)
_PRUNED: Final = pa.struct(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queue_id", pa.int32(), nullable=False),
        pa.field("max_offset", pa.int64(), nullable=False),
    ]
)
_SCHEMA: Final = pa.schema(
    [
        pa.field("reader", pa.int32(), nullable=False),
        pa.field("features", pa.list_(pa.string()), nullable=False),
        pa.field("store", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("last", pa.list_(PIECE), nullable=False),
        pa.field("parts", pa.list_(_PART), nullable=False),
        pa.field("files", pa.list_(_FILE), nullable=False),
        pa.field("pruned", pa.list_(_PRUNED), nullable=False),
    ]
)
_ADDED: Final = frozenset({"pruned"})
"""Columns that the first manifests of this format lack."""
_LAST: Final = _SCHEMA.get_field_index("last")


class PartName(NamedTuple):
    """A part, as manifests name it."""

    start: int  # physical offsets of its pieces
    stop: int
    pieces: int
    runs: int
    first_time: int  # store times of its first and last record
    last_time: int
    size: int  # of the object
    head_size: int
    digest: str

    @property
    def key(self) -> str:
        """Key of the object."""
        return f"{PARTS}{self.start:020d}-{self.stop:020d}.{self.digest[:16]}.part"


class ArchivedFile(NamedTuple):
    """A small file or an index file, byte for byte."""

    path: str  # within the store, with slashes
    size: int
    digest: str

    @property
    def key(self) -> str:
        """Key of the object."""
        return f"files/{self.path}.{self.digest[:16]}"


class PrunedQueue(NamedTuple):
    """A queue whose messages are all pruned."""

    topic: str
    queue_id: int
    max_offset: int  # queue offset of its next message

    @property
    def queue(self) -> ArchivedQueue:
        """Its name."""
        return ArchivedQueue(self.topic, self.queue_id)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Content of an archive; of format 1 it holds its only part itself."""

    store: dict[str, str] = field(default_factory=dict)
    last: Piece | None = None
    parts: tuple[PartName, ...] = ()
    files: tuple[ArchivedFile, ...] = ()
    own_part: Part | None = None
    pruned: tuple[PrunedQueue, ...] = ()

    @property
    def start(self) -> int:
        """The first physical offset that the archive has; 0 if it is empty."""
        if self.own_part is not None:
            return self.own_part.pieces[0].start if self.own_part.pieces else 0
        return self.parts[0].start if self.parts else 0

    @property
    def stop(self) -> int:
        """One past the last byte of the log that the archive has."""
        return 0 if self.last is None else self.last.stop

    @property
    def piece_count(self) -> int:
        """Number of its pieces."""
        return sum(each.pieces for each in self.parts) if self.own_part is None else len(self.own_part.pieces)

    @property
    def sizes(self) -> FileSizes:
        """File sizes of the store."""
        return FileSizes(*_integers(self.store.get("sizes", "[0, 0, 0, 0]"), _INT_MAX, 4))

    @property
    def has_index(self) -> bool:
        """True if the store had index files."""
        return self.store.get("index", "false") == "true"

    @property
    def dledger_id(self) -> str | None:
        """Id of the broker in its DLedger group; None unless its newest segments are those of a DLedger log."""
        return self.store["dledger"] if self.last is not None and self.last.lead else None

    @property
    def damage(self) -> list[tuple[int, int]]:
        """Ranges of the log without whole records, which were archived as they are."""
        spans = json.loads(self.store.get("damage", "[]"))
        return [(start, stop) for start, stop in (_integers(json.dumps(span), _OFFSET_MAX, 2) for span in spans)]

    @property
    def proofs(self) -> dict[str, IndexProof]:
        """Index files that the push found whole, by path."""
        stated = json.loads(self.store.get("proofs", "{}"))
        return {each.path: _proof(stated[each.path], each.size) for each in self.files if each.path in stated}

    @property
    def mode(self) -> int:
        """Permissions of the store's directory; its owner's alone if they are unknown."""
        return int(self.store.get("mode", "700"), 8) & 0o777

    @property
    def pushed_ms(self) -> int:
        """Time of the last push; 0 if there was none."""
        return _integers(f"[{self.store.get('pushed_ms', '0')}]", _OFFSET_MAX, 1)[0]

    @property
    def cuts(self) -> int | None:
        """How often the archive's log was cut and went on otherwise; None if earlier releases pushed it."""
        text = self.store.get("cuts")
        return None if text is None else _integers(f"[{text}]", _OFFSET_MAX, 1)[0]

    def encode(self) -> bytes:
        """Return the bytes of the object."""
        assert self.own_part is None
        values: Mapping[str, Any] = {
            "reader": VERSION,
            "features": [DLEDGER] if self.last is not None and self.last.lead else [],
            "store": list(self.store.items()),
            "parts": [each._asdict() for each in self.parts],
            "files": [each._asdict() for each in self.files],
            "pruned": [each._asdict() for each in self.pruned],
        }
        last = list_of_pieces([] if self.last is None else [self.last])
        schema = _SCHEMA.set(_LAST, _SCHEMA.field(_LAST).with_type(last.type))
        columns = (last if each.name == "last" else pa.array([values[each.name]], each.type) for each in schema)
        row = pa.record_batch(list(columns), schema)
        return sealed(MAGIC, VERSION, row)

    @classmethod
    def decode(cls, data: bytes, place: str) -> Self:
        """Read the bytes of an object at ``place``.

        Raises
        ------
        CorruptError
            If they are not those of a manifest, or damaged.
        UnsupportedStoreError
            If a newer release wrote what this one cannot read.
        """
        version = check_seal(MAGIC, data, "manifest", place, _FIX)
        try:
            return cls._of_format1(data) if version == 1 else cls._decoded(data, place)
        except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
            problem = f"the manifest cannot be read: {error}"
            raise CorruptError(problem, path=place, offset=HEADER_BYTES, fix=_FIX) from None

    @classmethod
    def _of_format1(cls, data: bytes) -> Self:
        store, part, files = archive_format1.decoded(data)
        last = part.pieces[-1] if part.pieces else None
        made = cls(store, last, files=tuple(ArchivedFile(*each) for each in rows_of(files)), own_part=part)
        made._check(files)
        return made

    @classmethod
    def _decoded(cls, data: bytes, place: str) -> Self:
        asked = only_row(data, HEADER_BYTES, pa.schema([_SCHEMA.field("reader"), _SCHEMA.field("features")]))
        unknown = sorted(set(asked["features"].to_pylist()) - FEATURES)
        if asked["reader"] > VERSION or unknown:
            has = f" with {', '.join(map(repr, unknown))}" if unknown else ""
            raise UnsupportedStoreError(
                f"the manifest needs a reader of format {asked['reader']}{has}, and this release reads {VERSION}",
                path=place,
                fix="Install the release of segmentlog that wrote it, or a later one",
            )
        row = only_row(data, HEADER_BYTES, _SCHEMA, _ADDED)
        made = cls(
            dict(row["store"]),
            next(iter(pieces_of(row["last"])), None),
            tuple(PartName(*each) for each in rows_of(row["parts"])),
            tuple(ArchivedFile(*each) for each in rows_of(row["files"])),
            pruned=tuple(PrunedQueue(*each) for each in rows_of(row["pruned"])),
        )
        require(are_digests(row["parts"], "digest") & _parts_fit(columns_of(row["parts"])), "part", made.parts)
        if len(row["last"]) > 1 or (made.parts[-1].stop if made.parts else 0) != made.stop:
            raise ValueError("its last piece is not the end of its parts")
        made._check(row["files"])
        queue = columns_of(row["pruned"])
        fits = (queue["queue_id"] >= 0) & (queue["max_offset"] > 0) & (queue["max_offset"] <= _OFFSET_MAX)
        require(fits, "pruned queue", made.pruned)
        if len({each.queue for each in made.pruned}) < len(made.pruned):
            raise ValueError("it names a pruned queue twice")
        return made

    def _check(self, files: pa.StructArray) -> None:
        """Compare names and numbers with each other; `ValueError` for the first impossible one."""
        if len({each.path for each in self.files}) < len(self.files):
            raise ValueError("it names a file twice")
        paths = np.array(
            [all(map(is_safe_path_component, each.path.split("/"))) and each.size >= 0 for each in self.files], np.bool_
        )
        require(are_digests(files, "digest") & paths, "file", self.files)
        if not is_safe_path_component(self.dledger_id or "n0"):
            raise ValueError(f"{self.dledger_id!r} is not the id of a broker")
        # Each raises `ValueError` or `TypeError`.
        _ = self.sizes, self.damage, self.proofs, self.mode, self.pushed_ms, self.cuts


def _parts_fit(part: Mapping[str, Ints]) -> Mask:
    """Parts that follow each other, with as many pieces and runs as their bytes can state."""
    start, stop, head = part["start"], part["stop"], part["head_size"]
    fits: Mask = (start >= 0) & (start < stop) & (stop <= _OFFSET_MAX)
    fits &= (part["pieces"] > 0) & (part["pieces"] <= stop - start) & (part["runs"] >= 0)
    fits &= (head >= HEADER_BYTES) & (head <= _HEAD_BYTES_MAX)
    fits &= (part["size"] >= head) & (part["size"] <= _PART_BYTES_MAX)
    fits[1:] &= start[1:] >= stop[:-1]
    return fits


def _proof(stated: list[Any], size: int) -> IndexProof:
    *numbers, jumps = stated
    slots, entries, count = _integers(json.dumps(numbers[:3]), _INT_MAX, 3)
    first, last = _integers(json.dumps(numbers[3:]), _OFFSET_MAX, 2)
    pairs = tuple((one, other) for one, other in (_integers(json.dumps(pair), _OFFSET_MAX, 2) for pair in jumps))
    fits = slots > 0 and 1 < count <= entries and first <= last
    if not fits or Geometry(slots, entries).file_bytes != size:
        raise ValueError(f"an index file of {size} bytes cannot have {count - 1} entries and {slots} slots")
    return IndexProof(slots, entries, count, first, last, pairs)


def _integers(text: str, most: int, count: int) -> list[int]:
    """Read a JSON list of integers from 0 to ``most``; `ValueError` or `TypeError` for another text."""
    found = json.loads(text)
    if len(found) != count or not all(type(each) is int and 0 <= each <= most for each in found):
        raise ValueError(f"{text[:40]!r} is not a list of {count} integers up to {most}")
    return list(found)


def manifest_key(number: int) -> str:
    """Key of the manifest with a number, counted from 1."""
    return f"{MANIFESTS}{number:010d}.arrow"
