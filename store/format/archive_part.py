"""Part of an archive's metadata: what some neighbouring pieces of the log hold. It is sealed: it never changes.

::

    parts/START-STOP.DIGEST.part

    object    magic (8)  CRC-32 of the rest of the head (4)  version (4)  Arrow IPC stream, zstd: one row with
                pieces     of the log, ascending and without overlap, and the objects that have their bytes
                queues     topic, queue id, and statistics of all their runs in this part
                blocks     where the runs are
              block, block, …          `STORED` columns of up to `BLOCK_RUNS` runs, one after the other, zstd

    log       [ segment 0                 ][ segment 1          …      space of the segment's file
    pieces    [ piece 0                   ][ piece 1 ][ piece 2 ]      a segment that is being written comes in pieces
    objects   [ object                    ][ o ][ o  ][ object  ]      pieces of a full segment become one
    packs     [ pack 0                    ][ pack 1  ][ pack 2  ]      one object per piece: an `ENTRY` per record

    pack      │ header │ A/0 rows │ B/0 rows │ B/1 rows │              by queue, each in the order of the log
    runs      │ A/0 in piece 0 │ A/0 in piece 1 │ B/0 in piece 0 │ …   by queue, then by piece: one range has a topic

The head answers for whole queues; blocks are read for the queues that are asked for. RocketMQ has no archive.

Whoever may write to the bucket may write a part: names and numbers are compared with each other when it is decoded.
"""

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import CorruptError
from .dledger import HEADER_BYTES as ENTRY_HEADER_BYTES
from .message import BURNT_OFFSETS_MAX, MIN_RECORD_BYTES, Ints, Mask
from .naming import segment_name

MAGIC: Final = b"SLARPART"
VERSION: Final = 2
HEADER_BYTES: Final = 16
BLOCK_RUNS: Final = 4096
NO_TIME: Final = -(1 << 63)
"""Store time of a run that format 1 has not."""
_INT_MAX: Final = (1 << 31) - 1  # of sizes of files and places in a segment: Java's int
_OFFSET_MAX: Final = 1 << 62
_DIGEST: Final = "^[0-9a-f]{64}$"
_FIX: Final = "Run `segmentlog archive verify`, and push the store into an empty place"

ENTRY: Final = np.dtype(
    [("queue_offset", "<i8"), ("position", "<i4"), ("size", "<i4"), ("tags_code", "<i8"), ("store_time", "<i8")]
)
"""A row of a pack; ``position`` is within the segment. A run is contiguous, so that one range of the object has it."""
PACK_HEADER: Final = np.dtype(
    [("magic", "S8"), ("version", "<u4"), ("row_bytes", "<u4"), ("rows", "<u8"), ("segment", "<u8")]
)
"""The first 32 bytes of a pack. Packs of format 1 begin with their first row."""
PACK_MAGIC: Final = b"SLARPACK"
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
        ("first_time", np.int64),
        ("last_time", np.int64),
        ("rises", np.bool_),
    ]
)
"""Records of one queue in one piece: rows of the pack, queue offsets, physical offsets, stored bytes, times in ms.

``rises`` is false where the queue offsets of the rows do not rise."""
STORED: Final = np.dtype(
    [
        ("piece", "<i4"),
        ("queue", "<i4"),
        ("row", "<i4"),
        ("rows", "<i4"),
        ("first", "<i8"),
        ("gaps", "<i8"),
        ("first_position", "<i4"),
        ("last_position", "<i4"),
        ("bytes", "<i8"),
        ("first_time", "<i8"),
        ("last_time", "<i8"),
        ("rises", "u1"),
    ]
)
"""A run in a block: positions are within the segment, times after the first time of the piece.

``gaps`` is the number of queue offsets from ``first`` to the last one that no row has.
"""
TOTAL: Final = np.dtype(
    [
        ("runs", np.int64),
        ("rows", np.int64),
        ("bytes", np.int64),
        ("first", np.int64),
        ("last", np.int64),
        ("first_offset", np.int64),
        ("last_offset", np.int64),
        ("first_time", np.int64),
        ("last_time", np.int64),
        ("rises", np.bool_),
    ]
)
"""Statistics of all runs of one queue: sums, and the first and the last of offsets and times in the order of the log.

``rises`` is true if the queue offsets of all its rows rise, so that no record is left out.
"""
SEALED_RUNS: Final = 1 << 20
"""Runs of a part from which on it is never merged with others."""
_BLOCK: Final = np.dtype([("size", np.int64), ("crc", np.uint32), ("runs", np.int64)])
Runs = npt.NDArray[np.void]
Columns = Mapping[str, npt.NDArray[Any]]


