"""Property strings from columns, and which columns make none."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.errors import ConfigError
from segmentlog.store.format.message import Records
from segmentlog.store.format.message_encode import RecordColumns, encode
from segmentlog.store.format.properties import Properties
from segmentlog.store.format.properties_encode import encode_properties

MAP = pa.map_(pa.string(), pa.string())
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=5)
VALUES = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\x02"), max_size=8)


def test_the_map_comes_first_and_each_pair_ends_with_a_separator() -> None:
    encoded = encode_properties(
        {"TAGS": pa.array(["paid", None, ""]), "KEYS": pa.array(["k1 k2", "k3", None])},
        pa.array([[("größe", "L"), ("a", "1")], [], None], MAP),
    )
    assert encoded.to_pylist() == [
        "größe\x01L\x02a\x011\x02TAGS\x01paid\x02KEYS\x01k1 k2\x02".encode(),
        b"KEYS\x01k3\x02",
        b"",
    ]


def test_a_column_takes_the_place_of_a_pair_of_its_name() -> None:
    maps = pa.array([[("TAGS", "old"), ("a", "1")], [("TAGS", "stays")], [("TAGS", "too")], None, [("KEYS", "k")]], MAP)
    tags = pa.array(["before", "new", None, "", "x", "y"])[1:]
    assert encode_properties({"TAGS": tags}, maps).to_pylist() == [
        b"a\x011\x02TAGS\x01new\x02",
        b"TAGS\x01stays\x02",
        b"TAGS\x01too\x02",
        b"TAGS\x01x\x02",
        b"KEYS\x01k\x02TAGS\x01y\x02",
    ]
    assert encode_properties({"TAGS": tags[1:3]}, maps[1:3]).to_pylist() == [b"TAGS\x01stays\x02", b"TAGS\x01too\x02"]


def test_null_and_empty_values_are_left_out() -> None:
    maps = pa.array([[("a", None), ("b", "")], [("c", "1"), ("d", ""), ("e", "2")]], MAP)
    assert encode_properties(properties=maps).to_pylist() == [b"", b"c\x011\x02e\x012\x02"]


def test_rows_without_any_property_keep_their_place() -> None:
    for values in ([None], [None, None], [None, "a", None], ["", None]):
        column = pa.array(values, pa.string())
        expected = [b"TAGS\x01a\x02" if value else b"" for value in values]
        assert encode_properties({"TAGS": column}).to_pylist() == expected
        assert encode_properties({"KEYS": pa.nulls(len(column), pa.string()), "TAGS": column}).to_pylist() == expected


def test_slices_and_null_maps_that_own_pairs() -> None:
    maps = pa.array([[("x", "0")], [("a", "1")], [("b", "2")], [("c", "3")], [("y", "9")]], MAP)
    holes = pa.MapArray.from_arrays(
        maps.offsets, maps.keys, maps.items, mask=pa.array([False, False, True, False, False])
    )
    assert encode_properties(properties=maps[1:4]).to_pylist() == [b"a\x011\x02", b"b\x012\x02", b"c\x013\x02"]
    assert encode_properties(properties=holes[1:4]).to_pylist() == [b"a\x011\x02", b"", b"c\x013\x02"]
    assert encode_properties(properties=maps[:0]).to_pylist() == []
    assert encode_properties({"K": pa.array(["x", "y", "z"])[1:2]}).to_pylist() == [b"K\x01y\x02"]


@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=8), st.integers(0, 3))
def test_what_is_encoded_is_decoded(rows: list[dict[str, str | None]], skipped: int) -> None:
    maps = pa.array([list(row.items()) for row in rows], MAP)[skipped:]
    bodies = pa.array([b""] * len(maps), pa.binary())
    encoded = encode(RecordColumns(body=bodies, topic="T", queue_id=0, properties=encode_properties(properties=maps)))
    buffer = encoded.join()
    decoded = Properties(Records(buffer, encoded.positions)).maps().to_pylist() if len(maps) else []
    kept = [{name: value for name, value in row.items() if value} for row in rows[skipped:]]
    assert [dict(pairs or []) for pairs in decoded] == kept


@pytest.mark.parametrize("name", ["", "a\x01b", "a\x02"])
def test_names_that_cannot_be_stored_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="which a property string cannot hold"):
        encode_properties({name: pa.array(["x"])})
    with pytest.raises(ConfigError, match="which a property string cannot hold"):
        encode_properties(properties=pa.array([[("ok", "1"), (name, "x")]], MAP))


def test_values_that_cannot_be_stored_are_refused() -> None:
    with pytest.raises(ConfigError, match=r" the value of property 'K' holds U\+0002, which"):
        encode_properties({"K": pa.array(["x", "a\x02b"])})
    with pytest.raises(ConfigError, match=r" the value of property 'k' holds U\+0002, which"):
        encode_properties(properties=pa.array([[("k", "a\x02b")]], MAP))


def test_there_must_be_a_column() -> None:
    with pytest.raises(ConfigError, match="no column was given"):
        encode_properties({})


def test_a_hundred_thousand_rows_keep_their_order() -> None:
    numbers = np.arange(100_000)
    encoded = encode_properties({"N": pa.array(numbers.astype(str))})
    assert encoded[99_999].as_py() == b"N\x0199999\x02"
    assert len(set(encoded.to_pylist())) == 100_000
