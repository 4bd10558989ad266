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
ascending order. Each window replaces the bytes after the value of the window before. Other maps, and long values, are
joined by Arrow. RocketMQ: ``MessageDecoder.messageProperties2String``.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ConfigError
from .buffers import FALSE, binary_array, integers, present, value_bounds, value_lengths
from .message import Bytes, Ints, gather, scatter
from .properties import PAIR_END, RECORD_CRC

_WINDOW_BYTES_MAX: Final = 128  # of a separator, a name and a value
_BLOCK_ROWS: Final = 2048  # encoded together: their windows, lengths and positions stay in the cache


def encode_properties(
    columns: Mapping[str, pa.StringArray] | None = None, properties: pa.MapArray | None = None
) -> pa.BinaryArray:
    """Encode a map column and single columns as property strings.

    `ConfigError` if a name or value cannot be stored.
    """
    # Null and empty values are left out: RocketMQ cannot read them back. The pairs of `properties` come first, without
    # names that a column has: as in RocketMQ's own map of properties, no name is stored twice.
    columns = columns or {}
    if not columns and properties is None:
        raise ConfigError("no column was given to make properties of", fix="Pass a map or at least one named column")
    for name in columns:
        _check_name(name)
    rows = len(next(iter(columns.values()))) if properties is None else len(properties)
    blocks = []
    for first in range(0, max(rows, 1), _BLOCK_ROWS):
        block = slice(first, first + _BLOCK_ROWS)
        named = {name: values[block] for name, values in columns.items()}
        blocks.append(_encode_block(named, None if properties is None else properties[block]))
    return blocks[0] if len(blocks) == 1 else pa.concat_arrays(blocks)


def _encode_block(columns: Mapping[str, pa.StringArray], properties: pa.MapArray | None) -> pa.BinaryArray:
    for name, values in columns.items():
        _check_values(values, name)
    named = [_Pairs.of_column(name, values) for name, values in columns.items()]
    names = None if properties is None else shared_names(properties)
    if properties is not None and names is not None:
        alike = _alike_pairs(properties, names, {each.head: each for each in named})
        if (laid := _lay(alike + named, len(properties))) is not None:
            return laid
    parts = [] if properties is None else [_encode_map(properties, columns)]
    if columns:
        laid = _lay(named, named[0].lengths.size)
        parts += _joined_parts(columns) if laid is None else [laid]
    if len(parts) == 1 and not parts[0].null_count:
        return parts[0]
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
    start, stop = value_bounds(names)
    lengths = (stop - start).reshape(len(maps), each)
    data = np.frombuffer(names.buffers()[2] or b"", np.uint8)[start[0] : stop[-1]] if each else np.zeros(0, np.uint8)
    width = int(lengths[0].sum())
    if names.null_count or (lengths != lengths[0]).any() or (data[width:] != data[: data.size - width]).any():
        return None
    return names[:each]


class _Pairs(NamedTuple):
    """One name, and its value in each of n rows."""

    head: bytes  # what ends the pair before, then the name and its end
    data: Bytes  # at least as many bytes after the start of each value as the longest has; none if that is too long
    starts: Ints  # (n,)
    lengths: Ints  # (n,) 0 where the pair is left out

    @classmethod
    def of_column(cls, name: str, values: pa.StringArray) -> "_Pairs":
        return cls(f"\x02{name}\x01".encode(), *_values(values))


def _values(values: pa.StringArray) -> tuple[Bytes, Ints, Ints]:
    """Return bytes of texts with padding, the start of each, and its length; 0 for nulls."""
    start, stop = value_bounds(values)
    lengths = stop - start
    if values.null_count:
        lengths = np.where(present(values), lengths, 0)
    longest = int(lengths.max(initial=0))
    if not 0 < longest <= _WINDOW_BYTES_MAX:
        return np.zeros(0, np.uint8), start, lengths
    used = np.frombuffer(values.buffers()[2] or b"", np.uint8)[start[0] : stop[-1]]
    data = np.zeros(used.size + longest, np.uint8)
    data[: used.size] = used
    return data, start - start[0], lengths


