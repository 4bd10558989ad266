import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.format.message import Records
from segmentlog.store.format.message_encode import RecordColumns, encode
from segmentlog.store.format.properties import Properties


def parsed(*texts: bytes) -> Properties:
    columns = RecordColumns(
        body=pa.array([b"x"] * len(texts), pa.binary()), topic="T", queue_id=0, properties=pa.array(texts, pa.binary())
    )
    encoded = encode(columns)
    return Properties(Records(encoded.join(), encoded.positions))


def by_rocketmq(text: bytes) -> dict[str, str] | None:
    """``MessageDecoder.string2messageProperties``."""
    found = {}
    for piece in text.split(b"\x02"):
        name, separator, value = piece.partition(b"\x01")
        if len(piece) >= 3 and separator and name and value:
            found[name] = value
    return {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in found.items()} or None


def by_position(text: bytes) -> dict[str, str]:
    """As `by_rocketmq`, in the order of last assignments."""
    found: dict[str, str] = {}
    for piece in text.split(b"\x02"):
        pair = by_rocketmq(piece) or {}
        for name in pair:
            found.pop(name, None)
        found |= pair
    return found


PIECES = st.lists(
    st.sampled_from([b"\x01", b"\x02", b"a", b"TAGS", b"KEYS", b"a_long_name", b"a_long_name2", b"v", "ü".encode()]),
    max_size=30,
).map(b"".join)


NAMES = ["a", "TAGS", "KEYS", "UNIQ_KEY", "a_long_name", "a_long_name2", "a_name_of_more_than_two_words"]


@st.composite
def texts_of_one_shape(draw: st.DrawFn) -> list[bytes]:
    """Texts with the same names in the same order, of which at most one byte is another one."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True))
    value = st.sampled_from([b"v", b"a longer value", b"\x01", b"a\x01b", "ü".encode()])
    rows = draw(st.lists(st.lists(value, min_size=len(names), max_size=len(names)), min_size=1, max_size=9))
    end = draw(st.sampled_from([b"", b"\x02"]))
    texts = [
        b"\x02".join(name.encode() + b"\x01" + value for name, value in zip(names, row, strict=True)) + end
        for row in rows
    ]
    if draw(st.booleans()):
        which = draw(st.integers(0, len(texts) - 1))
        at = draw(st.integers(0, len(texts[which]) - 1))
        texts[which] = texts[which][:at] + draw(st.sampled_from([b"", b"\x01", b"\x02", b"x"])) + texts[which][at + 1 :]
    return texts


@given(st.lists(PIECES, min_size=1, max_size=6) | texts_of_one_shape())
def test_maps_columns_and_last_values_are_rocketmqs(texts: list[bytes]) -> None:
    properties = parsed(*texts)
    expected = [by_rocketmq(text) for text in texts]
    maps = properties.maps()
    maps.validate(full=True)
    assert [None if m is None else dict(m) for m in maps.to_pylist()] == expected
    assert [len(m or ()) for m in maps.to_pylist()] == [len(e or ()) for e in expected]
    last = [list(found.items())[-1] if found else ("", "") for found in map(by_position, texts)]
    for name in (*NAMES, "absent"):
        column = properties.column(name)
        column.validate(full=True)
        assert column.to_pylist() == [(e or {}).get(name) for e in expected], name
        rows, values = properties.last(name)
        seen = [value.decode("utf-8", "replace") for value in values.to_pylist()]
        assert list(zip(rows.tolist(), seen, strict=True)) == [
            (row, value) for row, (own, value) in enumerate(last) if own == name
        ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", None),
        (b"TAGS\x01a", {"TAGS": "a"}),  # 4.9.1 to 5.1: no separator at the end
        (b"TAGS\x01a\x02", {"TAGS": "a"}),
        (b"TAGS\x01\x02KEYS\x01k\x02", {"KEYS": "k"}),  # an empty value does not count
        (b"\x01a\x02", None),  # nor does an empty name
        (b"a_long_name\x01a\x02b\x01c\x02a_long_name\x01d", {"a_long_name": "d", "b": "c"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\xff\x01b\xfe\x02", {"a\ufffd": "b\ufffd"}),
        ("名\x01值\x02".encode(), {"名": "值"}),
    ],
)
def test_a_text(text: bytes, expected: dict[str, str] | None) -> None:
    (found,) = parsed(text).maps().to_pylist()
    assert (None if found is None else dict(found)) == expected


def test_many_pairs_neighbouring_rows_and_names_with_one_beginning_stay_apart() -> None:
    text = b"".join(b"name%03d\x01first\x02" % i for i in range(40)) + b"name007\x01second\x02"
    (found,) = parsed(text).maps().to_pylist()
    assert len(found) == 40
    assert dict(found)["name007"] == "second"
    properties = parsed(b"TAGS\x01a", b"x\x01KEYS", b"\x01k\x02TAGS\x01b")
    assert properties.column("TAGS").to_pylist() == ["a", None, "b"]
    assert properties.column("KEYS").to_pylist() == [None, None, None]
    properties = parsed(*[b"ABCDEFGH1\x01one\x02ABCDEFGH2\x01two\x02ABCDEFGH\x01none\x02"] * 2)
    for name, value in (("ABCDEFGH1", "one"), ("ABCDEFGH2", "two"), ("ABCDEFGH", "none")):
        assert properties.column(name).to_pylist() == [value] * 2
    assert [len(m) for m in properties.maps().to_pylist()] == [3, 3]
    nothing = Properties(Records(np.zeros(0, np.uint8), np.zeros(0, np.int64)))
    assert len(nothing.maps()) == len(nothing.column("TAGS")) == 0


def test_last_finds_a_property_only_at_the_end_of_a_text() -> None:
    rows, values = parsed(b"a\x01b\x02c\x01d\x02", b"c\x01d\x02a\x01b", b"", b"c\x01e").last("c")
    assert rows.tolist() == [0, 3]
    assert values.to_pylist() == [b"d", b"e"]
