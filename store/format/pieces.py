"""Bytes in several places that are written as if they were adjacent.

::

    frames   [header 0][topic, properties 0 | header 1][topic, properties 1 | header 2]…      ours
                       ▲                              ▲
    bodies   ........[body 0]......................[body 1]....                               the caller's

A larger body is then copied once, from the caller's memory to the kernel's, and is not read in between. The buffers are
not copied either, and must not change until the bytes are written.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from .message import Bytes, Ints

Data: TypeAlias = bytes | bytearray | memoryview


class Pieces(NamedTuple):
    """Pieces of buffers, one after the other.

    Attributes
    ----------
    buffers
        Their buffers, each (size,) uint8.
    which, starts, lengths
        (n,) int64: the buffer of each piece, where it begins in it, and its bytes.
    """

    buffers: tuple[Bytes, ...]
    which: Ints
    starts: Ints
    lengths: Ints

    @property
    def size(self) -> int:
        """Total number of bytes."""
        return int(self.lengths.sum())

    def cut(self, start: int, stop: int) -> "Pieces":
        """Return bytes ``[start, stop)`` of all of them; not fewer than one."""
        ends = np.cumsum(self.lengths)
        if not 0 <= start < stop <= ends[-1]:
            raise FormatError(f"bytes [{start}, {stop}) are not among {int(ends[-1])}")
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(ends, stop, side="left"))
        which, starts, lengths = (each[first : last + 1].copy() for each in self[1:])
        lengths[-1] -= ends[last] - stop
        ahead = start - (ends[first] - self.lengths[first])
        starts[0] += ahead
        lengths[0] -= ahead
        return Pieces(self.buffers, which, starts, lengths)

    def addresses(self) -> npt.NDArray[np.uint64]:
        """Return the memory address of each piece; valid as long as the buffers are.

        Raises
        ------
        FormatError
            If one is not inside its buffer.
        """
        sizes = np.array([each.size for each in self.buffers], np.int64)
        room = sizes[self.which] - self.starts
        # The room is looked at by itself: where it is below zero, what is left of it may be no int64 any more.
        if any((each < 0).any() for each in (self.starts, self.lengths, room, room - self.lengths)):
            raise FormatError("a piece of bytes to write is outside its buffer")
        bases = np.array([each.ctypes.data for each in self.buffers], np.uint64)
        return bases[self.which] + self.starts.astype(np.uint64)

    def join(self) -> Bytes:
        """Copy them side by side."""
        views = [each.data for each in self.buffers]
        spans = zip(self.which.tolist(), self.starts.tolist(), (self.starts + self.lengths).tolist(), strict=True)
        return np.frombuffer(bytearray().join(views[which][start:stop] for which, start, stop in spans), np.uint8)


def part(data: Data | Pieces, start: int, stop: int) -> Data | Pieces:
    """Return bytes ``[start, stop)`` of them, without a copy."""
    return data.cut(start, stop) if isinstance(data, Pieces) else memoryview(data)[start:stop]


def contiguous(data: Data | Pieces) -> Data:
    """Return adjacent bytes, copied if they are in several places."""
    return data.join().data if isinstance(data, Pieces) else data