def _struct(fields: Iterable[tuple[str, pa.DataType]]) -> pa.StructType:
    return pa.struct([pa.field(name, type_, nullable=False) for name, type_ in fields])


def _of_dtype(dtype: "np.dtype[Any]") -> list[tuple[str, pa.DataType]]:
    return [(name, pa.from_numpy_dtype(dtype[name])) for name in dtype.names or ()]


_OBJECT: Final = _struct([("stop", pa.int64()), ("digest", pa.string())])
PIECE: Final = _struct(
    [
        ("segment", pa.int64()),
        ("segment_size", pa.int64()),
        ("start", pa.int64()),
        ("records", pa.int64()),
        ("first_time", pa.int64()),
        ("last_time", pa.int64()),
        ("pack_start", pa.int64()),
        ("pack_size", pa.int64()),
        ("pack_digest", pa.string()),
        ("objects", pa.list_(pa.field("item", _OBJECT, nullable=False))),
    ]
)
_LED_PIECE: Final = pa.struct([*PIECE, pa.field("lead", pa.int64(), nullable=False)])
"""As `PIECE`, where a piece is of a DLedger log: then manifests ask for `archive_manifest.DLEDGER`."""
_QUEUE: Final = _struct([("topic", pa.string()), ("queue_id", pa.int32()), *_of_dtype(TOTAL)])
_LED: Final = {pa.list_(PIECE): pa.list_(_LED_PIECE)}
_SCHEMA: Final = pa.schema(
    [
        pa.field("pieces", pa.list_(PIECE), nullable=False),
        pa.field("queues", pa.list_(_QUEUE), nullable=False),
        pa.field("blocks", pa.list_(_struct(_of_dtype(_BLOCK))), nullable=False),
    ]
)


class LogObject(NamedTuple):
    """An object with bytes of the log, from the end of the one before it in its piece."""

    stop: int
    digest: str  # SHA-256 of the bytes, hexadecimal


class LogRange(NamedTuple):
    """Bytes ``[start, stop)`` of the log, physical offsets, that one object has."""

    key: str
    start: int
    stop: int
    digest: str

    @classmethod
    def of(cls, segment: int, start: int, found: LogObject) -> "LogRange":
        """Return the range of an object. Its name states the content: to write it twice changes nothing."""
        name = f"{start:020d}-{found.stop:020d}.{found.digest[:16]}"
        return cls(f"log/{segment_name(segment)}/{name}", start, found.stop, found.digest)


class Piece(NamedTuple):
    """A span of the log that is all in one segment; records begin and end within it. One pack has their entries."""

    segment: int  # base offset
    segment_size: int
    start: int
    records: int
    first_time: int  # store times in ms of its first and last record; 0 without records
    last_time: int
    pack_start: int  # bytes of the pack before its first row
    pack_size: int
    pack_digest: str
    objects: tuple[LogObject, ...]
    lead: int = 0  # bytes before each record: the header of its entry in a DLedger log

    @property
    def stop(self) -> int:
        """One past its last byte."""
        return self.objects[-1].stop

    @property
    def ranges(self) -> tuple[LogRange, ...]:
        """The objects with its bytes."""
        starts = (self.start, *(each.stop for each in self.objects))
        return tuple(map(LogRange.of, (self.segment,) * len(self.objects), starts, self.objects))

    @property
    def pack_key(self) -> str:
        """Key of the object with the queue entries."""
        return f"queues/{segment_name(self.segment)}/{self.start:020d}-{self.stop:020d}.{self.pack_digest[:16]}.entries"

    @property
    def is_last(self) -> bool:
        """True if the piece ends with its segment."""
        return self.stop == self.segment + self.segment_size


def gaps(pieces: Sequence[Piece], start: int) -> list[tuple[int, int]]:
    """Return the ranges of the log from ``start`` on that pieces lack, before each of them."""
    ends = [start, *(piece.stop for piece in pieces)]
    return [(end, piece.start) for end, piece in zip(ends, pieces, strict=False) if end < piece.start]


