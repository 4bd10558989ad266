"""Dissection of records and queue entries: every field with its place, its bytes and its value.

What is damaged is shown as far as the bytes go. The log is read as it is on the disk, so records that no queue shows
are there, too.
"""

import ipaddress
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from ..errors import OffsetOutOfRangeError, UnknownQueueError
from ..files.segments import SegmentFile, find
from ..format import dledger
from ..format.consume_queue import ENTRY, ENTRY_BYTES
from ..format.message import (
    BLANK_BYTES,
    HEADER,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    SYS_BORN_HOST_V6,
    SYS_STORE_HOST_V6,
    Bytes,
    Problem,
    RecordLayout,
)
from ..log.commit_log import CommitLog
from ..read.snapshot import Snapshot
from ..types import QueueKey

_MAGICS: Final = {MAGIC_V1: "message, topic length in 1 byte", MAGIC_V2: "message, topic length in 2 bytes"}

_REST: Final = "entry_rest"
_REST_BYTES: Final = 1024  # the most bytes that are shown of a record after a length that cannot be


class DissectedField(NamedTuple):
    """One field of a record or an entry."""

    path: str  # the file
    position: int  # bytes from the start of the file
    item: int  # physical offset of the record, or queue offset of the entry
    name: str  # `problem` for a fault, which has no bytes
    data: bytes  # a copy
    value: str  # as text; empty for body and properties


def dissect_records(store: Snapshot, physical_offset: int, count: int = 1) -> Iterator[DissectedField]:
    """Dissect ``count`` records of the CommitLog: the fields of each, then its problem if it has one.

    Of a DLedger log, the fields of its entry come before those of the record.

    Any offset is allowed: the bytes at it are shown as a record. It ends after a record whose size is not known. Raises
    `OffsetOutOfRangeError` if no segment holds the offset, `DataLossError` if the segment is deleted meanwhile.
    """
    offset = physical_offset
    for _ in range(count):
        segment = store.log.find(offset)
        if segment is None:
            if offset > physical_offset:
                return
            problem = f"physical offset {offset} is in no segment of the CommitLog"
            fix = f"The log holds [{store.log.min_offset}, {store.log.stop})"
            raise OffsetOutOfRangeError(problem, path=store.path, fix=fix)
        entry = list(_entry(store.log, segment, offset)) if segment.lead else []
        yield from entry
        if entry and entry[-1].name == _REST:
            offset = segment.stop
            continue
        offset += segment.lead if entry else 0
        fields = list(_record(store.log, segment, offset))
        yield from fields
        size = int(fields[0].value) if fields[0].name == "total_size" else 0
        is_blank = len(fields) > 1 and fields[1].data == MAGIC_BLANK.to_bytes(4, "big", signed=True)
        if size <= 0 or (size < MIN_RECORD_BYTES and not is_blank):
            return
        offset += size


def _entry(log: CommitLog, segment: SegmentFile, offset: int) -> Iterator[DissectedField]:
    """Dissect the header of a DLedger entry, or a blank entry, at an offset; nothing if none is there."""
    start = offset - segment.base
    data = log.view(segment, start, segment.size)
    if dledger.is_blank(data, 0):
        yield DissectedField(segment.path, start, offset, "entry_magic", data[:4].tobytes(), "-1")
        yield DissectedField(segment.path, start + 4, offset, _REST, data[4:8].tobytes(), str(data.size))
        return
    if data.size < dledger.HEADER_BYTES or int(data[:4].view(">i4")[0]) != dledger.MAGIC:
        return
    header = data[: dledger.HEADER_BYTES].view(dledger.HEADER)[0]
    assert dledger.HEADER.fields is not None
    for name, (kind, at) in ((name, each[:2]) for name, each in dledger.HEADER.fields.items()):
        field = data[at : at + kind.itemsize].tobytes()
        yield DissectedField(segment.path, start + at, offset, f"entry_{name}", field, str(int(header[name])))


def _record(log: CommitLog, segment: SegmentFile, offset: int) -> Iterator[DissectedField]:
    start = offset - segment.base
    head = log.view(segment, start, min(start + BLANK_BYTES, segment.size))
    size, magic = (int.from_bytes(head[at : at + 4].tobytes(), "big", signed=True) for at in (0, 4))
    if magic == MAGIC_BLANK and head.size == BLANK_BYTES:
        yield DissectedField(segment.path, start, offset, "total_size", head[:4].tobytes(), str(size))
        text = "blank: the rest of the segment"
        yield DissectedField(segment.path, start + 4, offset, "magic", head[4:].tobytes(), text)
        return
    longest = size if magic in _MAGICS else 0  # of something else the header is shown
    stop = min(start + max(longest, HEADER.itemsize), segment.size)
    data = log.view(segment, start, stop)
    for name, at, length, value in _parts(data):
        yield DissectedField(segment.path, start + at, offset, name, data[at : at + length].tobytes(), value)
    problem = _problem(log, offset, magic)
    if problem is not Problem.OK:
        yield DissectedField(segment.path, start, offset, "problem", b"", problem.text)


