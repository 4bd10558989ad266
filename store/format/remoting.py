"""Remoting protocol of brokers and name servers: frames of requests, and of their answers.

::

    request    [ length i32 | 0, header length i24 ][ {"code":310,"opaque":7,"extFields":{…},…} ][ body ]
    answer     [ length i32 | 0, header length i24 ][ {"code":0,"opaque":7,"remark":…,…} ][ body ]
                 └ of all bytes after it              └ 0: success

Headers are JSON (the first byte of the second word is 0), and the header length is 24 bits. An answer repeats the
number ``opaque`` of its request; answers come in any order. Bit 0 of ``flag`` tells an answer from a request: brokers
send requests, too, such as to check a transaction. RocketMQ: ``RemotingCommand``, ``NettyEncoder``.
"""

import json
import re
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeGuard

from ..errors import FormatError
from .documents import Document, parse

FRAME_BYTES_MAX: Final = 64 << 20
SUCCESS: Final = 0
_LENGTHS: Final = struct.Struct(">iI")
_IS_ANSWER: Final = 1  # bit of `flag`
_REMARK_MAX: Final = 1000
_NUMBER: Final = re.compile("[0-9]{1,19}")
_FIX: Final = "Check that the address is a broker's listenPort, not its haListenPort, or a name server's"


class Answer(NamedTuple):
    """Answer to the request with the number ``opaque``; ``code`` is RocketMQ's response code."""

    opaque: int
    code: int
    remark: str
    fields: Document
    body: bytes

    def number(self, name: str) -> int | None:
        """Return a field that is a whole number of 63 bits; None if it is missing or something else."""
        text = self.fields.get(name)
        found = int(text) if isinstance(text, str) and _NUMBER.fullmatch(text) else -1
        return found if 0 <= found < 1 << 63 else None

    def document(self) -> Document | None:
        """Return the body as a document; None if it has none, `FormatError` if it is not JSON."""
        try:
            text = self.body.decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"the body is not text: {error}") from error
        return parse(text) if text.strip() not in {"", "null"} else None


def encode_request(code: int, opaque: int, fields: Mapping[str, str], body: bytes = b"") -> bytes:
    """Return the frame of a request; ``opaque`` is repeated in the answer."""
    header = {"code": code, "flag": 0, "language": "PYTHON", "opaque": opaque, "version": 0, "extFields": fields}
    data = json.dumps(header).encode()
    return b"".join((_LENGTHS.pack(4 + len(data) + len(body), len(data)), data, body))


class AnswerReader:
    """Splits the bytes of a connection into answers. Keeps one frame of at most ``FRAME_BYTES_MAX`` bytes."""

    def __init__(self) -> None:
        self._kept = bytearray()

    @property
    def is_within_answer(self) -> bool:
        """True if bytes of an answer were read that is not whole yet."""
        return bool(self._kept)

    def feed(self, data: bytes) -> list[Answer]:
        """Return the answers that a piece of the stream completes, in order; `FormatError` for other bytes.

        Requests of the broker are left out.
        """
        self._kept += data
        found, at = [], 0
        while len(self._kept) - at >= 4:
            (size,) = struct.unpack_from(">i", self._kept, at)
            if not 4 <= size <= FRAME_BYTES_MAX:
                raise FormatError(f"the answer has an impossible length of {size} bytes", fix=_FIX)
            if len(self._kept) - at < 4 + size:
                break
            found.append(_decode(bytes(self._kept[at + 4 : at + 4 + size])))
            at += 4 + size
        del self._kept[:at]
        return [each for each in found if each is not None]


def _decode(frame: bytes) -> Answer | None:
    """Decode a frame; None if it is a request."""
    (word,) = struct.unpack_from(">I", frame)
    size = word & 0xFFFFFF
    if word >> 24 or 4 + size > len(frame):
        raise FormatError("the answer has no JSON header", fix=_FIX)
    try:
        header = parse(frame[4 : 4 + size].decode())
    except (FormatError, UnicodeDecodeError) as error:
        raise FormatError(f"the header of the answer is not JSON: {error}", fix=_FIX) from error
    code, opaque, flag = (header.get(name) for name in ("code", "opaque", "flag"))
    fields = header.get("extFields") or {}
    if not (_is_int(code) and _is_int(opaque) and _is_int(flag) and isinstance(fields, dict)):
        raise FormatError("the header of the answer has no code and number of a request, or no flag", fix=_FIX)
    if not flag & _IS_ANSWER:
        return None
    return Answer(opaque, code, str(header.get("remark") or "")[:_REMARK_MAX], fields, frame[4 + size :])


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 31) <= value < 1 << 31