class ArchivedQueue(NamedTuple):
    """A queue of which the archive has records."""

    topic: str
    queue_id: int


@dataclass(frozen=True)  # without slots, for the columns that it keeps
class Part:
    """Content of a part; ``runs`` is ascending by queue, then piece, and None while it is in ``blocks`` alone."""

    pieces: tuple[Piece, ...]
    queues: tuple[ArchivedQueue, ...]
    totals: Runs
    runs: Runs | None = None
    blocks: Runs | None = None
    head_bytes: int = 0

    @classmethod
    def of(cls, pieces: Sequence[Piece], queues: Sequence[tuple[str, int]], runs: Runs) -> "Part":
        """Make a part of runs in any order; queues without runs are left out."""
        used, queue = np.unique(runs["queue"], return_inverse=True)
        names = [ArchivedQueue(*queues[at]) for at in used.tolist()]
        order = sorted(range(len(names)), key=names.__getitem__)
        ranks = np.empty(len(order), np.int32)
        ranks[order] = np.arange(len(order))
        made = runs.copy()
        made["queue"] = ranks[queue.reshape(-1)] if order else 0
        made = made[np.lexsort((made["piece"], made["queue"]))]
        return cls(tuple(pieces), tuple(names[at] for at in order), totals_of(made, len(order)), made)

    @cached_property
    def piece_columns(self) -> "PieceColumns":
        """Numbers of its pieces."""
        return PieceColumns.of(self.pieces)

    @cached_property
    def edges(self) -> Ints:
        """The first run of each queue, and one past the last."""
        return np.append(0, np.cumsum(self.totals["runs"]))

    @property
    def run_count(self) -> int:
        """Number of its runs."""
        return int(self.totals["runs"].sum())

    @property
    def size(self) -> int:
        """Bytes of the object that it was read from."""
        return self.head_bytes + (0 if self.blocks is None else int(self.blocks["size"].sum()))

    def encode(self) -> tuple[bytes, int]:
        """Return the bytes of the object, and how many of them are its head."""
        assert self.runs is not None
        starts = range(0, self.runs.size, BLOCK_RUNS)
        data = [_encoded(self.runs[at : at + BLOCK_RUNS], self.piece_columns) for at in starts]
        blocks = np.zeros(len(data), _BLOCK)
        blocks["size"] = [len(each) for each in data]
        blocks["crc"] = [zlib.crc32(each) for each in data]
        blocks["runs"] = [min(BLOCK_RUNS, self.runs.size - at) for at in starts]
        topics = pa.array([each.topic for each in self.queues], pa.string())
        ids = pa.array([each.queue_id for each in self.queues], pa.int32())
        queues = pa.StructArray.from_arrays([topics, ids, *_arrays(self.totals)], fields=list(_QUEUE))
        columns = [
            list_of_pieces(self.pieces),
            _one_list(queues),
            _one_list(
                pa.StructArray.from_arrays(_arrays(blocks), fields=list(_SCHEMA.field("blocks").type.value_type))
            ),
        ]
        schema = _SCHEMA.set(0, _SCHEMA.field(0).with_type(columns[0].type))
        row = pa.record_batch([each.cast(field.type) for each, field in zip(columns, schema, strict=True)], schema)
        head = sealed(MAGIC, VERSION, row)
        return b"".join([head, *data]), len(head)

    @classmethod
    def decode(cls, head: bytes, place: str) -> "Part":
        """Read the head of an object at ``place``; `CorruptError` if it is not one, or damaged."""
        check_seal(MAGIC, head, "part", place, _FIX)
        try:
            row = only_row(head, HEADER_BYTES, _SCHEMA)
            pieces = pieces_of(row["pieces"])
            queues, blocks = row["queues"], _structured(row["blocks"], _BLOCK)
            names = zip(queues.field("topic").to_pylist(), queues.field("queue_id").to_pylist(), strict=True)
            made = cls(
                pieces,
                tuple(ArchivedQueue(*name) for name in names),
                _structured(queues, TOTAL),
                blocks=blocks,
                head_bytes=len(head),
            )
            made._check()
        except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError) as error:
            raise CorruptError(f"the part cannot be read: {error}", path=place, offset=HEADER_BYTES, fix=_FIX) from None
        return made

    def _check(self) -> None:
        """Compare names and numbers with each other; `ValueError` for the first impossible one."""
        total, blocks = self.totals, self.blocks
        assert blocks is not None
        if len(set(self.queues)) < len(self.queues):
            raise ValueError("it names a queue twice")
        most = max((len(self.pieces), 1))
        start, stop = (self.pieces[0].start, self.pieces[-1].stop) if self.pieces else (0, 0)
        fits: Mask = (total["runs"] > 0) & (total["runs"] <= most) & (total["rows"] >= total["runs"])
        fits &= (total["rows"] <= stop - start) & (total["bytes"] >= 0)
        fits &= (total["first_offset"] >= start) & (total["last_offset"] < stop)
        fits &= (total["first_offset"] <= total["last_offset"]) & (total["last"] < _OFFSET_MAX)
        fits &= ~total["rises"] | ((total["first"] >= 0) & (total["rows"] - 1 <= total["last"] - total["first"]))
        require(fits, "queue", total)
        fits = (blocks["runs"] > 0) & (blocks["runs"] <= BLOCK_RUNS) & (blocks["size"] > 0)
        fits &= blocks["size"] <= 2 * BLOCK_RUNS * STORED.itemsize
        require(fits, "block", blocks)
        if int(blocks["runs"].sum()) != int(total["runs"].sum()):
            raise ValueError("its blocks have other runs than its queues")

    # Runs

    def blocks_of(self, queues: Ints) -> Ints:
        """Return the blocks with the runs of some queues, ascending."""
        assert self.blocks is not None
        ends, edges = np.cumsum(self.blocks["runs"]), self.edges
        wanted = np.zeros(ends.size + 1, np.int64)
        np.add.at(wanted, np.searchsorted(ends, edges[queues], side="right"), 1)
        np.add.at(wanted, np.searchsorted(ends, edges[queues + 1] - 1, side="right") + 1, -1)
        return np.flatnonzero(np.cumsum(wanted)[:-1])

    def spans_of(self, blocks: Ints) -> list[tuple[int, int]]:
        """Return the bytes of some blocks in the object."""
        assert self.blocks is not None
        ends = self.head_bytes + np.cumsum(self.blocks["size"])
        return list(zip((ends - self.blocks["size"])[blocks].tolist(), ends[blocks].tolist(), strict=True))

    def runs_of_block(self, number: int, data: "bytes | memoryview", place: str) -> Runs:
        """Read the bytes of a block; `CorruptError` if it is damaged, or contradicts the head."""
        assert self.blocks is not None
        block = self.blocks[number]
        at = self.spans_of(np.array([number]))[0][0]
        if len(data) != block["size"] or zlib.crc32(data) != block["crc"]:
            raise CorruptError("a block of the part contradicts its CRC", path=place, offset=at, fix=_FIX)
        try:
            runs = _decoded(data, int(block["runs"]), self.piece_columns)
            first = int(self.blocks["runs"][:number].sum())
            queue = np.searchsorted(self.edges, np.arange(first, first + runs.size), side="right") - 1
            require(runs_fit(runs, self.piece_columns) & (runs["queue"] == queue), "run", runs)
        except (pa.ArrowException, OSError, ValueError) as error:
            problem = f"a block of the part cannot be read: {error}"
            raise CorruptError(problem, path=place, offset=at, fix=_FIX) from None
        return runs

    def with_runs(self, data: "bytes | memoryview", place: str) -> "Part":
        """Return the part with all its runs, from the bytes of the whole object."""
        if self.runs is not None:
            return self
        assert self.blocks is not None
        spans = self.spans_of(np.arange(self.blocks.size))
        if len(data) != self.size:
            raise CorruptError("the part has other bytes than its blocks", path=place, offset=0, fix=_FIX)
        found = [self.runs_of_block(at, data[start:stop], place) for at, (start, stop) in enumerate(spans)]
        made = replace(self, runs=np.concatenate([np.empty(0, RUN), *found]))
        made.check_runs(place)
        return made

    def check_runs(self, place: str) -> None:
        """Raise `CorruptError` unless the statistics are those of the runs, and the packs are full of them."""
        assert self.runs is not None
        rows = np.zeros(len(self.pieces), np.int64)
        np.add.at(rows, self.runs["piece"], self.runs["rows"])
        if not np.array_equal(rows, self.piece_columns.rows):
            raise CorruptError("the runs of a piece have other rows than its pack", path=place, offset=0, fix=_FIX)
        if not np.array_equal(totals_of(self.runs, len(self.queues)), self.totals):
            raise CorruptError("the statistics of a queue are not those of its runs", path=place, offset=0, fix=_FIX)


