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
"""

import zlib
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import CorruptError, UnsupportedStoreError
from .naming import segment_name
from .store_paths import MANIFESTS

MAGIC: Final = b"SLARCHIV"
VERSION: Final = 1
_HEADER_BYTES: Final = 16

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
            raise CorruptError("this is not the manifest of an archive", path=place, offset=0)
        if zlib.crc32(data[12:]) != int.from_bytes(data[8:12], "big"):
            raise CorruptError("the manifest contradicts its CRC", path=place, offset=8)
        version = int.from_bytes(data[12:16], "big")
        if version != VERSION:
            raise UnsupportedStoreError(
                f"the manifest has version {version}, and this release reads {VERSION}",
                path=place,
                fix="Install the release of segmentlog that wrote it, or a later one",
            )
        try:
            batch = pa.ipc.open_stream(pa.py_buffer(data)[_HEADER_BYTES:]).read_next_batch()
            listed = {name: batch.column(name).flatten() for name in ("pieces", "queues", "runs", "files")}
            runs = np.empty(len(listed["runs"]), RUN)
            for name in RUN.names or ():
                runs[name] = listed["runs"].field(name).to_numpy(zero_copy_only=False)
            return cls(
                dict(batch.column("store")[0].as_py()),
                tuple(Piece(*each) for each in _rows(listed["pieces"])),
                tuple(ArchivedQueue(*each) for each in _rows(listed["queues"])),
                runs,
                tuple(ArchivedFile(*each) for each in _rows(listed["files"])),
            )
        except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
            raise CorruptError(f"the manifest cannot be read: {error}", path=place, offset=_HEADER_BYTES) from error


def _rows(structs: pa.StructArray) -> "zip[Any]":
    return zip(*(column.to_pylist() for column in structs.flatten()), strict=True)


def manifest_key(number: int) -> str:
    """Key of the manifest with a number, counted from 1."""
    return f"{MANIFESTS}{number:010d}.arrow"
