"""The file ``checkpoint``: up to when the parts of a store were surely on the device.

::

     0             8             16            24                32               40            4096
    +-------------+-------------+-------------+-----------------+----------------+-------- … ---+
    | physic      | logics      | index       | master flushed  | confirm        | zeros        |
    | timestamp   | timestamp   | timestamp   | offset, [5]     | offset, [5.1.1]| (kept as is) |
    +-------------+-------------+-------------+-----------------+----------------+-------- … ---+
      int64, ms     int64, ms     int64, ms     int64             int64

All five are lower bounds and advice, nothing more: a checkpoint that is missing, zero or wrong costs time, never data.
RocketMQ: ``StoreCheckpoint``.
"""

import struct
from dataclasses import dataclass
from typing import Final

from ..errors import FormatError

CHECKPOINT_BYTES: Final = 4096
SAFETY_MS: Final = 3000  # recovery starts this much before the checkpoint

_FIELDS: Final = struct.Struct(">5q")


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """Content of a checkpoint. Times are store timestamps in ms; 0 means *unknown*."""

    physic_timestamp: int = 0  # of about the last CommitLog record that was flushed; may be 10 s old
    logics_timestamp: int = 0  # of the last ConsumeQueue entry
    index_timestamp: int = 0  # end of the last index file that was filled and flushed
    master_flushed_offset: int = 0  # RocketMQ 5: physical offset up to which the master has flushed
    confirm_offset: int = 0  # RocketMQ 5.1.1 and later: physical offset up to which records may be dispatched
    rest: bytes = b""
    """The bytes after these fields, without trailing zeros; fields of a later release survive a rewrite."""

    @property
    def min_timestamp(self) -> int:
        """Store time in ms from which recovery after a crash has to look, at the latest."""
        return max(0, min(self.physic_timestamp, self.logics_timestamp) - SAFETY_MS)


def decode(data: bytes) -> Checkpoint:
    """Decode a checkpoint; missing bytes count as zero, as in RocketMQ, and bytes after 4096 are ignored."""
    whole = data[:CHECKPOINT_BYTES].ljust(_FIELDS.size, b"\0")
    physic, logics, index, flushed, confirm = _FIELDS.unpack_from(whole)
    return Checkpoint(
        physic_timestamp=physic,
        logics_timestamp=logics,
        index_timestamp=index,
        master_flushed_offset=flushed,
        confirm_offset=confirm,
        rest=whole[_FIELDS.size :].rstrip(b"\0"),
    )


def encode(checkpoint: Checkpoint) -> bytes:
    """Encode a checkpoint of 4096 bytes; `FormatError` if a number exceeds 64 bits, or ``rest`` the file."""
    try:
        fields = _FIELDS.pack(
            checkpoint.physic_timestamp,
            checkpoint.logics_timestamp,
            checkpoint.index_timestamp,
            checkpoint.master_flushed_offset,
            checkpoint.confirm_offset,
        )
    except struct.error as error:
        raise FormatError(f"the checkpoint has a number of more than 64 bits: {error}") from None
    if len(checkpoint.rest) > CHECKPOINT_BYTES - _FIELDS.size:
        raise FormatError(
            f"{len(checkpoint.rest)} bytes do not fit a checkpoint after its {_FIELDS.size} bytes of fields"
        )
    return (fields + checkpoint.rest).ljust(CHECKPOINT_BYTES, b"\0")
