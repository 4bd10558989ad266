"""Property strings of maps and columns: RocketMQ's form, the same by windows and by joins, and refused texts."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.errors import ConfigError
from segmentlog.store.format import property_encode
from segmentlog.store.format.message import Records
from segmentlog.store.format.message_encode import RecordColumns, encode
from segmentlog.store.format.properties import RECORD_CRC, Properties
from segmentlog.store.format.property_encode import encode_properties, shared_names

MAP = pa.map_(pa.string(), pa.string())
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=5)
VALUES = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\x02"), max_size=8)


OLD_TAGS = pa.array([[("TAGS", "old"), ("a", "1")], [("TAGS", "stays")], [("TAGS", "too")], None, [("KEYS", "k")]], MAP)
NEW_TAGS = pa.array(["before", "new", None, "", "x", "y"])[1:]
FIVE = pa.array([[("x", "0")], [("a", "1")], [("b", "2")], [("c", "3")], [("y", "9")]], MAP)
HOLES = pa.MapArray.from_arrays(FIVE.offsets, FIVE.keys, FIVE.items, mask=pa.array([each == 2 for each in range(5)]))


@pytest.mark.parametrize(
    ("columns", "maps", "expected"),
    [
        (
            {"TAGS": pa.array(["paid", None, ""]), "KEYS": pa.array(["k1 k2", "k3", None])},
            pa.array([[("größe", "L"), ("a", "1")], [], None], MAP),
            ["größe\x01L\x02a\x011\x02TAGS\x01paid\x02KEYS\x01k1 k2\x02", "KEYS\x01k3\x02", ""],
        ),
        (
            {"TAGS": NEW_TAGS},
            OLD_TAGS,
            [
                "a\x011\x02TAGS\x01new\x02",
                "TAGS\x01stays\x02",
                "TAGS\x01too\x02",
                "TAGS\x01x\x02",
                "KEYS\x01k\x02TAGS\x01y\x02",
            ],
        ),
        ({"TAGS": NEW_TAGS[1:3]}, OLD_TAGS[1:3], ["TAGS\x01stays\x02", "TAGS\x01too\x02"]),
        (
            {},
            pa.array([[("a", None), ("b", "")], [("c", "1"), ("d", ""), ("e", "2")]], MAP),
            ["", "c\x011\x02e\x012\x02"],
        ),
        *(
            (
                {**rest, "TAGS": pa.array(values, pa.string())},
                None,
                ["TAGS\x01a\x02" if each else "" for each in values],
            )
            for values in ([None], [None, None], [None, "a", None], ["", None])
            for rest in ({}, {"KEYS": pa.nulls(len(values), pa.string())})
        ),
        ({}, FIVE[1:4], ["a\x011\x02", "b\x012\x02", "c\x013\x02"]),
        ({}, HOLES[1:4], ["a\x011\x02", "", "c\x013\x02"]),
        ({}, FIVE[:0], []),
        ({"K": pa.array(["x", "y", "z"])[1:2]}, None, ["K\x01y\x02"]),
    ],
)
def test_a_map_comes_first_and_a_column_takes_the_place_of_a_pair_of_its_name(
    columns: dict[str, pa.Array], maps: pa.Array | None, expected: list[str]
) -> None:
    assert encode_properties(columns, maps).to_pylist() == [each.encode() for each in expected]


@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=8), st.integers(0, 3))
def test_encoded_properties_are_decoded_unchanged(rows: list[dict[str, str | None]], skipped: int) -> None:
    maps = pa.array([list(row.items()) for row in rows], MAP)[skipped:]
    bodies = pa.array([b""] * len(maps), pa.binary())
    encoded = encode(RecordColumns(body=bodies, topic="T", queue_id=0, properties=encode_properties(properties=maps)))
    buffer = encoded.join()
    decoded = Properties(Records(buffer, encoded.positions)).maps().to_pylist() if len(maps) else []
    kept = [{name: value for name, value in row.items() if value} for row in rows[skipped:]]
    assert [dict(pairs or []) for pairs in decoded] == kept


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        *((name, "x", "which a property string cannot hold") for name in ("", "a\x01b", "a\x02")),
        ("K", "a\x02b", r" the value of property 'K' holds U\+0002, which"),
    ],
)
def test_properties_that_cannot_be_stored_are_refused_with_their_row(name: str, value: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        encode_properties({name: pa.array(["x", value])})
    with pytest.raises(ConfigError, match=problem):
        encode_properties(properties=pa.array([[("ok", "1"), (name, value)]], MAP))
    wrong = [("ok", "1"), (name, value)]
    in_row = rf"row 5000: .*{problem.strip()}"
    for good in ([("ok", "1"), ("K", "x")], [("ok", "x" * 200)], [], None):  # like the wrong one, long, unlike it
        with pytest.raises(ConfigError, match=in_row):
            encode_properties(properties=pa.array([*[good] * 5_000, wrong], MAP))
    if name == "K":
        with pytest.raises(ConfigError, match=in_row):
            encode_properties({name: pa.array([*["x"] * 5_000, value, None])})
    with pytest.raises(ConfigError, match="no column was given"):
        encode_properties({})


NAMED = st.sampled_from(["a", "bb", "größe", "TAGS", "KEYS", RECORD_CRC, "n" * 40])
TEXTS = st.none() | st.sampled_from(["", "x", "v\x01", "0" * 30, "é" * 7, "w" * 126, "w" * 127, "long " * 60]) | VALUES


def by_definition(columns: dict[str, list[str | None]], maps: list[list[tuple[str, str | None]]] | None) -> list[bytes]:
    rows = len(next(iter(columns.values()))) if maps is None else len(maps)
    texts = []
    for row in range(rows):
        own = {name: values[row] for name, values in columns.items() if values[row]}
        given = [] if maps is None else [pair for pair in maps[row] if pair[0] not in {*own, RECORD_CRC}]
        texts.append("".join(f"{name}\x01{value}\x02" for name, value in [*given, *own.items()] if value).encode())
    return texts


@given(st.data(), st.lists(NAMED, max_size=4), st.integers(1, 9), st.integers(0, 3), st.sampled_from([1, 2, 5, 4096]))
def test_windows_and_joins_write_the_same_property_strings(
    data: st.DataObject, names: list[str], rows: int, skipped: int, block: int
) -> None:
    total = rows + skipped
    alike = [[(name, data.draw(TEXTS)) for name in names] for _ in range(total)]
    columns = {
        name: data.draw(st.lists(TEXTS, min_size=total, max_size=total))
        for name in data.draw(st.lists(st.sampled_from(["TAGS", "KEYS", "a"]), unique=True, max_size=3))
    }
    columns_left = {name: values[skipped:] for name, values in columns.items()}
    maps = pa.array(alike, MAP)[skipped:]
    arrays = {name: pa.array(values, pa.string())[skipped:] for name, values in columns.items()}
    expected = by_definition(columns_left, alike[skipped:])
    found = shared_names(maps)
    assert found is not None
    assert found.to_pylist() == names
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(property_encode, "_BLOCK_ROWS", block)
        assert encode_properties(arrays, maps).to_pylist() == expected
        patched.setattr(property_encode, "_WINDOW_BYTES_MAX", 0)
        assert encode_properties(arrays, maps).to_pylist() == expected
        if columns:
            assert encode_properties(arrays).to_pylist() == by_definition(columns_left, None)


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([[("a", "1"), ("b", "2")], [("a", "3"), ("b", None)]], ["a", "b"]),
        ([[], []], []),
        ([[("a", "1"), ("b", "2")], [("b", "3"), ("a", "4")]], None),
        ([[("a", "1")], [("a", "3"), ("b", "4")]], None),
        ([[("ab", "1"), ("c", "2")], [("a", "1"), ("bc", "2")]], None),
        ([[("a", "1")], None], None),
        ([], None),
    ],
)
def test_names_are_shared_if_all_rows_have_them_in_one_order(
    rows: list[list[tuple[str, str]] | None], names: list[str] | None
) -> None:
    found = shared_names(pa.array(rows, MAP))
    assert (None if found is None else found.to_pylist()) == names
