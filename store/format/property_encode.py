"""Columns of property names and values to the property strings of records.

::

    property string   name 0x01 value 0x02 name 0x01 value 0x02       with the separator after the last pair too

    windows, row by row, each over the end of the one before:
        [02 a 01 v a l . . .]
                   [02 bb 01 v . . . .]                               `.`: bytes after a shorter value
                             [02 TAGS 01 v a l u]

RocketMQ writes the last separator since 5.2.0 and up to 4.9.0, and every release reads both forms. There is no
escaping: names and values that hold a separator cannot be stored.

Most maps have the same names in each row, and short values. All pairs are then written as windows of one width, in
ascending order. Each window replaces the bytes after the value of the window before. Other maps, long values, and
columns are joined by Arrow. RocketMQ: ``MessageDecoder.messageProperties2String``.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ConfigError
from .buffers import (
    FALSE,
    binary_array,
    has_text,
    integers,
    present,
    value_bounds,
    value_bytes,
    value_lengths,
    value_offsets,
)
from .message import Bytes, Ints, gather, scatter
from .properties import PAIR_END, RECORD_CRC

_WINDOW_BYTES_MAX: Final = 128  # of a separator, a name and a value
_BLOCK_ROWS: Final = 4096  # encoded together: their windows, lengths and positions stay in the cache


def encode_properties(
    columns: Mapping[str, pa.StringArray] | None = None, properties: pa.MapArray | None = None
) -> pa.BinaryArray:
    """Encode a map column and single columns as property strings.

    `ConfigError` names the row if a name or value cannot be stored.
    """
    # Null and empty values are left out: RocketMQ cannot read them back. The pairs of `properties` come first, without
    # names that a column has: as in RocketMQ's own map of properties, no name is stored twice.
    columns = columns or {}
    if not columns and properties is None:
        raise ConfigError("no column was given to make properties of", fix="Pass a map or at least one named column")
    for name, values in columns.items():
        _check_name(name)
        _check_values(values, name)
    parts = _joined_parts(columns)
    if properties is not None:
        blocks = []
        for first in range(0, max(len(properties), 1), _BLOCK_ROWS):
            block = slice(first, first + _BLOCK_ROWS)
            named = {name: values[block] for name, values in columns.items()}
            blocks.append(_encode_map(properties[block], named, first))
        text = blocks[0] if len(blocks) == 1 else pa.concat_arrays(blocks)
        if not columns:
            return text
        parts = [text, *parts]
    # Not null_handling="skip": Arrow (26.0) leaves out rows whose parts are all null, and returns a shorter array.
    return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement="")


def shared_names(maps: pa.MapArray) -> pa.StringArray | None:
    """Return the names of the pairs of each row, if they are the same in all rows and in the same order; else None."""
    if not len(maps) or maps.null_count:
        return None
    offsets = integers(maps.offsets)
    first, last, each = int(offsets[0]), int(offsets[-1]), int(offsets[1] - offsets[0])
    if (np.diff(offsets) != each).any():
        return None
    names = maps.keys[first:last]
    if not each:
        return names
    ends, data = value_offsets(names), value_bytes(names)
    width = int(ends[each] - ends[0])
    if (
        names.null_count
        or (ends[each:] - ends[:-each] != width).any()
        or (data[width:] != data[: -width or None]).any()
    ):
        return None
    return names[:each]


def values_by_name(maps: pa.MapArray, names: Iterable[str]) -> dict[str, pa.StringArray]:
    """Return the values that (n,) maps store under some names, null where a map has none; no array if none has any."""
    offsets = integers(maps.offsets)
    first, last = offsets[[0, -1]].tolist()
    keys, values = maps.keys[first:last], maps.items[first:last]
    shared = shared_names(maps)
    texts = [] if shared is None else shared.view(pa.binary()).to_pylist()
    if texts and len(set(texts)) == len(texts):
        places = {name: texts.index(name.encode()) for name in names if name.encode() in texts}
        every = np.arange(len(values))
        return {name: values.take(pa.array(every[place :: len(texts)])) for name, place in places.items()}
    rows = np.repeat(np.arange(len(maps)), np.diff(offsets))
    stored = has_text(values) & present(maps)[rows]
    found = {}
    for name in names:
        pairs = np.flatnonzero(pc.fill_null(pc.equal(keys, name), FALSE).to_numpy(zero_copy_only=False) & stored)
        if pairs.size:
            chosen = np.full(len(maps), -1)
            chosen[rows[pairs]] = pairs  # the last one if a map has several: RocketMQ reads that one
            found[name] = values.take(pa.array(chosen, mask=chosen < 0))
    return found


class _Pairs(NamedTuple):
    """One name, and its value in each of n rows."""

    head: bytes  # what ends the pair before, then the name and its end
    starts: Ints  # (n,) of the values in their bytes
    lengths: Ints  # (n,) 0 where the pair is left out


def _alike_pairs(
    maps: pa.MapArray, names: pa.StringArray, columns: Mapping[str, pa.StringArray], first_row: int
) -> tuple[Bytes, list[_Pairs]] | None:
    """Bytes of values, and pairs of maps that share their names; None if a value is too long for windows."""
    first, last = integers(maps.offsets)[[0, -1]].tolist()
    values, shape = maps.items[first:last], (len(maps), len(names))
    _check_names(names, lambda _: first_row)
    _check_values(values, names, lambda pair: first_row + pair // shape[1])
    start, stop = value_bounds(values)
    lengths = stop - start
    if values.null_count:
        lengths = np.where(present(values), lengths, 0)
    longest = int(lengths.max(initial=0))
    if longest > _WINDOW_BYTES_MAX:
        return None
    pairs = []
    texts = names.view(pa.binary()).to_pylist()
    for text, at, length in zip(texts, start.reshape(shape).T, lengths.reshape(shape).T, strict=True):
        name = text.decode(errors="replace")
        if name != RECORD_CRC:  # a checksum that is brought along was another record's: RocketMQ takes it away, too
            kept = np.where(has_text(columns[name]), 0, length) if name in columns else length
            pairs.append(_Pairs(b"\x02" + text + b"\x01", at - start[0], kept))
    used = value_bytes(values)
    data = np.zeros(used.size + longest, np.uint8)  # with room for a window at the last value
    data[: used.size] = used
    return data, pairs


def _lay(data: Bytes, pairs: list[_Pairs], rows: int) -> pa.BinaryArray | None:
    """Write pairs, whose values are in ``data``, as windows; None if one would be too long."""
    if not pairs or not rows:
        return binary_array(np.zeros(rows + 1, np.int64), pa.py_buffer(b""))
    number, heads = len(pairs), np.array([len(each.head) for each in pairs])
    longest = [int(each.lengths.max()) for each in pairs]
    width = int((heads + longest).max())
    if width > _WINDOW_BYTES_MAX:
        return None
    lengths = np.stack([each.lengths for each in pairs], axis=1)
    sizes = ((lengths + heads) * (lengths > 0)).ravel()
    ends = np.cumsum(sizes)
    row = b"".join(each.head.ljust(width, b"\0") for each in pairs)
    windows = np.full(rows, np.void(row))
    for column, (each, most) in enumerate(zip(pairs, longest, strict=True)):
        if most:
            kind = np.dtype(f"V{most}")
            room = np.ndarray(rows, kind, windows.data, column * width + len(each.head), windows.strides)
            room[:] = gather(data, each.starts, kind)
    total = int(ends[-1])
    out = np.empty(total + width, np.uint8)
    scatter(out, ends - sizes, windows.view(f"V{width}"))
    out[total] = PAIR_END
    return binary_array(np.concatenate([[0], ends[number - 1 :: number]]) + 1, pa.py_buffer(out))


def _joined_parts(columns: Mapping[str, pa.StringArray]) -> list[pa.BinaryArray | bytes]:
    """Parts of the property strings of columns, for a join."""
    parts: list[pa.BinaryArray | bytes] = []
    end = b""  # of the pair before: every part of a join costs time in each row, so constants side by side are one
    for name, values in columns.items():
        prefix, raw = f"{name}\x01".encode(), values.cast(pa.binary())
        if raw.null_count or not value_lengths(raw).all():
            some = pc.if_else(pc.equal(pc.binary_length(raw), 0), pa.scalar(None, raw.type), raw)
            parts += [end, pc.binary_join_element_wise(prefix, some, b"\x02", b"")]
            end = b""
        else:
            parts += [end + prefix, raw]
            end = b"\x02"
    return [*parts, end]


def _encode_map(properties: pa.MapArray, columns: Mapping[str, pa.StringArray], first_row: int) -> pa.BinaryArray:
    """Encode maps, without the pairs that a column has; errors count rows from ``first_row`` on."""
    names = shared_names(properties)
    alike = None if names is None else _alike_pairs(properties, names, columns, first_row)
    laid = None if alike is None else _lay(*alike, len(properties))
    return _join_map(properties, columns, first_row) if laid is None else laid


def _join_map(properties: pa.MapArray, columns: Mapping[str, pa.StringArray], first_row: int) -> pa.BinaryArray:
    """Encode maps of any names and values."""
    offsets = integers(properties.offsets).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    names, values = properties.keys[first:last], properties.items[first:last]
    offsets = offsets - first

    def row_of(pair: int) -> int:
        return first_row + int(np.searchsorted(offsets, pair, "right")) - 1

    _check_names(names, row_of)
    _check_values(values, names, row_of)
    # A checksum that is brought along was another record's: RocketMQ takes it away, too.
    given = pc.and_(pc.greater(pc.binary_length(values), 0), pc.not_equal(names, RECORD_CRC))
    kept = pc.coalesce(given, FALSE).to_numpy(zero_copy_only=False)
    if properties.null_count:  # a null map may still own pairs
        kept = kept & np.repeat(present(properties), np.diff(offsets))
    if pc.any(pc.is_in(names, pa.array(list(columns), pa.string()))).as_py():
        for name, column in columns.items():
            said = has_text(column)
            named = pc.equal(names, name).to_numpy(zero_copy_only=False)
            kept = kept & ~(named & np.repeat(said, np.diff(offsets)))
    if not kept.all():
        names, values = names.filter(pa.array(kept)), values.filter(pa.array(kept))
        offsets = np.concatenate([[0], np.cumsum(kept)])[offsets]
    pairs = pc.binary_join_element_wise(names, "\x01", values, "\x02", "")
    if not len(pairs):
        return pa.array([b""] * len(properties), pa.binary())
    # The pairs of a map are adjacent, so its property string is a slice of the bytes of all pairs.
    start, stop = value_bounds(pairs)
    ends = np.concatenate([start[:1], stop])
    return binary_array(ends[offsets], pairs.buffers()[2])


def _check_names(names: pa.StringArray, row_of: Callable[[int], int]) -> None:
    if not len(names):
        return
    data = value_bytes(names)  # a search by Arrow costs forty times as much
    if value_lengths(names).all() and not ((data == 1) | (data == 2)).any():
        return
    wrong = pc.or_(pc.match_substring_regex(names, "[\x01\x02]"), pc.equal(pc.binary_length(names), 0))
    pair = pc.index(wrong, True).as_py()
    if pair >= 0:
        _check_name(names[pair].as_py(), f"row {row_of(pair)}: ")


def _check_name(name: str, where: str = "") -> None:
    if not name or "\x01" in name or "\x02" in name:
        raise ConfigError(
            f"{where}a property is named {name[:80]!r}, which a property string cannot hold",
            fix="Use a name that is not empty, without U+0001 and U+0002",
        )


def _check_values(values: pa.StringArray, names: pa.StringArray | str, row_of: Callable[[int], int] = int) -> None:
    """Refuse values that hold a separator; the error has the property's name and row, since values are users' data.

    ``names`` are those of the values, of each row in turn, or of all.
    """
    if not (value_bytes(values) == PAIR_END).any():
        return
    at = pc.index(pc.match_substring(values, "\x02"), True).as_py()
    if at >= 0:  # else it is under a null
        name = names if isinstance(names, str) else names[at % len(names)].as_py()
        raise ConfigError(
            f"row {row_of(at)}: the value of property {name[:80]!r} holds U+0002, which a property string cannot hold",
            fix="Take U+0002 out of it, or put the value into the body",
        )
