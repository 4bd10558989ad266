"""Handshake of segmentlog's replicas with segmentlog's masters, which RocketMQ's peers do not notice.

::

    replica ──► master   [ -1 i64 ]                      question, before the request; RocketMQ's masters ignore it
    master ──► replica   [ -1 i64 | size i32 ][ end i64 | epochs ]     answer to it, before the first frame of the log
    replica ──► master   [ -1 - epoch i64 ]              refusal: the replica knows of a greater epoch

    ours    0        │1/x      end                       both masters wrote their own bytes: DivergedLogError
    master  0        │2/y          end                   unless our end is at the parting, or before
                     ▲ parting
    ours    0        │2/y  end                           the master was replaced: StaleMasterError, and a refusal
    master  0                      end

No frame of a log has a negative offset, and no master answers without the question. RocketMQ's master takes a report of
-1 as none: ``HAConnection`` waits while ``slaveRequestOffset`` is -1. A refusal goes only to a master that answered.
"""

import struct
from typing import Final, NamedTuple

from ..errors import DivergedLogError, FormatError, ReplicationError, StaleMasterError
from ..format import epochs as codec
from ..format.epochs import Epochs
from .frames import HEADER, encode_header, encode_report

ASKING: Final = -1
"""Report that asks for the epochs, and offset of the answer."""
_END: Final = struct.Struct(">q")
_ANSWER_MAX: Final = _END.size + codec.FILE_BYTES_MAX


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
        self.is_over = False
        """True once the first bytes have shown whether the master answers."""
        self.greeting: Greeting | None = None
        """Answer of the master; None without one, as from masters of RocketMQ."""

    def strip_answer(self, data: bytes | memoryview) -> bytes | memoryview:
        """Return the bytes of a piece of the stream that are not of the answer. Holds at most one answer.

        Raises `ReplicationError` for a damaged answer: the connection has to be closed.
        """
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
    """Make sure that a replica, with epochs ``ours`` and a log up to ``end``, may follow a master.

    Raises `StaleMasterError` if the ``greatest`` epoch that the replica knows is above the master's newest, and
    `DivergedLogError` if the logs part before the replica's end. The replica adopts the epochs before it appends.
    """
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
