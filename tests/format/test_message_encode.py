import ipaddress
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.errors import ConfigError, FormatError
from segmentlog.store.format.checksums import CRC_PROPERTY, RecordCrc
from segmentlog.store.format.encoded_batch import EncodedBatch, patch
from segmentlog.store.format.message import Bytes, Records
from segmentlog.store.format.message_encode import (
    RecordColumns,
    encode,
    encode_record,
    pack_host,
    patch_record,
)
from support import fixtures
from support.records import V4, V6


def binary(*values: bytes | None) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def simple(*bodies: bytes, **fields: Any) -> RecordColumns:
    return RecordColumns(**{"body": binary(*bodies), "topic": "T", "queue_id": 0, **fields})


def patched(
    encoded: EncodedBatch, crc: RecordCrc = RecordCrc.ABSENT, *, queue: Any = 0, physical: Any = 0, time: Any = 0
) -> Bytes:
    buffer, places = encoded.join(), encoded.positions
    patch(buffer, places, queue_offsets=queue, physical_offsets=physical, store_timestamps=time, record_crc=crc)
    return buffer


def raw_records(encoded: EncodedBatch, buffer: Bytes) -> list[bytes]:
    return [bytes(buffer[at : at + size]) for at, size in zip(encoded.positions, encoded.sizes, strict=True)]


def stored_records(name: str, folder: Path) -> tuple[list[bytes], list[dict[str, Any]]]:
    """Return the bytes of all whole records of a fixture, and RocketMQ's reading of each."""
    store = fixtures.unpack(name, folder)
    segment_bytes = fixtures.config(name)["mappedFileSizeCommitLog"]
    found = {
        m["phyOffset"]: m for m in fixtures.expected(name) if m["type"] in {"message", "record"} and "storeSize" in m
    }
    raws = []
    for offset, message in sorted(found.items()):
        base = offset - offset % segment_bytes
        with (store / "commitlog" / f"{base:020d}").open("rb") as file:
            file.seek(offset - base)
            raws.append(file.read(message["storeSize"]))
    return raws, [found[offset] for offset in sorted(found)]


@pytest.mark.conformance
@pytest.mark.parametrize(
    "name",
    [
        *("basic-4.9.1", "basic-5.3.3", "batch-4.9.1", "compressed-5.3.3", "hosts-ipv6-4.9.1", "hosts-ipv6-5.3.3"),
        *("long-topic-5.3.3", "prop-crc-5.3.3", "transactions-5.3.3"),
    ],
)
def test_records_of_real_brokers_are_encoded_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    """All records of a store in one batch: hosts of both families, both magics, all flags side by side."""
    raws, expected = stored_records(name, tmp_path)
    with_crc = name.startswith("prop-crc")
    born = [pack_host(ipaddress.ip_address(m["bornHost"]).packed, m["bornHostPort"]) for m in expected]
    store = [pack_host(ipaddress.ip_address(m["storeHost"]).packed, m["storeHostPort"]) for m in expected]
    bodies, properties = [], []
    for raw, message, hosts in zip(raws, expected, zip(born, store, strict=True), strict=True):
        body_at = 72 + sum(map(len, hosts))
        topic_at = body_at + message["bodySize"] + (2 if raw[4:8] == b"\xda\xa3\x20\xab" else 1)
        bodies.append(raw[body_at : body_at + message["bodySize"]])
        text = raw[topic_at + len(message["topic"].encode()) + 2 :]
        properties.append(text[:-20] if with_crc else text)

    def column(field: str) -> np.ndarray[Any, Any]:
        return np.array([message[field] for message in expected])

    crc = RecordCrc.PROPERTY if with_crc else RecordCrc.ABSENT
    columns = RecordColumns(
        body=binary(*bodies),
        topic=pa.array([message["topic"] for message in expected]),
        queue_id=column("queueId"),
        properties=binary(*properties),
        flag=column("flag"),
        sys_flag=column("sysFlag"),
        born_timestamp=column("bornTimestamp"),
        born_host=binary(*born),
        store_host=binary(*store),
        reconsume_times=column("reconsumeTimes"),
        prepared_transaction_offset=column("preparedTransactionOffset"),
    )
    encoded = encode(columns, record_crc=crc)
    places = {"queue": column("queueOffset"), "physical": column("phyOffset"), "time": column("storeTimestamp")}
    assert raw_records(encoded, patched(encoded, crc, **places)) == raws
    assert len(raws) > 50


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"topic": pa.array([None], pa.string())}, "a message has no topic"),
        *(
            ({"topic": topic}, "which a record cannot hold")
            for name in ("", "t" * 256, "é" * 64, "😀" * 32)
            for topic in (name, pa.array([name]))
        ),
        ({"queue_id": np.arange(2)}, "queue_id has 2 values for 1 bodies"),
        ({"queue_id": np.array([1 << 31])}, "queue_id holds a number of more than 32 bits"),
        ({"flag": -(1 << 31) - 1}, "flag holds a number of more than 32 bits"),
        ({"properties": b"n\x01" + b"v" * 32766}, "the properties of row 0 take 32768 bytes"),
        ({"born_host": b"\x7f\0\0\x01"}, "the host of row 0 has 4 bytes"),
        ({"store_host": binary(b"12345678901234567890!")}, "the host of row 0 has 21 bytes"),
    ],
)
def test_columns_that_make_no_record_are_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        encode(simple(b"a", **fields))


