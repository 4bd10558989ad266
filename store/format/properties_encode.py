"""Arrow columns to the property strings of records: the inverse of ``properties``.

::

    name 0x01 value 0x02 name 0x01 value 0x02        with the separator after the last pair too

RocketMQ writes the last separator since 5.2.0 and up to 4.9.0, and every release reads both forms. There is no
escaping: names and values that hold a separator cannot be stored.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ConfigError
from .arrow_buffers import FALSE, binary_array, integers, present, value_bounds, value_lengths
from .properties import RECORD_CRC


def encode_properties(
    columns: Mapping[str, pa.StringArray] | None = None, properties: pa.MapArray | None = None
) -> pa.BinaryArray:
    """Encode a map column and single columns as property strings.

    Null and empty values are left out: RocketMQ cannot read them back. The pairs of ``properties`` come first, without
    names that a column has: as in RocketMQ's own map of properties, no name is stored twice.

    Parameters
    ----------
    columns
        Property name to its values, for example ``{"TAGS": tags}``.
    properties
        ``map<string, string>`` of further properties.

    Returns
    -------
    (n,) binary array without nulls.

    Raises
    ------
    ConfigError
        If a name is empty or holds U+0001 or U+0002, a value holds U+0002, or there is no column at all.
    """
    columns = columns or {}
    parts: list[pa.BinaryArray | bytes] = []
    if properties is not None:
        parts.append(_encode_map(properties, columns))
    for name, values in columns.items():
        _check_name(name)
        _check_values(values, name)
        prefix, raw = f"{name}\x01".encode(), values.cast(pa.binary())
        if raw.null_count or not value_lengths(raw).all():
            present = pc.if_else(pc.equal(pc.binary_length(raw), 0), pa.scalar(None, raw.type), raw)
            parts.append(pc.binary_join_element_wise(prefix, present, b"\x02", b""))
        else:
            parts += [prefix, raw, b"\x02"]
    if not parts:
        raise ConfigError("no column was given to make properties of", fix="Pass a map or at least one named column")
    # Not null_handling="skip": Arrow (26.0) leaves out rows whose parts are all null, and returns a shorter array.
    return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement="")


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
