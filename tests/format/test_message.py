import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from segmentlog.store.format.checksums import RecordCrc, check_crcs, crc_likeness, ends_in_crc, looks_lost, surely_hold
from segmentlog.store.format.message import (
    HEADER,
    MAGIC_BLANK,
    MIN_RECORD_BYTES,
    Problem,
    Record,
    RecordLayout,
    Records,
    read_record,
)
from segmentlog.store.format.properties import Properties, parse_properties
from support.records import V4, V6, altered, log_of, one, positions, run, segment

RAW = one()
TOPIC_SIZE_AT = HEADER.itemsize + 4
PROPERTIES_SIZE_AT = TOPIC_SIZE_AT + 1 + 5
LENGTHS = [-(1 << 31), -1, 0, 3, 90, 91, len(RAW) - 1, len(RAW) + 1, 1 << 20, (1 << 31) - 1]


@pytest.mark.parametrize("topic", ["T", "t" * 127, "t" * 128, "t" * 255])
@pytest.mark.parametrize("store", [V4, V6])
@pytest.mark.parametrize("born", [V4, V6])
def test_all_layouts(born: bytes, store: bytes, topic: str) -> None:
    raw = one(born=born, store=store, topic=topic, body=b"the body", at=77, offset=5)
    records = Records(np.frombuffer(raw, np.uint8), np.array([0]))
    assert records.problem.tolist() == [Problem.OK]
    cuts = {
        name: raw[int(getattr(records, f"{name}_start")[0]) :][: int(getattr(records, f"{name}_length")[0])]
        for name in ("body", "topic", "properties")
    }
    assert cuts == {"body": b"the body", "topic": topic.encode(), "properties": b"TAGS\x01t\x02"}
    layout = RecordLayout(1 if len(topic) < 128 else 2, len(born) > 8, len(store) > 8)
    header = np.frombuffer(raw, layout.header, 1)[0]
    known = {"total_size": len(raw), "physical_offset": 77, "queue_offset": 5, "queue_id": 3}
    for name, value in {**known, "store_timestamp": 1_700_000_000_077}.items():
        assert records.field(name).tolist() == [value] == [header[name]]
    assert header["body_length"] == 8
    for which, packed in (("born", born), ("store", store)):
        ((_, addresses, ports),) = records.hosts(which)
        assert addresses[0].tobytes() + int(ports[0]).to_bytes(4, "big") == packed
        assert header[f"{which}_host"].tobytes() + struct.pack(">i", header[f"{which}_port"]) == packed
    assert np.frombuffer(raw, layout.topic_size, 1, layout.header.itemsize + 8)[0] == len(topic)


@pytest.mark.parametrize(
    ("what", "damaged", "expected"),
    [
        *(("total", altered(RAW, 0, ">i", n), {Problem.LENGTHS, Problem.BEYOND_END}) for n in LENGTHS),
        *(("body", altered(RAW, 84, ">i", n), {Problem.LENGTHS}) for n in LENGTHS if n != 4),
        *(("topic", altered(RAW, TOPIC_SIZE_AT, ">b", n), {Problem.LENGTHS}) for n in (-128, -1, 0, 4, 6, 127)),
        *(
            ("properties", altered(RAW, PROPERTIES_SIZE_AT, ">h", n), {Problem.LENGTHS})
            for n in (-32768, -1, 0, 6, 8, 32767)
        ),
        *(("magic", altered(RAW, 4, ">I", n), {Problem.MAGIC}) for n in (0, 0xDAA320A8, MAGIC_BLANK & 0xFFFFFFFF)),
        ("version 2", altered(RAW, 4, ">I", 0xDAA320AB), {Problem.LENGTHS}),
        ("born host IPv6", altered(RAW, 36, ">i", 0x10), {Problem.LENGTHS, Problem.BEYOND_END}),
        ("both hosts IPv6", altered(RAW, 36, ">i", 0x30), {Problem.LENGTHS, Problem.BEYOND_END}),
    ],
)
def test_a_damaged_record_has_a_problem_and_sound_neighbours(what: str, damaged: bytes, expected: set[Problem]) -> None:
    sound = one(offset=9)
    buffer = segment(sound, damaged, sound)
    records = Records(buffer, np.array([0, len(sound), len(sound) + len(damaged)]))
    assert records.problem[[0, 2]].tolist() == [Problem.OK, Problem.OK], what
    assert Problem(int(records.problem[1])) in expected, what
    for part in ("body", "topic", "properties"):
        assert getattr(records, f"{part}_length")[1] == 0
        assert getattr(records, f"{part}_start")[1] == 0


