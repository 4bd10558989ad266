"""One record made without Arrow is, byte for byte, what the encoder of batches makes of the same message."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.errors import ConfigError
from segmentlog.store.format.encoded_batch import patch
from segmentlog.store.format.message_encode import RecordColumns, encode
from segmentlog.store.format.message_encode_one import encode_record, patch_record
from segmentlog.store.format.record_crc import RecordCrc
from support.records import V4, V6

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TOPIC = st.text("abcXYZ019_-%|", min_size=1, max_size=12) | st.integers(126, 129).map("t".__mul__)
PROPERTIES = st.sampled_from([b"", b"TAGS\x01t\x02", b"a\x01b\x02KEYS\x01k", "ключ\x01значение\x02".encode()])
HOST = st.sampled_from([V4, V6])


@given(
    topic=TOPIC,
    body=st.binary(max_size=200),
    properties=PROPERTIES,
    numbers=st.tuples(INT32, INT32, INT32, INT64, INT32, INT64),
    hosts=st.tuples(HOST, HOST),
    place=st.tuples(st.integers(0, 1 << 62), st.integers(0, 1 << 62), st.integers(0, 1 << 62)),
    crc=st.sampled_from(RecordCrc),
)
def test_both_encoders_agree(
    *,
    topic: str,
    body: bytes,
    properties: bytes,
    numbers: tuple[int, int, int, int, int, int],
    hosts: tuple[bytes, bytes],
    place: tuple[int, int, int],
    crc: RecordCrc,
) -> None:
    queue_id, flag, sys_flag, born, times, prepared = numbers
    fields: dict[str, Any] = {
        "topic": topic,
        "properties": properties,
        "queue_id": queue_id,
        "flag": flag,
        "sys_flag": sys_flag,
        "born_timestamp": born,
        "born_host": hosts[0],
        "store_host": hosts[1],
        "reconsume_times": times,
        "prepared_transaction_offset": prepared,
    }
    record = encode_record(body=body, record_crc=crc, **fields)
    batch = encode(RecordColumns(body=pa.array([body], pa.binary()), **fields), record_crc=crc)
    buffer = batch.join()
    assert bytes(record) == buffer.tobytes()
    patch_record(record, queue_offset=place[0], physical_offset=place[1], store_timestamp=place[2], record_crc=crc)
    patch(
        buffer,
        batch.positions,
        queue_offsets=np.array([place[0]]),
        physical_offsets=np.array([place[1]]),
        store_timestamps=place[2],
        record_crc=crc,
    )
    assert bytes(record) == buffer.tobytes()


def one(**changes: object) -> bytearray:
    fields = {
        "topic": "T",
        "body": b"",
        "properties": b"",
        "queue_id": 0,
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": 0,
        "born_host": V4,
        "store_host": V4,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "record_crc": RecordCrc.ABSENT,
    }
    return encode_record(**fields | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("crc", RecordCrc)
def test_properties_fill_their_field_and_no_more(crc: RecordCrc) -> None:
    most = 32_767 - 20 * (crc is RecordCrc.PROPERTY)
    fits = b"a\x01" + b"b" * (most - 3) + b"\x02"
    assert len(one(properties=fits, record_crc=crc)) == 91 + 1 + 32_767
    with pytest.raises(ConfigError, match="the properties take 32768 bytes of 32767 at most"):
        one(properties=b"c" + fits, record_crc=crc)


@pytest.mark.parametrize("field", ["queue_id", "flag", "sys_flag", "reconsume_times"])
@pytest.mark.parametrize("value", [1 << 31, -(1 << 31) - 1])
def test_numbers_that_do_not_fit_are_refused(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match="a number of the message does not fit its field"):
        one(**{field: value})
