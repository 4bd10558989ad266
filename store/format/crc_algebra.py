"""CRC-32 as linear algebra over GF(2): checksums of joined and changed texts without reading them again.

::

    remainder r of a text          the CRC register, started at zero: linear in the bits of the text
    text + n zero bytes            r ──► Z^n · r          Z: what one zero byte makes of the register, 32 x 32 bits
    crc(a + b)                     Z^len(b) · crc(a)  xor  crc(b)                          (zlib: ``crc32_combine``)
    a map as four tables           [byte 3][byte 2][byte 1][byte 0] of 256 words each: a product is four look-ups

A combination through these tables takes some 28 ns per record for whole arrays, against 909 for one call of
``isal_zlib.crc32_combine`` each. Functions are safe to call from several threads.
"""

from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from .message import Ints

Words: TypeAlias = npt.NDArray[np.uint32]
"""(n,) uint32: all 32 bits of a remainder or checksum each."""

NUMBER_BYTES: Final = 8
_POLYNOMIAL: Final = 0xEDB88320  # of zlib, bits reversed
_BITS: Final = np.uint32(1) << np.arange(32, dtype=np.uint32)


def combined_crcs(first: Words, second: Words, lengths: Ints) -> Words:
    """CRC-32 of pairs of texts, each joined to one.

    Parameters
    ----------
    first, second
        (n,) uint32, checksums of the first and second texts.
    lengths
        (n,) int64, bytes of the second texts; n is at least 1.

    Returns
    -------
    (n,) uint32
        Owns its memory.
    """
    return append_zeros(first, lengths) ^ second


def append_zeros(remainders: Words, zeros: Ints) -> Words:
    """Remainders of texts with zero bytes after them, each its own number.

    Parameters
    ----------
    remainders
        (n,) uint32, n at least 1.
    zeros
        (n,) int64, not negative.
    """
    least, most = int(zeros.min()), int(zeros.max())
    if least == most:
        return _times(_zeros(most), remainders)
    for place in range(-(-most.bit_length() // 8)):
        tables, digit = _ladder(place), zeros >> 8 * place & 0xFF
        moved = np.zeros_like(remainders)
        for byte in range(4):
            moved ^= tables[(digit << 10) + (byte << 8) + (remainders >> np.uint32(8 * byte) & np.uint32(0xFF))]
        remainders = moved
    return remainders


def number_remainders(values: Ints | int, zeros: int) -> Words | np.uint32:
    """Remainders of big-endian numbers of 8 bytes with ``zeros`` zero bytes after each; one for one number."""
    lowest, highest = (values, values) if isinstance(values, int) else (int(values.min()), int(values.max()))
    found: Words | np.uint32 = np.uint32(0)
    for byte in range(NUMBER_BYTES):  # the last one first
        table, shift = byte_remainders(zeros + byte), 8 * byte
        alike = lowest >> shift == highest >> shift
        found = found ^ table[lowest >> shift & 0xFF if alike else values >> shift & 0xFF]
    return found


@lru_cache(maxsize=1 << 10)
def byte_remainders(zeros: int) -> Words:
    """Table of the (256,) remainders of one byte with ``zeros`` zero bytes after it; shared, not to be written to."""
    return _times(_zeros(zeros + 1), np.arange(256, dtype=np.uint32))


def _times(tables: Words, remainders: Words) -> Words:
    """Apply a linear map, as the images of all values of each of the four bytes."""
    images = np.zeros_like(remainders)
    for byte in range(4):
        images ^= tables[byte][remainders >> np.uint32(8 * byte) & np.uint32(0xFF)]
    return images


def _map_of(images: Words) -> Words:
    """Convert linear maps for `_times`: (…, 32) images of single bits to (…, 4, 256) of bytes."""
    of_bytes = images.reshape(*images.shape[:-1], 4, 8)
    tables = np.zeros((*of_bytes.shape[:-1], 256), np.uint32)
    for bit in range(8):
        tables[..., 1 << bit : 2 << bit] = tables[..., : 1 << bit] ^ of_bytes[..., bit : bit + 1]
    return tables


@lru_cache(maxsize=1 << 10)
def _zeros(count: int) -> Words:
    """Map from a remainder to the one with ``count`` zero bytes after its text, for `_times`."""
    if count == 0:
        return _map_of(_BITS)
    if count == 1:
        images = _BITS.copy()
        for _ in range(8):
            images = images >> np.uint32(1) ^ np.where(images & np.uint32(1), np.uint32(_POLYNOMIAL), np.uint32(0))
        return _map_of(images)
    half = _zeros(count // 2)
    images = _times(half, _times(half, _BITS))
    return _map_of(_times(_zeros(1), images) if count % 2 else images)


@lru_cache(maxsize=4)
def _ladder(place: int) -> Words:
    """Maps of `_zeros` for 0 to 255 times ``256 ** place`` zeros, side by side: 1 MiB."""
    images = np.empty((256, 32), np.uint32)
    images[0] = _BITS
    for bit in range(8):
        images[1 << bit : 2 << bit] = _times(_zeros(1 << 8 * place + bit), images[: 1 << bit])
    return _map_of(images).ravel()