def _problem(log: CommitLog, offset: int, magic: int) -> Problem:
    found = log.record_at(offset)
    if found is not None:
        return log.check_crc(found)
    return Problem.LENGTHS if magic in _MAGICS else Problem.MAGIC


def _parts(data: Bytes) -> Iterator[tuple[str, int, int, str]]:
    """Yield name, place, length and value of the fields of a possible record, as far as its bytes go."""
    if data.size < HEADER.itemsize:
        yield "rest", 0, min(data.size, _REST_BYTES), ""
        return
    plain = data[: HEADER.itemsize].view(HEADER)[0]
    version = 2 if int(plain["magic"]) == MAGIC_V2 else 1
    flags = int(plain["sys_flag"])
    layout = RecordLayout(version, born_v6=bool(flags & SYS_BORN_HOST_V6), store_v6=bool(flags & SYS_STORE_HOST_V6))
    header = layout.header
    if data.size < header.itemsize:
        yield "rest", 0, min(data.size, _REST_BYTES), ""
        return
    values = data[: header.itemsize].view(header)[0]
    assert header.fields is not None
    for name, (kind, at) in ((name, each[:2]) for name, each in header.fields.items()):
        yield name, at, kind.itemsize, _value(name, values[name])
    yield from _tail(data, layout, int(values["body_length"]))


def _tail(data: Bytes, layout: RecordLayout, body: int) -> Iterator[tuple[str, int, int, str]]:
    """Yield the fields after the header: each length is compared with the end of the bytes before it is used."""
    at = layout.header.itemsize
    if not 0 <= body <= data.size - at:
        yield "rest", at, min(data.size - at, _REST_BYTES), ""
        return
    yield "body", at, body, ""
    at += body
    for name, kind in (("topic", layout.topic_size), ("properties", np.dtype(">i2"))):
        if at + kind.itemsize > data.size:
            yield "rest", at, min(data.size - at, _REST_BYTES), ""
            return
        length = int(data[at : at + kind.itemsize].view(kind)[0])
        yield f"{name}_length", at, kind.itemsize, str(length)
        at += kind.itemsize
        if not 0 <= length <= data.size - at:
            yield "rest", at, min(data.size - at, _REST_BYTES), ""
            return
        text = data[at : at + length].tobytes().decode("utf-8", "backslashreplace") if name == "topic" else ""
        yield name, at, length, text
        at += length
    if at < data.size:
        yield "rest", at, min(data.size - at, _REST_BYTES), ""


def _value(name: str, value: np.generic) -> str:
    if name.endswith("_host"):
        return str(ipaddress.ip_address(value.tobytes()))
    number = int(value)
    return _MAGICS.get(number, "no magic number of RocketMQ") if name == "magic" else str(number)


def dissect_entries(store: Snapshot, key: QueueKey, queue_offset: int, count: int = 1) -> Iterator[DissectedField]:
    """Dissect ``count`` entries of a ConsumeQueue: three fields each, then ``problem`` if it names no whole record.

    Raises `UnknownQueueError` without the queue, `OffsetOutOfRangeError` if no file of the queue holds the first entry.
    """
    queue = store.queue(key)
    for offset in range(queue_offset, queue_offset + count):
        segment = find(queue.segments, offset * ENTRY_BYTES)
        if segment is None:
            if offset > queue_offset:
                return
            if not queue.segments:
                raise UnknownQueueError(f"{key} has no ConsumeQueue file", path=store.path)
            problem = f"entry {offset} of {key} is in no file of the queue"
            fix = f"The files hold entries {queue.first} to {queue.segments[-1].stop // ENTRY_BYTES - 1}"
            raise OffsetOutOfRangeError(problem, path=queue.directory, fix=fix)
        native = queue.entries(offset, offset + 1)
        data = native.astype(ENTRY).tobytes()
        position = offset * ENTRY_BYTES - segment.base
        entry = np.frombuffer(data, ENTRY)[0]
        assert ENTRY.fields is not None
        for name, (kind, at) in ((name, each[:2]) for name, each in ENTRY.fields.items()):
            field = data[at : at + kind.itemsize]
            yield DissectedField(segment.path, position + at, offset, name, field, str(int(entry[name])))
        if not store.log.sound(native["physical_offset"], native["size"])[0]:
            text = Problem.ENTRY.text if data.strip(b"\0") else "the entry was never written"
            yield DissectedField(segment.path, position, offset, "problem", b"", text)
