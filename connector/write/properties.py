"""The properties of rows, pair by pair: columns of maps and of Kafka's headers, put together and taken apart.

::

    rows     0    0    2                 one entry a pair, rows ascending; row 1 has none
    names    user TAGS user
    values   amy  paid bob
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

MAP: Final = pa.map_(pa.string(), pa.string())


class Pairs(NamedTuple):
    """The pairs of some rows: (m,) columns, ``rows`` ascending."""

    rows: Ints
    names: pa.StringArray
    values: pa.StringArray

    def where(self, kept: Mask) -> "Pairs":
        if kept.all():
            return self
        chosen = pa.array(kept)
        return Pairs(self.rows[kept], self.names.filter(chosen), self.values.filter(chosen))

    def named(self, name: str) -> Mask:
        return np.asarray(pc.equal(self.names, name).to_numpy(zero_copy_only=False), np.bool_)


def pairs_of_maps(maps: pa.MapArray) -> Pairs:
    """Split a column of maps of texts, large ones too, into pairs."""
    rows, first, last = _rows(maps)
    pairs = Pairs(rows, maps.keys[first:last].cast(pa.string()), maps.items[first:last].cast(pa.string()))
    return pairs.where(_of_rows(maps, rows))


def pairs_of_headers(headers: pa.ListArray) -> tuple[Ints, pa.Array, pa.Array]:
    """Split a column of Kafka's headers into rows, keys and values of the entries that are not null."""
    rows, first, last = _rows(headers)
    keys, values = headers.values[first:last].flatten()
    kept = _of_rows(headers, rows) & (~_is_null(keys) | ~_is_null(values))
    if not kept.all():
        chosen = pa.array(kept)
        rows, keys, values = rows[kept], keys.filter(chosen), values.filter(chosen)
    return rows, keys, values


def _rows(lists: pa.Array) -> tuple[Ints, int, int]:
    """Rows of all entries of a column of lists, and the first and one past the last of them."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return np.repeat(np.arange(len(lists)), np.diff(offsets)), int(offsets[0]), int(offsets[-1])


def _of_rows(lists: pa.Array, rows: Ints) -> Mask:
    """Return which entries belong to rows that are not null: Arrow may keep any entries for a null."""
    return ~_is_null(lists)[rows]


def _is_null(values: pa.Array) -> Mask:
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False), np.bool_)


def without(pairs: Pairs, overruled: Mapping[str, Mask]) -> Pairs:
    """Leave out pairs that a column of their own overrules: by name, the (n,) rows that have a value in it."""
    kept = np.ones(pairs.rows.size, np.bool_)
    for name, rows in overruled.items():
        kept &= ~(pairs.named(name) & rows[pairs.rows])
    return pairs.where(kept)


def with_property(pairs: Pairs | None, name: str, values: pa.StringArray) -> Pairs:
    """Add one property after the others, from (n,) values; a null adds none."""
    rows = np.flatnonzero(~_is_null(values))
    added = Pairs(rows, pa.repeat(name, rows.size), values.drop_null())
    if pairs is None:
        return added
    every = np.concatenate([pairs.rows, rows])
    order = np.argsort(every, kind="stable")
    chosen = pa.array(order)
    return Pairs(
        every[order],
        pa.concat_arrays([pairs.names, added.names]).take(chosen),
        pa.concat_arrays([pairs.values, added.values]).take(chosen),
    )


def maps_of_pairs(pairs: Pairs, rows: int) -> pa.MapArray:
    """Put pairs together: (rows,) maps, empty where a row has none."""
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(pairs.rows, minlength=rows), out=offsets[1:])
    return pa.MapArray.from_arrays(pa.array(offsets), pairs.names, pairs.values)
