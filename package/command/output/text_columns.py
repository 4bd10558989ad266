r"""Arrow columns as columns of text: what tables, JSON and CSV have in common.

::

    body       b"paid"      ──► text "paid"   hexadecimal null
               b"\xff\x00"  ──► text null     hexadecimal "ff00"
    timestamp  2026-01-31 12:00 UTC, in µs   ──► "2026-01-31T12:00:00.000Z"

All rows of a batch at once: there is no Python code per row.
"""

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Offsets: TypeAlias = npt.NDArray[np.int32]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_CACHED_BYTES: Final = 1 << 18
_HEX: Final = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)
"""Both digits of each byte."""
_INSTANT: Final = len("2026-01-31T12:00:00.000Z")
_SECOND: Final = len("2026-01-31T12:00:00.")
_PARTS: Final = np.dtype([("second", f"V{_SECOND}"), ("ms", f"V{_INSTANT - _SECOND}")])
_MS: Final = np.frombuffer("".join(f"{ms:03d}Z" for ms in range(1000)).encode(), _PARTS["ms"])
_YEAR_0: Final = -62_167_219_200
_YEAR_10000: Final = 253_402_300_800  # seconds between which a year has four digits
_RUN_ROWS: Final = 4  # rows with the same second, on average, from which it is worth to look for them


class Bodies(NamedTuple):
    """Binary values as text: in each row one of the two, or neither if the value is null."""

    text: pa.StringArray
    hexadecimal: pa.StringArray


def bodies(values: pa.BinaryArray) -> Bodies:
    """Return values that are UTF-8 as text, and all others in hexadecimal; the memory may be shared."""
    offsets, data = string_buffers(values) if len(values) else (np.zeros(1, np.int32), np.zeros(0, np.uint8))
    if values.null_count == 0 and _is_ascii(data[offsets[0] : offsets[-1]]):
        return Bodies(as_text(values), pa.nulls(len(values), pa.string()))
    try:
        return Bodies(values.cast(pa.string()), pa.nulls(len(values), pa.string()))
    except pa.ArrowInvalid:
        is_text = pa.array(_are_utf8(values))
    unset = pa.scalar(None, pa.binary())
    text = pc.if_else(is_text, values, unset).cast(pa.string())
    return Bodies(text, hexadecimal(pc.if_else(is_text, unset, values)))


def as_text(values: pa.BinaryArray) -> pa.StringArray:
    """View values without nulls, whose bytes are known to be UTF-8, as text; the memory is shared."""
    _, starts, characters = values.buffers()
    return pa.StringArray.from_buffers(len(values), starts, characters, offset=values.offset)


def _is_ascii(data: Bytes) -> bool:
    """Tell whether all bytes are ASCII, which is UTF-8: faster than its validation."""
    pieces = (data[start : start + _CACHED_BYTES] for start in range(0, data.size, _CACHED_BYTES))
    return all(piece.tobytes().isascii() for piece in pieces)


def _are_utf8(values: pa.BinaryArray) -> list[bool]:
    """Tell which values are UTF-8. Halves are tried until they are all right or one value is left."""
    found = [True] * len(values)
    parts = [(0, len(values))]
    while parts:
        start, stop = parts.pop()
        try:
            values.slice(start, stop - start).cast(pa.string())
        except pa.ArrowInvalid:
            if stop - start == 1:
                found[start] = False
            else:
                middle = (start + stop) // 2
                parts += [(start, middle), (middle, stop)]
    return found


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
    # Neighbouring rows mostly have the same second, so seconds are formatted once per run of equal ones.
    values = values.cast(pa.timestamp("us", values.type.tz))  # tables have milliseconds, messages microseconds
    if values.null_count or not len(values):
        return _formatted(values)
    ms = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values)] // 1000
    seconds = ms // 1000
    changes = np.flatnonzero(np.diff(seconds)) + 1
    if changes.size * _RUN_ROWS > ms.size or int(seconds.min()) < _YEAR_0 or int(seconds.max()) >= _YEAR_10000:
        return _formatted(values)
    starts = np.append(0, changes)
    heads = pa.Array.from_buffers(values.type, starts.size, [None, pa.py_buffer(seconds[starts] * 1_000_000)])
    _, data = string_buffers(_formatted(heads))
    texts = data[: starts.size * _INSTANT].view(_PARTS)["second"]
    found = np.empty(ms.size, _PARTS)
    found["second"] = np.repeat(texts, np.diff(np.append(starts, ms.size)))
    found["ms"] = _MS[ms - seconds * 1000]
    return strings(np.arange(ms.size + 1, dtype=np.int32) * _INSTANT, found, None)


def _formatted(values: pa.TimestampArray) -> pa.StringArray:
    # Cast of a time with a zone looks the zone up for each value, and takes ten times as long.
    naive = values.cast(pa.timestamp("us")).cast(pa.timestamp("ms"), safe=False)
    return pc.binary_join_element_wise(pc.replace_substring(naive.cast(pa.string()), " ", "T"), "Z", "")
