"""Admission control: exact limits and fair shares of the next micro-batch. Pure: numbers in, numbers out.

::

    waiting    A ████████████████   B ██   C █████          messages of each queue, their sizes asked for as needed
    turn       B first                                      another queue each time
    1. each    A █  B █  C █                                as long as there is room, in turn
    2. shares  A ███████  B █  C ██                         of what room is left, by what waits
    3. rest    B, C, A take what still fits

Neither limit is ever exceeded but by a single message that is larger than ``max_bytes``: it goes alone, so that a query
goes on. The queue whose turn it is always gets its first message, so none waits for ever, however many there are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

_SIZES_FIRST: Final = 1 << 10
_SIZES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waiting messages of one queue: at least one."""

    count: int
    sizes: Callable[[int, int], npt.NDArray[np.int64]]
    """Stored bytes of messages ``[start, stop)``, counted from the first waiting one: (stop - start,) int64."""


def admit(waiting: Sequence[Waiting], *, max_records: int | None, max_bytes: int | None) -> list[int]:
    """Return how many messages of each queue go into the next batch: at least 1 of the queue whose turn it is."""
    # It is the turn of the first queue. A limit is at least 1, or None; the first that is reached ends the batch.
    if max_bytes is None:
        counts = [each.count for each in waiting]
        return counts if max_records is None else _share(counts, max_records)
    lines = [_Line(each) for each in waiting]
    room = _Room(sum(each.count for each in waiting) if max_records is None else max_records, max_bytes)
    for line in lines:
        room.take_first(line)
    if room.records and room.bytes:
        shares = _byte_shares(lines, room.bytes)
        records = _share([line.left for line in lines], room.records)
        for line, count, size in zip(lines, records, shares, strict=True):
            room.take(line, count, size)
    for line in lines:
        room.take(line, room.records, room.bytes)
    return [line.taken for line in lines]


class _Line:
    """Share of one queue so far, and the sizes of the messages that come next, read in blocks."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self.taken = 0
        self._start = 0
        self._ends: npt.NDArray[np.int64] = np.zeros(0, np.int64)  # bytes of all messages from `_start` up to each

    @property
    def left(self) -> int:
        return self._waiting.count - self.taken

    def mean(self) -> float:
        """Bytes of a message, as far as sizes are known."""
        self._ensure(0)
        return float(self._ends[-1]) / self._ends.size

    def fit(self, count: int, size: int) -> tuple[int, int]:
        """Return how many of the next ``count`` messages fit into ``size`` bytes together, and their bytes."""
        fits, used = 0, 0
        while fits < min(count, self.left):
            at = self._ensure(fits)
            before = int(self._ends[at - 1]) if at else 0
            stop = min(self._ends.size, at + min(count, self.left) - fits)
            more = int(np.searchsorted(self._ends[:stop], before + size - used, side="right")) - at
            if more <= 0:
                break
            used += int(self._ends[at + more - 1]) - before
            fits += more
        return fits, used

    def _ensure(self, ahead: int) -> int:
        """Know the size of the message so far ahead; where it is among those known."""
        at = self.taken + ahead - self._start
        if at >= self._ends.size:
            self._start += at
            length = min(max(_SIZES_FIRST, 4 * self._ends.size), _SIZES_MAX, self._waiting.count - self._start)
            sizes = self._waiting.sizes(self._start, self._start + length)
            # A damaged entry states no size: it counts as a byte, so that a run of them ends somewhere.
            self._ends = np.cumsum(np.maximum(sizes, 1))
            at = 0
        return at


class _Room:
    def __init__(self, records: int, size: int) -> None:
        self.records = records
        self.bytes = size
        self._is_empty = True

    def take_first(self, line: _Line) -> None:
        """Take one message of a queue, if it fits; the very first in any case."""
        if not self.records or not line.left:
            return
        fits, size = line.fit(1, self.bytes)
        if self._is_empty and not fits:
            _, size = line.fit(1, 1 << 62)
            fits = 1
        if fits:
            line.taken += 1
            self.records -= 1
            self.bytes = max(0, self.bytes - size)
            self._is_empty = False

    def take(self, line: _Line, count: int, size: int) -> None:
        """Take as many messages of a queue as its share allows, and there is room for."""
        fits, used = line.fit(min(count, self.records), min(size, self.bytes))
        line.taken += fits
        self.records -= fits
        self.bytes -= used


def _byte_shares(lines: Sequence[_Line], size: int) -> list[int]:
    """Divide bytes by what waits: by number and mean size, as reading all sizes would grow with what waits."""
    weights = [line.left * line.mean() if line.left else 0.0 for line in lines]
    total = sum(weights)
    return [int(size * (weight / total)) if total else 0 for weight in weights]


def _share(counts: Sequence[int], limit: int) -> list[int]:
    """Divide a number of messages: one each in turn, the rest by what waits, what is over in turn."""
    total = sum(counts)
    if total <= limit:
        return list(counts)
    given = []
    for count in counts:
        given.append(min(1, count, limit))
        limit -= given[-1]
    rest = total - sum(given)
    shares = [(count - got) * limit // rest for count, got in zip(counts, given, strict=True)]
    given = [got + share for got, share in zip(given, shares, strict=True)]
    over = limit - sum(shares)
    for at, count in enumerate(counts):
        more = min(over, 1, count - given[at])
        given[at] += more
        over -= more
    return given
