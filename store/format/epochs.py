"""Epochs: the masters that wrote a log one after the other, and the physical offset at which each of them began.

::

    log       [rec][rec][rec]│[rec][rec]│[rec]…
    epoch     0              │ 1        │ 3             one begins where its master was promoted
                             └ start    └ start

    .segmentlog/epochs; a master sends the same bytes to replicas of segmentlog
    +--------+--------+--------------------------+ … +--------+
    | magic  | number | epoch    start    token  |   | CRC-32 |        epochs rise; at most `EPOCHS_MAX` of them
    | uint32 | int32  | int64    int64    int64  |   | uint32 |
    +--------+--------+--------------------------+ … +--------+

    .segmentlog/superseded
    | magic uint32 | epoch int64 | CRC-32 uint32 |               the greatest epoch of a master that replaced this one

    ours    0  1/x        │ end          1/x: epoch and token, a random number by which two stores differ
    theirs  0  1/x  2/y                  that were promoted to the same epoch
                    ▲ parting            both logs have the same masters before it

RocketMQ's counterpart is the ``EpochEntry`` of its controller mode, which has another protocol. It ignores both files.
"""

import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, Self

from ..errors import FormatError

EPOCHS_MAX: Final = 1000  # promotions that are kept; the oldest ones are dropped
EPOCH_MAX: Final = 1 << 40
"""Largest epoch that is accepted: no store is promoted so often, and sums of it stay within 64 bits."""

_MAGIC: Final = 0x5E610E90
_MAGIC_SUPERSEDED: Final = 0x5E610E91
_HEAD: Final = struct.Struct(">Ii")
_ENTRY: Final = struct.Struct(">qqq")
_EPOCH: Final = struct.Struct(">Iq")
_CRC: Final = struct.Struct(">I")
FILE_BYTES_MAX: Final = _HEAD.size + EPOCHS_MAX * _ENTRY.size + _CRC.size  # largest size of the encoded epochs
SUPERSEDED_BYTES: Final = _EPOCH.size + _CRC.size  # size of the encoded superseding epoch


class Epoch(NamedTuple):
    """One master of a log."""

    number: int  # 1 for the first promotion; epoch 0 is a log without promotion
    start: int  # physical offset of the first byte that this master may have written
    token: int  # random, 63 bits


@dataclass(frozen=True, slots=True)
class Epochs:
    """Masters of one log, the oldest first; epoch 0 from physical offset 0 on is not listed."""

    history: tuple[Epoch, ...] = ()

    @property
    def newest(self) -> int:
        """Number of the last epoch; 0 without any."""
        return self.history[-1].number if self.history else 0

    def promoted(self, end: int, token: int, above: int = 0) -> Self:
        """Return the epochs of a log that ends at ``end`` after the promotion of its store; ``token`` is random."""
        # Epochs that begin at `end` or later have no byte in this log. The new epoch exceeds all of them, and `above`.
        number = max(self.newest, above) + 1
        if number > EPOCH_MAX:
            raise FormatError(f"the epoch {number} is greater than any that a store can have")
        kept = [each for each in self.history if each.start < end]
        return type(self)((*kept[1 - EPOCHS_MAX :], Epoch(number, end, token)))

    def parting(self, other: "Epochs") -> int | None:
        """Return the physical offset before which two logs have the same masters; None if neither log has others."""
        shared = set(self.history) & set(other.history)
        common = max((each.number for each in shared), default=0)
        return min((each.start for each in {*self.history, *other.history} if each.number > common), default=None)


def encode(epochs: Epochs) -> bytes:
    fields = _HEAD.pack(_MAGIC, len(epochs.history)) + b"".join(_ENTRY.pack(*each) for each in epochs.history)
    return fields + _CRC.pack(zlib.crc32(fields))


def decode(data: bytes, path: str | None = None) -> Epochs:
    """Decode the epochs of a log; `FormatError`, which names ``path``, for damaged bytes or epochs that do not rise."""
    count = (len(data) - _HEAD.size - _CRC.size) // _ENTRY.size
    is_whole = _is_whole(data, _HEAD.size + count * _ENTRY.size) and 0 <= count <= EPOCHS_MAX
    if not is_whole or _HEAD.unpack_from(data) != (_MAGIC, count):
        raise _damaged("epochs of this log are", path)
    history = tuple(map(Epoch._make, _ENTRY.iter_unpack(data[_HEAD.size : -_CRC.size])))
    rise = all(one.number < after.number and one.start <= after.start for one, after in pairwise(history))
    if not rise or any(each.start < 0 or not 1 <= each.number <= EPOCH_MAX or each.token < 0 for each in history):
        raise _damaged("epochs of this log are", path)
    return Epochs(history)


def encode_superseded(epoch: int) -> bytes:
    """Encode the epoch of the master that replaced this one."""
    fields = _EPOCH.pack(_MAGIC_SUPERSEDED, epoch)
    return fields + _CRC.pack(zlib.crc32(fields))


def decode_superseded(data: bytes, path: str | None = None) -> int:
    """Decode the epoch of the master that replaced this one; raises as `decode` does."""
    if not _is_whole(data, _EPOCH.size):
        raise _damaged("superseding epoch is", path)
    magic, epoch = _EPOCH.unpack_from(data)
    if magic != _MAGIC_SUPERSEDED or not 1 <= epoch <= EPOCH_MAX:
        raise _damaged("superseding epoch is", path)
    return int(epoch)


def _is_whole(data: bytes, size: int) -> bool:
    return size > 0 and len(data) == size + _CRC.size and _CRC.unpack_from(data, size)[0] == zlib.crc32(data[:size])


def _damaged(what: str, path: str | None) -> FormatError:
    return FormatError(
        f"the {what} damaged",
        path=path,
        fix="Take the file from the copy that the store is from. Without it, the store counts as never promoted",
    )
