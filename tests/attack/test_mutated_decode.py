"""Arbitrary bytes, decoded: each codec returns a result or raises a `FormatError`.

Buffers end at a page without access, so that a read beyond the end kills the process and cannot pass.
"""

import gzip
import zlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segmentlog.store import FormatError
from segmentlog.store.format.checksums import check_crcs
from segmentlog.store.format.message import LAYOUTS, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES, Problem, Records
from segmentlog.store.format.message_decode import NATIVE_SCHEMA, Decoder, Origin, inflate, inflate_in_pieces
from segmentlog.store.format.properties import Properties
from segmentlog.store.format.walk import walk
from support.crash.memory_fs import guarded
from support.scale import scale

pytestmark = pytest.mark.attack

ROUNDS = scale(100, 400, 4_000)
SEEDS = scale(2, 8, 100)


def _origin(count: int) -> Origin:
    zeros = np.zeros(count, np.int64)
    return Origin(
        topics="T",
        queue_id=zeros,
        queue_offset=zeros,
        physical_offset=zeros,
        size=zeros,
        tags_code=zeros,
        broker_name="b",
    )


def _record_like(rng: np.random.Generator) -> tuple[bytes, list[int]]:
    """Bytes with records in them, a third of them with a length that is likely to go wrong; and where they are."""
    size = int(rng.integers(0, 2000))
    content = bytearray(rng.bytes(size) if rng.random() < 0.5 else size)
    starts: list[int] = []
    for _ in range(int(rng.integers(0, 8))):
        layout = LAYOUTS[int(rng.integers(len(LAYOUTS)))]
        body, topic, properties = (int(n) for n in rng.integers(0, 60, size=3))
        width = layout.topic_size.itemsize
        total = layout.header.itemsize + body + width + topic + 2 + properties
        if total > size:
            continue
        at = int(rng.integers(0, size - total + 1))
        lengths = [total, body, topic, properties]
        if rng.random() < 0.33:
            wrong = [size - at, total - 1, total + 1, 91, 0, -1, 3, -(1 << 31), (1 << 31) - 1]
            lengths[int(rng.integers(4))] = int(rng.choice(wrong))
        header = np.zeros(1, layout.header)
        header["total_size"], header["body_length"] = lengths[:2]
        header["magic"] = MAGIC_V1 if layout.version == 1 else MAGIC_V2
        header["physical_offset"] = at + int(rng.random() < 0.2)
        header["sys_flag"] = (
            0x10 * layout.born_v6 | 0x20 * layout.store_v6 | int(rng.choice([0, 1, 0x101, 0x201, 0x701]))
        )
        record = bytearray(header.tobytes() + rng.bytes(total - header.itemsize))
        topic_at = layout.header.itemsize + body
        record[topic_at : topic_at + width] = (lengths[2] & 0xFFFF if width == 2 else lengths[2] & 0xFF).to_bytes(width)
        properties_at = topic_at + width + topic
        record[properties_at : properties_at + 2] = (lengths[3] & 0xFFFF).to_bytes(2)
        content[at : at + total] = record
        starts.append(at)
    return bytes(content), starts