def totals_of(runs: Runs, queues: int) -> Runs:
    """Return the statistics of queues; ``runs`` is ascending by queue, then piece, and each queue has some."""
    found = np.zeros(queues, TOTAL)
    if not queues:
        return found
    edges = np.flatnonzero(np.diff(runs["queue"], prepend=-1))
    ends = np.append(edges[1:], runs.size) - 1
    found["runs"] = ends - edges + 1
    for name in ("rows", "bytes"):
        found[name] = np.add.reduceat(runs[name], edges)
    for name in ("first", "first_offset", "first_time"):
        found[name] = runs[name][edges]
    for name in ("last", "last_offset", "last_time"):
        found[name] = runs[name][ends]
    wrong = ~runs["rises"]
    follows = runs["queue"][1:] == runs["queue"][:-1]
    wrong[1:] |= follows & ~continues(runs[:-1], runs[1:])
    found["rises"] = ~np.logical_or.reduceat(wrong, edges)
    return found


def continues(before: Runs, after: Runs) -> Mask:
    """Return whether the queue offsets of some runs, or totals, rise to those of the next ones in the log."""
    step = after["first"] - before["last"]
    room = (after["first_offset"] - before["last_offset"]) // MIN_RECORD_BYTES + BURNT_OFFSETS_MAX
    rising: Mask = (step > 0) & (step <= room)
    return rising


