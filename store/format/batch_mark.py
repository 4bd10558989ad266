"""The batch mark: which part of the log belongs to a batch that readers must not see yet.

::

    .segmentlog/batch
    +---------+----------+----------+----------+-----------+------------------------------+--------+
    | magic   | sequence | start    | stop     | is in     | starts of the batches before | CRC-32 |
    | uint32  | int64    | int64    | int64    | flight, 4 | 64 x int64, -1 for none      | uint32 |
    +---------+----------+----------+----------+-----------+------------------------------+--------+
     0         4          12         20         28          32                             544

    CommitLog   …[rec][rec][batch n .........       in flight: hidden from ``start`` on
                           ▲ start
    CommitLog   …[rec][rec][batch n ...............][rec]…   visible, as a whole
                           ▲ start                 ▲ stop

Batches are numbered; one is in flight at a time. The file is replaced as a whole: before the first byte of a batch is
written, and once all of its queue entries are written. A reader hides all batches that began after its first look. It
finds the first of them among the starts, however many came since.
"""

import struct
import zlib
from typing import Final, NamedTuple

from ..errors import FormatError

BEFORE_MAX: Final = 64  # batches before the last one whose starts are kept
_FIELDS: Final = struct.Struct(">IqqqI")
_STARTS: Final = struct.Struct(f">{BEFORE_MAX}q")
_CRC: Final = struct.Struct(">I")
_MAGIC: Final = 0x5E6109BB
FILE_BYTES: Final = _FIELDS.size + _STARTS.size + _CRC.size
_NONE: Final = -1


class BatchMark(NamedTuple):
    """Mark of the batch that is being appended, or was appended last."""

    sequence: int = 0  # number of the batch; 0 for none
    start: int = 0
    stop: int = 0  # equal to `start` in flight, and for a batch that was undone
    in_flight: bool = False  # whether readers must not see it yet
    before: tuple[int, ...] = ()  # starts of earlier batches, of number `sequence - 1` first, at most `BEFORE_MAX`

    @property
    def visible(self) -> int:
        """Number of the last batch that may be seen."""
        return self.sequence - 1 if self.in_flight else self.sequence

    def begun(self, sequence: int, start: int) -> "BatchMark":
        """Return the mark of a batch after this one, which begins at a physical offset and is in flight."""
        is_next = sequence == self.sequence + 1 and self.sequence > 0
        before = (self.start, *self.before)[:BEFORE_MAX] if is_next else ()
        return BatchMark(sequence, start, start, in_flight=True, before=before)

    def ended(self, stop: int) -> "BatchMark":
        """Return the mark of the same batch, in flight no more, which ends at a physical offset."""
        return self._replace(stop=stop, in_flight=False)

    def start_since(self, sequence: int) -> int | None:
        """Return the least start of the batches from a number on; None if they are not known."""
        starts = (self.start, *self.before)
        count = self.sequence - sequence + 1
        return min(starts[:count]) if 0 < count <= len(starts) else None  # a power cut lets them begin lower again


NO_BATCH: Final = BatchMark()


def encode(mark: BatchMark) -> bytes:
    fields = _FIELDS.pack(_MAGIC, mark.sequence, mark.start, mark.stop, int(mark.in_flight))
    fields += _STARTS.pack(*mark.before, *(_NONE for _ in range(BEFORE_MAX - len(mark.before))))
    return fields + _CRC.pack(zlib.crc32(fields))


def decode(data: bytes | None, path: str) -> BatchMark:
    """Decode the file, `NO_BATCH` for None; `FormatError` if damage hides which rows may be seen."""
    if data is None:
        return NO_BATCH
    fields, crc = data[: -_CRC.size], data[-_CRC.size :]
    if len(data) == FILE_BYTES and crc == _CRC.pack(zlib.crc32(fields)):
        magic, sequence, start, stop, in_flight = _FIELDS.unpack_from(fields)
        if magic == _MAGIC and in_flight in {0, 1}:
            before = tuple(each for each in _STARTS.unpack_from(fields, _FIELDS.size) if each != _NONE)
            return BatchMark(sequence, start, stop, bool(in_flight), before)
    raise FormatError(
        f"the batch mark is damaged: {len(data)} bytes that are not what was written",
        path=path,
        offset=0,
        fix="Take it from a copy of the store; delete it only if no batch was being written when it was damaged",
    )


def hidden_from(seen: BatchMark, now: BatchMark) -> int | None:
    """Return the physical offset from which on a reader sees nothing, or None; ``seen`` is its first look."""
    # `now` was read after the ends of queues. Batches that began after the first look are hidden, or a reader would see
    # parts of them.
    if now.sequence <= seen.visible:
        return None
    start = now.start_since(seen.visible + 1)
    if start is not None:
        return start
    # More batches came than are known. Messages put between two of them are hidden, too, until the next look.
    return seen.start if seen.in_flight else seen.stop
