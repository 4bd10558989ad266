"""Replication slave as a state machine: the master's bytes go in, log bytes and reports come out; no socket, no clock.

::

    Slave.following(end, held)    report end - held ──► frames ──► compared with `held` ──► new bytes from `end` on
    Slave.from_base(base)         report base       ──► frames ──► new bytes from `base` on
    Slave.from_last_segment()     report 0          ──► frames ──► new bytes from the base that the master chooses

    our log       [rec][rec][rec]│ end
    master's log       ║rec][rec]│[rec][rec] …         equal up to `end`: continues our log
                       ║rec][REC]│[rec]                not equal: DivergedLogError, nothing is appended
                       ║rec]│                          heartbeats before `end`: DivergedLogError, the master lost bytes
                       └ requested offset

A master starts at any offset that is reported, and knows nothing of our log. So we request bytes that we hold already,
and compare them: RocketMQ's slave would append the other history (apache/rocketmq#3388). A report of 0 means the last
segment. For a log from offset 0 we report 1 and supply byte 0: the highest byte of a record's size, always zero.
RocketMQ: ``HAClient``.
"""

from typing import Final, Self

from ..errors import ConfigError, DivergedLogError, ReplicationError
from .protocol import HEARTBEAT_S, HISTORY, MORE_HISTORY, SILENCE_S, Chunk, FrameReader, encode_report

_BEHIND_HEARTBEATS: Final = 2  # the first may be older than bytes that are on their way
_FIRST_BYTE: Final = b"\0"