def pack_header(rows: int, segment: int) -> bytes:
    """Return the first bytes of a pack."""
    return np.array([(PACK_MAGIC, VERSION, ENTRY.itemsize, rows, segment)], PACK_HEADER).tobytes()


# Documents


def sealed(magic: bytes, version: int, row: pa.RecordBatch) -> bytes:
    """Return a row as an Arrow IPC stream, compressed, after the header of a manifest or part."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(row)
    rest: bytes = version.to_bytes(4, "big") + sink.getvalue().to_pybytes()
    return magic + zlib.crc32(rest).to_bytes(4, "big") + rest


def check_seal(magic: bytes, data: bytes, name: str, place: str, fix: str) -> int:
    """Compare the CRC of bytes that `sealed` has made, and return their version; `CorruptError` for other bytes."""
    if len(data) < HEADER_BYTES or not data.startswith(magic):
        raise CorruptError(f"this is not a {name} of an archive", path=place, offset=0, fix=fix)
    if zlib.crc32(data[12:]) != int.from_bytes(data[8:12], "big"):
        raise CorruptError(f"the {name} contradicts its CRC", path=place, offset=8, fix=fix)
    return int.from_bytes(data[12:16], "big")


def only_row(data: bytes, at: int, schema: pa.Schema, added: Collection[str] = ()) -> dict[str, Any]:
    """Read the one row of a stream: lists by name as arrays, other values as Python has them.

    Columns that ``schema`` lacks are left out: a later release may have added them. The lists of ``added`` are empty
    in a stream of an earlier one.
    """
    batch = next(iter(pa.ipc.open_stream(pa.py_buffer(data)[at:])), None)
    if batch is None or batch.num_rows != 1:
        raise ValueError("it has other rows")
    batch.validate(full=True)  # offsets of lists and texts are within their buffers
    found: dict[str, Any] = {}
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if at < 0 and field.name in added:
            found[field.name] = pa.array([], field.type.value_type)
            continue
        if at < 0 or batch.schema.field(at).type not in {field.type, _LED.get(field.type)}:
            raise ValueError(f"it has no column {field.name} of its type")
        column = batch.column(at)
        if column.null_count:
            raise ValueError("it has values that are null")
        is_list = pa.types.is_list(field.type)
        found[field.name] = column.flatten() if is_list else column[0].as_py()
        if is_list:
            _check_no_nulls(found[field.name])
    return found


def _check_no_nulls(array: pa.Array) -> None:
    if array.null_count:
        raise ValueError("it has values that are null")
    if pa.types.is_struct(array.type) or pa.types.is_list(array.type):
        for each in array.flatten() if pa.types.is_struct(array.type) else [array.flatten()]:
            _check_no_nulls(each)


def _arrays(table: Runs) -> list[pa.Array]:
    return [pa.array(table[name]) for name in table.dtype.names or ()]


def _one_list(values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


def _structured(structs: pa.StructArray, dtype: "np.dtype[Any]") -> Runs:
    found = np.empty(len(structs), dtype)
    for name in dtype.names or ():
        found[name] = structs.field(name).to_numpy(zero_copy_only=False)
    return found


def list_of_pieces(pieces: Sequence[Piece]) -> pa.ListArray:
    """Return pieces as the value of one row: without leads, unless one of them has a lead."""
    rows = [{**each._asdict(), "objects": [found._asdict() for found in each.objects]} for each in pieces]
    return _one_list(pa.array(rows, _LED_PIECE if any(each.lead for each in pieces) else PIECE))


def pieces_of(structs: pa.StructArray) -> tuple[Piece, ...]:
    """Return pieces that are within their segments, one after the other; `ValueError` for others."""
    lists, columns = structs.field("objects"), columns_of(structs)
    counts = lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    objects = lists.flatten()
    if counts.size and counts.min() < 1:
        raise ValueError("a piece has no object")
    stops, at = objects.field("stop").to_numpy(zero_copy_only=False), np.cumsum(counts)
    starts = np.append(0, stops[:-1])
    starts[at - counts] = columns["start"]
    columns = {**columns, "stop": stops[at - 1]}
    require(are_digests(objects, "digest") & (starts < stops), "object of the log", objects)
    fits = are_digests(structs, "pack_digest") & _pieces_fit(columns)
    made = [LogObject(*each) for each in rows_of(objects)]
    plain = [structs.field(each.name).to_pylist() for each in PIECE if each.name != "objects"]
    leads = columns.get("lead", np.zeros(counts.size, np.int64))
    fits &= (leads == 0) | (leads == ENTRY_HEADER_BYTES)
    groups = [tuple(made[last - count : last]) for last, count in zip(at.tolist(), counts.tolist(), strict=True)]
    pieces = tuple(Piece(*each) for each in zip(*plain, groups, leads.tolist(), strict=True))
    require(fits, "piece", pieces)
    return pieces


def rows_of(structs: pa.StructArray) -> "zip[Any]":
    """Return the rows of structs as tuples."""
    return zip(*(column.to_pylist() for column in structs.flatten()), strict=True)


def columns_of(structs: pa.StructArray) -> Columns:
    """Return the columns of numbers by name."""
    named = [(each.name, structs.field(each.name)) for each in structs.type]
    return {name: each.to_numpy(zero_copy_only=False) for name, each in named if pa.types.is_integer(each.type)}


def require(fits: Mask, what: str, rows: "Sequence[object] | Runs | pa.Array") -> None:
    """Raise `ValueError` for the first row that does not fit."""
    wrong = np.flatnonzero(~fits)
    if wrong.size:
        at = int(wrong[0])
        raise ValueError(f"{what} {at} of {fits.size} has an impossible name or number: {rows[at]!s:.300}")


def are_digests(structs: pa.StructArray, *names: str) -> Mask:
    """Return whether texts are SHA-256 digests, hexadecimal."""
    found = np.ones(len(structs), np.bool_)
    for name in names:
        found &= pc.match_substring_regex(structs.field(name), _DIGEST).to_numpy(zero_copy_only=False)
    return found


def _pieces_fit(piece: Columns) -> Mask:
    """Pieces that are within their segments, one after the other, with as many records and entries as fit."""
    base, start, stop = piece["segment"], piece["start"], piece["stop"]
    fits: Mask = (base >= 0) & (base <= _OFFSET_MAX) & (piece["segment_size"] > 0) & (piece["segment_size"] <= _INT_MAX)
    fits &= (base <= start) & (start < stop) & (stop - base <= piece["segment_size"])
    fits &= (piece["records"] >= 0) & (piece["records"] <= (stop - start) // MIN_RECORD_BYTES)
    fits &= (piece["pack_start"] == 0) | (piece["pack_start"] == PACK_HEADER.itemsize)
    rows = piece["pack_size"] - piece["pack_start"]
    fits &= (piece["pack_size"] == 0) | ((rows > 0) & (rows % ENTRY.itemsize == 0))
    # A record is in several light queues, whose names are longer than a byte each.
    fits &= (piece["pack_size"] >= 0) & (rows // ENTRY.itemsize <= stop - start)
    follows = (base[1:] == base[:-1]) | (base[1:] - base[:-1] >= piece["segment_size"][:-1])
    fits[1:] &= follows & (start[1:] >= stop[:-1])
    return fits


class PieceColumns(NamedTuple):
    """Numbers of n pieces, (n,) int64 each: base offset of the segment, span, first store time, rows of the pack."""

    segment: Ints
    start: Ints
    stop: Ints
    first_time: Ints
    rows: Ints

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> "PieceColumns":
        """Return the numbers of some pieces."""
        rows = [
            (
                *(each.segment, each.start, each.stop if each.objects else each.start, each.first_time),
                (each.pack_size - each.pack_start) // ENTRY.itemsize if each.pack_size else 0,
            )
            for each in pieces
        ]
        return cls(*np.array(rows, np.int64).reshape(-1, len(cls._fields)).T)


def runs_fit(run: Runs, pieces: PieceColumns) -> Mask:
    """Runs that are within their packs and pieces, ascending by queue and piece."""
    number, rows = run["piece"], run["rows"]
    fits: Mask = (number >= 0) & (number < pieces.start.size)
    if not fits.all() or not fits.size:
        return fits
    starts, stops, packed = (column[number] for column in (pieces.start, pieces.stop, pieces.rows))
    fits &= (rows > 0) & (rows <= packed) & (run["row"] >= 0) & (run["row"] <= packed - rows)
    fits &= (run["first_offset"] >= starts) & (run["last_offset"] < stops)
    fits &= (run["first_offset"] <= run["last_offset"]) & (run["bytes"] >= 0) & (run["bytes"] <= rows * _INT_MAX)
    fits &= run["last"] < _OFFSET_MAX
    fits &= ((run["first"] >= 0) & (rows - 1 <= run["last"] - run["first"])) | ~run["rises"]
    order = run["queue"].astype(np.int64) * pieces.start.size + number
    fits[1:] &= order[1:] > order[:-1]
    return fits


# Blocks


def _encoded(runs: Runs, pieces: PieceColumns) -> bytes:
    base, first_time = pieces.segment[runs["piece"]], pieces.first_time[runs["piece"]]
    columns = {
        **{name: runs[name] for name in ("piece", "queue", "row", "rows", "first", "bytes", "rises")},
        "gaps": runs["last"] - runs["first"] - (runs["rows"] - 1),
        "first_position": runs["first_offset"] - base,
        "last_position": runs["last_offset"] - base,
        "first_time": runs["first_time"] - first_time,
        "last_time": runs["last_time"] - first_time,
    }
    raw = b"".join(columns[name].astype(STORED[name]).tobytes() for name in STORED.names or ())
    data: bytes = pa.compress(raw, codec="zstd", asbytes=True)
    return data


def _decoded(data: "bytes | memoryview", count: int, pieces: PieceColumns) -> Runs:
    raw = pa.decompress(bytes(data), decompressed_size=count * STORED.itemsize, codec="zstd", asbytes=True)
    if len(raw) != count * STORED.itemsize:
        raise ValueError("a block has other runs than its part states")
    column, at = {}, 0
    for name in STORED.names or ():
        column[name] = np.frombuffer(raw, STORED[name], count, at)
        at += count * STORED[name].itemsize
    if count and not (column["piece"].min() >= 0 and column["piece"].max() < pieces.start.size):
        raise ValueError("a run is in no piece of its part")
    base, first_time = pieces.segment[column["piece"]], pieces.first_time[column["piece"]]
    runs = np.empty(count, RUN)
    for name in ("piece", "queue", "row", "rows", "first", "bytes", "rises"):
        runs[name] = column[name]
    runs["last"] = runs["first"] + column["gaps"] + (runs["rows"] - 1)
    runs["first_offset"], runs["last_offset"] = base + column["first_position"], base + column["last_position"]
    runs["first_time"], runs["last_time"] = first_time + column["first_time"], first_time + column["last_time"]
    return runs
