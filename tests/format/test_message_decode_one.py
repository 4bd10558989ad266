"""One record read without arrays is what ``Records``, ``Properties`` and ``check_crcs`` say of it."""

import struct

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from segmentlog.store.format import lost_crc
from segmentlog.store.format.checksums import check_crcs, surely_hold
from segmentlog.store.format.message import Problem, Records
from segmentlog.store.format.message_decode_one import Record, parse_properties, read_record
from segmentlog.store.format.properties import Properties
from segmentlog.store.format.record_crc import RecordCrc
from support.records import V4, V6, altered, log_of, one, segment

PARTS = {"body", "topic", "properties"}
HOSTS = {"born_host": "born", "store_host": "store"}
TEXTS = st.sampled_from([b"", b"TAGS\x01t\x02", b"a\x01b\x02KEYS\x01k", "ключ\x01значение\x02".encode()])
ROWS = st.lists(
    st.tuples(st.binary(max_size=40), st.sampled_from(["T", "t" * 130]), TEXTS, *[st.sampled_from([V4, V6])] * 2),
    min_size=1,
    max_size=3,
)
BYTES = st.sampled_from([0, 1, 2, 0x10, 0x7F, 0x80, 0xFF, 0xA3, 0xA7, 0xAB])


def differences(record: Record, records: Records) -> list[str]:
    """Fields of which the two readers say something different."""
    found = [
        name
        for name in Record._fields
        if name not in {*PARTS, *HOSTS} and getattr(record, name) != records.field(name)[0]
    ]
    for name in PARTS:
        start, length = int(getattr(records, f"{name}_start")[0]), int(getattr(records, f"{name}_length")[0])
        found += [name] * (bytes(getattr(record, name)) != records.buffer[start : start + length].tobytes())
    for name, which in HOSTS.items():
        ((_, address, port),) = records.hosts(which)
        found += [name] * (getattr(record, name) != address.tobytes() + int(port[0]).to_bytes(4, "big", signed=True))
    return found


@given(
    ROWS,
    st.sampled_from(RecordCrc),
    st.lists(st.tuples(st.integers(0, 500), BYTES), max_size=3),
    st.integers(-5, 500),
    st.integers(0, 30),
)
def test_one_is_read_as_many_are(
    rows: list[tuple[bytes, str, bytes, bytes, bytes]],
    crc: RecordCrc,
    damage: list[tuple[int, int]],
    other: int,
    cut: int,
) -> None:
    buffer, positions = log_of(rows, crc)
    for at, value in damage:
        buffer[at % buffer.size] = value
    buffer = buffer[: buffer.size - cut]
    for position in [*positions, other]:
        record, records = read_record(buffer.data, position), Records(buffer, np.array([position]))
        assert (record is not None) == (records.problem[0] == Problem.OK)
        if record is not None:
            assert differences(record, records) == []
            if surely_hold(buffer, position, record):
                check_crcs(records, Properties(records))
                assert records.problem[0] == Problem.OK


@given(ROWS)
@example([(b"", "T", b"", V4, V4), (b"C\x002#\x01", "T", b"TAGS\x01t\x02", V4, V4)])  # much of what a checksum has
@example([(b"__CRC32#\x01", "T", b"TAGS\x01t\x02", V4, V4), (b"", "T", b"", V4, V4)])
def test_what_is_as_it_was_written_surely_holds(rows: list[tuple[bytes, str, bytes, bytes, bytes]]) -> None:
    for crc in RecordCrc:
        buffer, positions = log_of(rows, crc)
        for position in positions[crc is RecordCrc.ABSENT :]:  # of the first of a segment a look around has to decide
            record = read_record(buffer.data, position)
            assert record is not None
            front, stop = np.array([position]), np.array([position + record.total_size])
            resembles = lost_crc.looks_lost(lost_crc.crc_likeness(buffer, stop)) | lost_crc.ends_in_crc(buffer, front)
            assert surely_hold(buffer, position, record) != (crc is RecordCrc.ABSENT and resembles[0])


@given(st.lists(st.sampled_from([b"\x01", b"\x02", b"a", b"TAGS", "я".encode(), b"\xff"]), max_size=12).map(b"".join))
@example(b"a\x01\x01b\x02a\x01c\x02\x01d\x02e\x01")
def test_properties_of_one_are_those_of_many(text: bytes) -> None:
    buffer, (position,) = log_of([(b"", "T", text, V4, V4)], RecordCrc.ABSENT)
    maps = Properties(Records(buffer, np.array([position]))).maps()
    assert parse_properties(text) == dict(maps.to_pylist()[0] or ())


def test_lengths_below_zero_are_none() -> None:
    body = altered(altered(one(), 84, ">i", -8), 0, ">i", 83)  # the lengths would be found in the header, and fit
    topic = one(topic="T", body=struct.pack(">h", 11))
    topic = altered(topic, topic.index(b"\x01T", 88), ">b", -3)  # that of the properties in the body
    for raw in (body, topic):
        buffer = segment(raw)
        assert Records(buffer, np.array([0])).problem[0] == Problem.LENGTHS
        assert read_record(buffer.data, 0) is None


def test_it_is_not_sure_of_a_record_that_lost_its_checksum() -> None:
    row = (b"body", "T", b"a\x01b\x02", V4, V4)
    plain, (_, behind_plain) = log_of([row, row], RecordCrc.ABSENT)
    sealed, (_, behind_sealed) = log_of([row, row], RecordCrc.PROPERTY)
    lost = sealed.copy()
    name_at = lost.tobytes().rindex(b"CRC32")
    lost[name_at : name_at + 3] = 0
    cases = ((plain, behind_plain, lost, behind_sealed), (sealed, behind_sealed, plain, behind_plain))
    for front, at, behind, of in cases:
        buffer = np.concatenate([front[:at], behind[of:]])
        record = read_record(buffer.data, at)
        assert record is not None
        assert not surely_hold(buffer, at, record)
