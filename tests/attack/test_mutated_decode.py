"""Arbitrary bytes, decoded: each codec returns a result or raises a `FormatError`.

Buffers end at a page without access, so that a read beyond the end kills the process and cannot pass.
"""

import functools
import gzip
import resource
import subprocess
import sys
import zlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segmentlog.store import FormatError
from segmentlog.store.format import broker_config, checkpoint, consume_queue, documents
from segmentlog.store.format.buffers import binary, slices
from segmentlog.store.format.checksums import check_crcs
from segmentlog.store.format.message import LAYOUTS, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES, Problem, Records
from segmentlog.store.format.message_decode import NATIVE_SCHEMA, Decoder, Origin, inflate, inflate_in_pieces
from segmentlog.store.format.properties import Properties
from segmentlog.store.format.walk import walk
from support.crash.memory_fs import guarded
from support.scale import scale

pytestmark = pytest.mark.attack

ROUNDS = 400
MiB = 1 << 20


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


@pytest.mark.parametrize("seed", range(8))
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


@pytest.mark.parametrize("seed", range(4))
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


@given(st.lists(st.binary(max_size=80), max_size=6), st.booleans())
@settings(max_examples=scale(100, 400, 10_000), deadline=None)
def test_properties_of_anything(texts: list[bytes], with_marks: bool) -> None:
    if with_marks:
        marks = bytes.maketrans(b"\x03\x04", b"\x01\x02")
        texts = [text.translate(marks) for text in texts]
    layout = LAYOUTS[0]
    rows = []
    for text in texts:
        header = np.zeros(1, layout.header)
        header["total_size"], header["magic"] = 91 + len(text), MAGIC_V1
        rows.append(header.tobytes() + b"\0" + len(text).to_bytes(2, "big") + text)
    buffer = guarded(b"".join(rows))
    positions = np.cumsum([0] + [len(row) for row in rows])[:-1].astype(np.int64)
    records = Records(buffer, positions)
    assert not records.problem.any()
    properties = Properties(records)
    maps = properties.maps()
    maps.validate(full=True)
    assert [dict(m) if m is not None else {} for m in maps.to_pylist()] == [_java_properties(text) for text in texts]
    for name in ("", "a", "TAGS", "__CRC32#", "a much longer name than eight"):
        column = properties.column(name)
        column.validate(full=True)
        if name:
            assert column.to_pylist() == [_java_properties(text).get(name) for text in texts]
        properties.last(name)


def _java_properties(text: bytes) -> dict[str, str]:
    """Result of `MessageDecoder.string2messageProperties`, on bytes, as this store reads them."""
    found: dict[bytes, bytes] = {}
    for piece in text.split(b"\x02"):
        name, mark, value = piece.partition(b"\x01")
        if len(piece) >= 3 and mark and name and value:
            found[name] = value
    decoded: dict[str, str] = {}
    for name, value in found.items():
        decoded[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return decoded


@given(st.binary(max_size=200))
@settings(max_examples=scale(75, 300, 10_000), deadline=None)
def test_entries_checkpoints_and_documents_of_anything(data: bytes) -> None:
    if len(data) % 20:
        with pytest.raises(FormatError):
            consume_queue.decode(data)
    entries = consume_queue.decode(data[: len(data) // 20 * 20])
    assert consume_queue.encode(entries) == data[: len(data) // 20 * 20]
    assert not (consume_queue.is_pad(entries) & consume_queue.is_plausible(entries)).any()
    assert checkpoint.encode(checkpoint.decode(data)) == data[:4096].ljust(4096, b"\0")
    readers: list[Callable[[documents.Document], object]] = [
        broker_config.consumer_offsets,
        broker_config.client_offsets,
    ]
    for text in (data, b'{"offsetTable":' + data + b"}", b'{"topicConfigTable":{"T":' + data + b"}}"):
        try:
            document = documents.load(text, None).document
        except FormatError:
            continue
        for read in readers:
            try:
                read(document)
            except FormatError:
                continue


@given(st.binary(max_size=64), st.lists(st.tuples(st.integers(-(1 << 62), 1 << 62), st.integers(-(1 << 62), 1 << 62))))
@settings(max_examples=scale(75, 300, 10_000), deadline=None)
def test_slices_of_anything(data: bytes, cuts: list[tuple[int, int]]) -> None:
    buffer = guarded(data)
    starts = np.array([start for start, _ in cuts], np.int64)
    lengths = np.array([length for _, length in cuts], np.int64)
    inside = all(start >= 0 and length >= 0 and start + length <= len(data) for start, length in cuts)
    if not inside:
        with pytest.raises(FormatError):
            slices(buffer, starts, lengths)
        return
    assert binary(slices(buffer, starts, lengths)).to_pylist() == [data[s : s + n] for s, n in cuts]


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


BOMB = """
import resource, sys, zlib
import pyarrow as pa
from segmentlog.store.format.message_decode import inflate
flag, limit, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
packed = open(path, "rb").read()
inflate(packed[:1000], flag, limit)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert inflate(packed, flag, limit) is None
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("flag", CODECS)
def test_bombs_cost_no_more_than_the_limit(flag: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A body that would inflate to over 1 GiB is refused after 16 MiB; in its own process, whose growth is seen."""
    path = tmp_path_factory.mktemp("bomb") / "packed"
    path.write_bytes(_bomb(flag))
    assert path.stat().st_size <= 5 * MiB
    done = subprocess.run(
        [sys.executable, "-c", BOMB, str(flag), str(16 * MiB), str(path)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (30, 30)),
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 <= 64 * MiB


def _bomb(flag: int) -> bytes:
    return _packed({0x001: "zlib", 0x101: "lz4", 0x201: "zstd", 0x301: "zlib"}[flag])


@functools.cache
def _packed(codec: str) -> bytes:
    block = bytes(16 * MiB)
    if codec == "zlib":
        packer = zlib.compressobj(9)
        return b"".join([*(packer.compress(block) for _ in range(66)), packer.flush()])
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        for _ in range(66):
            stream.write(block)
    return bytes(sink.getvalue())
