"""Replication protocol: RocketMQ's frames, and the handshake of segmentlog's peers, which RocketMQ's do not notice.

::

    slave ──► master    [ physical offset i64 ]                                  report: the request, and the receipt
    master ──► slave    [ physical offset i64 | size i32 ][ size bytes of the CommitLog ]
                        [ physical offset i64 | 0        ]                       heartbeat: nothing new
                        [ -2 i64              | size i32 ][ title, all lines  ]  history of batches: ours, only to
                        [ -3 i64              | size i32 ][ lines             ]  replicas that asked; all, then more

    replica ──► master  [ -1 i64 ]                      question, before the request; RocketMQ's masters ignore it
    master ──► replica  [ -1 i64 | size i32 ][ end i64 | epochs ]     answer to it, before the first frame of the log
    replica ──► master  [ -1 - epoch i64 ]              refusal: the replica knows of a greater epoch

    ours    0        │1/x      end                       both masters wrote their own bytes: DivergedLogError
    master  0        │2/y          end                   unless our end is at the parting, or before
                     ▲ parting
    ours    0        │2/y  end                           the master was replaced: StaleMasterError, and a refusal
    master  0                      end

    stream    [hdr][body....]│[hdr][bo│dy...][hdr]     read in pieces of any size
    chunks    ──────►         ──────────────►          adjacent bodies are joined

Big-endian and signed; RocketMQ's part has no version or checksum. A body is within one segment, and begins and ends
anywhere in records. No frame of a log has a negative offset. RocketMQ's master takes a report of -1 as none:
``HAConnection`` waits while ``slaveRequestOffset`` is -1. A refusal goes only to a master that answered. Nothing here
touches a socket. RocketMQ: ``HAConnection``, ``HAClient``.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..errors import DivergedLogError, FormatError, ReplicationError, StaleMasterError
from ..format import epochs as codec
from ..format.epochs import Epochs

HEADER: Final = struct.Struct(">qi")
REPORT: Final = struct.Struct(">q")
HEARTBEAT_S: Final = 5.0
"""Seconds after which a silent peer sends a heartbeat or repeats its report (``haSendHeartbeatInterval``)."""
SILENCE_S: Final = 20.0
"""Seconds without a byte from the peer after which a connection is dead (``haHousekeepingInterval``)."""
HISTORY: Final = -2
"""Offset of a frame that has the whole history of batches instead of bytes of the log; see `served_log.HistoryFeed`."""
MORE_HISTORY: Final = -3  # offset of a frame that has further lines of the history
HISTORY_BEGIN: Final = b"segmentlog-batches 1\n"  # first bytes of a whole history on a connection: no frame is empty
ASKING: Final = -1  # report that asks for the epochs, and offset of the answer
_END: Final = struct.Struct(">q")
_ANSWER_MAX: Final = _END.size + codec.FILE_BYTES_MAX


class Chunk(NamedTuple):
    """Bytes of the master's log from a physical offset on, owned by the receiver."""

    # A heartbeat has no bytes, and the offset of the next byte. At HISTORY or MORE_HISTORY are lines of batches.

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
    """Splits the stream of a master into chunks. Not thread-safe."""

    # Between calls it holds less than one header, or a part of a history. No frame crosses the end of a segment.

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
        """Yield the chunks of a piece of the stream; adjacent bodies become one chunk. The piece is copied once."""
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


class Greeting(NamedTuple):
    """Answer of a master: the physical offset at which its log ended, and the epochs of its log."""

    end: int
    epochs: Epochs


def question() -> bytes:
    """Return the report that asks a master for its epochs."""
    return encode_report(ASKING)


def answer(greeting: Greeting) -> bytes:
    """Return the frame that answers the question."""
    body = _END.pack(greeting.end) + codec.encode(greeting.epochs)
    return encode_header(ASKING, len(body)) + body


def refusal(epoch: int) -> bytes:
    """Return the report that tells a master of a greater epoch."""
    return encode_report(ASKING - epoch)


def refused_by(report: int) -> int:
    """Return the epoch that a refusal states; `ReplicationError` unless a store can have it."""
    epoch = ASKING - report
    if not 1 <= epoch <= codec.EPOCH_MAX:
        raise ReplicationError(f"a slave sent the report {report}, which states no physical offset and no epoch")
    return epoch


class Handshake:
    """Replica's side of the handshake on one connection: takes the answer out of the stream. Not thread-safe."""

    def __init__(self) -> None:
        self._kept = b""
        self.is_over = False  # True once the first bytes have shown whether the master answers
        self.greeting: Greeting | None = None  # answer of the master; None without one, as from masters of RocketMQ

    def strip_answer(self, data: bytes | memoryview) -> bytes | memoryview:
        """Return the bytes of a piece of the stream that are not of the answer. Holds at most one answer."""
        if len(self._kept) < HEADER.size:
            data = self._keep_until(data, HEADER.size)
            if len(self._kept) < HEADER.size:
                return b""
        offset, size = HEADER.unpack_from(self._kept)
        if offset != ASKING:
            self.is_over = True
            return self._kept + data
        if not _END.size < size <= _ANSWER_MAX:
            raise ReplicationError(f"the master answered the question for its epochs with {size} bytes")
        data = self._keep_until(data, HEADER.size + size)
        if len(self._kept) < HEADER.size + size:
            return b""
        self.greeting = _decoded(self._kept[HEADER.size :])
        self.is_over = True
        return data

    def _keep_until(self, data: bytes | memoryview, size: int) -> bytes | memoryview:
        """Keep the first ``size`` bytes of the stream; return the bytes after them."""
        missing = size - len(self._kept)
        self._kept += data[:missing]
        return data[missing:]


def _decoded(body: bytes) -> Greeting:
    (end,) = _END.unpack_from(body)
    try:
        epochs = codec.decode(body[_END.size :])
    except FormatError as error:
        raise ReplicationError("the master answered the question for its epochs with damaged epochs") from error
    if end < 0:
        raise ReplicationError(f"the master stated that its log ends at physical offset {end}")
    return Greeting(end, epochs)


def check_greeting(ours: Epochs, greatest: int, end: int, greeting: Greeting) -> None:
    """Make sure that a replica, with epochs ``ours`` and a log up to ``end``, may follow a master."""
    newest = greeting.epochs.newest
    check_stale(greatest, newest)
    parting = ours.parting(greeting.epochs)
    if parting is not None and end > parting:
        raise DivergedLogError(
            f"the master's log is of epoch {newest} and ends at physical offset {greeting.end}, this one is of epoch "
            f"{ours.newest} and ends at {end}; they are of the same masters before {parting} only",
            offset=parting,
            fix="Run `segmentlog demote` on this store: it keeps a copy of the log from there on, and cuts it off",
        )


def check_stale(greatest: int, newest: int) -> None:
    """Raise `StaleMasterError` if a store knows of a greater epoch than the newest of its master."""
    if greatest > newest:
        raise StaleMasterError(
            f"the master is of epoch {newest}, and this replica knows the master of epoch {greatest}",
            fix="Name the address of the newer master. If the older one is to stay, run `segmentlog promote` on it",
        )
