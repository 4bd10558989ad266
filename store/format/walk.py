"""Walk over a segment: records found without known positions.

::

    [rec][rec][rec]##########[rec][rec][B].......       ## damage      B blank record: the segment ends here
     ▲    ▲    ▲              ▲    ▲                   ▲ begins four bytes before a magic, and states its own offset

    followed    |──►──►──►──|──►──►──►──|──►──►──       sizes, from the first record of each block, all blocks at once:
                heads        heads       heads          each chain has to end at the head of the next block
    searched                  ##########──►             from the first place where a chain breaks

    with a lead  |══[rec]══[rec]══[rec]══[rec]-1      the header of a DLedger entry before each record

RocketMQ follows the sizes from record to record and stops at the first invalid one (``CommitLog.recoverNormally``,
``ReputMessageService``). Here damage costs only the damaged records.
"""

from typing import Final, NamedTuple

import numpy as np

from ..errors import FormatError
from . import dledger
from .message import MIN_RECORD_BYTES, Bytes, Ints, Mask, Problem, Records, gather, is_blank

_SCAN_BYTES: Final = 1 << 20
_WINDOW_BYTES: Final = 8 << 20  # followed at once: fits into the processor's cache
_BLOCK_BYTES: Final = 1 << 15
_HEAD_BYTES: Final = 1 << 10  # of a block, searched for its first record
_FOLLOWED_MIN: Final = 1 << 18  # bytes that are worth it
_STEPS_MAX: Final = 2 * _BLOCK_BYTES // MIN_RECORD_BYTES  # a step for sizes that are no records costs as much
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


def walk(buffer: Bytes, base: int, start: int, stop: int, lead: int = 0) -> Walk:
    """Find the whole records that begin in ``buffer[start:stop]``, a segment that begins at ``base``.

    Before each record are ``lead`` bytes: the header of an entry in a DLedger log. ``start`` may be before or after it.
    """
    # Every record begins four bytes before its magic and states its own physical offset. So a vectorised search finds
    # candidates, and a chain of sizes only has to agree with them. A damaged record costs itself alone. To follow the
    # sizes reads fewer bytes, and finds the same records until one is damaged.
    if not 0 <= start <= stop <= buffer.size:
        raise FormatError(f"a walk from {start} to {stop} leaves a buffer of {buffer.size} bytes")
    followed, end = _followed(buffer, base, start, stop, lead)
    records, whole = _located(buffer, base, end, stop, followed, lead=lead)
    if not whole[: followed.size].all():  # a damaged record may hold whole ones
        records, whole = _located(buffer, base, start, stop, followed[:0], lead=lead)
    candidates = records.positions
    positions, sizes = candidates[whole], records.field("total_size")[whole]
    if positions.size and not (positions[1:] >= positions[:-1] + sizes[:-1]).all():
        keep = _chain(positions, sizes)
        positions, sizes = positions[keep], sizes[keep]
    edges = np.concatenate([[start], positions + sizes])  # where a record may begin
    damage: list[tuple[int, int]] = []
    begins = _begins(buffer, base, positions, sizes) if lead else positions
    is_apart = begins != edges[:-1]
    is_apart[:1] &= positions[:1] != start
    for gap in np.flatnonzero(is_apart):
        if ends_segment(buffer, int(edges[gap]), lead):
            # The bytes after a blank record are left over from an earlier use of the file.
            positions, sizes, edges = positions[:gap], sizes[:gap], edges[: gap + 1]
            break
        damage.append((int(edges[gap]), int(begins[gap])))
    end = int(edges[-1])
    blank = ends_segment(buffer, end, lead)
    if blank:
        end = buffer.size
    elif stop - end > lead and buffer[end:stop].any():
        damage.append((end, stop))
    if positions.size < candidates.size:
        records = Records(buffer, positions)
    return Walk(records, sizes, damage, end, blank)


def glance(buffer: Bytes, starts: Ints, bases: Ints) -> tuple[Records, Ints]:
    """Find the whole records in pieces of segments that lie in one buffer; return them and their physical offsets.

    Piece k begins at position ``starts[k]`` of the buffer, and at physical offset ``bases[k]``.
    """
    positions = _before_magics(buffer, 0, buffer.size)
    piece = np.searchsorted(starts, positions, "right") - 1
    physical = bases[piece] + positions - starts[piece]
    honest = gather(buffer, positions + 28, _INT64) == physical if positions.size else np.empty(0, np.bool_)
    records = Records(buffer, positions[honest])
    ends = np.append(starts[1:], buffer.size)[piece[honest]]
    whole = (records.problem == Problem.OK) & (records.positions + records.field("total_size") <= ends)
    return records.take(whole), physical[honest][whole]


def ends_segment(buffer: Bytes, position: int, lead: int = 0) -> bool:
    """Return whether a blank record, or a blank entry, ends the segment at a position; see `walk` for ``lead``."""
    return dledger.is_blank(buffer, position) if lead else is_blank(buffer, position)


def _begins(buffer: Bytes, base: int, positions: Ints, sizes: Ints) -> Ints:
    """Where the entries of records begin, (n,): with their headers, if these are right."""
    right = dledger.have_headers(buffer, base, positions, sizes)
    return np.where(right, positions - dledger.HEADER_BYTES, positions)


