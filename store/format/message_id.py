"""The two kinds of message id, as text and as fields.

An *offset id* contains the address of a record; the broker makes it, and any broker can find the record by it::

     0              4 or 16   +4               +8
    +--------------+---------+-----------------+
    | store host   |  port   | physical offset |      upper-case hex: 32 characters, IPv6 56
    | 4 or 16 bytes|  int32  |      int64      |
    +--------------+---------+-----------------+

A *unique id* (property ``UNIQ_KEY``) identifies producer and time; the producer makes it, and it survives retries::

     0              4 or 16   +2    +4             +4              +2
    +--------------+---------+-------------------+---------------+---------+
    | producer     | process | class loader hash | ms since the  | counter |      hex: 32 or 56
    | 4 or 16 bytes| uint16  |       int32       | month began   | uint16  |
    +--------------+---------+-------------------+---------------+---------+

RocketMQ: ``MessageDecoder.createMessageId``, ``MessageClientIDSetter``. Only the length tells IPv4 from IPv6.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import ConfigError, FormatError

_HEX: Final = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16)  # two digits a byte
_ADDRESS_BYTES: Final = (4, 16)
_TEXT_MAX: Final = (1 << 31) - 1
_OFFSET_TAIL_BYTES: Final = 12  # port, physical offset
_OFFSET_BYTES: Final = 8
_NO_ID_FIX: Final = "An id has 32 hex digits, or 56 where the host has an IPv6 address"


def encode_offset_ids(
    addresses: npt.NDArray[np.uint8], ports: npt.NDArray[np.int64], physical_offsets: npt.NDArray[np.int64]
) -> pa.StringArray:
    """Encode (n, 4) or (n, 16) addresses, ports and physical offsets as upper-case ids of 32 or 56 characters."""
    count, width = addresses.shape
    if width not in _ADDRESS_BYTES:
        raise FormatError(f"an address of {width} bytes was given for a message id, IPv4 has 4 and IPv6 has 16")
    size = 2 * (width + _OFFSET_TAIL_BYTES)
    if count * size > _TEXT_MAX:
        raise FormatError(
            f"{count} message ids of {size} characters do not fit one Arrow column", fix="Encode fewer at once"
        )
    raw = np.empty(count, np.dtype([("address", np.uint8, (width,)), ("port", ">i4"), ("physical_offset", ">i8")]))
    raw["address"], raw["port"], raw["physical_offset"] = addresses, ports, physical_offsets
    text = _HEX.take(raw.view(np.uint8))
    offsets = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


def encode_offset_id(host: bytes, physical_offset: int) -> str:
    """Write one offset id; ``host`` is packed as in a record."""
    return (host + physical_offset.to_bytes(8, "big")).hex().upper()


def decode_offset_ids(texts: pa.StringArray, argument: str = "message_id") -> npt.NDArray[np.int64]:
    """Decode the physical offsets of offset ids without nulls; `ConfigError` names the first text that is not an id."""
    import pyarrow.compute as pc  # noqa: PLC0415 - only look-ups come here, and loading it takes long

    sound = pc.match_substring_regex(texts, "^(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})$").to_numpy(zero_copy_only=False)
    if not sound.all():
        wrong = texts[int(np.argmin(sound))].as_py()[:80]
        raise ConfigError(f"{argument}: {wrong!r} is not a message id", fix=_NO_ID_FIX)
    tails = pc.utf8_slice_codeunits(texts, -2 * _OFFSET_BYTES)
    digits = np.frombuffer("".join(tails.to_pylist()).encode(), np.uint8)
    nibbles = np.where(digits <= ord("9"), digits - ord("0"), (digits | 0x20) - (ord("a") - 10)).astype(np.uint8)
    packed = np.left_shift(nibbles[::2], 4) | nibbles[1::2]
    offsets = packed.view(">i8").astype(np.int64)
    if (offsets < 0).any():
        first = int(np.argmax(offsets < 0))
        raise ConfigError(
            f"{argument}: {texts[first].as_py()!r} holds the physical offset {offsets[first]}, which cannot be one",
            fix="Is it the id that the producer made (UNIQ_KEY)? That one is found through the index",
        )
    return offsets
