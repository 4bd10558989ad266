"""Parquet files of a table, written by Spark's tasks with pyarrow.

::

    frame ── mapInArrow ──► task: batches ─► buffer per partition ─► row group ─► DIRECTORY/day=2026-01-31/NAME.parquet
                                                                                       │
    driver ◄────── path, rows, bytes, partition and statistics of each file ───────────┘

Each file has a new name, so tasks that Spark repeats, or runs twice, leave files that no result names.
"""

import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from segmentlog.query.ledgers import TIME
from segmentlog.store import ConfigError

from ..state_file import sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE_BYTES: Final = 256 << 20
_ROW_GROUP_BYTES: Final = 32 << 20
"""Of rows in memory: about 8 to 30 MB in a file."""
_BUFFERED_BYTES: Final = 96 << 20
"""Of one task, over all of its partitions."""
_OPEN_FILES: Final = 32
_LONGEST_BOUND: Final = 128
NULL_DIRECTORY: Final = "__HIVE_DEFAULT_PARTITION__"
NAME_BYTES: Final = 255
"""Longest name of a directory on Linux file systems, in bytes of UTF-8."""
_DIGEST: Final = 16
_PART_OF_ESCAPE: Final = re.compile("%[0-9A-F]?$")
_RESULT: Final = "path string, messages bigint, bytes bigint, partition string, statistics string"
_FORMATS: Final = {"hour": "%Y-%m-%d-%H", "day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}


class PartitionKey(NamedTuple):
    """Field of a partition: a column, or the period that a time column is in."""

    name: str
    column: str
    unit: str | None = None
    """``hour``, ``day``, ``month`` or ``year`` of UTC, or ``hour of day``; None for the column itself."""
    kind: pa.DataType | None = None
    """Type of the column itself, if its values are not in the files."""

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        found = batch.column(self.column)
        if self.unit is None:
            return found if self.kind is None else found.cast(self.kind)
        found = found.cast(pa.timestamp("us", "UTC"))  # from the time zone of the session
        return pc.hour(found) if self.unit == "hour of day" else pc.floor_temporal(found, unit=self.unit)

    def text(self, value: object) -> str | None:
        """Return a value of `values` as Delta writes it in its log, and as directories have it."""
        if value is None:
            return None
        if isinstance(value, datetime):
            return value.strftime(_FORMATS[self.unit] if self.unit else "%Y-%m-%d %H:%M:%S.%f")
        return str(value).lower() if isinstance(value, bool) else str(value)


class DataFile(NamedTuple):
    """File that a task has written."""

    path: str
    """Relative to the directory of the files."""
    messages: int
    bytes: int
    partition: tuple[str | None, ...]
    """A text per partition key."""
    statistics: str
    """Rows, bounds and nulls in the JSON of Delta's log."""


@dataclass(frozen=True, kw_only=True)
class TableLayout:
    """Form of the files of a table.

    Attributes
    ----------
    schema : pyarrow.Schema
        Columns of the files, with field ids if the table has them. Columns that a frame lacks are null.
    keys : tuple of PartitionKey
        No file has rows of two partitions.
    file_bytes : int
        A file ends with the row group that reaches this size.
    """

    schema: pa.Schema
    keys: tuple[PartitionKey, ...] = ()
    file_bytes: int = FILE_BYTES


def partition_keys(names: Sequence[str], columns: pa.Schema) -> tuple[PartitionKey, ...]:
    """Return the keys for names of columns, or else for the words ``day``, ``hour`` and ``queue``."""
    words = {
        "day": PartitionKey("day", TIME, "day"),
        "hour": PartitionKey("hour", TIME, "hour"),
        "queue": PartitionKey("queueId", "queueId"),
    }
    found = []
    for name in names:
        key = words.get(name) if name not in columns.names else None
        key = key or PartitionKey(name, name)
        if key.column not in columns.names:
            problem = f"partitions by {name} need the column `{key.column}`, which is not written"
            raise ConfigError(problem, fix=f"Add it to the columns, or partition by one of {', '.join(columns.names)}")
        kind = columns.field(key.column).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_floating(kind):
            problem = f"column `{key.column}` cannot partition a table: it is of type {kind}"
            raise ConfigError(problem, fix="Partition by a number, a text or a time")
        found.append(key if key.unit else key._replace(kind=kind))
    return tuple(found)


def check_columns(written: pa.Schema, table: pa.Schema, name: str) -> None:
    """Raise `ConfigError` with all differences if rows of one schema do not fit into a table of another."""
    differences = []
    for field in written:
        if field.name not in table.names:
            differences.append(f"column `{field.name}` ({field.type}) is not in the table")
        elif not _fits(field.type, table.field(field.name).type):
            differences.append(
                f"column `{field.name}` is {table.field(field.name).type} in the table, not {field.type}"
            )
    differences += [
        f"column `{field.name}` is required by the table, and is not written"
        for field in table
        if not field.nullable and field.name not in written.names
    ]
    if differences:
        problem = f"{name} has another schema: {'; '.join(differences)}"
        raise ConfigError(
            problem, fix="Name the columns that fit, add the missing ones to the table, or use another table"
        )


def _fits(written: pa.DataType, table: pa.DataType) -> bool:
    first, second = _plain(written), _plain(table)
    if pa.types.is_signed_integer(first) and pa.types.is_signed_integer(second):
        return bool(first.bit_width <= second.bit_width)
    return bool(first == second or (first, second) == (pa.float32(), pa.float64()))


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return a type without the difference of small, large and view types, and without names of entries."""
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _plain(each.type)) for each in kind])
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def write_files(frame: "DataFrame", layout: TableLayout, directory: str) -> list[DataFile]:
    """Write the rows of a frame into files of a directory, which exists; return those of tasks that succeeded."""
    rows = frame.mapInArrow(partial(_write, layout, directory), _RESULT).toArrow().to_pylist()
    found = [DataFile(**{**row, "partition": tuple(json.loads(row["partition"]))}) for row in rows]
    return sorted(found, key=lambda each: each.path)


def _write(layout: TableLayout, directory: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    writer = _TaskWriter(layout, directory)
    for batch in batches:
        writer.add(batch)
    files = writer.close()
    if files:
        yield pa.RecordBatch.from_pylist([each._asdict() | {"partition": json.dumps(each.partition)} for each in files])


class _OpenFile:
    """File that a task writes row group by row group."""

    def __init__(self, system: fs.FileSystem, root: str, directory: str, layout: TableLayout) -> None:
        self._system, self._root = system, root
        self.path = f"{directory}{uuid.uuid4().hex}.parquet"
        # One level at a time, not recursively: the root is gone once another run has removed the files of this one.
        levels = directory.split("/")[:-1]
        for count in range(1, len(levels) + 1):
            system.create_dir(f"{root}/{'/'.join(levels[:count])}", recursive=False)
        self._stream = system.open_output_stream(f"{root}/{self.path}")
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._stream, layout.schema, compression="zstd", metadata_collector=self._footers
        )

    def add(self, rows: pa.Table) -> int:
        """Append a row group, and return the bytes of the file."""
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        return int(self._stream.tell())

    def close(self, partition: tuple[str | None, ...]) -> DataFile:
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        if isinstance(self._system, fs.LocalFileSystem):
            # Durable before a table names it, and so is its name.
            sync(f"{self._root}/{self.path}")
            sync(os.path.dirname(f"{self._root}/{self.path}"))
        (footer,) = self._footers
        return DataFile(self.path, footer.num_rows, size, partition, json.dumps(statistics(footer)))


class _TaskWriter:
    """Rows of one task, buffered by partition in bounded memory."""

    def __init__(self, layout: TableLayout, directory: str) -> None:
        self._layout = layout
        self._system, self._root = fs.FileSystem.from_uri(directory)
        self._rows: dict[tuple[str | None, ...], list[pa.Table]] = {}
        self._sizes: dict[tuple[str | None, ...], int] = {}
        self._open: dict[tuple[str | None, ...], _OpenFile] = {}
        self._files: list[DataFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        for partition, rows in _split(batch, self._layout.keys):
            self._rows.setdefault(partition, []).append(self._shaped(rows))
            self._sizes[partition] = self._sizes.get(partition, 0) + rows.nbytes
            if self._sizes[partition] >= _ROW_GROUP_BYTES:
                self._flush(partition)
        while sum(self._sizes.values()) > _BUFFERED_BYTES:
            self._flush(max(self._sizes, key=self._sizes.__getitem__))

    def close(self) -> list[DataFile]:
        for partition in list(self._rows):
            self._flush(partition)
        for partition in list(self._open):
            self._end(partition)
        return self._files

    def _shaped(self, rows: pa.RecordBatch) -> pa.Table:
        columns = [
            rows.column(field.name).cast(field.type)
            if field.name in rows.schema.names
            else pa.nulls(rows.num_rows, field.type)
            for field in self._layout.schema
        ]
        return pa.Table.from_arrays(columns, schema=self._layout.schema)

    def _flush(self, partition: tuple[str | None, ...]) -> None:
        rows = pa.concat_tables(self._rows.pop(partition))
        del self._sizes[partition]
        file = self._open.pop(partition, None)
        if file is None:
            if len(self._open) == _OPEN_FILES:
                self._end(next(iter(self._open)))
            names = [_directory(key.name, text) for key, text in zip(self._layout.keys, partition, strict=True)]
            file = _OpenFile(self._system, self._root, "".join(f"{each}/" for each in names), self._layout)
        self._open[partition] = file  # the last one: the file that was used longest ago is the first
        if file.add(rows) >= self._layout.file_bytes:
            self._end(partition)

    def _end(self, partition: tuple[str | None, ...]) -> None:
        self._files.append(self._open.pop(partition).close(partition))


def _directory(name: str, text: str | None) -> str:
    """Return the name of a partition's directory. A long one ends in a hash: tables take no values from names."""
    found = f"{name}={NULL_DIRECTORY if text is None else quote(text, safe='')}"
    if len(found.encode()) <= NAME_BYTES:
        return found
    digest = hashlib.sha256(found.encode()).hexdigest()[:_DIGEST]
    cut = found.encode()[: NAME_BYTES - _DIGEST - 1].decode("utf-8", "ignore")
    return f"{_PART_OF_ESCAPE.sub('', cut)}-{digest}"


def _split(
    batch: pa.RecordBatch, keys: Sequence[PartitionKey]
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """Yield the rows of each partition in a batch, in their order."""
    if not batch.num_rows:
        return
    values = [key.values(batch) for key in keys]

    def partition(row: int) -> tuple[str | None, ...]:
        return tuple(key.text(each[row].as_py()) for key, each in zip(keys, values, strict=True))

    codes = [pc.fill_null(each.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False) for each in values]
    if all((each == each[0]).all() for each in codes):
        yield partition(0), batch
        return
    order = np.lexsort(codes)  # stable
    changes = np.any([np.diff(each[order]) != 0 for each in codes], axis=0)
    for rows in np.split(order, np.flatnonzero(changes) + 1):
        yield partition(int(rows[0])), batch.take(pa.array(rows))


def statistics(footer: pq.FileMetaData) -> Mapping[str, object]:
    """Return rows, bounds and nulls of the columns of a file, as Delta's log has them; nested columns have none."""
    found: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for number in range(footer.num_columns):
        if "." in (name := footer.schema.column(number).path):
            continue
        groups = [footer.row_group(group).column(number).statistics for group in range(footer.num_row_groups)]
        if any(each is None or not each.has_null_count for each in groups):
            continue
        found["nullCount"][name] = sum(each.null_count for each in groups)
        bounded = [each for each in groups if each.has_min_max]
        if not bounded or any(not each.has_min_max and each.num_values for each in groups):
            continue
        low, high = min(each.min for each in bounded), max(each.max for each in bounded)
        if (bounds := (_bound(low, up=False), _bound(high, up=True))) and None not in bounds:
            found["minValues"][name], found["maxValues"][name] = bounds
    return {"numRecords": footer.num_rows, **found}


def _bound(value: object, *, up: bool) -> object:
    """Return a bound for JSON, or None if it has no exact or wider form there."""
    if isinstance(value, datetime):
        micros = value.microsecond
        whole = value.replace(microsecond=micros // 1000 * 1000)
        if up and micros % 1000:
            # A bound in milliseconds must not be below the value.
            whole = datetime.fromtimestamp((whole.timestamp() * 1000 + 1) / 1000, UTC)
        return whole.strftime("%Y-%m-%dT%H:%M:%S.") + f"{whole.microsecond // 1000:03d}" + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_BOUND else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