@pytest.mark.scaled
@pytest.mark.parametrize("seed", range(SEEDS))
def test_records_of_anything(seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole = 0
    for _ in range(ROUNDS):
        content, starts = _record_like(rng)
        buffer = guarded(content)
        positions = np.concatenate([starts, rng.integers(-200, buffer.size + 200, size=8)]).astype(np.int64)
        extremes = np.array([-(1 << 63), -1, 0, buffer.size, buffer.size - 91, (1 << 62)])
        records = Records(buffer, np.concatenate([positions, extremes]))
        sound = records.problem == Problem.OK
        whole += int(sound.sum())
        _check_parts(records)
        check_crcs(records, Properties(records))
        for rows, inflated in inflate_in_pieces(records, 4096, 8192):
            piece = records.take(rows)
            decoder = Decoder(piece, _origin(len(piece)), "0", inflated)
            for name in NATIVE_SCHEMA.names:
                column = decoder.column(name)
                column.validate(full=True)
                assert len(column) == len(piece)
    assert whole > 0, "none of them was ever whole: nothing was decoded"


def _check_parts(records: Records) -> None:
    sound = records.problem == Problem.OK
    stop = records.positions + records.field("total_size")
    for start, length in (
        (records.body_start, records.body_length),
        (records.topic_start, records.topic_length),
        (records.properties_start, records.properties_length),
    ):
        assert (length >= 0).all()
        assert (start >= 0).all()
        assert (start + length <= max(records.buffer.size, 0)).all()
        assert (start[sound] + length[sound] <= stop[sound]).all()
        assert not length[~sound].any()
    assert (records.properties_start[sound] + records.properties_length[sound] == stop[sound]).all()


@pytest.mark.scaled
@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_walk_over_anything(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    found = 0
    for _ in range(ROUNDS):
        buffer = guarded(_record_like(rng)[0])
        start, stop = sorted(rng.integers(0, buffer.size + 1, size=2).tolist())
        walked = walk(buffer, 0, start, stop)
        found += walked.positions.size
        ends = walked.positions + walked.sizes
        assert (walked.sizes >= MIN_RECORD_BYTES).all()
        assert (walked.positions >= start).all()
        assert (ends <= buffer.size).all()
        assert (walked.positions[1:] >= ends[:-1]).all()
        assert all(a < b for a, b in walked.damage)
        with pytest.raises(FormatError):
            walk(buffer, 0, start, buffer.size + 1)
    assert found > 0


# Compressed bodies


def _streamed(codec: str, data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return bytes(sink.getvalue())


CODECS: dict[int, Callable[[bytes], bytes]] = {
    0x001: zlib.compress,
    0x301: zlib.compress,
    0x101: lambda data: _streamed("lz4", data),
    0x201: lambda data: _streamed("zstd", data),
}
PLAIN = b"a body that is long enough to be compressed, " * 40


@pytest.mark.parametrize("flag", CODECS)
def test_truncated_bodies_inflate_to_nothing(flag: int) -> None:
    packed = CODECS[flag](PLAIN)
    assert inflate(packed, flag, len(PLAIN)) == PLAIN
    assert inflate(packed, flag, len(PLAIN) - 1) is None
    for stop in range(len(packed)):
        assert inflate(packed[:stop], flag, 1 << 20) is None, stop


@pytest.mark.parametrize("flag", CODECS)
def test_flipped_bodies_inflate_to_nothing_or_within_the_limit(flag: int) -> None:
    rng = np.random.default_rng(flag)
    packed = CODECS[flag](PLAIN)
    refused = 0
    for _ in range(500):
        damaged = bytearray(packed)
        damaged[int(rng.integers(len(packed)))] ^= 1 << int(rng.integers(8))
        body = inflate(bytes(damaged), flag, 4096)
        refused += body is None
        assert body is None or len(body) <= 4096
    assert refused > 100  # few frames have a checksum of their own: the body CRC covers what is stored


@pytest.mark.parametrize("flag", CODECS)
def test_bytes_after_a_compressed_body_are_ignored(flag: int) -> None:
    packed = CODECS[flag](PLAIN)
    for behind in (b"garbage that is no frame", b"\0" * 100, packed, packed[:20], gzip.compress(PLAIN)):
        body = inflate(packed + behind, flag, 1 << 20)
        # Java's readers stop after the first stream or go on with the next; never is there a part of one.
        assert body in {None, PLAIN, PLAIN + PLAIN}


@pytest.mark.parametrize("flag", [*CODECS, 0x401, 0x701, -1])
@given(data=st.binary(max_size=300))
@settings(max_examples=scale(25, 100, 5_000), deadline=None)
def test_random_bodies_inflate_or_are_refused(flag: int, data: bytes) -> None:
    body = inflate(memoryview(data), flag, 1000)
    assert body is None or len(body) <= 1000