@pytest.mark.parametrize("value", [1 << 31, -(1 << 31) - 1])
def test_single_records_refuse_numbers_and_addresses_that_do_not_fit(value: int) -> None:
    for field in ("queue_id", "flag", "sys_flag", "reconsume_times"):
        with pytest.raises(ConfigError, match="a number of the message does not fit its field"):
            one(**{field: value})
    with pytest.raises(ConfigError, match="a host address has 5 bytes"):
        pack_host(b"12345", 1)


def test_nulls_and_slices_are_read_as_they_look() -> None:
    bodies = binary(b"skipped", None, b"", b"body", b"behind")[1:4]
    properties = binary(b"skipped", b"a\x01b\x02", None, b"c\x01d", b"behind")[1:4]
    encoded = encode(
        simple(topic=pa.array(["x", "A", "B", "A", "y"])[1:4], body=bodies, properties=properties),
        record_crc=RecordCrc.PROPERTY,
    )
    buffer = encoded.join()
    records = Records(buffer, encoded.positions)
    assert records.body_length.tolist() == [0, 0, 4]
    assert records.field("body_crc").tolist() == [0, 0, zlib.crc32(b"body") & 0x7FFFFFFF]
    assert [raw.split(b"__CRC32#")[0][-4:-1] for raw in raw_records(encoded, buffer)[::2]] == [b"a\x01b", b"c\x01d"]
    assert [size - len(CRC_PROPERTY) for size in records.properties_length.tolist()] == [4, 0, 4]


def test_no_rows_make_no_bytes() -> None:
    encoded = encode(simple())
    assert (patched(encoded).size, encoded.positions.size, encoded.sizes.size) == (0, 0, 0)


def test_patch_trusts_no_position_and_no_record_size() -> None:
    numbers = {"queue_offsets": 0, "physical_offsets": 0, "store_timestamps": 0}
    for position in (-1, 6, 1 << 40):
        with pytest.raises(FormatError, match="outside a buffer of 93 bytes"):
            patch(encode(simple(b"a")).join(), np.array([position]), **numbers)
    for size in (-1, 0, 19, 113, (1 << 31) - 1):
        encoded = encode(simple(b""), record_crc=RecordCrc.PROPERTY)
        buffer = encoded.join()
        buffer[:4] = np.frombuffer(size.to_bytes(4, "big", signed=True), np.uint8)
        with pytest.raises(FormatError, match="outside a buffer of 112 bytes"):
            patch(buffer, encoded.positions, record_crc=RecordCrc.PROPERTY, **numbers)


INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TOPIC = st.text("abcXYZ019_-%|", min_size=1, max_size=12) | st.integers(126, 129).map("t".__mul__)
PROPERTIES = st.sampled_from([b"", b"TAGS\x01t\x02", b"a\x01b\x02KEYS\x01k", "ключ\x01значение\x02".encode()])
HOST = st.sampled_from([V4, V6])


@given(
    texts=st.tuples(TOPIC, PROPERTIES, st.binary(max_size=200)),
    numbers=st.tuples(INT32, INT32, INT32, INT64, INT32, INT64),
    hosts=st.tuples(HOST, HOST),
    place=st.tuples(*[st.integers(0, 1 << 62)] * 3),
    crc=st.sampled_from(RecordCrc),
)
def test_both_encoders_agree(
    texts: tuple[str, bytes, bytes],
    numbers: tuple[int, ...],
    hosts: tuple[bytes, bytes],
    place: tuple[int, ...],
    crc: RecordCrc,
) -> None:
    names = ("topic", "properties", "born_host", "store_host", "queue_id", "flag", "sys_flag", "born_timestamp")
    names += ("reconsume_times", "prepared_transaction_offset")
    fields: dict[str, Any] = dict(zip(names, (*texts[:2], *hosts, *numbers), strict=True))
    record = encode_record(body=texts[2], record_crc=crc, **fields)
    batch = encode(RecordColumns(body=binary(texts[2]), **fields), record_crc=crc)
    assert bytes(record) == batch.join().tobytes()
    patch_record(record, queue_offset=place[0], physical_offset=place[1], store_timestamp=place[2], record_crc=crc)
    queue, physical = np.array(place[:1]), np.array(place[1:2])
    assert bytes(record) == patched(batch, crc, queue=queue, physical=physical, time=place[2]).tobytes()


def one(**changes: Any) -> bytearray:
    numbers = ("queue_id", "flag", "sys_flag", "born_timestamp", "reconsume_times", "prepared_transaction_offset")
    fields: dict[str, Any] = {"topic": "T", "body": b"", "properties": b"", "record_crc": RecordCrc.ABSENT}
    return encode_record(**fields | {"born_host": V4, "store_host": V4} | dict.fromkeys(numbers, 0) | changes)
