import json
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import FormatError
from segmentlog.store.format.remoting import Answer, AnswerReader, encode_request
from support.scripted_broker import answer


@given(st.integers(1, 999), st.integers(0, 1 << 30), st.dictionaries(st.text(), st.text()), st.binary())
def test_a_request_has_code_number_fields_and_body(code: int, opaque: int, fields: dict[str, str], body: bytes) -> None:
    frame = encode_request(code, opaque, fields, body)
    size, header = struct.unpack_from(">ii", frame)
    assert size == len(frame) - 4
    found = json.loads(frame[8 : 8 + header])
    assert (found["code"], found["opaque"], found["flag"], found["extFields"]) == (code, opaque, 0, fields)
    assert frame[8 + header :] == body


@given(st.lists(st.binary(max_size=20), max_size=4), st.lists(st.integers(0, 400), max_size=10))
def test_answers_come_in_pieces(bodies: list[bytes], cuts: list[int]) -> None:
    data = b"".join(answer(body, opaque=number) for number, body in enumerate(bodies))
    edges = sorted({0, len(data), *(min(each, len(data)) for each in cuts)})
    reader, found = AnswerReader(), []
    for begin, end in pairwise(edges):
        found += reader.feed(data[begin:end])
    assert found == [Answer(number, 0, "", {}, body) for number, body in enumerate(bodies)]
    assert not reader.is_within_answer


def test_an_answer_has_remark_and_fields() -> None:
    (found,) = AnswerReader().feed(answer(b"", code=13, remark="too large", extFields={"queueId": "3"}))
    assert found == Answer(7, 13, "too large", {"queueId": "3"}, b"")


def test_a_request_of_the_broker_is_not_an_answer() -> None:
    data = answer(b"", flag=0, code=40) + answer(b"1") + answer(b"", flag=2, code=39)
    assert [each.body for each in AnswerReader().feed(data)] == [b"1"]


@pytest.mark.parametrize(
    ("text", "found"),
    [("0", 0), (str((1 << 63) - 1), (1 << 63) - 1), (str(1 << 63), None), ("9" * 5000, None)]
    + [(each, None) for each in ("-1", "", "²", "٣", " 1", 7, None, ["1"])],
)
def test_a_number_in_a_field_has_63_bits(text: object, found: int | None) -> None:
    (read,) = AnswerReader().feed(answer(b"", extFields={"queueOffset": text}))
    assert read.number("queueOffset") == found
    assert read.number("missing") is None


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (struct.pack(">i", -1) + bytes(8), "impossible length of -1"),
        (struct.pack(">i", 3) + bytes(8), "impossible length of 3"),
        (b"HTTP/1.1 400", "impossible length of 1213486160"),
        (answer(b"") + b"\xff\xff\xff\xff", "impossible length of -1"),
        (struct.pack(">iI", 8, 1 << 24) + bytes(4), "no JSON header"),
        (struct.pack(">iI", 8, 5) + bytes(4), "no JSON header"),
        (struct.pack(">iI", 8, 4) + b"\xff\xff\xff\xff", "not JSON"),
        (struct.pack(">iI", 6, 2) + b"{}", "no code and number"),
        (answer(b"", extFields=[1]), "no code and number"),
        (answer(b"", opaque=1 << 31), "no code and number"),
        (answer(b"", code=True), "no code and number"),
        (answer(b"", flag=None), "no code and number"),
    ],
)
def test_other_bytes_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        AnswerReader().feed(data)


@given(st.binary(max_size=80))
def test_garbage_is_refused_or_waited_for(data: bytes) -> None:
    reader = AnswerReader()
    try:
        found = reader.feed(data)
    except FormatError:
        return
    assert reader.is_within_answer or found or not data
