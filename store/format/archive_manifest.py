"""Manifest of an archive: what it holds, as of one push. It is never changed; the next push writes the next number.

::

    manifests/0000000012.arrow       put if absent: one of two archivers wins

    file      magic (8)  CRC-32 of the rest (4)  version (4)  Arrow IPC stream, zstd: one row with
                store      id, path and last push of the store
                pieces     of the log, ascending and without overlap, each one object
                queues     topic, queue id
                runs       records of one queue in one piece
                files      other files of the store: index, config, checkpoint

    log       [ segment 0                 ][ segment 1          …      space of the segment's file
    pieces    [ piece 0                   ][ piece 1 ][ piece 2 ]      a segment that is being written comes in pieces
    packs     [ pack 0                    ][ pack 1  ][ pack 2  ]      one object per piece: an `ENTRY` per record

    pack      │ A/0 rows │ B/0 rows │ B/1 rows │                       by queue, each in the order of the log

Ranges of queues are planned from ``runs`` alone. RocketMQ has no archive.

Whoever may write to the bucket may write a manifest: names and numbers are compared with each other when it is decoded.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import CorruptError, UnsupportedStoreError
from .durable_point import FileSizes
from .message import MIN_RECORD_BYTES, Ints, Mask
from .naming import is_safe_path_component, segment_name
from .store_paths import MANIFESTS

MAGIC: Final = b"SLARCHIV"
VERSION: Final = 1
_HEADER_BYTES: Final = 16
_FIX: Final = "Delete this object: the manifest before it counts then"
_INT_MAX: Final = (1 << 31) - 1  # of sizes of files and places in a segment: Java's int
_OFFSET_MAX: Final = 1 << 62
_DIGEST: Final = "^[0-9a-f]{64}$"

_PIECES: Final = pa.list_(
    pa.struct(
        [
            pa.field("segment", pa.int64(), nullable=False),
            pa.field("segment_size", pa.int64(), nullable=False),
            pa.field("start", pa.int64(), nullable=False),
            pa.field("stop", pa.int64(), nullable=False),
            pa.field("records", pa.int64(), nullable=False),
            pa.field("first_time", pa.int64(), nullable=False),
            pa.field("last_time", pa.int64(), nullable=False),
            pa.field("digest", pa.string(), nullable=False),
            pa.field("pack_size", pa.int64(), nullable=False),
            pa.field("pack_digest", pa.string(), nullable=False),
        ]
    )
)
_QUEUES: Final = pa.list_(
    pa.struct([pa.field("topic", pa.string(), nullable=False), pa.field("queue_id", pa.int32(), nullable=False)])
)
_FILES: Final = pa.list_(
    pa.struct(
        [
            pa.field("path", pa.string(), nullable=False),
            pa.field("size", pa.int64(), nullable=False),
            pa.field("digest", pa.string(), nullable=False),
        ]
    )
)
ENTRY: Final = np.dtype(
    [("queue_offset", "<i8"), ("position", "<i4"), ("size", "<i4"), ("tags_code", "<i8"), ("store_time", "<i8")]
)
"""A row of a pack; ``position`` is within the segment. A run is contiguous, so that one range of the object has it."""
RUN: Final = np.dtype(
    [
        ("piece", np.int32),
        ("queue", np.int32),
        ("row", np.int64),
        ("rows", np.int64),
        ("first", np.int64),
        ("last", np.int64),
        ("first_offset", np.int64),
        ("last_offset", np.int64),
        ("bytes", np.int64),
        ("rises", np.bool_),
    ]
)
"""Records of one queue in one piece: rows of the pack, queue offsets, physical offsets, stored bytes.

