import ipaddress
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.errors import ConfigError, FormatError
from segmentlog.store.format.message_id import decode_offset_ids, encode_offset_ids
from support import fixtures

addresses = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)
i32 = st.integers(-(2**31), 2**31 - 1)


def encode_one(address: bytes, port: int, offset: int) -> str:
    matrix = np.frombuffer(address, np.uint8).reshape(1, -1)
    (text,) = encode_offset_ids(matrix, np.array([port]), np.array([offset])).to_pylist()
    assert text is not None
    return text


def test_an_id_reads_as_the_specification_says() -> None:
    text = "7F00000100002A9F0000000000000081"
    assert encode_one(bytes([127, 0, 0, 1]), 10911, 129) == text
    assert decode_offset_ids(pa.array([text, text.lower()])).tolist() == [129, 129]


@given(st.lists(st.tuples(addresses, i32, st.integers(0, 2**63 - 1), st.booleans())))
def test_offset_ids_round_trip(rows: list[tuple[bytes, int, int, bool]]) -> None:
    texts = [encode_one(*row[:3]) for row in rows]
    assert texts == [(address + struct.pack(">iq", port, offset)).hex().upper() for address, port, offset, _ in rows]
    given_texts = [text.lower() if row[3] else text for text, row in zip(texts, rows, strict=True)]
    assert decode_offset_ids(pa.array(given_texts, pa.string())).tolist() == [row[2] for row in rows]


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["hosts-ipv6-4.9.1", "hosts-ipv6-5.3.3", "index-4.9.1"])
def test_ids_equal_the_ids_of_rocketmq(name: str) -> None:
    messages = fixtures.expected(name).messages
    for width in (4, 16):
        ours = [m for m in messages if len(ipaddress.ip_address(m["storeHost"]).packed) == width]
        if not ours:
            continue
        hosts = np.array([list(ipaddress.ip_address(m["storeHost"]).packed) for m in ours], np.uint8)
        ports = np.array([m["storeHostPort"] for m in ours], ">i4")
        offsets = np.array([m["phyOffset"] for m in ours], ">i8")
        assert encode_offset_ids(hosts, ports, offsets).to_pylist() == [m["msgId"] for m in ours]
        assert decode_offset_ids(pa.array([m["msgId"] for m in ours])).tolist() == offsets.tolist()


def test_no_ids_are_an_empty_column_and_an_address_of_another_size_is_refused() -> None:
    assert encode_offset_ids(np.empty((0, 4), np.uint8), np.empty(0), np.empty(0)).to_pylist() == []
    with pytest.raises(FormatError, match="an address of 6 bytes"):
        encode_offset_ids(np.zeros((1, 6), np.uint8), np.zeros(1), np.zeros(1))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *(("7F00000100002A9F" + rest, "is not a message id") for rest in ("0" * 15, "0" * 17, "00000000000000G1")),
        *((text, "is not a message id") for text in ("", "7F 00 00 01 00 00 2A 9F 00 00 00 ", "é" * 32)),
        ("７F00000100002A9F0000000000000081", "is not a message id"),
        ("7F0000010000" + "2A9F" + "F" * 16, r"cannot be one.*UNIQ_KEY"),  # a unique id
    ],
)
def test_a_text_that_is_not_a_message_id_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        decode_offset_ids(pa.array(["7F00000100002A9F0000000000000081", text]))