def test_positions_outside_of_the_buffer_and_every_cut_of_the_file_are_beyond_its_end() -> None:
    for position in (-1, -(1 << 62), len(RAW) - MIN_RECORD_BYTES + 1, 10_000, 1 << 62):
        records = Records(np.frombuffer(RAW, np.uint8), np.array([0, position]))
        assert records.problem.tolist() == [Problem.OK, Problem.BEYOND_END]
        assert records.field("total_size").tolist() == [len(RAW), 0]
    for raw in (RAW, one(born=V6, store=V6, topic="t" * 140)):
        for size in range(len(raw)):
            assert Records(np.frombuffer(raw[:size], np.uint8), np.array([0])).problem[0] == Problem.BEYOND_END


def test_flags_stay_with_their_records() -> None:
    parts = run(5)
    records = Records(segment(*parts), np.array(positions(parts)))
    records.flag_problem(np.array([False, True, False, False, True]), Problem.BODY_CRC)
    records.flag_problem(np.array([False, True, True, False, False]), Problem.QUEUE)
    assert records.problem.tolist() == [0, Problem.BODY_CRC, Problem.QUEUE, 0, Problem.BODY_CRC]
    assert records.body_length.tolist()[1] == 0
    for chosen in (np.array([4, 0, 1]), slice(1, 4), np.array([True, True, False, False, True])):
        taken = records.take(chosen)
        assert taken.problem.tolist() == records.problem[chosen].tolist()
        assert taken.positions.tolist() == records.positions[chosen].tolist()
        assert (taken.properties_length[taken.problem != 0] == 0).all()


@pytest.mark.parametrize("name", [b"Topic", b"Topix", b"Top", b"Topical", b""])
@pytest.mark.parametrize("long", [False, True])
def test_has_topic(name: bytes, *, long: bool) -> None:
    topics = ["Topic", "Topix", "Topic", "Other"] + (["Top", "Topical"] if long else [])
    raws = [one(topic=t) for t in topics]
    records = Records(segment(*raws), np.array(positions(raws)))
    expected = [t.encode() == name for t in topics]
    assert records.has_topic(name, slice(None)).tolist() == expected
    assert records.has_topic(name, np.array([3, 0])).tolist() == [expected[3], expected[0]]
    records.flag_problem(np.ones(len(topics), np.bool_), Problem.BODY_CRC)
    assert not records.has_topic(name, slice(None)).any()


def test_has_topic_of_a_record_that_says_it_has_none() -> None:
    raw = one(topic="A").replace(b"\x01A", b"\x00A")
    records = Records(segment(raw), np.array([0]))
    assert records.topic_length.tolist() == [0]
    assert not records.has_topic(b"A", slice(None)).any()
    assert records.has_topic(b"", slice(None)).tolist() == (records.problem == Problem.OK).tolist()


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
def test_reading_a_single_record_equals_reading_many(
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
def test_undamaged_records_surely_hold(rows: list[tuple[bytes, str, bytes, bytes, bytes]]) -> None:
    for crc in RecordCrc:
        buffer, positions = log_of(rows, crc)
        for position in positions[crc is RecordCrc.ABSENT :]:  # of the first of a segment a look around has to decide
            record = read_record(buffer.data, position)
            assert record is not None
            front, stop = np.array([position]), np.array([position + record.total_size])
            resembles = looks_lost(crc_likeness(buffer, stop)) | ends_in_crc(buffer, front)
            assert surely_hold(buffer, position, record) != (crc is RecordCrc.ABSENT and resembles[0])


@given(st.lists(st.sampled_from([b"\x01", b"\x02", b"a", b"TAGS", "я".encode(), b"\xff"]), max_size=12).map(b"".join))
@example(b"a\x01\x01b\x02a\x01c\x02\x01d\x02e\x01")
def test_parsing_properties_of_one_record_equals_parsing_many(text: bytes) -> None:
    buffer, (position,) = log_of([(b"", "T", text, V4, V4)], RecordCrc.ABSENT)
    maps = Properties(Records(buffer, np.array([position]))).maps()
    assert parse_properties(text) == dict(maps.to_pylist()[0] or ())


def test_negative_lengths_are_a_problem() -> None:
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
