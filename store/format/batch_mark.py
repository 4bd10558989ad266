"""The batch mark: which part of the log belongs to a batch that readers must not see yet.

::

    .segmentlog/batch
    +---------+----------+----------+----------+-----------+--------+
    | magic   | sequence | start    | stop     | is in     | CRC-32 |
    | uint32  | int64    | int64    | int64    | flight, 4 | uint32 |
    +---------+----------+----------+----------+-----------+--------+
     0         4          12         20         28          32

    CommitLog   …[rec][rec][batch n .........       in flight: hidden from ``start`` on
                           ▲ start
    CommitLog   …[rec][rec][batch n ...............][rec]…   visible, as a whole
                           ▲ start                 ▲ stop

Batches are numbered; one is in flight at a time. The file is replaced as a whole: before the first byte of a batch is
written, and once all of its queue entries are written.
"""

import struct
import zlib
from typing import Final, NamedTuple

from ..errors import FormatError

_FIELDS: Final = struct.Struct(">IqqqI")
_CRC: Final = struct.Struct(">I")
_MAGIC: Final = 0x5E6109BA
FILE_BYTES: Final = _FIELDS.size + _CRC.size


class BatchMark(NamedTuple):
    """Which batch is being appended, or was the last.

    Attributes
    ----------
    sequence
        Number of the batch; 0 for none.
    start, stop
        Physical offsets; ``stop`` is that of ``start`` while it is in flight, and of a batch that was undone.
    in_flight
        Whether readers must not see it yet.
    """

    sequence: int = 0
    start: int = 0
    stop: int = 0
    in_flight: bool = False

    @property
    def visible(self) -> int:
        """Number of the last batch that may be seen."""
        return self.sequence - 1 if self.in_flight else self.sequence


NO_BATCH: Final = BatchMark()


def encode(mark: BatchMark) -> bytes:
    """Encode the file."""
    fields = _FIELDS.pack(_MAGIC, mark.sequence, mark.start, mark.stop, int(mark.in_flight))
    return fields + _CRC.pack(zlib.crc32(fields))


def decode(data: bytes | None, path: str) -> BatchMark:
    """Read the bytes of the file; `NO_BATCH` where there is none.

    Raises
    ------
    FormatError
        If it is damaged: which rows may be seen is not known then.
    """
    if data is None:
        return NO_BATCH
    if len(data) == FILE_BYTES and _CRC.unpack_from(data, _FIELDS.size)[0] == zlib.crc32(data[: _FIELDS.size]):
        magic, sequence, start, stop, in_flight = _FIELDS.unpack_from(data)
        if magic == _MAGIC and in_flight in {0, 1}:
            return BatchMark(sequence, start, stop, bool(in_flight))
    raise FormatError(
        f"the batch mark is damaged: {len(data)} bytes that are not what was written",
        path=path,
        offset=0,
        fix="Take it from a copy of the store; delete it only if no batch was being written when it was damaged",
    )


def hidden_from(seen: BatchMark, now: BatchMark) -> int | None:
    """Say from which physical offset on a reader sees nothing.

    Parameters
    ----------
    seen
        The mark when the reader first looked: what came later is not for it, or it would see parts of a batch.
    now
        The mark after it read the ends of queues.

    Returns
    -------
    int or None
        None if nothing is hidden.
    """
    if now.sequence <= seen.visible:
        return None
    if now.sequence == seen.visible + 1:
        return now.start
    return seen.start if seen.in_flight else seen.stop
