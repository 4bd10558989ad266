"""Bytes that lie in several places and are written as if they lay side by side.

::

    frames   [header 0][topic, properties 0 | header 1][topic, properties 1 | header 2]…      ours
                       ▲                              ▲
    bodies   ........[body 0]......................[body 1]....                               whoever gave them

A body of some size is copied once then, from the memory that it came in to where the kernel has it, and is not looked
at in between. The buffers are not copied either: nobody may change them until the bytes are written.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from .message import Bytes, Ints

Data: TypeAlias = bytes | bytearray | memoryview


class Pieces(NamedTuple):
    """Pieces of buffers, one behind the other.

    Attributes
    ----------
    buffers
        What they lie in, each (size,) uint8.
    which, starts, lengths
        (n,) int64: the buffer of each piece, where it begins in it, and its bytes.
    """

    buffers: tuple[Bytes, ...]
    which: Ints
    starts: Ints
    lengths: Ints

    @property
    def size(self) -> int:
        """How many bytes they are together."""
        return int(self.lengths.sum())

    def cut(self, start: int, stop: int) -> "Pieces":
        """Give bytes ``[start, stop)`` of all of them; not fewer than one."""
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
        """Give where each piece lies in memory; valid as long as the buffers are.

        Raises
        ------
        FormatError
            If one is not inside its buffer.
        """
        sizes = np.array([each.size for each in self.buffers], np.int64)
        room = sizes[self.which] - self.starts
        # The room is looked at by itself: where it is below zero, what is left of it may be no int64 any more.
        if any((each < 0).any() for each in (self.starts, self.lengths, room, room - self.lengths)):
            raise FormatError("a piece of bytes to write lies outside its buffer")
        bases = np.array([each.ctypes.data for each in self.buffers], np.uint64)
        return bases[self.which] + self.starts.astype(np.uint64)

    def join(self) -> Bytes:
        """Copy them side by side."""
        views = [each.data for each in self.buffers]
        spans = zip(self.which.tolist(), self.starts.tolist(), (self.starts + self.lengths).tolist(), strict=True)
        return np.frombuffer(bytearray().join(views[which][start:stop] for which, start, stop in spans), np.uint8)


def part(data: Data | Pieces, start: int, stop: int) -> Data | Pieces:
    """Give bytes ``[start, stop)`` of them, which are not copied."""
    return data.cut(start, stop) if isinstance(data, Pieces) else memoryview(data)[start:stop]


def contiguous(data: Data | Pieces) -> Data:
    """Give bytes side by side, copied if they lie apart."""
    return data.join().data if isinstance(data, Pieces) else data
