"""Manifests of format 1, which earlier releases wrote: all pieces and runs of an archive are in each of them.

::

    magic (8)  CRC-32 of the rest (4)  version 1 (4)  Arrow IPC stream, zstd: one row with
                store      id, path and last push of the store
                pieces     one object each; packs begin with their first row
                queues     topic, queue id
                runs       by piece, then by queue; without store times
                files      other files of the store
"""

from typing import Final

import numpy as np
import pyarrow as pa

from .archive_part import (
    HEADER_BYTES,
    NO_TIME,
    PIECE,
    RUN,
    ArchivedQueue,
    LogObject,
    Part,
    Piece,
    Runs,
    only_row,
    pieces_of,
    require,
    rows_of,
    runs_fit,
)

_NUMBERS: Final = ("segment", "segment_size", "start", "stop", "records", "first_time", "last_time")
_RUN_NAMES: Final = tuple(name for name in RUN.names or () if not name.endswith("_time"))


def _list_of(*fields: tuple[str, pa.DataType]) -> pa.DataType:
    return pa.list_(pa.struct([pa.field(name, type_, nullable=False) for name, type_ in fields]))


_SCHEMA: Final = pa.schema(
    [
        pa.field("store", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field(
            "pieces",
            _list_of(
                *((name, pa.int64()) for name in _NUMBERS),
                ("digest", pa.string()),
                ("pack_size", pa.int64()),
                ("pack_digest", pa.string()),
            ),
            nullable=False,
        ),
        pa.field("queues", _list_of(("topic", pa.string()), ("queue_id", pa.int32())), nullable=False),
        pa.field("runs", _list_of(*((name, pa.from_numpy_dtype(RUN[name])) for name in _RUN_NAMES)), nullable=False),
        pa.field(
            "files", _list_of(("path", pa.string()), ("size", pa.int64()), ("digest", pa.string())), nullable=False
        ),
    ]
)


def decoded(data: bytes) -> tuple[dict[str, str], Part, pa.StructArray]:
    """Read a manifest: facts about the store, its only part, and the other files; `ValueError` if it cannot be."""
    row = only_row(data, HEADER_BYTES, _SCHEMA)
    pieces, queues = _pieces(row["pieces"]), [ArchivedQueue(*each) for each in rows_of(row["queues"])]
    if len(set(queues)) < len(queues):
        raise ValueError("it names a queue twice")
    part = Part.of(pieces, queues, _runs(row["runs"], len(pieces), len(queues)))
    assert part.runs is not None
    require(runs_fit(part.runs, part.piece_columns), "run", part.runs)
    part.check_runs("")
    return dict(row["store"]), part, row["files"]


def _pieces(structs: pa.StructArray) -> tuple[Piece, ...]:
    columns = {each.name: structs.field(each.name).to_pylist() for each in structs.type}
    objects = zip(columns.pop("stop"), columns.pop("digest"), strict=True)
    columns["objects"] = [[LogObject(*each)._asdict()] for each in objects]
    columns["pack_start"] = [0] * len(structs)
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return pieces_of(pa.array(rows, PIECE))


def _runs(structs: pa.StructArray, pieces: int, queues: int) -> Runs:
    runs = np.empty(len(structs), RUN)
    runs["first_time"] = runs["last_time"] = NO_TIME
    for name in _RUN_NAMES:
        runs[name] = structs.field(name).to_numpy(zero_copy_only=False)
    piece, queue = runs["piece"].astype(np.int64), runs["queue"].astype(np.int64)
    fits = (piece >= 0) & (piece < pieces) & (queue >= 0) & (queue < queues)
    fits[1:] &= np.diff(piece * queues + queue) > 0
    require(fits, "run", runs)
    return runs
