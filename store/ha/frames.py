"""Frames of RocketMQ's replication protocol: the bytes on the wire, in both directions.

::

    slave ──► master    [ physical offset i64 ]                                  report: the request, and the receipt
    master ──► slave    [ physical offset i64 | size i32 ][ size bytes of the CommitLog ]
                        [ physical offset i64 | 0        ]                       heartbeat: nothing new
                        [ -2 i64              | size i32 ][ title, all lines  ]  history of batches: ours, only to
                        [ -3 i64              | size i32 ][ lines             ]  replicas that asked; all, then more

    stream    [hdr][body....]│[hdr][bo│dy...][hdr]     read in pieces of any size
    chunks    ──────►         ──────────────►          adjacent bodies are joined

Big-endian and signed. There is no handshake, version or checksum. A body is within one segment, and begins and ends
anywhere in records. Both peers end a connection whose other side was silent for 20 s. Nothing here touches a socket.
RocketMQ: ``HAConnection``, ``HAClient``.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..errors import ReplicationError

HEADER: Final = struct.Struct(">qi")
REPORT: Final = struct.Struct(">q")
HEARTBEAT_S: Final = 5.0
"""Seconds after which a silent peer sends a heartbeat or repeats its report (``haSendHeartbeatInterval``)."""
SILENCE_S: Final = 20.0
"""Seconds without a byte from the peer after which a connection is dead (``haHousekeepingInterval``)."""
HISTORY: Final = -2
"""Offset of a frame that has the whole history of batches instead of bytes of the log; see `history_feed`."""
MORE_HISTORY: Final = -3
"""Offset of a frame that has further lines of the history."""
HISTORY_BEGIN: Final = b"segmentlog-batches 1\n"
"""First bytes of a whole history on a connection: no frame is empty."""


class Chunk(NamedTuple):
    """Bytes of the master's log from a physical offset on, owned by the receiver.

    A heartbeat has no bytes, and the offset of the next byte. At `HISTORY` or `MORE_HISTORY` are lines of batches.
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

    Between calls it holds less than one header, or a part of a history. No frame crosses the end of a segment.
    """

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self._kept = b""
        self._offset = 0  # of the next byte of the body that is being read
        self._left = 0  # bytes of that body which are still to come
        self._history: list[memoryview] = []  # received parts of a frame of the history
        self._history_offset = 0  # of that frame
        self._history_left = 0  # bytes of that frame which are still to come
        self.history_bytes_max = 0
        """Largest history that is accepted; 0 from a master that does not answer the question for its epochs."""

    @property
    def announced(self) -> int:
        """Physical offset after the body that is being read, or that was read last."""
        return self._offset + self._left

    def feed(self, data: bytes | memoryview) -> Iterator[Chunk]:
        """Yield the chunks of a piece of the stream; adjacent bodies become one chunk. The piece is copied once.

        Raises `ReplicationError` for an impossible header, after the chunks before it: the connection has to be closed.
        """
        view = memoryview(self._kept + data if self._kept else data)
        self._kept = b""
        at = 0
        parts: list[memoryview] = []
        start = self._offset
        while at < len(view):
            if self._history_left:
                part = view[at : at + self._history_left]
                at += len(part)
                yield from self._histories(part)
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
            if offset in {HISTORY, MORE_HISTORY} and 0 < size <= self.history_bytes_max:
                self._history_offset, self._history_left = offset, size
                continue
            self._begin(offset, size)
            if not size:
                yield Chunk(offset, b"")
            if not parts:
                start = offset
        if parts:
            yield Chunk(start, b"".join(parts))

    def _histories(self, part: memoryview) -> Iterator[Chunk]:
        """Keep a part of a frame of the history; yield the frame when it is whole."""
        self._history.append(memoryview(bytes(part)))  # the caller may fill the buffer again
        self._history_left -= len(part)
        if not self._history_left:
            whole, self._history = b"".join(self._history), []
            yield Chunk(self._history_offset, whole)

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
        """Return the reports that a piece of the stream completes, in order."""
        whole = self._kept + data
        stop = len(whole) - len(whole) % REPORT.size
        self._kept = whole[stop:]
        return [offset for (offset,) in REPORT.iter_unpack(whole[:stop])]
