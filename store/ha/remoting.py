"""Remoting frames: requests to a broker for its configuration documents, and the answers.

::

    request    [ length i32 | 0, header length i24 ][ {"code":21,"opaque":7,…} ]
    answer     [ length i32 | 0, header length i24 ][ {"code":0,"opaque":7,…} ][ body ]
                 └ of all that follows                └ 0: success                └ a document, as fastjson writes it

Headers are JSON (the first byte of the second word is 0), and the header length is 24 bits. Nothing here touches a
socket. RocketMQ: ``RemotingCommand``, ``NettyEncoder``, ``RequestCode``.
"""

import json
import struct
from enum import Enum
from typing import Final

from ..errors import FormatError, ReplicationError
from ..format import store_paths
from ..format.documents import Document, parse

FRAME_BYTES_MAX: Final = 64 << 20
_LENGTHS: Final = struct.Struct(">iI")
_SUCCESS: Final = 0
_FIX: Final = "Check that the address is a broker's listenPort, not its haListenPort"


class BrokerDocument(Enum):
    """A document of a broker: its request code, and its name in the directory ``config``."""

    TOPICS = (21, store_paths.TOPICS, "topicConfigTable")
    CONSUMER_OFFSETS = (43, store_paths.CONSUMER_OFFSETS, "offsetTable")
    DELAY_OFFSETS = (45, "delayOffset.json", "offsetTable")
    GROUPS = (201, "subscriptionGroup.json", "subscriptionGroupTable")

    def __init__(self, code: int, file: str, table: str) -> None:
        self.code = code
        """RocketMQ's request code."""
        self.file = file
        """File name."""
        self.table = table
        """Field that the document has to have."""


def encode_request(document: BrokerDocument, opaque: int) -> bytes:
    """Return the frame that asks for a document; ``opaque`` is repeated in the answer."""
    header = {"code": document.code, "flag": 0, "language": "PYTHON", "opaque": opaque, "version": 0, "extFields": {}}
    data = json.dumps(header).encode()
    return _LENGTHS.pack(4 + len(data), len(data)) + data


class AnswerReader:
    """Collects the bytes of one answer. Keeps one frame, of at most ``FRAME_BYTES_MAX`` bytes. Not thread-safe."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, data: bytes) -> bytes | None:
        """Return the frame, without its length, once it is whole; bytes after it are an error.

        Raises
        ------
        ReplicationError
            If the length is impossible: the peer is no broker.
        """
        self._kept += data
        if len(self._kept) < 4:
            return None
        (size,) = struct.unpack_from(">i", self._kept)
        if not 4 <= size <= FRAME_BYTES_MAX or len(self._kept) > 4 + size:
            raise ReplicationError(f"the broker's answer has an impossible length of {size} bytes", fix=_FIX)
        return bytes(self._kept[4:]) if len(self._kept) == 4 + size else None


def decode_answer(frame: bytes, document: BrokerDocument, opaque: int) -> Document | None:
    """Return the document in an answer; None if the broker has none.

    Raises
    ------
    ReplicationError
        If the frame is no answer to that request, or its body is not that document.
    """
    (word,) = struct.unpack_from(">I", frame)
    size = word & 0xFFFFFF
    if word >> 24 or 4 + size > len(frame):
        raise ReplicationError("the broker's answer has no JSON header", fix=_FIX)
    try:
        header = parse(frame[4 : 4 + size].decode())
        if header.get("opaque") != opaque:
            raise ReplicationError(f"the broker answered request {header.get('opaque')}, and {opaque} was asked")
        if header.get("code") != _SUCCESS:
            raise ReplicationError(
                f"the broker refused request code {document.code} with code {header.get('code')}: "
                f"{header.get('remark')}"
            )
        body = frame[4 + size :].decode()
        found = parse(body) if body.strip() not in {"", "null"} else None
    except (FormatError, UnicodeDecodeError) as error:
        raise ReplicationError(f"the broker's answer is not JSON: {error}", fix=_FIX) from error
    if found is not None and not isinstance(found.get(document.table), dict):
        raise ReplicationError(f"the broker's {document.file} has no table {document.table}", fix=_FIX)
    return found