``rises`` is false where the queue offsets of the rows do not rise."""
_RUNS: Final = pa.list_(
    pa.struct([pa.field(name, pa.from_numpy_dtype(RUN[name]), nullable=False) for name in RUN.names or ()])
)
_SCHEMA: Final = pa.schema(
    [
        pa.field("store", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("pieces", _PIECES, nullable=False),
        pa.field("queues", _QUEUES, nullable=False),
        pa.field("runs", _RUNS, nullable=False),
        pa.field("files", _FILES, nullable=False),
    ]
)
Runs = npt.NDArray[np.void]
_Columns = Mapping[str, npt.NDArray[Any]]


class Piece(NamedTuple):
    """Bytes ``[start, stop)`` of the log, physical offsets, all in one segment; records begin and end within it."""

    segment: int  # base offset
    segment_size: int
    start: int
    stop: int
    records: int
    first_time: int  # store times in ms of its first and last record; 0 without records
    last_time: int
    digest: str  # SHA-256 of the bytes, hexadecimal
    pack_size: int
    pack_digest: str

    @property
    def key(self) -> str:
        """Key of the object with the bytes. The name states the content: to write it twice changes nothing."""
        return f"log/{segment_name(self.segment)}/{self.start:020d}-{self.stop:020d}.{self.digest[:16]}"

    @property
    def pack_key(self) -> str:
        """Key of the object with the queue entries."""
        return f"queues/{segment_name(self.segment)}/{self.start:020d}-{self.stop:020d}.{self.pack_digest[:16]}.entries"

    @property
    def is_last(self) -> bool:
        """True if the piece ends with its segment."""
        return self.stop == self.segment + self.segment_size


class ArchivedFile(NamedTuple):
    """A small file or an index file, byte for byte."""

    path: str  # within the store, with slashes
    size: int
    digest: str

    @property
    def key(self) -> str:
        """Key of the object."""
        return f"files/{self.path}.{self.digest[:16]}"


class ArchivedQueue(NamedTuple):
    """A queue of which the archive has records."""

    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """Content of an archive; ``runs`` is ascending by piece, then queue."""

    store: dict[str, str] = field(default_factory=dict)
    pieces: tuple[Piece, ...] = ()
    queues: tuple[ArchivedQueue, ...] = ()
    runs: Runs = field(default_factory=lambda: np.empty(0, RUN))
    files: tuple[ArchivedFile, ...] = ()

    @property
    def start(self) -> int:
        """The first physical offset that the archive has; 0 if it is empty."""
        return self.pieces[0].start if self.pieces else 0

    @property
    def stop(self) -> int:
        """One past the last byte of the log that the archive has."""
        return self.pieces[-1].stop if self.pieces else 0

    @property
    def sizes(self) -> FileSizes:
        """File sizes of the store."""
        return FileSizes(*_integers(self.store.get("sizes", "[0, 0, 0, 0]"), _INT_MAX, 4))

    @property
    def has_index(self) -> bool:
        """True if the store had index files."""
        return self.store.get("index", "false") == "true"

    @property
    def damage(self) -> list[tuple[int, int]]:
        """Ranges of the log without whole records, which were archived as they are."""
        spans = json.loads(self.store.get("damage", "[]"))
        return [(start, stop) for start, stop in (_integers(json.dumps(span), _OFFSET_MAX, 2) for span in spans)]

    @property
    def mode(self) -> int:
        """Permissions of the store's directory; its owner's alone if they are unknown."""
        return int(self.store.get("mode", "700"), 8) & 0o777

    @property
    def pushed_ms(self) -> int:
        """Time of the last push; 0 if there was none."""
        return _integers(f"[{self.store.get('pushed_ms', '0')}]", _OFFSET_MAX, 1)[0]

    def encode(self) -> bytes:
        """Return the bytes of the object."""
        runs = pa.StructArray.from_arrays(
            [pa.array(self.runs[name]) for name in RUN.names or ()], fields=list(_RUNS.value_type)
        )
        row = pa.record_batch(
            [
                pa.array([list(self.store.items())], _SCHEMA.field("store").type),
                pa.array([[each._asdict() for each in self.pieces]], _PIECES),
                pa.array([[each._asdict() for each in self.queues]], _QUEUES),
                pa.ListArray.from_arrays(pa.array([0, len(runs)], pa.int32()), runs).cast(_RUNS),
                pa.array([[each._asdict() for each in self.files]], _FILES),
            ],
            schema=_SCHEMA,
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_batch(row)
        rest: bytes = VERSION.to_bytes(4, "big") + sink.getvalue().to_pybytes()
        return MAGIC + zlib.crc32(rest).to_bytes(4, "big") + rest

    @classmethod
    def decode(cls, data: bytes, place: str) -> Self:
        """Read the bytes of an object at ``place``.

        Raises
        ------
        CorruptError
            If they are not those of a manifest, or damaged.
        UnsupportedStoreError
            If a newer version wrote them.
        """
        if len(data) < _HEADER_BYTES or data[: len(MAGIC)] != MAGIC:
            raise CorruptError("this is not the manifest of an archive", path=place, offset=0, fix=_FIX)
        if zlib.crc32(data[12:]) != int.from_bytes(data[8:12], "big"):
            raise CorruptError("the manifest contradicts its CRC", path=place, offset=8, fix=_FIX)
        version = int.from_bytes(data[12:16], "big")
        if version != VERSION:
            raise UnsupportedStoreError(
                f"the manifest has version {version}, and this release reads {VERSION}",
                path=place,
                fix="Install the release of segmentlog that wrote it, or a later one",
            )
        try:
            return cls._decoded(data)
        except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            problem = f"the manifest cannot be read: {error}"
            raise CorruptError(problem, path=place, offset=_HEADER_BYTES, fix=_FIX) from None

    @classmethod
    def _decoded(cls, data: bytes) -> Self:
        batch = pa.ipc.open_stream(pa.py_buffer(data)[_HEADER_BYTES:]).read_next_batch()
        if not batch.schema.equals(_SCHEMA) or batch.num_rows != 1:
            raise ValueError("it has other columns")
        batch.validate(full=True)  # offsets of lists and texts are within their buffers
        listed = {name: batch.column(name).flatten() for name in ("pieces", "queues", "runs", "files")}
        if any(each.null_count for structs in listed.values() for each in (structs, *structs.flatten())):
            raise ValueError("it has values that are null")
        columns = {name: _columns(listed[name]) for name in ("pieces", "runs")}
        runs = np.empty(len(listed["runs"]), RUN)
        for name, column in columns["runs"].items():
            runs[name] = column
        made = cls(
            dict(batch.column("store")[0].as_py()),
            tuple(Piece(*each) for each in _rows(listed["pieces"])),
            tuple(ArchivedQueue(*each) for each in _rows(listed["queues"])),
            runs,
            tuple(ArchivedFile(*each) for each in _rows(listed["files"])),
        )
        made._check_values(listed, columns["pieces"], columns["runs"])
        return made

    def _check_values(self, listed: Mapping[str, pa.StructArray], pieces: _Columns, runs: _Columns) -> None:
        """Compare all names and numbers with each other; `ValueError` for the first one that cannot be."""
        _require(_are_digests(listed["pieces"], "digest", "pack_digest") & _pieces_fit(pieces), "piece", self.pieces)
        _require(_runs_fit(runs, pieces, len(self.queues)), "run", self.runs)
        if not _packs_are_full(runs, pieces["pack_size"] // ENTRY.itemsize):
            raise ValueError("the runs of a piece have other rows than its pack")
        if len(set(self.queues)) < len(self.queues):
            raise ValueError("it names a queue twice")
        if len({each.path for each in self.files}) < len(self.files):
            raise ValueError("it names a file twice")
        paths = np.array(
            [all(map(is_safe_path_component, each.path.split("/"))) and each.size >= 0 for each in self.files], np.bool_
        )
        _require(_are_digests(listed["files"], "digest") & paths, "file", self.files)
        _ = self.sizes, self.damage, self.mode, self.pushed_ms  # each raises `ValueError` or `TypeError`


def _rows(structs: pa.StructArray) -> "zip[Any]":
    return zip(*(column.to_pylist() for column in structs.flatten()), strict=True)


def _columns(structs: pa.StructArray) -> _Columns:
    """Return the columns of numbers by name."""
    named = [(each.name, structs.field(each.name)) for each in structs.type]
    return {name: each.to_numpy(zero_copy_only=False) for name, each in named if not pa.types.is_string(each.type)}


def _require(fits: Mask, what: str, rows: Sequence[object] | Runs) -> None:
    wrong = np.flatnonzero(~fits)
    if wrong.size:
        raise ValueError(f"{what} {wrong[0]} of {fits.size} has an impossible name or number: {rows[wrong[0]]!s:.300}")


def _are_digests(structs: pa.StructArray, *names: str) -> Mask:
    found = np.ones(len(structs), np.bool_)
    for name in names:
        found &= pc.match_substring_regex(structs.field(name), _DIGEST).to_numpy(zero_copy_only=False)
    return found


def _integers(text: str, most: int, count: int) -> list[int]:
    """Read a JSON list of integers from 0 to ``most``; `ValueError` or `TypeError` for another text."""
    found = json.loads(text)
    if len(found) != count or not all(type(each) is int and 0 <= each <= most for each in found):
        raise ValueError(f"{text[:40]!r} is not a list of {count} integers up to {most}")
    return list(found)


def _pieces_fit(piece: _Columns) -> Mask:
    """Pieces that are within their segments, one after the other, with as many records and entries as fit."""
    base, start, stop = piece["segment"], piece["start"], piece["stop"]
    fits: Mask = (base >= 0) & (base <= _OFFSET_MAX) & (piece["segment_size"] > 0) & (piece["segment_size"] <= _INT_MAX)
    fits &= (base <= start) & (start < stop) & (stop - base <= piece["segment_size"])
    fits &= (piece["records"] >= 0) & (piece["records"] <= (stop - start) // MIN_RECORD_BYTES)
    # A record is in several light queues, whose names are longer than a byte each.
    fits &= (piece["pack_size"] >= 0) & (piece["pack_size"] % ENTRY.itemsize == 0)
    fits &= piece["pack_size"] // ENTRY.itemsize <= stop - start
    follows = (base[1:] == base[:-1]) | (base[1:] - base[:-1] >= piece["segment_size"][:-1])
    fits[1:] &= follows & (start[1:] >= stop[:-1])
    return fits


def _runs_fit(run: _Columns, piece: _Columns, queues: int) -> Mask:
    """Runs of known queues that are within their packs and pieces, ascending."""
    number, rows = run["piece"], run["rows"]
    fits: Mask = (number >= 0) & (number < piece["start"].size) & (run["queue"] >= 0) & (run["queue"] < queues)
    if not fits.all() or not fits.size:
        return fits
    packed = (piece["pack_size"] // ENTRY.itemsize)[number]
    fits &= (rows > 0) & (rows <= packed) & (run["row"] >= 0) & (run["row"] <= packed - rows)
    fits &= (run["first_offset"] >= piece["start"][number]) & (run["last_offset"] < piece["stop"][number])
    fits &= (run["first_offset"] <= run["last_offset"]) & (run["bytes"] >= 0) & (run["bytes"] <= rows * _INT_MAX)
    fits &= ((run["first"] >= 0) & (rows - 1 <= run["last"] - run["first"])) | ~run["rises"]
    order = number * np.int64(queues) + run["queue"]
    fits[1:] &= order[1:] > order[:-1]
    return fits


def _packs_are_full(runs: _Columns, packed: Ints) -> bool:
    """Return whether the runs of each piece have all rows of its pack."""
    edges = np.flatnonzero(np.diff(runs["piece"], prepend=-1))
    found = np.zeros(packed.size, np.int64)
    if edges.size:
        found[runs["piece"][edges]] = np.add.reduceat(runs["rows"], edges)
    return np.array_equal(found, packed)


def manifest_key(number: int) -> str:
    """Key of the manifest with a number, counted from 1."""
    return f"{MANIFESTS}{number:010d}.arrow"
