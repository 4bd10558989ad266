"""Small stores for attacks, made so that any damage hits something: every kind of record, several files each."""

import json
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa

from segmentlog.store.format.checksums import RecordCrc
from segmentlog.store.format.message_encode import pack_host

from .store_builder import Geometry, Queues, StoreBuilder


def messages(count: int) -> pa.RecordBatch:
    """Rows of every kind that a record can be: both versions, all hosts, all codecs, empty parts, no parts."""
    numbers = np.arange(count)
    plain = [f"message {n} ".encode() * (1 + n * 7 % 40) for n in numbers]
    plain[5] = b""
    bodies, flags = list(plain), np.zeros(count, np.int64)
    for row, (codec, bits) in enumerate(
        [("gzip", 0), ("lz4", 0x101), ("zstd", 0x201), ("zlib", 0x301), ("zlib", 0x1)] * 2
    ):
        if codec == "gzip":
            continue
        bodies[8 + row] = _compressed(plain[8 + row], codec)
        flags[8 + row] = bits
    flags[[20, 21]] = 0x4, 0xC  # prepared and rolled back: in the log, in no queue
    v4, v6 = pack_host(b"\x0a\0\0\x07", 40001), pack_host(bytes(range(16)), 40002)
    topics = ["Orders", "Orders", "%RETRY%" + "g" * 140, "Größe_支付"]
    properties = [
        None if n % 11 == 3 else [("shop", "köln" if n % 2 else "ulm"), ("n", str(n))][: 1 + n % 2] for n in numbers
    ]
    return pa.record_batch(
        {
            "topic": pa.array([topics[n % 4] for n in numbers]),
            "queueId": pa.array(np.where(numbers % 4 < 2, numbers // 4 % 2, 0).astype(np.int32)),
            "body": pa.array(bodies, pa.binary()),
            "tags": pa.array([None if n % 5 == 4 else f"tag{n % 3}" for n in numbers]),
            "keys": pa.array([f"key-{n}" for n in numbers]),
            "uniqKey": pa.array([f"7F0000010B2C{n * 0x9E3779B9:019X}F" for n in numbers]),
            "properties": pa.array(properties, pa.map_(pa.string(), pa.string())),
            "storeTimestamp": pa.array(1_700_000_000_000 + numbers * 5),
            "sysFlag": pa.array(flags),
            "bornHost": pa.array([v6 if n % 3 == 0 else v4 for n in numbers], pa.binary()),
            "storeHost": pa.array([v6 if n % 7 == 0 else v4 for n in numbers], pa.binary()),
        }
    )


def _compressed(data: bytes, codec: str) -> bytes:
    if codec == "zlib":
        return zlib.compress(data)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def build(path: Path, record_crc: RecordCrc, queues: Queues = Queues.WRITTEN) -> Path:
    """Make a store of several small files: 48 messages in five queues, and what one group has read."""
    geometry = Geometry(segment_bytes=8 << 10, queue_segment_entries=12)
    with StoreBuilder(path, geometry=geometry, record_crc=record_crc, queues=queues) as builder:
        builder.append(messages(48))
    offsets = {"offsetTable": {"Orders@readers": {"0": 3, "1": 4}}}
    (path / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    return path
