r"""Rows as JSON lines, made column by column.

::

    topic     queueId  body                    {"topic":"  ⊕ topic ⊕  ","queueId":  ⊕ queueId ⊕  ,"body":"  …  "}\n
    orders          1  say "hi"       ──►      {"topic":"orders","queueId":1,"body":"say \"hi\""}
    orders          2  ff00 (no UTF-8)         {"topic":"orders","queueId":2,"bodyHex":"ff00"}

Stable schema: every column of the rows is a key, in their order, and null is ``null``. The one exception are binary
columns: a value that is not UTF-8 is under the column's name with ``Hex`` appended, as hexadecimal digits. 64-bit
integers are numbers. Times are ISO-8601 in UTC with milliseconds. Properties are an object. Columns of bodies may be
nested; NaN and infinities are texts.

One call of Arrow joins literals and columns: 0.7 µs per row with bodies of 1 KiB; ``to_pylist`` and orjson took 16 µs.
"""

import json
import math
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.query.utf8 import are_utf8

Offsets: TypeAlias = npt.NDArray[np.int32]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_HEX: Final = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)
"""Both digits of each byte."""
_QUOTED: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_BLANK: Final = 0x20
_DELETE: Final = 0x7F
_LONGEST: Final = 2  # bytes of a hidden character that may follow a piece
_HIDDEN: Final = (
    (b"\xc2\x80", b"\xc2\x9f"),  # C1
    (b"\xc2\xad", b"\xc2\xad"),  # soft hyphen
    (b"\xd8\x9c", b"\xd8\x9c"),  # U+061C
    (b"\xe1\xa0\x8e", b"\xe1\xa0\x8e"),  # U+180E
    (b"\xe2\x80\x8b", b"\xe2\x80\x8f"),  # U+200B to U+200F
    (b"\xe2\x80\xa8", b"\xe2\x80\xae"),  # U+2028 to U+202E
    (b"\xe2\x81\xa0", b"\xe2\x81\xaf"),  # U+2060 to U+206F
    (b"\xef\xbb\xbf", b"\xef\xbb\xbf"),  # U+FEFF
    (b"\xef\xbf\xb9", b"\xef\xbf\xbb"),  # U+FFF9 to U+FFFB
)
"""Characters that a terminal obeys, or that turn or hide the text beside them: the first and last of each range."""
_CACHED_BYTES: Final = 1 << 17


class BodyTexts(NamedTuple):
    """Binary values as text: in each row one of the two, or neither if the value is null."""

    text: pa.StringArray
    hexadecimal: pa.StringArray


def bodies(values: pa.BinaryArray) -> BodyTexts:
    r"""Return values that are UTF-8 as text, and all others in hexadecimal; the memory may be shared.

    ::

        body       b"paid"      ──► text "paid"   hexadecimal null
                   b"\xff\x00"  ──► text null     hexadecimal "ff00"
    """
    try:
        return BodyTexts(values.cast(pa.string()), pa.nulls(len(values), pa.string()))
    except pa.ArrowInvalid:
        is_text = are_utf8(values)
    unset = pa.scalar(None, pa.binary())
    # Emptied before they become null: Arrow keeps the bytes of a null, and they would be searched as text.
    text = pc.if_else(is_text, pc.if_else(is_text, values, b""), unset).cast(pa.string())
    return BodyTexts(text, hexadecimal(pc.if_else(is_text, unset, values)))


def hexadecimal(values: pa.BinaryArray) -> pa.StringArray:
    """Return the bytes of each value in lower-case hexadecimal; null stays null."""
    if len(values) == 0:
        return pa.array([], pa.string())
    offsets, data = string_buffers(values)
    digits = _HEX[data[offsets[0] : offsets[-1]]]
    doubled = ((offsets - offsets[0]).astype(np.int64) * 2).astype(np.int32)
    return strings(doubled, digits, values.is_null() if values.null_count else None)


def string_buffers(values: pa.Array) -> tuple[Offsets, Bytes]:
    """Return offsets and bytes of text or binary values: shapes (n + 1,) and (bytes of the buffer,), views."""
    _, starts, data = values.buffers()
    offsets = np.frombuffer(starts, np.int32)[values.offset : values.offset + len(values) + 1]
    return offsets, np.frombuffer(b"" if data is None else data, np.uint8)


def strings(offsets: Offsets, data: npt.NDArray[Any], nulls: pa.BooleanArray | None) -> pa.StringArray:
    """Make text of offsets, shape (n + 1,), and UTF-8 bytes."""
    found = pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
    return found if nulls is None else pc.if_else(nulls, pa.scalar(None, pa.string()), found)


def instants(values: pa.TimestampArray) -> pa.StringArray:
    """Return times in ISO-8601 with milliseconds and a Z."""
    # Cast of a time with a zone looks the zone up for each value, and takes ten times as long.
    naive = values.cast(pa.timestamp("us")).cast(pa.timestamp("ms"), safe=False)
    return pc.binary_join_element_wise(pc.replace_substring(naive.cast(pa.string()), " ", "T"), "Z", "")


# JSON lines


def json_lines(batch: pa.RecordBatch) -> memoryview:
    """Return the rows of a batch as JSON lines: UTF-8 in memory of their own, each with a line end."""
    if batch.num_rows == 0:
        return memoryview(b"")
    parts: list[pa.Array | str] = []
    literal = "{"
    for field, column in zip(batch.schema, batch.columns, strict=True):
        before, values, after = _member(field.name, column)
        parts += [literal + before, values]
        literal = f"{after},"
    parts.append(literal.removesuffix(",") + "}\n")
    if not batch.num_columns:
        return memoryview(b"{}\n" * batch.num_rows)
    lines = pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="null")
    offsets, data = string_buffers(lines)
    return data[offsets[0] : offsets[-1]].data


