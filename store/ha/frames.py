"""Frames of RocketMQ's replication protocol: the bytes on the wire, in both directions.

::

    slave ──► master    [ physical offset i64 ]                                  report: the request, and the receipt
    master ──► slave    [ physical offset i64 | size i32 ][ size bytes of the CommitLog ]
                        [ physical offset i64 | 0        ]                       heartbeat: nothing new
                        [ -2 i64              | size i32 ][ ledger ]             ours, to a replica that asked alone

    stream    [hdr][body....]│[hdr][bo│dy...][hdr]     read in pieces of any size
    chunks    ──────►         ──────────────►          adjacent bodies are joined

Big-endian and signed. There is no handshake, version or checksum. A body is within one segment, and begins and ends
anywhere in records. Nothing here touches a socket. RocketMQ: ``HAConnection``, ``HAClient``.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..errors import ReplicationError

HEADER: Final = struct.Struct(">qi")
REPORT: Final = struct.Struct(">q")
LEDGER: Final = -2
"""Offset of a frame that has the ledger of batches instead of bytes of the log; see `replicated_ledger`."""


class Chunk(NamedTuple):
    """Bytes of the master's log; a heartbeat has none.

    Attributes
    ----------
    offset
        Physical offset of ``data``; in a heartbeat, of the next byte to come. `LEDGER` for a ledger.
    data
        The bytes, owned by the receiver.
    """

    offset: int
    data: bytes

    @property
    def stop(self) -> int:
        """Physical offset after the bytes."""
        return self.offset + len(self.data)


def encode_header(offset: int, size: int) -> bytes:
    """Return the header of a frame with ``size`` bytes of the log from a physical offset on."""
    return HEADER.pack(offset, size)


def encode_report(offset: int) -> bytes:
    """Return a slave's report of the physical offset up to which it holds the log."""
    return REPORT.pack(offset)


class FrameReader:
    """Splits the stream of a master into chunks. Not thread-safe.

    Between calls it keeps less than one header, or a part of a ledger.

    Parameters
    ----------
    segment_bytes
        Size of the master's segments: no frame crosses their end.
    """

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self._kept = b""
        self._offset = 0  # of the next byte of the body that is being read
        self._left = 0  # bytes of that body which did not come yet
        self._ledger = b""  # what came of a ledger
        self._ledger_left = 0  # bytes of it which did not come yet
        self.ledger_bytes_max = 0
        """Largest ledger that is accepted; 0 from a master that does not answer the question for its epochs."""

    @property
    def announced(self) -> int:
        """Physical offset after the body that is being read, or that was read last."""
        return self._offset + self._left

    def feed(self, data: bytes | memoryview) -> Iterator[Chunk]:
        """Yield what a piece of the stream holds; adjacent bodies become one chunk. The piece is copied once.

        Raises
        ------
        ReplicationError
            If a header is impossible. What came before it was yielded; the connection is of no more use.
        """
        view = memoryview(self._kept + data if self._kept else data)
        self._kept = b""
        at = 0
        parts: list[memoryview] = []
        start = self._offset
        while at < len(view):
            if self._ledger_left:
                part = view[at : at + self._ledger_left]
                at += len(part)
                yield from self._ledgers(part)
                continue
            if self._left:
                part = view[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._offset += len(part)
                self._left -= len(part)
                continue
            if len(view) - at < HEADER.size:
                self._kept = bytes(view[at:])
                break
            offset, size = HEADER.unpack_from(view, at)
            at += HEADER.size
            if parts and (size <= 0 or offset != self._offset):
                yield Chunk(start, b"".join(parts))
                parts = []
            if offset == LEDGER and 0 < size <= self.ledger_bytes_max:
                self._ledger_left = size
                continue
            self._begin(offset, size)
            if not size:
                yield Chunk(offset, b"")
            if not parts:
                start = offset
        if parts:
            yield Chunk(start, b"".join(parts))

    def _ledgers(self, part: memoryview) -> Iterator[Chunk]:
        """Keep a part of a ledger; yield it when it is whole."""
        self._ledger += part
        self._ledger_left -= len(part)
        if not self._ledger_left:
            whole, self._ledger = self._ledger, b""
            yield Chunk(LEDGER, whole)

    def _begin(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset % self._segment_bytes + size > self._segment_bytes:
            raise ReplicationError(
                f"the master sent a frame of {size} bytes at physical offset {offset}, which no log of segments of "
                f"{self._segment_bytes} bytes has",
                fix="Check that the address is a broker's haListenPort, and that segment_bytes is its "
                "mappedFileSizeCommitLog",
            )
        self._offset, self._left = offset, size


class ReportReader:
    """Reads the reports of a slave. Keeps less than one report between calls. Not thread-safe."""

    def __init__(self) -> None:
        self._kept = b""

    def feed(self, data: bytes) -> list[int]:
        """Return the reports that a piece of the stream completes, in their order."""
        whole = self._kept + data
        stop = len(whole) - len(whole) % REPORT.size
        self._kept = whole[stop:]
        return [offset for (offset,) in REPORT.iter_unpack(whole[:stop])]
