"""Shapes of a record: where each field of a header begins, for each width of its hosts."""

import struct

import numpy as np
import pytest

from segmentlog.store.format.message import MIN_RECORD_BYTES
from segmentlog.store.format.record_layout import HEADER, IPV6_EXTRA_BYTES, LAYOUTS, Layout
from support.records import V4, V6, one

FIELDS = {
    "total_size": 0,
    "magic": 4,
    "body_crc": 8,
    "queue_id": 12,
    "flag": 16,
    "queue_offset": 20,
    "physical_offset": 28,
    "sys_flag": 36,
    "born_timestamp": 40,
    "born_host": 48,
    "born_port": 52,
    "store_timestamp": 56,
    "store_host": 64,
    "store_port": 68,
    "reconsume_times": 72,
    "prepared_transaction_offset": 76,
    "body_length": 84,
}


def test_the_fields_of_the_shortest_header_are_where_rocketmq_has_them() -> None:
    assert HEADER.names == tuple(FIELDS)
    assert {name: HEADER.fields[name][1] for name in FIELDS if HEADER.fields} == FIELDS
    assert HEADER.itemsize == 88


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_longer_host_moves_what_comes_after_it(layout: Layout) -> None:
    fields = layout.header.fields
    assert fields is not None
    for name, at in FIELDS.items():
        moved = IPV6_EXTRA_BYTES * ((layout.born_v6 and at > 48) + (layout.store_v6 and at > 64))
        assert fields[name][1] == at + moved
    assert layout.header["born_host"].itemsize == (16 if layout.born_v6 else 4)
    assert layout.header["store_host"].itemsize == (16 if layout.store_v6 else 4)
    assert layout.topic_size == np.dtype(">i1" if layout.version == 1 else ">i2")


def test_a_layout_is_found_by_version_and_by_two_bits_of_the_flags() -> None:
    for code, layout in enumerate(LAYOUTS):
        assert (layout.born_v6, layout.store_v6) == (bool(code & 1), bool(code & 2))
        assert layout.version == 1 + code // 4


def test_the_shortest_record_has_two_lengths_after_its_header() -> None:
    assert min(layout.header.itemsize + layout.topic_size.itemsize for layout in LAYOUTS) + 2 == MIN_RECORD_BYTES


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
@pytest.mark.parametrize("topic", ["T", "t" * 200])
def test_a_record_reads_through_its_layout(born: bytes, store: bytes, topic: str) -> None:
    raw = one(born=born, store=store, topic=topic, body=b"body", at=4096, offset=7)
    layout = Layout(1 if len(topic) < 128 else 2, len(born) > 8, len(store) > 8)
    header = np.frombuffer(raw, layout.header, 1)[0]
    assert (header["total_size"], header["body_length"]) == (len(raw), 4)
    assert (header["physical_offset"], header["queue_offset"], header["queue_id"]) == (4096, 7, 3)
    for name, host in (("born", born), ("store", store)):
        assert header[f"{name}_host"].tobytes() + struct.pack(">i", header[f"{name}_port"]) == host
    size = np.frombuffer(raw, layout.topic_size, 1, layout.header.itemsize + 4)[0]
    assert size == len(topic)
