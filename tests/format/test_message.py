"""Records: their layouts, and what is found wrong with them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.format.message import MAGIC_BLANK, MIN_RECORD_BYTES, Problem, Records, gather
from segmentlog.store.format.record_layout import HEADER, LAYOUTS
from support.records import V4, V6, altered, one, positions, run, segment

RAW = one()
TOPIC_SIZE_AT = HEADER.itemsize + 4
PROPERTIES_SIZE_AT = TOPIC_SIZE_AT + 1 + 5
LENGTHS = [-(1 << 31), -1, 0, 3, 90, 91, len(RAW) - 1, len(RAW) + 1, 1 << 20, (1 << 31) - 1]


def test_gather_at_any_alignment() -> None:
    buffer = np.frombuffer(bytes(range(40)), np.uint8)
    words = gather(buffer, np.array([0, 1, 7, 36]), np.dtype(">i4")).tolist()
    assert words == [0x00010203, 0x01020304, 0x0708090A, 0x24252627]
    assert gather(np.zeros(3, np.uint8), np.zeros(0, np.int64), np.dtype(">i4")).size == 0


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
    assert records.field("total_size").tolist() == [len(raw)]
    assert records.field("queue_offset").tolist() == [5]
    assert records.field("store_timestamp").tolist() == [1_700_000_000_077]
    for which, packed in (("born", born), ("store", store)):
        ((_, addresses, ports),) = records.hosts(which)
        assert addresses[0].tobytes() + int(ports[0]).to_bytes(4, "big") == packed


def test_layouts_mixed_in_one_buffer() -> None:
    kinds = [(V4, V4, "a"), (V6, V4, "b"), (V4, V6, "c" * 200), (V4, V4, "d"), (V6, V6, "e" * 130), (V4, V4, "f" * 128)]
    raws = [one(born=b, store=s, topic=t, offset=i) for i, (b, s, t) in enumerate(kinds)]
    buffer = segment(*raws)
    records = Records(buffer, np.array(positions(raws)))
    assert records.problem.tolist() == [0] * 6
    assert records.field("queue_offset").tolist() == [0, 1, 2, 3, 4, 5]
    assert records.topic_length.tolist() == [len(t) for _, _, t in kinds]
    ports = np.zeros(6, np.int64)
    for rows, _, of_family in records.hosts("store"):
        ports[rows] = of_family
    assert ports.tolist() == [4567, 4567, 65535, 4567, 65535, 4567]
    backwards = Records(buffer, np.array(positions(raws)[::-1]))
    assert backwards.field("queue_offset").tolist() == [5, 4, 3, 2, 1, 0]


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
def test_what_does_not_add_up(what: str, damaged: bytes, expected: set[Problem]) -> None:
    sound = one(offset=9)
    buffer = segment(sound, damaged, sound)
    records = Records(buffer, np.array([0, len(sound), len(sound) + len(damaged)]))
    assert records.problem[[0, 2]].tolist() == [Problem.OK, Problem.OK], what
    assert Problem(int(records.problem[1])) in expected, what
    for part in ("body", "topic", "properties"):
        assert getattr(records, f"{part}_length")[1] == 0
        assert getattr(records, f"{part}_start")[1] == 0


@given(st.data())
def test_no_byte_can_make_a_part_leave_its_record(data: st.DataObject) -> None:
    raw = bytearray(one(born=data.draw(st.sampled_from([V4, V6])), topic=data.draw(st.sampled_from(["T", "t" * 200]))))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    buffer = np.frombuffer(bytes(raw) + b"\x7f" * data.draw(st.integers(0, 100)), np.uint8)
    records = Records(buffer, np.arange(-2, buffer.size + 2))
    ok = records.problem == Problem.OK
    stop = records.positions + records.field("total_size")
    for part in ("body", "topic", "properties"):
        start, length = getattr(records, f"{part}_start"), getattr(records, f"{part}_length")
        assert (length >= 0).all()
        assert ((start >= records.positions) | ~ok).all()
        assert ((start + length <= stop) | ~ok).all()
        assert (start + length <= buffer.size).all()


@pytest.mark.parametrize("position", [-1, -(1 << 62), len(RAW) - MIN_RECORD_BYTES + 1, 10_000, 1 << 62])
def test_positions_outside_of_the_buffer(position: int) -> None:
    records = Records(np.frombuffer(RAW, np.uint8), np.array([0, position]))
    assert records.problem.tolist() == [Problem.OK, Problem.BEYOND_END]
    assert records.field("total_size").tolist() == [len(RAW), 0]


def test_every_cut_of_the_file_is_beyond_the_end() -> None:
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


def test_each_problem_has_its_words() -> None:
    assert len({problem.text for problem in Problem}) == len(Problem)
    assert len(LAYOUTS) == 8
    assert min(one_size.header.itemsize for one_size in LAYOUTS) + 3 == MIN_RECORD_BYTES
