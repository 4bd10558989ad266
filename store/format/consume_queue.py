"""ConsumeQueue entries: bytes to arrays and back.

A segment is a run of 20-byte entries, big-endian, with no header and no padding; entry q of the queue is message q::

     0                  8           12              20
    +------------------+-----------+---------------+
    | physical_offset  |   size    |   tags_code   |
    |      int64       |   int32   |     int64     |
    +------------------+-----------+---------------+

The tags code is Java's hash of the TAGS text, sign-extended. For SCHEDULE_TOPIC_XXXX it is the time of delivery; far
below zero it is an address in the ConsumeQueue extension. An entry of zeros was never written. A *pad*
entry (offset 0, size 2³¹ - 1) fills the front of a queue that began in its middle. RocketMQ: ``ConsumeQueue``,
``ConsumeQueueExt``.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from .message import MIN_RECORD_BYTES, Ints, Mask
from .naming import segment_name

ENTRY: Final = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
ENTRY_BYTES: Final = 20
assert ENTRY.itemsize == ENTRY_BYTES  # without padding

NATIVE: Final = np.dtype([("physical_offset", "i8"), ("size", "i8"), ("tags_code", "i8")])
"""The same columns as the machine likes them; sizes in int64, so that sums of them are."""

PAD_SIZE: Final = (1 << 31) - 1
EXTENSION_ADDRESS_MAX: Final = -(1 << 31) - 1  # tags codes at or below are addresses in consumequeue_ext/

Entries = npt.NDArray[np.void]


def decode(buffer: bytes | memoryview) -> Entries:
    """Decode whole entries into an (n,) array of `NATIVE`, a copy; `FormatError` if the bytes end inside an entry."""
    if len(buffer) % ENTRY_BYTES:
        raise FormatError(f"{len(buffer)} bytes are not a whole number of 20-byte ConsumeQueue entries")
    return np.frombuffer(buffer, ENTRY).astype(NATIVE)


def encode(entries: Entries) -> bytes:
    """Turn columns named as `ENTRY`'s into the bytes of a ConsumeQueue."""
    return entries.astype(ENTRY, copy=False).tobytes()


def from_columns(dtype: np.dtype[np.void], physical_offset: Ints, size: Ints, tags_code: Ints) -> Entries:
    """Make (n,) entries of int64 columns: ``dtype`` is `ENTRY` for bytes to be written, `NATIVE` to compute with."""
    entries = np.empty(physical_offset.size, dtype)
    entries["physical_offset"] = physical_offset
    entries["size"] = size
    entries["tags_code"] = tags_code
    return entries


def some(entries: Entries, rows: Ints | Mask | slice) -> Entries:
    """Select some entries: numpy copies rows of several fields field by field, and rows of plain bytes at once."""
    if isinstance(rows, slice):
        return entries[rows]
    plain = _plain(entries)
    chosen = plain.compress(rows) if rows.dtype == np.bool_ else plain.take(rows)
    return chosen.view(entries.dtype)


def joined(parts: Sequence[Entries]) -> Entries:
    """Concatenate runs of entries; see `some`."""
    return np.concatenate([*map(_plain, parts)]).view(parts[0].dtype)


def _plain(entries: Entries) -> Entries:
    return entries.view(f"V{entries.dtype.itemsize}")


class FilePiece(NamedTuple):
    """Entries that go side by side into one file."""

    name: str  # of the file
    position: int  # of the first entry, in bytes from the start of the file
    entries: Entries  # (n,) a view of the entries that were cut


def by_file(start: int, entries: Entries, per_file: int) -> Iterator[FilePiece]:
    """Cut entries, the first of which has queue offset ``start``, where files of ``per_file`` entries begin."""
    at = 0
    while at < entries.size:
        row = (start + at) % per_file
        stop = at + per_file - row
        yield FilePiece(segment_name((start + at - row) * ENTRY_BYTES), row * ENTRY_BYTES, entries[at:stop])
        at = stop


def pads(count: int) -> Entries:
    """Pad entries, (count,) `NATIVE`, for the front of a file whose queue begins in its middle."""
    made = np.zeros(count, NATIVE)
    made["size"] = PAD_SIZE
    return made


def is_pad(entries: Entries) -> Mask:
    """Mask of entries that fill the front of a queue and name no message."""
    # ``ConsumeQueue.recover`` counts them as written, since their size is over 0 (``fillPreBlank``).
    pads: Mask = (entries["physical_offset"] == 0) & (entries["size"] == PAD_SIZE)
    return pads


def is_plausible(entries: Entries) -> Mask:
    """Mask of entries that can name a record: written, not pads, and of possible offset and size."""
    size = entries["size"]
    return (entries["physical_offset"] >= 0) & (size >= MIN_RECORD_BYTES) & (size < PAD_SIZE)


def repeats_next(entries: Entries) -> Mask:
    """Mask, (n,), of the first n of n + 1 entries that name the record of their successor: lost messages."""
    # A broker never appends a record to its queue twice; `rebuild` and `salvage` do, see `entry_placement`.
    same: Mask = entries["physical_offset"][:-1] == entries["physical_offset"][1:]
    if same.any():
        same &= (entries["size"][:-1] == entries["size"][1:]) & is_plausible(entries[:-1])
    return same
