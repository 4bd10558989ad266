"""Records of a batch before the put lock: their layout in memory, and the numbers written into them under the lock.

::

    whole     [HEADER|body|topic|properties][HEADER|body|topic|properties]…     one run of bytes, as the log has it
    apart     [HEADER|topic|properties][HEADER|topic|properties]…               frames; bodies stay where they are
                 ▲                ▲
                 │                └ patch: [0x02] __CRC32# 0x01 ddd…d 0x02, of all before it
                 └ patch: queue offset, physical offset, store timestamp

The checksum of a record is derived from those of its body and its frame, before its offsets are known. It is adjusted
for the offsets (`checksums`), and the body is not read again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from .buffers import Data, Pieces
from .checksums import (
    RecordCrc,
    Words,
    are_short,
    covered_bytes,
    crc32_ranges,
    joined_crcs,
    moved_crcs,
    record_crcs,
    write_crcs,
)
from .message import (
    CRC_MASK,
    HEADER,
    IPV6_EXTRA_BYTES,
    RECORD_CRC_BYTES,
    SYS_BORN_HOST_V6,
    SYS_FLAG_AT,
    Bytes,
    Ints,
    field_at,
    gather,
    scatter,
)

Integers: TypeAlias = int | npt.NDArray[np.integer]  # one value for all records, or an (n,) array

_INT32: Final = np.dtype(">i4")
_QUEUE_AT: Final = field_at("queue_offset")
_LOG_AT: Final = field_at("physical_offset")
_STORED_AT: Final = field_at("store_timestamp")


class BodiesApart(NamedTuple):
    """Bodies that are not in their records' frames."""

    data: Bytes  # (size,) the caller's memory
    starts: Ints  # (n,) positions in `data`
    lengths: Ints  # (n,)
    at: Ints  # (n,) bytes of the frame before each body


class Frames(NamedTuple):
    """Records laid out in memory."""

    data: Bytes  # (size,) writable: all records, adjacent, without separate bodies
    positions: Ints  # (n,) start of each record in `data`
    stops: Ints  # (n,)
    bodies: BodiesApart | None = None  # None if they are in `data`
    crcs: Ints | None = None
    """(n,) checksums of the records before `patch`; None if there are none, or they are unknown."""

    def summed(self, heads: Ints, body_lengths: Ints, body_crcs: Words) -> "Frames":
        """Return the same frames with the checksums of their records, without reading the bodies."""
        # `heads` are the (n,) bytes of each record before its body; `body_crcs` (n,) have all 32 bits.
        cuts, ends = self.positions + heads, self.stops - RECORD_CRC_BYTES
        # A call for the whole of a short record costs less than the look-ups, and no more than one for its tail alone.
        if self.bodies is None and are_short(self.data.size, self.positions, ends):
            return self._replace(crcs=crc32_ranges(self.data.data, self.positions, ends))
        behind = cuts + body_lengths if self.bodies is None else cuts
        whole = joined_crcs(self.data, (self.positions, cuts), body_crcs, body_lengths, (behind, ends))
        return self._replace(crcs=whole.astype(np.int64) & CRC_MASK)

    def to_write(self) -> Data | Pieces:
        """Return the bytes of all records in log order; nothing is copied."""
        if self.bodies is None:
            return self.data.data
        rows = self.positions.size
        cuts = self.positions + self.bodies.at
        which, starts, lengths = (np.zeros(2 * rows + 1, np.int64) for _ in range(3))
        which[1::2] = 1
        starts[1::2], lengths[1::2] = self.bodies.starts, self.bodies.lengths
        starts[2::2] = cuts
        lengths[0:-1:2] = cuts
        lengths[2:-1:2] -= cuts[:-1]
        lengths[-1] = self.data.size - cuts[-1]
        return Pieces((self.data, self.bodies.data), which, starts, lengths)


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Records of a batch, as parts that are not laid out yet."""

    positions: Ints  # (n,) start of each record among the bytes of all
    sizes: Ints  # (n,) bytes of each record
    lay: Callable[[], Frames]

    def join(self) -> Bytes:
        """Return (bytes,) uint8, writable and the caller's: all records, adjacent. To be called once, as ``lay``."""
        frames = self.lay()
        laid = frames.to_write()
        return laid.join() if isinstance(laid, Pieces) else frames.data


def patch(
    buffer: Bytes | bytearray | memoryview,
    positions: Ints,
    stops: Ints | None = None,
    *,
    queue_offsets: Integers,
    physical_offsets: Integers,
    store_timestamps: Integers,
    record_crc: RecordCrc = RecordCrc.ABSENT,
    crcs: Ints | None = None,
) -> None:
    """Write offsets and store times, known only under the put lock, into encoded records, in place.

    ``positions`` (n,) are the starts of the records. Records whose bodies are apart need ``stops``, their ends, and
    ``crcs``, their checksums so far (`checksums.record_crcs`); without these all bytes are read. `FormatError` if a
    record is outside the buffer, or checksums are missing.
    """
    if not len(positions):
        return
    data = np.frombuffer(buffer, np.uint8)
    if int(positions.min()) < 0 or int(positions.max()) + HEADER.itemsize > len(data):
        raise FormatError(f"records to patch are outside a buffer of {len(data)} bytes")
    covered = covered_bytes(data, positions, stops) if record_crc is RecordCrc.PROPERTY else None
    final = None if covered is None or crcs is None else crcs.copy()
    for rows, extra in _by_born_host(data, positions):
        queue, log, stored = (_some(each, rows) for each in (queue_offsets, physical_offsets, store_timestamps))
        queue_at, log_at, stored_at = _QUEUE_AT, _LOG_AT, _STORED_AT + extra
        if final is not None and covered is not None:
            final[rows] = moved_crcs(final[rows], covered[rows], {queue_at: queue, log_at: log, stored_at: stored})
        places = np.empty((len(positions[rows]), 2), ">i8")  # of queue and log: they are side by side in a record
        places[:, 0], places[:, 1] = queue, log
        scatter(data, positions[rows] + queue_at, places.view("V16")[:, 0])
        times = np.empty(len(places), ">i8")
        times[:] = stored
        scatter(data, positions[rows] + stored_at, times)
    if covered is not None:
        whole = positions + covered + RECORD_CRC_BYTES
        ends = whole if stops is None else stops
        if final is None and (ends != whole).any():
            raise FormatError("records to patch have their bodies elsewhere, and no checksums")
        write_crcs(data, ends, record_crcs(data, positions, covered) if final is None else final)


def _by_born_host(data: Bytes, positions: Ints) -> Iterator[tuple[Ints | slice, int]]:
    """Yield the records, mostly all at once, by the bytes that their born host moves the fields after it."""
    v6 = gather(data, positions + SYS_FLAG_AT, _INT32) & np.int32(SYS_BORN_HOST_V6) != 0
    if v6.all() or not v6.any():
        yield slice(None), IPV6_EXTRA_BYTES * bool(v6[0])
        return
    yield np.flatnonzero(~v6), 0
    yield np.flatnonzero(v6), IPV6_EXTRA_BYTES


def _some(values: Integers, rows: Ints | slice) -> Ints | int:
    return values if isinstance(values, int) else values[rows].astype(np.int64, copy=False)
