"""Replication master as a state machine: reports of a slave go in, places of frames and acknowledgements come out.

::

    report -1  question       before the request: answered with the epochs, see `handshake`
    report 1   request r      r = 0: base of the last segment        never an acknowledgement: a port scanner sends one
    report 2…  receipt a      r ≤ a ≤ sent, never less than before ──► acknowledged
    below -1   refusal        after an answer: another master replaced this one

    new batches     ──► lines of the history, to slaves that were answered, before any byte of these batches
    end of the log  ──► Frame(start, stop) of one segment, at most 256 KiB ──► header, bytes
    5 s without one ──► Frame(start, start): a heartbeat

RocketMQ's slave without a log takes a frame of any offset as its first bytes. It connects before it takes frames at all
(5.5.0): if it lost the first frame, the second frame would leave a hole. So the second frame waits for the receipt of
the first.

Any other report ends the connection. Nothing here touches a socket, a clock or the log: the caller passes the time.
RocketMQ: ``HAConnection``.
"""

from typing import Final, NamedTuple

from ..errors import ReplicationError
from .protocol import (
    ASKING,
    HEARTBEAT_S,
    HISTORY,
    HISTORY_BEGIN,
    MORE_HISTORY,
    SILENCE_S,
    Greeting,
    ReportReader,
    answer,
    encode_header,
    refused_by,
)

FIRST_REQUEST_S: Final = 10.0
"""Seconds for the request of a connection. RocketMQ's slaves send it 5 s after they connected."""
FRAME_BYTES: Final = 256 << 10
"""Largest body of a frame (``haTransferBatchSize`` is 32 KiB; RocketMQ's slaves take up to 4 MiB)."""


class Frame(NamedTuple):
    """Frame to send: bytes ``[start, stop)`` of the log; a heartbeat has none."""

    start: int
    stop: int

    @property
    def header(self) -> bytes:
        return encode_header(self.start, self.stop - self.start)


class Follower:
    """The master's side of one connection. Not thread-safe. ``now`` is the time in seconds of one monotonic clock."""

    def __init__(self, segment_bytes: int, now: float) -> None:
        self._segment_bytes = segment_bytes
        self._reports = ReportReader()
        self._next: int | None = None
        self._is_ahead = False  # its request is after the end of the log: it gets heartbeats alone
        self._heard_at = self._sent_at = self._begun_at = now
        self.acknowledged: int | None = None
        """Physical offset up to which the slave holds the log; None before its second report."""
        self.is_asking = False  # True from the question for the epochs until the answer
        self.greeting: Greeting | None = None
        """Answer that was sent; None if the slave did not ask. RocketMQ's slaves never ask."""
        self.refused_by: int | None = None  # epoch that a refusal of the slave stated; None before one
        self._history: tuple[int, int] | None = None  # generation and bytes of the lines that were sent
        self._is_empty = False  # RocketMQ's slave at its first start, without a log and before its first bytes
        self._first: Frame | None = None  # first frame of an empty slave, until its receipt
        self._refusals = 0

    def receive(self, data: bytes, end: int, now: float) -> None:
        """Take bytes of the connection, while the log ends at physical offset ``end``."""
        for report in self._reports.feed(data):
            self._heard_at = now
            if report < ASKING and self.greeting is not None:
                self.refused_by = refused_by(report)
            elif self._next is None:
                if report == ASKING and not self.has_asked:
                    self.is_asking = True
                    continue
                # A replica of a newer master may be ahead of this one: it gets the epochs, and answers with a refusal.
                self._is_ahead = self.has_asked and report > end
                if not 0 <= report <= end and not self._is_ahead:
                    raise ReplicationError(f"a slave asked for physical offset {report}, and the log ends at {end}")
                self._next = report or end - end % self._segment_bytes
                self._request = report
                self._is_empty = report == 0 and not self.has_asked
            elif not self._is_ahead:
                self._acknowledge(report)

    def _acknowledge(self, report: int) -> None:
        assert self._next is not None
        least = self._request if self.acknowledged is None else self.acknowledged
        if not least <= report <= self._next:
            raise ReplicationError(
                f"a slave acknowledged physical offset {report}, after {least} and with {self._next} sent"
            )
        self.acknowledged = report
        if self._first is not None:
            self._check_first(self._first, report)

    def _check_first(self, first: Frame, report: int) -> None:
        if report >= first.stop:
            self._first = None
            return
        self._refusals += 1
        if self._refusals > 1:  # the first report may have been sent before the frame arrived
            raise ReplicationError(
                f"a slave without a log did not take the log from physical offset {first.start} on; the log is sent "
                "again when the slave connects again"
            )

    @property
    def has_requested(self) -> bool:
        """True once the slave has stated where it wants the log from."""
        return self._next is not None

    @property
    def has_asked(self) -> bool:
        """True from the question for the epochs on."""
        return self.is_asking or self.greeting is not None

    def greet(self, greeting: Greeting) -> bytes:
        """Return the answer to send to a slave that is asking, before the next frame."""
        self.is_asking, self.greeting = False, greeting
        return answer(greeting)

    def history_position(self, generation: int, size: int) -> int | None:
        """Position from which the slave lacks lines of the history; None if it lacks none, or did not ask."""
        # `generation` and `size` come from `HistoryFeed.read_changes`, called after the end of the log was read.
        if self.greeting is None:
            return None
        if self._history is None or self._history[0] != generation:
            return 0
        return self._history[1] if self._history[1] < size else None

    def history_frame(self, generation: int, lines: bytes) -> list[bytes]:
        """Return the frame with lines from `history_position` on, in pieces; the frame counts as sent."""
        if self._history is None or self._history[0] != generation:
            self._history = generation, len(lines)
            return [encode_header(HISTORY, len(HISTORY_BEGIN) + len(lines)), HISTORY_BEGIN, lines]
        self._history = generation, self._history[1] + len(lines)
        return [encode_header(MORE_HISTORY, len(lines)), lines] if lines else []

    def next_frame(self, first: int, end: int, now: float) -> Frame | None:
        """Return the next frame, which counts as sent, of bytes in ``[first, end)``; None if nothing is to be sent."""
        # Heartbeats alone go to a slave that asks for bytes before `first`, the first physical offset of the log, as
        # from RocketMQ, and to a replica that is ahead of the log. A slave of RocketMQ without a log gets no frame
        # between its first bytes and its receipt for them.
        start = self._next
        if start is None or self._first is not None:
            return None
        room = self._segment_bytes - start % self._segment_bytes
        stop = min(end, start + min(room, FRAME_BYTES)) if start >= first and not self._is_ahead else start
        if stop <= start:
            if now < self._sent_at + HEARTBEAT_S:
                return None
            stop = start
        frame = Frame(start, stop)
        self._next, self._sent_at = stop, now
        if self._is_empty and stop > start:
            self._is_empty, self._first = False, frame
        return frame

    def check_silence(self, now: float) -> None:
        """Raise `ReplicationError` if the slave was silent for too long."""
        if not self.has_requested and now - self._begun_at >= FIRST_REQUEST_S:
            raise ReplicationError(f"a slave sent no request for {FIRST_REQUEST_S:.0f} s")
        if now - self._heard_at >= SILENCE_S:
            raise ReplicationError(f"a slave sent nothing for {SILENCE_S:.0f} s: the connection is dead")
