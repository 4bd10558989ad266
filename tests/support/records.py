"""Single records, as bytes at a place of a CommitLog."""

import itertools
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from segmentlog.store.format.checksums import RecordCrc
from segmentlog.store.format.encoded_batch import patch
from segmentlog.store.format.message_encode import RecordColumns, encode, pack_host

V4, V6 = pack_host(b"\x0a\1\2\3", 4567), pack_host(bytes(range(16)), 65535)
Bytes = npt.NDArray[np.uint8]


def one(
    *,
    born: bytes = V4,
    store: bytes = V4,
    topic: str = "Topic",
    body: bytes = b"body",
    at: int = 0,
    offset: int = 0,
    properties: bytes = b"TAGS\x01t\x02",
    sys_flag: int = 0,
) -> bytes:
    columns = RecordColumns(
        body=pa.array([body], pa.binary()),
        topic=topic,
        queue_id=3,
        properties=properties,
        sys_flag=sys_flag,
        born_host=born,
        store_host=store,
    )
    encoded = encode(columns)
    buffer = encoded.join()
    patch(
        buffer,
        encoded.positions,
        queue_offsets=np.array([offset]),
        physical_offsets=np.array([at]),
        store_timestamps=np.array([1_700_000_000_000 + at]),
    )
    return buffer.tobytes()


def segment(*parts: bytes, rest: int = 64) -> Bytes:
    return np.frombuffer(b"".join(parts) + bytes(rest), np.uint8)


def run(count: int, base: int = 0) -> list[bytes]:
    found: list[bytes] = []
    at = base
    for number in range(count):
        found.append(one(at=at, offset=number, body=b"b" * (number % 7)))
        at += len(found[-1])
    return found


def positions(parts: list[bytes]) -> list[int]:
    return [0, *itertools.accumulate(map(len, parts))][:-1]


def altered(raw: bytes, at: int, form: str, value: int) -> bytes:
    return raw[:at] + struct.pack(form, value) + raw[at + struct.calcsize(form) :]


def log_of(rows: list[tuple[bytes, str, bytes, bytes, bytes]], crc: RecordCrc) -> tuple[Bytes, list[int]]:
    bodies, topics, properties, *hosts = (list(column) for column in zip(*rows, strict=True))
    binary: Any = pa.binary()
    encoded = encode(
        RecordColumns(
            body=pa.array(bodies, binary),
            topic=pa.array(topics),
            queue_id=np.arange(len(rows)),
            properties=pa.array(properties, binary),
            born_host=pa.array(hosts[0], binary),
            store_host=pa.array(hosts[1], binary),
        ),
        record_crc=crc,
    )
    buffer = encoded.join()
    patch(
        buffer,
        encoded.positions,
        queue_offsets=np.arange(len(rows)) + 7,
        physical_offsets=encoded.positions,
        store_timestamps=1_700_000_000_000,
        record_crc=crc,
    )
    return np.concatenate([buffer, np.zeros(9, np.uint8)]), encoded.positions.tolist()