def _member(name: str, column: pa.Array) -> tuple[str, pa.Array, str]:
    """Return a member of the objects: text before its values, the values, text after them."""
    key = f"{json.dumps(name)}:"
    if pa.types.is_binary(column.type):
        text, hexadecimal = bodies(column)
        if hexadecimal.null_count < len(column):
            members = pc.coalesce(
                _joined(key + '"', escaped(text), '"'), _joined(f'{json.dumps(f"{name}Hex")}:"', hexadecimal, '"')
            )
            return "", members.fill_null(f"{key}null"), ""
        column = text
    if pa.types.is_string(column.type):
        return _quoted(key, escaped(column))
    if pa.types.is_timestamp(column.type):
        return _quoted(key, instants(column))
    if pa.types.is_map(column.type) and column.type.item_type == pa.string():
        return key, json_objects(column), ""
    is_finite = not pa.types.is_floating(column.type) or pc.all(pc.is_finite(column), min_count=0).as_py() is not False
    is_plain = not pa.types.is_nested(column.type) and not pa.types.is_temporal(column.type) and is_finite
    return key, column.cast(pa.string()) if is_plain else json_values(column), ""


def _quoted(key: str, values: pa.StringArray) -> tuple[str, pa.Array, str]:
    """Put quotes around values; around null there are none."""
    if values.null_count == 0:
        return key + '"', values, '"'
    return key, _joined('"', values, '"'), ""


def _joined(*parts: pa.Array | str) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, "", null_handling="emit_null")


def json_objects(column: pa.MapArray) -> pa.StringArray:
    """Return maps of text as JSON objects."""
    offsets = column.offsets
    start, stop = offsets[0].as_py(), offsets[-1].as_py()
    keys, items = (each.slice(start, stop - start) for each in (column.keys, column.items))
    members = _joined('"', escaped(keys), '":"', escaped(items), '"')
    shifted = pc.subtract(offsets, start)
    lists = pa.ListArray.from_arrays(shifted, members, mask=column.is_null() if column.null_count else None)
    return _joined("{", pc.binary_join(lists, ","), "}")


def json_values(column: pa.Array) -> pa.StringArray:
    """Return values of any type as JSON, one by one."""
    values = (None if value is None else json.dumps(_plain(value)) for value in column.to_pylist())
    return pa.array([value and value.replace("\x7f", "\\u007f") for value in values], pa.string())


def _plain(value: object) -> object:
    """Return a value of Python in the types of JSON; bytes that are not UTF-8 in hexadecimal."""
    plain: object = str(value)
    match value:
        case None | bool() | int():
            plain = value
        case float():
            plain = value if math.isfinite(value) else plain
        case dict():
            plain = {str(name): _plain(each) for name, each in value.items()}
        case [tuple(), *_]:  # a map, as Arrow returns it
            plain = _plain(dict(cast("list[tuple[str, object]]", value)))
        case list():
            plain = [_plain(each) for each in value]
        case bytes():
            text = value.decode(errors="replace")
            plain = text if text.encode() == value else value.hex()
        case datetime() | date() | time():
            plain = value.isoformat()
    return plain


def escaped(values: pa.StringArray) -> pa.StringArray:
    r"""Return texts as they are inside the quotes of JSON; control and invisible characters as ``\uXXXX``."""
    offsets, data = string_buffers(values)
    used = data[offsets[0] : offsets[-1]]
    found = _special(used)
    if found.has_backslash:
        values = pc.replace_substring(values, "\\", "\\\\")
    if found.has_quote:
        values = pc.replace_substring(values, '"', '\\"')
    for character in _controls(used) if found.has_control else ():
        values = pc.replace_substring(values, character, _QUOTED.get(character, f"\\u{ord(character):04x}"))
    return values


class _Special(NamedTuple):
    """Characters of some text that JSON, or a terminal, does not take as they are."""

    has_quote: bool
    has_backslash: bool
    has_control: bool


def _special(used: Bytes) -> _Special:
    """Search text for characters to escape. Most texts have none: each pass is over a piece that a cache holds."""
    has_quote = has_backslash = has_control = False
    for start in range(0, used.size, _CACHED_BYTES):
        piece = used[start : start + _CACHED_BYTES]
        text = piece.tobytes()
        has_quote = has_quote or b'"' in text
        has_backslash = has_backslash or b"\\" in text
        has_control = has_control or piece.min() < _BLANK or b"\x7f" in text
        if not has_control and not text.isascii():
            has_control = any(_hidden(used[start : start + _CACHED_BYTES + _LONGEST]))
    return _Special(has_quote, has_backslash, has_control)


def _controls(used: Bytes) -> Iterator[str]:
    """Yield the characters in UTF-8 text that are escaped: below the blank, DEL, and those of `_HIDDEN`."""
    yield from map(chr, np.unique(used[used < _BLANK]).tolist())
    if (used == _DELETE).any():
        yield chr(_DELETE)
    yield from _hidden(used)


def _hidden(used: Bytes) -> Iterator[str]:
    """Yield the characters of `_HIDDEN` in some text."""
    text = used.tobytes()
    for first, last in _HIDDEN:
        if first[:1] not in text:  # a single byte is found ten times as fast as two
            continue
        size = len(first) - 1
        is_one = (used[size:] >= first[-1]) & (used[size:] <= last[-1])
        for at, byte in enumerate(first[:-1]):
            is_one &= used[at : at - size] == byte
        if is_one.any():
            yield from ((first[:-1] + bytes([byte])).decode() for byte in np.unique(used[size:][is_one]).tolist())
