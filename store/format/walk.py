"""Walk over a segment: records found without known positions.

::

    [rec][rec][rec]##########[rec][rec][B].......       ## damage      B blank record: the segment ends here
     ▲    ▲    ▲              ▲    ▲                   ▲ begins four bytes before a magic, and states its own offset

RocketMQ follows the sizes from record to record and stops at the first invalid one (``CommitLog.recoverNormally``,
``ReputMessageService``). Here damage costs only the damaged records.
"""

from typing import Final, NamedTuple

import numpy as np

from ..errors import FormatError
from .message import MIN_RECORD_BYTES, Bytes, Ints, Problem, Records, gather, is_blank

_SCAN_BYTES: Final = 1 << 20
_MAGIC_PAIR: Final = np.uint16(0xA3DA)  # two of the three bytes that both magics share, as a little-endian word
_INT32: Final = np.dtype(">i4")
_INT64: Final = np.dtype(">i8")


class Walk(NamedTuple):
    """Records between two positions of a segment."""

    records: Records  # whole, in order, stating their own physical offset
    sizes: Ints  # (n,) bytes of each record
    damage: list[tuple[int, int]]  # spans that hold neither whole records, a blank record, nor zeros
    end: int  # end of the last whole record or the blank after it, else `start`
    blank: bool  # whether a blank record ends the segment

    @property
    def positions(self) -> Ints:
        return self.records.positions


def walk(buffer: Bytes, base: int, start: int, stop: int) -> Walk:
    """Find the whole records that begin in ``buffer[start:stop]``, a segment that begins at ``base``."""
    # Every record begins four bytes before its magic and states its own physical offset. So a vectorised search finds
    # candidates, and a chain of sizes only has to agree with them. A damaged record costs itself alone.
    if not 0 <= start <= stop <= buffer.size:
        raise FormatError(f"a walk from {start} to {stop} leaves a buffer of {buffer.size} bytes")
    candidates = _candidates(buffer, base, start, stop)
    records = Records(buffer, candidates)
    total = records.field("total_size")
    whole = (records.problem == Problem.OK) & (records.field("physical_offset") == base + candidates)
    positions, sizes = candidates[whole], total[whole]
    if positions.size and not (positions[1:] >= positions[:-1] + sizes[:-1]).all():
        keep = _chain(positions, sizes)
        positions, sizes = positions[keep], sizes[keep]
    edges = np.concatenate([[start], positions + sizes])  # where a record may begin
    damage: list[tuple[int, int]] = []
    for gap in np.flatnonzero(positions != edges[:-1]):
        if is_blank(buffer, int(edges[gap])):
            # The bytes after a blank record are left over from an earlier use of the file.
            positions, sizes, edges = positions[:gap], sizes[:gap], edges[: gap + 1]
            break
        damage.append((int(edges[gap]), int(positions[gap])))
    end = int(edges[-1])
    blank = is_blank(buffer, end)
    if blank:
        end = buffer.size
    elif buffer[end:stop].any():
        damage.append((end, stop))
    if positions.size < candidates.size:
        records = Records(buffer, positions)
    return Walk(records, sizes, damage, end, blank)


def _candidates(buffer: Bytes, base: int, start: int, stop: int) -> Ints:
    """Positions whose next bytes look like the start of a record that states this very physical offset."""
    found: list[Ints] = []
    for block in range(start, stop, _SCAN_BYTES):
        # Magics are looked for where records that begin in this block would have theirs.
        lo, hi = block + 4, min(block + _SCAN_BYTES, stop) + 4 + 1
        piece = buffer[lo : min(hi, buffer.size)]
        halves = (piece[phase : phase + (piece.size - phase) // 2 * 2].view("<u2") for phase in range(2))
        even, odd = (np.flatnonzero(pairs == _MAGIC_PAIR) * 2 for pairs in halves)
        positions = np.sort(np.concatenate([even, odd + 1])) + block
        positions = positions[positions <= buffer.size - MIN_RECORD_BYTES]
        if positions.size:  # while the block is in the processor's cache
            stated: Ints = gather(buffer, positions + 28, _INT64)
            found.append(positions[stated == base + positions])
    honest: Ints = np.concatenate(found) if found else np.empty(0, np.int64)
    # A piece of a log mostly ends within a record: without it all candidates are whole, and are located once.
    while honest.size and int(gather(buffer, honest[-1:], _INT32)[0]) > buffer.size - int(honest[-1]):
        honest = honest[:-1]
    return honest


def _chain(positions: Ints, sizes: Ints) -> Ints:
    """Of overlapping candidates, keep the chain of sizes: a body may hold a copy of a record."""
    keep: list[int] = []
    ends = positions + sizes
    index = 0
    while index < positions.size:
        keep.append(index)
        index = int(np.searchsorted(positions, ends[index]))
    return np.array(keep, np.int64)
