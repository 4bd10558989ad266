import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import FormatError
from segmentlog.store.format.buffers import Pieces, contiguous
from segmentlog.store.format.checksums import RecordCrc
from segmentlog.store.format.encoded_batch import EncodedBatch, patch
from segmentlog.store.format.message import CRC_MASK
from segmentlog.store.format.message_encode import RecordColumns, encode, pack_host

V4, V6 = pack_host(b"\x0a\0\0\x01", 40001), pack_host(b"\xfe\x80" + bytes(13) + b"\x01", 65535)


def binary(values: list[Any]) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def put(encoded: EncodedBatch, record_crc: RecordCrc) -> bytes:
    frames, rows = encoded.lay(), np.arange(encoded.positions.size)
    numbers = {"queue_offsets": rows * 1_000_003, "physical_offsets": encoded.positions + (7 << 30)}
    places = (frames.data, frames.positions, frames.stops)
    patch(*places, store_timestamps=1_763_700_000_123, record_crc=record_crc, crcs=frames.crcs, **numbers)
    return bytes(contiguous(frames.to_write()))


def check_crcs(encoded: EncodedBatch, record_crc: RecordCrc) -> None:
    crcs = encoded.lay().crcs
    assert (crcs is None) == (record_crc is RecordCrc.ABSENT)
    if crcs is not None:
        raw = encoded.join().tobytes()
        spans = zip(encoded.positions.tolist(), (encoded.positions + encoded.sizes - 20).tolist(), strict=True)
        assert crcs.tolist() == [zlib.crc32(raw[start:stop]) & CRC_MASK for start, stop in spans]


ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=40),
        st.sampled_from(["T", "Orders", "x" * 127]),
        st.sampled_from([b"", b"a\x01b", b"a\x01c", b"a\x01b\x02", b"\x02"]) | st.binary(max_size=50),
        st.sampled_from([V4, V6]),
        st.integers(0, 1 << 40),
    ),
    min_size=1,
    max_size=12,
)


@given(rows=ROWS, skip=st.integers(0, 3), alike=st.booleans(), record_crc=st.sampled_from(RecordCrc))
def test_records_are_the_same_with_bodies_apart(
    rows: list[tuple[bytes | None, str, bytes, bytes, int]], skip: int, record_crc: RecordCrc, *, alike: bool
) -> None:
    if alike:  # but for bodies and times
        rows = [(body, *rows[0][1:4], time) for body, _, _, _, time in rows]
    bodies, topics, properties, hosts, times = zip(*rows, strict=True)
    columns = RecordColumns(
        body=binary([b"not asked for"] * skip + list(bodies))[skip:],
        topic=pa.array(topics).dictionary_encode(),
        queue_id=np.arange(len(rows)) % 3,
        properties=binary([b"nor this"] * skip + list(properties))[skip:],
        born_host=binary(list(hosts)),
        born_timestamp=np.array(times),
    )
    whole = encode(columns, record_crc=record_crc)
    apart = encode(columns, record_crc=record_crc, bodies_apart=True)
    assert isinstance(apart.lay().to_write(), Pieces)
    assert apart.join().tobytes() == whole.join().tobytes()
    for encoded in (whole, apart):
        check_crcs(encoded, record_crc)
    assert put(apart, record_crc) == put(whole, record_crc)


@pytest.mark.parametrize("key", ["{:032d}", "{:x}", "{:a>32x}", "{0:x}{0:x}{0:x}{0:x}{0:x}"])
@pytest.mark.parametrize("size", [1, 1000])
def test_many_records_of_one_shape(key: str, size: int) -> None:
    rows = 300
    rng = np.random.default_rng(3)
    columns = RecordColumns(
        body=binary([rng.bytes(size) for _ in range(rows)]),
        topic="Orders",
        queue_id=np.arange(rows) % 2,
        properties=binary([b"UNIQ_KEY\x01" + key.format(int(n)).encode() for n in rng.integers(0, 1 << 62, rows)]),
        born_timestamp=rng.integers(0, 1 << 40, rows),
    )
    property_ = RecordCrc.PROPERTY
    whole, apart = encode(columns, record_crc=property_), encode(columns, record_crc=property_, bodies_apart=True)
    check_crcs(whole, property_)
    check_crcs(apart, property_)
    assert put(apart, property_) == put(whole, property_)


def test_bodies_are_not_copied_and_checksums_not_made_up_without_them() -> None:
    body = binary([b"one", b"", b"three"])
    columns = RecordColumns(body=body, topic="T", queue_id=0)
    written = encode(columns, bodies_apart=True).lay().to_write()
    assert isinstance(written, Pieces)
    at = body.buffers()[2].address
    assert written.addresses()[1::2].tolist() == [at, at + 3, at + 3]
    frames = encode(columns, record_crc=RecordCrc.PROPERTY, bodies_apart=True).lay()
    numbers = {"queue_offsets": 1, "physical_offsets": 2, "store_timestamps": 3}
    with pytest.raises(FormatError, match="have their bodies elsewhere, and no checksums"):
        patch(frames.data, frames.positions, frames.stops, record_crc=RecordCrc.PROPERTY, **numbers)


def test_no_records_and_no_bodies() -> None:
    nothing = encode(RecordColumns(body=binary([]), topic="T", queue_id=0), bodies_apart=True)
    assert nothing.join().size == 0
    columns = RecordColumns(body=binary([b"", None]), topic="T", queue_id=0)
    for record_crc in RecordCrc:
        encoded = [encode(columns, record_crc=record_crc, bodies_apart=apart) for apart in (False, True)]
        assert put(encoded[0], record_crc) == put(encoded[1], record_crc)