def _alike_pairs(maps: pa.MapArray, names: pa.StringArray, named: Mapping[bytes, _Pairs]) -> list[_Pairs]:
    """Pairs of maps that share their names, without those that a column has (by head), and without checksums."""
    offsets = integers(maps.offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    _check_names(names)
    _check_values(maps.items[first:last], maps.keys[first:last])
    data, starts, lengths = _values(maps.items[first:last])
    shape = len(maps), len(names)
    pairs = []
    for name, start, length in zip(
        names.view(pa.binary()).to_pylist(), starts.reshape(shape).T, lengths.reshape(shape).T, strict=True
    ):
        head = b"\x02" + name + b"\x01"
        if name != RECORD_CRC.encode():  # a checksum that is brought along was another record's: RocketMQ drops it, too
            kept = np.where(named[head].lengths > 0, 0, length) if head in named else length
            pairs.append(_Pairs(head, data, start, kept))
    return pairs


def _lay(pairs: list[_Pairs], rows: int) -> pa.BinaryArray | None:
    """Write pairs as windows; None if a value is long."""
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
            room[:] = gather(each.data, each.starts, kind)
    total = int(ends[-1])
    out = np.empty(total + width, np.uint8)
    scatter(out, ends - sizes, windows.view(f"V{width}"))
    out[total] = PAIR_END
    return binary_array(np.concatenate([[0], ends[number - 1 :: number]]) + 1, pa.py_buffer(out))


def _joined_parts(columns: Mapping[str, pa.StringArray]) -> list[pa.BinaryArray | bytes]:
    """Parts of the property strings of columns, for a join."""
    parts: list[pa.BinaryArray | bytes] = []
    for name, values in columns.items():
        prefix, raw = f"{name}\x01".encode(), values.cast(pa.binary())
        if raw.null_count or not value_lengths(raw).all():
            some = pc.if_else(pc.equal(pc.binary_length(raw), 0), pa.scalar(None, raw.type), raw)
            parts.append(pc.binary_join_element_wise(prefix, some, b"\x02", b""))
        else:
            parts += [prefix, raw, b"\x02"]
    return parts


def _encode_map(properties: pa.MapArray, columns: Mapping[str, pa.StringArray]) -> pa.BinaryArray:
    offsets = integers(properties.offsets).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    names, values = properties.keys[first:last], properties.items[first:last]
    _check_names(names)
    _check_values(values, names)
    offsets = offsets - first
    # A checksum that is brought along was another record's: RocketMQ takes it away, too.
    given = pc.and_(pc.greater(pc.binary_length(values), 0), pc.not_equal(names, RECORD_CRC))
    kept = pc.coalesce(given, FALSE).to_numpy(zero_copy_only=False)
    if properties.null_count:  # a null map may still own pairs
        kept = kept & np.repeat(present(properties), np.diff(offsets))
    if pc.any(pc.is_in(names, pa.array(list(columns), pa.string()))).as_py():
        for name, column in columns.items():
            said = present(column) & (value_lengths(column) > 0)
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


def _check_names(names: pa.StringArray) -> None:
    if not len(names):
        return
    start, stop = value_bounds(names)
    data = np.frombuffer(names.buffers()[2] or b"", np.uint8)[start[0] : stop[-1]]
    if (stop > start).all() and not ((data == 1) | (data == 2)).any():  # a search by Arrow costs forty times as much
        return
    wrong = pc.or_(pc.match_substring_regex(names, "[\x01\x02]"), pc.equal(pc.binary_length(names), 0))
    if pc.any(wrong).as_py():
        _check_name(names.filter(wrong)[0].as_py())


def _check_name(name: str) -> None:
    if not name or "\x01" in name or "\x02" in name:
        raise ConfigError(
            f"a property is named {name[:80]!r}, which a property string cannot hold",
            fix="Use a name that is not empty, without U+0001 and U+0002",
        )


def _check_values(values: pa.StringArray, names: pa.StringArray | str) -> None:
    """Refuse values that hold a separator; the error has the property's name, since values are users' data."""
    start, stop = value_bounds(values)
    if not len(values) or not (np.frombuffer(values.buffers()[2] or b"", np.uint8)[start[0] : stop[-1]] == 2).any():
        return
    wrong = pc.match_substring(values, "\x02")
    if pc.any(wrong).as_py():  # else it is under a null
        name = names if isinstance(names, str) else names.filter(wrong)[0].as_py()
        raise ConfigError(
            f"the value of property {name[:80]!r} holds U+0002, which a property string cannot hold",
            fix="Take U+0002 out of it, or put the value into the body",
        )
