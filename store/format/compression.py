"""Compressed message bodies, inflated one at a time and never beyond a limit.

::

    sys flag bits   0x1 compressed      0x700 how:  0x000, 0x300 zlib   0x100 LZ4 frame   0x200 Zstandard frame

RocketMQ 4.x writes and reads zlib only and leaves the type bits 0. No format states the original length reliably, so
output is produced in steps. A body over the limit is an error after ``limit`` bytes, not after all of them. RocketMQ:
``CompressorFactory``, ``MessageDecoder.decode``.
"""

import zlib
from typing import Final

import pyarrow as pa

from .message import SYS_COMPRESSION_TYPE

_ZLIB: Final = (0x000, 0x300)
_STREAMS: Final = {0x100: "lz4", 0x200: "zstd"}
_STEP_BYTES: Final = 1 << 20


def inflate(data: bytes | memoryview, sys_flag: int, limit: int) -> bytes | None:
    """Inflate one body.

    Parameters
    ----------
    data
        The body as stored.
    sys_flag
        Of its record; says which format.
    limit
        The most bytes that the result may have.

    Returns
    -------
    bytes or None
        None if the body is damaged, of an unknown format, or larger than ``limit``.
    """
    kind = sys_flag & SYS_COMPRESSION_TYPE
    if kind in _ZLIB:
        return _inflate_zlib(data, limit)
    codec = _STREAMS.get(kind)
    return None if codec is None or not data else _inflate_stream(data, codec, limit)


def _inflate_zlib(data: bytes | memoryview, limit: int) -> bytes | None:
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(data, limit + 1)
    except zlib.error:
        return None
    # The checksum at the end was compared only if the end was reached.
    return body if inflater.eof and len(body) <= limit else None


def _inflate_stream(data: bytes | memoryview, codec: str, limit: int) -> bytes | None:
    pieces: list[bytes] = []
    total = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
            while piece := stream.read(min(_STEP_BYTES, limit + 1 - total)):
                pieces.append(piece)
                total += len(piece)
                if total > limit:
                    return None
    except (OSError, pa.ArrowException):
        return None
    return b"".join(pieces)
