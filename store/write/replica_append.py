"""Replica append: bytes of another store's CommitLog are appended at the end of this one, record by record.

::

    other log   [rec][rec][rec][BLANK....]│[rec] …       sent in pieces of any size
    piece                ec][rec][re
                         │        └ kept until the rest of the record comes
                         └ continues what was kept
    this log    [rec][rec]                                whole records, byte for byte, dispatched like others

    other log   [rec][BLANK filler.....]│[rec]            the rest of a segment: a broker may leave anything
    this log    [rec][      filler.....]                  written first
                     [BLANK]            │                 written when the filler is whole; the log ends at │ then

Each piece continues where the last one ended, or begins again at the end of this log. An empty log begins at any
segment. Sizes, physical offsets and checksums of records are checked before they are written. ``__CRC32#`` is checked
only if this store relies on it: a client may have forwarded it. RocketMQ: ``HAClient``, ``CommitLog.appendData``.
"""

from typing import Final

import numpy as np

from ..config import StoreConfig
from ..errors import ConfigError, FormatError, StoreFailedError
from ..format.checksums import check_crcs, ends_in_crc
from ..format.message import (
    BLANK_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    Bytes,
    Ints,
    Problem,
    Records,
    blank_record,
)
from ..format.properties import Properties
from ..format.walk import walk
from .put_path import PutPath

_ZEROS: Final = 1 << 20
_INT32: Final = np.dtype(">i4")
_FIX: Final = "Send the other store's log again from this log's end; if the error comes back, that log is damaged"