class Slave:
    """The slave's side of one connection. Not thread-safe. Use `following`, `from_base` or `from_last_segment`."""

    # The first report states `request`. The master sends bytes from `expected` on; None leaves the offset to the
    # master. Its first bytes have to equal `held`. `prefix` are the bytes before them, known without the master. `now`
    # is the time in seconds of one monotonic clock.

    def __init__(
        self, request: int, expected: int | None, *, held: bytes, prefix: bytes, segment_bytes: int, now: float
    ) -> None:
        self._segment_bytes = segment_bytes
        self._frames = FrameReader(segment_bytes)
        self._next = expected
        self._held = held
        self._prefix = prefix
        self._request = self._reported = request
        self._sent_at: float | None = None
        self._heard_at = now
        self._heartbeats_behind = 0
        self.is_idle = False  # True after a heartbeat at our end: the master has nothing new
        self._history: list[Chunk] = []

    @classmethod
    def following(cls, end: int, held: bytes, segment_bytes: int, now: float) -> Self:
        """Return a slave whose log ends at ``end`` with the bytes ``held``, one or more."""
        request = end - len(held)
        if request == 0:
            request, held = len(_FIRST_BYTE), held[len(_FIRST_BYTE) :]
        return cls(request, request, held=held, prefix=b"", segment_bytes=segment_bytes, now=now)

    @classmethod
    def from_base(cls, base: int, segment_bytes: int, now: float) -> Self:
        """Return a slave without a log that starts at the first byte of a segment of the master."""
        request, prefix = (base, b"") if base else (len(_FIRST_BYTE), _FIRST_BYTE)
        return cls(request, request, held=b"", prefix=prefix, segment_bytes=segment_bytes, now=now)

    @classmethod
    def from_last_segment(cls, segment_bytes: int, now: float) -> Self:
        """Return a slave without a log that starts at the first byte of the master's last segment."""
        return cls(0, None, held=b"", prefix=b"", segment_bytes=segment_bytes, now=now)

    @property
    def begin(self) -> int | None:
        """Physical offset of the next byte; None until the master's first frame states it."""
        return self._next if not self._prefix else 0

    @property
    def is_verified(self) -> bool:
        """True once the master's bytes have equalled all that was held."""
        return not self._held

    @property
    def announced(self) -> int:
        """Physical offset up to which the master has announced bytes."""
        return self._frames.announced

    def accept_history(self, bytes_max: int) -> None:
        """Accept frames of the history from now on, of at most ``bytes_max`` bytes: the master is of segmentlog."""
        self._frames.history_bytes_max = bytes_max

    def take_history(self) -> list[Chunk]:
        """Return the received frames of the history, each once; none while the logs are not compared yet."""
        # Store them before the log bytes that came with them: they name the batches of these bytes.
        if not self.is_verified:
            return []
        taken, self._history = self._history, []
        return taken

    def receive(self, data: bytes | memoryview, now: float) -> Chunk | None:
        """Take bytes of the connection; return the new log bytes among them, or None."""
        self._heard_at = now
        parts: list[bytes] = []
        start = self.begin
        for chunk in self._frames.feed(data):
            if chunk.offset in {HISTORY, MORE_HISTORY}:
                self._history.append(chunk)
                continue
            self._check_place(chunk)
            start = self.begin if start is None else start
            self.is_idle = not chunk.data
            if not chunk.data:
                self._check_behind(chunk.offset)
                continue
            self._heartbeats_behind = 0
            new = self._compare(chunk)
            self._next = chunk.stop
            if new:
                if not parts:
                    start = chunk.stop - len(new) - len(self._prefix)
                parts += [self._prefix, new] if self._prefix else [new]
                self._prefix = b""
        if not parts:
            return None
        return Chunk(start or 0, parts[0] if len(parts) == 1 else b"".join(parts))

    def report(self, end: int, now: float) -> bytes:
        """Return the report to send now, or no bytes before its time; ``end`` is the end of our last whole record."""
        offset = max(end, self._request) if self.is_verified else self._request
        if self._sent_at is not None and offset <= self._reported and now < self._sent_at + HEARTBEAT_S:
            return b""
        self._reported, self._sent_at = offset, now
        return encode_report(offset)

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next report is due; `ReplicationError` after a long silence of the master."""
        if now - self._heard_at >= SILENCE_S:
            raise ReplicationError(f"the master sent nothing for {SILENCE_S:.0f} s: the connection is dead")
        return 0.0 if self._sent_at is None else max(self._sent_at + HEARTBEAT_S - now, 0.0)

    def _check_place(self, chunk: Chunk) -> None:
        if self._next is None:
            if chunk.offset % self._segment_bytes:
                raise ConfigError(
                    f"segment_bytes is {self._segment_bytes}, and the master's last segment begins at physical offset "
                    f"{chunk.offset}",
                    fix="Set it to the broker's mappedFileSizeCommitLog",
                )
            self._next = chunk.offset
        if chunk.offset != self._next:
            raise ReplicationError(
                f"the master continued at physical offset {chunk.offset}, and the next byte is at {self._next}"
            )

    def _compare(self, chunk: Chunk) -> bytes:
        """Compare a chunk with the held bytes; return the bytes after them."""
        held, data = self._held, chunk.data
        if not held:
            return data
        size = min(len(held), len(data))
        if held[:size] != data[:size]:
            differs = next(at for at in range(size) if held[at] != data[at])
            raise DivergedLogError(
                f"the master's log differs from this one at physical offset {chunk.offset + differs}; this one ends at "
                f"{chunk.offset + len(held)}",
                fix="Replicate into an empty directory, or from the master that this log came from",
            )
        self._held = held[size:]
        return data[size:]

    def _check_behind(self, offset: int) -> None:
        """Refuse a master whose log ends before ours: it was recreated, or a crash took bytes that we hold."""
        if self._held:
            self._heartbeats_behind += 1
            if self._heartbeats_behind >= _BEHIND_HEARTBEATS:
                raise DivergedLogError(
                    f"the master has nothing at physical offset {offset}, and this log ends at "
                    f"{offset + len(self._held)}: the master lost what this log holds, or retention deleted it there",
                    fix="Replicate into an empty directory, or make this store the master",
                )
