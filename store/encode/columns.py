"""Columns of a batch that is appended: their names, their types, and what converts into them.

::

    RecordBatch   topic  dictionary<string>  ──► string            body   large_binary    ──► binary
                  queueId  int16             ──► int64             bornTimestamp  timestamp[us] ──► int64, ms
                  bornHost  string           ──► 4 or 16 bytes of address, 4 of port
                  anything else              ──► ConfigError, which names the column and the type that it can have

Values are converted column by column. RocketMQ has no counterpart: it is given one ``MessageExtBrokerInner`` at a time.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ConfigError
from ..format.buffers import only_chunk
from ..format.message import Ints
from .message import packed_host

COLUMN_TYPES: Final[dict[str, tuple[pa.DataType, ...]]] = {
    "topic": (pa.string(),),
    "body": (pa.binary(),),
    "queueId": (pa.int32(), pa.int64()),
    "tags": (pa.string(),),
    "keys": (pa.string(),),
    "uniqKey": (pa.string(),),
    "properties": (pa.map_(pa.string(), pa.string()),),
    "flag": (pa.int32(), pa.int64()),
    "sysFlag": (pa.int32(), pa.int64()),
    "bornTimestamp": (pa.int64(),),
    "bornHost": (pa.string(),),
    "reconsumeTimes": (pa.int32(), pa.int64()),
    "preparedTransactionOffset": (pa.int64(),),
}
"""Columns of a batch, and the types that each may have as it is; others are cast to the first of them."""


class BatchColumns:
    """Columns of one batch by name. Each is returned as one array of a type of `COLUMN_TYPES`.

    Parameters
    ----------
    batch
        The rows; they are not copied.

    Attributes
    ----------
    names
        Columns that the batch has.
    rows
        Number of rows.

    Raises
    ------
    ConfigError
        If ``topic`` or ``body`` is missing, or a column is unknown.
    """

    def __init__(self, batch: pa.RecordBatch | pa.Table) -> None:
        self.names = set(batch.schema.names)
        self.rows = len(batch)
        self._batch = batch
        unknown = sorted(self.names - COLUMN_TYPES.keys())
        missing = sorted({"topic", "body"} - self.names)
        if unknown or missing:
            what = f"has no column {missing[0]!r}" if missing else f"has a column {unknown[0]!r} that no message has"
            raise ConfigError(f"the batch {what}", fix=f"The columns can be {', '.join(COLUMN_TYPES)}")

    def get(self, name: str) -> Any:
        """Return a column that the batch has, as one array.

        Raises
        ------
        ConfigError
            If it is of a type, or has a value, that does not convert.
        """
        values = self._batch.column(name)
        if isinstance(values, pa.ChunkedArray):
            values = only_chunk(values)
        kind, wanted = values.type, COLUMN_TYPES[name][0]
        if kind in COLUMN_TYPES[name]:
            return values
        is_time = name == "bornTimestamp" and pa.types.is_timestamp(kind)
        fix = f"Give it as {wanted}"
        if not is_time and not _may_cast(kind, wanted):
            raise ConfigError(f"column {name!r} is of type {kind}", fix=fix)
        try:
            if is_time:  # seconds may be too many for milliseconds; finer ones are cut
                values = values.cast(pa.timestamp("ms", kind.tz), safe=kind.unit == "s")
            elif pa.types.is_dictionary(kind):  # Arrow takes nothing out of a dictionary of views
                return values.dictionary.cast(wanted).take(values.indices)
            return values.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # its text may quote a value
            raise ConfigError(f"column {name!r} is of type {kind}, and does not convert", fix=fix) from None

    def integers(self, name: str) -> Ints:
        """Return (n,) int64; 0 where the column is missing or null."""
        values = self.integers_or(name, 0)
        return values if isinstance(values, np.ndarray) else np.full(self.rows, values, np.int64)

    def integers_or(self, name: str, otherwise: int) -> Ints | int:
        """Return (n,) int64 with ``otherwise`` for nulls, or only that where the column is missing."""
        if name not in self.names:
            return otherwise
        values = self.get(name)
        if values.null_count:
            values = pc.fill_null(values, otherwise)
        return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)

    def hosts(self, name: str) -> pa.BinaryArray | bytes:
        """Return packed hosts, or one for all rows where the column is missing; the local host stands for nulls."""
        if name not in self.names:
            return packed_host("127.0.0.1:0")
        values = pc.fill_null(self.get(name), "127.0.0.1:0").dictionary_encode()
        packed = pa.array([packed_host(host) for host in values.dictionary.to_pylist()], pa.binary())
        return packed.take(values.indices)


def _may_cast(kind: pa.DataType, wanted: pa.DataType) -> bool:
    is_ = pa.types
    if is_.is_null(kind):
        return True
    if is_.is_integer(wanted):
        return bool(is_.is_integer(kind))
    if is_.is_map(wanted):
        return bool(is_.is_map(kind))
    if is_.is_dictionary(kind):
        kind = kind.value_type
    stringlike = is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind)
    if not is_.is_binary(wanted):
        return bool(stringlike)
    sized = is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind)
    return bool(stringlike or sized or is_.is_binary(kind) or is_.is_binary_view(kind))