def _located(buffer: Bytes, base: int, end: int, stop: int, followed: Ints, *, lead: int) -> tuple[Records, Mask]:
    """Records that were followed, and candidates after them; which of them are whole and state their own offset."""
    is_ended = end >= stop or ends_segment(buffer, end, lead)
    found = followed if is_ended else np.concatenate([followed, _candidates(buffer, base, end, stop)])
    records = Records(buffer, found)
    return records, (records.problem == Problem.OK) & (records.field("physical_offset") == base + found)


def _followed(buffer: Bytes, base: int, start: int, stop: int, lead: int) -> tuple[Ints, int]:
    """Positions of records side by side, as their sizes state, from ``start`` on; where the last one ends."""
    found: list[Ints] = [np.empty(0, np.int64)]
    end = start
    while stop - end >= _FOLLOWED_MIN:
        window = min(end + _WINDOW_BYTES, stop)
        positions, end = _chained(buffer, _heads(buffer, base, end, window), end, window, lead)
        found.append(positions)
        if end + lead < window:
            break
    return np.concatenate(found), end


def _heads(buffer: Bytes, base: int, start: int, stop: int) -> Ints:
    """Return the first candidate near the start of each block, if there is one."""
    width = _HEAD_BYTES
    blocks = np.arange(start, min(stop, buffer.size - width - MIN_RECORD_BYTES), _BLOCK_BYTES)
    bytes_of = gather(buffer, blocks + 4, np.dtype(f"V{width + 2}")).view(np.uint8).reshape(-1, width + 2)
    hits = [np.flatnonzero(bytes_of[:, at : at + width].view("<u2") == _MAGIC_PAIR) * 2 + at for at in range(2)]
    found = np.sort(np.concatenate(hits))
    block = found // width  # an odd position is within the same row, since the width is even
    positions = blocks[block] + found % width
    stated: Ints = gather(buffer, positions + 28, _INT64)
    honest = (stated == base + positions) & (positions < stop)
    block, positions = block[honest], positions[honest]
    is_first = np.ones(block.size, np.bool_)
    is_first[1:] = block[1:] != block[:-1]
    heads: Ints = positions[is_first]
    return heads


def _chained(buffer: Bytes, heads: Ints, start: int, stop: int, lead: int) -> tuple[Ints, int]:
    """Follow the sizes from all heads at once, up to where a chain does not end at the next head."""
    if not heads.size or heads[0] not in {start, start + lead}:
        return heads[:0], start
    ends, last = np.append(heads[1:], stop), buffer.size - MIN_RECORD_BYTES
    here, steps = heads, [heads]
    for _ in range(_STEPS_MAX):
        after = here + gather(buffer, here, _INT32) + lead
        moves = (here < ends) & (after >= here + MIN_RECORD_BYTES) & (after <= last)
        if not moves.any():
            break
        here = np.where(moves, after, here)  # a chain that has ended repeats its end, the next head
        steps.append(here)
    broken = np.flatnonzero(here[:-1] != heads[1:])
    end = int(here[broken[0] if broken.size else -1])
    if broken.size and end > ends[broken[0]]:  # over the next head
        end = int(heads[broken[0]])
    positions = np.stack(steps, axis=1).ravel()
    is_new = np.ones(positions.size, np.bool_)
    is_new[1:] = positions[1:] != positions[:-1]
    positions = positions[is_new]
    return positions[: int(np.argmax(positions >= end))], max(end - lead, start)  # there is one


def _candidates(buffer: Bytes, base: int, start: int, stop: int) -> Ints:
    """Positions whose next bytes look like the start of a record that states this very physical offset."""
    found: list[Ints] = []
    for block in range(start, stop, _SCAN_BYTES):
        positions = _before_magics(buffer, block, min(block + _SCAN_BYTES, stop))
        if positions.size:  # while the block is in the processor's cache
            stated: Ints = gather(buffer, positions + 28, _INT64)
            found.append(positions[stated == base + positions])
    honest: Ints = np.concatenate(found) if found else np.empty(0, np.int64)
    # A piece of a log mostly ends within a record: without it all candidates are whole, and are located once.
    while honest.size and int(gather(buffer, honest[-1:], _INT32)[0]) > buffer.size - int(honest[-1]):
        honest = honest[:-1]
    return honest


def _before_magics(buffer: Bytes, start: int, stop: int) -> Ints:
    """Positions from ``start`` to ``stop``, in order, four bytes before what may be a magic."""
    piece = buffer[start + 4 : min(stop + 4 + 1, buffer.size)]
    halves = (piece[phase : phase + (piece.size - phase) // 2 * 2].view("<u2") for phase in range(2))
    even, odd = (np.flatnonzero(pairs == _MAGIC_PAIR) * 2 for pairs in halves)
    positions: Ints = np.sort(np.concatenate([even, odd + 1])) + start
    return positions[positions <= buffer.size - MIN_RECORD_BYTES]


def _chain(positions: Ints, sizes: Ints) -> Ints:
    """Of overlapping candidates, keep the chain of sizes: a body may hold a copy of a record."""
    keep: list[int] = []
    ends = positions + sizes
    index = 0
    while index < positions.size:
        keep.append(index)
        index = int(np.searchsorted(positions, ends[index]))
    return np.array(keep, np.int64)
