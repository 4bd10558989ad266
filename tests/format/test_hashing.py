import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.errors import FormatError
from segmentlog.store.format import hashing
from segmentlog.store.format.hashing import (
    hash_keys,
    index_hashes,
    index_key_hash,
    java_hash,
    java_hash_array,
    key_hashes,
    key_texts,
)

# Java's own answers.
VECTORS = {
    "": 0,
    "tagA": 3552231,
    "TagA": 2598919,
    "T#U0": 2538762,
    "T#k0": 2539444,
    "polygenelubricants": -(2**31),
    "a\U0001f600": 1866116,
    "OrderTopic#K1": 1662904936,
    "Aa": 2112,
    "BB": 2112,
}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def by_definition(text: str) -> int:
    units = np.frombuffer(text.encode("utf-16-le"), "<u2")
    value = sum(int(unit) * 31 ** (len(units) - 1 - place) for place, unit in enumerate(units)) % 2**32
    return value - 2**32 if value >= 2**31 else value


def test_java_hash_is_javas() -> None:
    assert {text: java_hash(text) for text in VECTORS} == VECTORS
    hashes = java_hash_array(pa.array(VECTORS))
    assert hashes.dtype == np.int64
    assert hashes.tolist() == list(VECTORS.values())
    assert java_hash("\ud83d") == 0xD83D, "half of a surrogate pair is one unit"


@given(st.lists(st.none() | texts), st.integers(0, 5), st.sampled_from([pa.string(), pa.large_string()]))
def test_every_column_hashes_by_definition(rows: list[str | None], skip: int, kind: pa.DataType) -> None:
    expected = [by_definition(row or "") for row in rows]
    assert java_hash_array(pa.array(rows, kind)[skip:]).tolist() == expected[skip:]
    assert [java_hash(row or "") for row in rows] == expected


@pytest.mark.parametrize("at_once", [1, 3, 64])
def test_a_long_column_is_hashed_piece_by_piece(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(hashing, "_UNITS_AT_ONCE", at_once)
    rows = ["", "größe", "x" * 100, "", "", "\U0001f600" * 30, "订单", ""]
    assert java_hash_array(pa.array(rows)).tolist() == [by_definition(row) for row in rows]


def test_bytes_of_a_null_value_do_not_count() -> None:
    offsets, data = pa.py_buffer(np.array([0, 2, 3], np.int32)), pa.py_buffer(b"\xff\xc3A")
    column = pa.StringArray.from_buffers(2, offsets, data, pa.py_buffer(b"\x02"), 1)
    assert column.to_pylist() == [None, "A"]
    assert java_hash_array(column).tolist() == [0, 65]


@pytest.mark.parametrize(
    ("data", "ends"),
    [
        *((data, [len(data)]) for data in (b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf0\x9f\x98")),
        ("ü".encode(), [1, 2]),  # cut by a row
    ],
)
def test_bytes_that_are_not_utf8_are_refused(data: bytes, ends: list[int]) -> None:
    offsets = pa.py_buffer(np.array([0, *ends], np.int32))
    with pytest.raises(FormatError, match="cannot be hashed"):
        java_hash_array(pa.StringArray.from_buffers(len(ends), offsets, pa.py_buffer(data)))


@given(texts, texts)
def test_index_hashes_are_absolute_and_the_least_is_zero(topic: str, key: str) -> None:
    assert index_key_hash("T", "U0") == 2538762
    assert index_hashes(np.array([-5, 5, 0, -(2**31), 2**31 - 1])).tolist() == [5, 5, 0, 0, 2**31 - 1]
    assert java_hash("T#jllgvmc") == -(2**31)  # found by search
    assert index_key_hash("T", "jllgvmc") == 0
    assert index_key_hash(topic, key) == index_hashes(java_hash_array(pa.array([f"{topic}#{key}"])))[0]


WORDS = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" "), max_size=12)


@given(st.lists(st.tuples(st.sampled_from(["T", "Orders", "тема", "a\U0001f600"]), WORDS, st.none() | st.lists(WORDS))))
def test_keys_of_messages_are_hashed_with_their_topics(
    rows: list[tuple[str, str | None, list[str | None] | None]],
) -> None:
    joined = [None if words is None else " ".join(word or "" for word in words) for _, _, words in rows]
    topics = pa.array([topic for topic, _, _ in rows], pa.string()).dictionary_encode()
    unique = pa.array([each for _, each, _ in rows], pa.string())
    expected = [
        (index_key_hash(topic, key), row)
        for row, (topic, first, _) in enumerate(rows)
        for key in [first, *(joined[row] or "").split(" ")]
        if key
    ]

    hashes, of = key_hashes(topics, unique, pa.array(joined, pa.string()))

    assert list(zip(hashes.tolist(), of.tolist(), strict=True)) == expected


def test_keys_of_a_slice_are_its_own() -> None:
    topics = pa.array(["A", "B", "A", "C"]).dictionary_encode()[1:3]
    hashes, of = key_hashes(topics, pa.array(["x", "y", None, "z"])[1:3], pa.nulls(2, pa.string()))
    assert (hashes.tolist(), of.tolist()) == ([index_key_hash("B", "y")], [0])


def test_keys_are_listed_by_message_the_unique_one_first() -> None:
    unique = pa.array(["u0", None, "u2", ""])
    listed = key_texts(unique, pa.array(["a b", "c", None, " d  a "]))
    assert listed.row.tolist() == [0, 0, 0, 1, 2, 3, 3]
    assert listed.text.to_pylist() == ["u0", "a", "b", "c", "u2", "d", "a"]
    assert listed.is_unique.tolist() == [True, False, False, False, True, False, False]
    topics = pa.array(["T", "S", "T", "T"]).dictionary_encode()
    hashes = hash_keys(topics, listed.row, listed.text).tolist()
    names = [topics[row].as_py() for row in listed.row.tolist()]
    assert hashes == [index_key_hash(name, key) for name, key in zip(names, listed.text.to_pylist(), strict=True)]
    alone = key_texts(unique[:3], pa.nulls(3, pa.string()))
    assert (alone.row.tolist(), alone.is_unique.tolist()) == ([0, 2], [True, True])