class ReplicaAppend:
    """Appends the bytes of another log. Thread-safe: one piece at a time."""

    def __init__(self, put_path: PutPath, config: StoreConfig, path: str) -> None:
        self._put_path = put_path
        self._segment_bytes = config.segment_bytes
        self._needs_crc = config.record_crc
        self._path = path
        self._end = put_path.end  # of this log, after the last piece
        self._next = self._end  # physical offset after the last piece
        self._kept = b""  # the first bytes of a record, which end at `_next`
        self._blank = 0  # physical offset of the blank record whose filler is being copied
        self._filler_stop = 0  # end of that filler; 0 without one
        self._filled_stop = 0  # end of the last bytes of it that are not zero; 0 without any

    def append(self, physical_offset: int, data: bytes | bytearray | memoryview) -> int:
        """Append the whole records of a piece, and keep the partial one; return the physical offset after the last."""
        with self._put_path.turn:
            self._continue_at(physical_offset)
            try:
                self._append_piece(bytes(data))
            except BaseException as error:
                if not isinstance(error, StoreFailedError):
                    self._restart()
                raise
            self._end = self._put_path.end
            return self._end

    def _continue_at(self, physical_offset: int) -> None:
        if self._end != self._put_path.end or physical_offset == self._end != self._next:
            self._restart()  # another append moved the end, or the sender begins again
        if self._end == 0 and physical_offset % self._segment_bytes == 0:
            self._restart()
            self._next = physical_offset
        if physical_offset != self._next:
            raise ConfigError(
                f"physical_offset is {physical_offset}, and this log continues at {self._next}; it ends at {self._end}",
                path=self._path,
                fix=f"Send the log from physical offset {self._end} on",
            )

    def _restart(self) -> None:
        """Drop the kept bytes, and overwrite filler after the end of this log with zeros."""
        end = self._put_path.end
        if self._filled_stop and self._filled_stop - end < self._segment_bytes:
            for at in range(max(end, self._blank), self._filled_stop, _ZEROS):
                self._put_path.put_filler(max(end, self._blank), at, bytes(min(_ZEROS, self._filled_stop - at)))
        self._kept, self._filler_stop, self._filled_stop = b"", 0, 0
        self._end = self._next = end

    def _append_piece(self, piece: bytes) -> None:
        """Append the whole records of the kept bytes and a piece."""
        filler = min(max(self._filler_stop - self._next, 0), len(piece))
        self._write_filler(self._next, np.frombuffer(piece, np.uint8, filler))
        begin = self._next + filler - len(self._kept)
        buffer = np.frombuffer(self._kept + piece[filler:], np.uint8)
        at = 0
        while at < buffer.size:
            physical = begin + at
            room = self._segment_bytes - physical % self._segment_bytes
            part = buffer[at : at + room]
            size = self._put_records(part, physical, room)
            at += size
            if not _is_blank(part[size:], room - size):
                break
            self._blank, self._filler_stop = physical + size, physical + room
            self._write_filler(self._blank + BLANK_BYTES, part[size + BLANK_BYTES :])
            at = min(at + room - size, buffer.size)
        self._kept = buffer[at:].tobytes()
        self._next = begin + buffer.size

    def _write_filler(self, physical: int, filler: Bytes) -> None:
        """Write filler of a segment, and the blank record before it once the filler is whole."""
        if not self._filler_stop:
            return
        if filler.any():
            self._put_path.put_filler(self._blank, physical, filler.data)
            self._filled_stop = physical + filler.size
        if physical + filler.size == self._filler_stop:
            self._put_path.put_blank(self._blank, is_filled=self._filled_stop > 0)
            self._filler_stop = self._filled_stop = 0

    def _put_records(self, part: Bytes, physical: int, room: int) -> int:
        """Append the whole records at the start of a part of one segment; return their bytes."""
        found = walk(part, physical, 0, part.size)
        stops = np.concatenate([[0], found.positions + found.sizes])
        gaps = np.flatnonzero(found.positions != stops[:-1])
        count = int(gaps[0]) if gaps.size else found.positions.size
        size = int(stops[count])
        self._check_rest(part[size:], physical + size, room - size)
        if count:
            records = found.records if count == len(found.records) else Records(part, found.positions[:count])
            properties = Properties(records)
            self._check_records(records, properties, stops[1 : count + 1], physical)
            if records.problem.any():  # a wrong `__CRC32#` that does not count: the check has emptied its record
                records = Records(part, records.positions)
                properties = Properties(records)
            self._put_path.put_replicated(records, properties, physical, size)
        return size

    def _check_rest(self, rest: Bytes, physical: int, room: int) -> None:
        """Refuse bytes that are neither a blank record nor the beginning of a record."""
        if rest.size < BLANK_BYTES or _is_blank(rest, room):
            return
        size, magic = (int(number) for number in rest[:BLANK_BYTES].view(_INT32))
        is_record = magic in {MAGIC_V1, MAGIC_V2} and MIN_RECORD_BYTES <= size <= room - BLANK_BYTES
        if not is_record or size <= rest.size:
            raise FormatError("no whole record begins here", path=self._path, offset=physical, fix=_FIX)

    def _check_records(self, records: Records, properties: Properties, stops: Ints, physical: int) -> None:
        """Refuse records with wrong checksums, or without the checksum that recovery relies on."""
        check_crcs(records, properties)
        is_whole = records.problem == Problem.OK
        is_bad = ~is_whole if self._needs_crc else ~is_whole & (records.problem != Problem.RECORD_CRC)
        bad = np.flatnonzero(is_bad)
        if bad.size:
            problem = Problem(int(records.problem[bad[0]])).text
            raise FormatError(problem, path=self._path, offset=physical + int(records.positions[bad[0]]), fix=_FIX)
        if self._needs_crc and not (sealed := ends_in_crc(records.buffer, stops)).all():
            raise ConfigError(
                "record_crc is True, and this record of the other store has no checksum",
                path=self._path,
                offset=physical + int(records.positions[sealed.argmin()]),
                fix="Open this store with record_crc=False",
            )


def _is_blank(rest: Bytes, room: int) -> bool:
    """Tell whether a blank record begins here, which fills the room up to the end of the segment."""
    return rest.size >= BLANK_BYTES and rest[:BLANK_BYTES].tobytes() == blank_record(room)
