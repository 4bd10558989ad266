"""Remoting frames: requests as brokers read them, answers in pieces, and other bytes."""

import json
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import ReplicationError
from segmentlog.store.ha.remoting import AnswerReader, BrokerDocument, decode_answer, encode_request


def answer(body: bytes, **header: object) -> bytes:
    data = json.dumps({"code": 0, "opaque": 7, "flag": 1, **header}).encode()
    return struct.pack(">ii", 4 + len(data) + len(body), len(data)) + data + body


def decoded(data: bytes, document: BrokerDocument = BrokerDocument.TOPICS) -> object:
    frame = AnswerReader().feed(data)
    assert frame is not None
    return decode_answer(frame, document, 7)


@pytest.mark.parametrize("document", BrokerDocument)
def test_a_request_has_code_and_number(document: BrokerDocument) -> None:
    size, header = struct.unpack_from(">ii", encode_request(document, 3))
    data = encode_request(document, 3)[8:]
    assert size == 4 + header == 4 + len(data)
    assert (json.loads(data)["code"], json.loads(data)["opaque"]) == (document.code, 3)
    assert document.code in {21, 43, 45, 201}


@given(st.lists(st.integers(0, 200), max_size=10))
def test_an_answer_comes_in_pieces(cuts: list[int]) -> None:
    data = answer(b'{"offsetTable":{"T@g":{0:12,1:30\n}}}')
    reader, found = AnswerReader(), None
    edges = sorted({0, len(data), *(min(each, len(data)) for each in cuts)})
    for begin, end in pairwise(edges):
        assert found is None
        found = reader.feed(data[begin:end])
    assert found is not None
    assert decode_answer(found, BrokerDocument.CONSUMER_OFFSETS, 7) == {"offsetTable": {"T@g": {0: 12, 1: 30}}}


@pytest.mark.parametrize("body", [b"", b"null", b" \n"])
def test_a_document_may_be_missing(body: bytes) -> None:
    assert decoded(answer(body)) is None


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (struct.pack(">i", -1) + bytes(8), "impossible length of -1"),
        (struct.pack(">i", 3) + bytes(8), "impossible length of 3"),
        (b"HTTP/1.1 400", "impossible length of 1213486160"),
        (answer(b"{}") + b"x", "impossible length"),
        (struct.pack(">iI", 8, 1 << 24) + bytes(4), "no JSON header"),
        (struct.pack(">iI", 8, 5) + bytes(4), "no JSON header"),
        (struct.pack(">iI", 8, 4) + b"\xff\xff\xff\xff", "not JSON"),
        (answer(b"{}", opaque=8), "answered request 8, and 7 was asked"),
        (answer(b"", code=1, remark="no"), "request code 21 with code 1: no"),
        (answer(b"{}"), "topics.json has no table topicConfigTable"),
        (answer(b'{"topicConfigTable":[]}'), "has no table"),
        (answer(b"{" * 5000), "not JSON"),
    ],
)
def test_what_is_no_answer_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(ReplicationError, match=problem):
        decoded(data)


@given(st.binary(max_size=80))
def test_garbage_is_refused_or_waited_for(data: bytes) -> None:
    try:
        frame = AnswerReader().feed(data)
        if frame is not None:
            decode_answer(frame, BrokerDocument.TOPICS, 7)
    except ReplicationError:
        pass
