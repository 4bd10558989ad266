from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.connector.write.properties import (
    MAP,
    maps_of_pairs,
    pairs_of_headers,
    pairs_of_maps,
    with_property,
    without,
)

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TEXTS = st.sampled_from(["", "a", "TAGS", "ü"])
MAPS = st.lists(st.none() | st.lists(st.tuples(TEXTS, st.none() | TEXTS), max_size=3), max_size=6)


def rows(maps: pa.MapArray) -> list[Any]:
    maps.validate(full=True)
    return [list(row) for row in maps.to_pylist()]


@given(MAPS, st.integers(0, 3))
def test_there_and_back(given: list[list[tuple[str, str | None]] | None], first: int) -> None:
    array = pa.array(given, MAP).slice(first)
    assert rows(maps_of_pairs(pairs_of_maps(array), len(array))) == [row or [] for row in given[first:]]


@given(MAPS, st.data())
def test_one_more(given: list[list[tuple[str, str | None]] | None], data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | TEXTS, min_size=len(given), max_size=len(given)))
    pairs = with_property(pairs_of_maps(pa.array(given, MAP)), "key", pa.array(values, pa.string()))
    wanted = [
        (row or []) + ([] if value is None else [("key", value)]) for row, value in zip(given, values, strict=True)
    ]
    assert rows(maps_of_pairs(pairs, len(given))) == wanted


@given(MAPS, st.data())
def test_one_less(given: list[list[tuple[str, str | None]] | None], data: st.DataObject) -> None:
    said = data.draw(st.lists(st.booleans(), min_size=len(given), max_size=len(given)))
    pairs = without(pairs_of_maps(pa.array(given, MAP)), {"TAGS": np.array(said, np.bool_)})
    wanted = [
        [pair for pair in row or [] if not (said_here and pair[0] == "TAGS")]
        for row, said_here in zip(given, said, strict=True)
    ]
    assert rows(maps_of_pairs(pairs, len(given))) == wanted


def test_map_entries_hidden_by_a_null_are_dropped() -> None:
    whole = pa.array([[("a", "1")], [("b", "2")], [("c", "3")]], MAP)
    mask = pa.array([True, False, True]).buffers()[1]
    hidden = pa.Array.from_buffers(MAP, 3, [mask, whole.buffers()[1]], children=[whole_entries(whole)])
    assert hidden.null_count == 1
    assert rows(maps_of_pairs(pairs_of_maps(hidden), 3)) == [[("a", "1")], [], [("c", "3")]]


def whole_entries(maps: pa.MapArray) -> pa.StructArray:
    return pa.StructArray.from_arrays([maps.keys, maps.items], fields=[MAP.key_field, MAP.item_field])


def test_headers() -> None:
    given = pa.array(
        [[{"key": "x", "value": b"0"}], [{"key": "a", "value": b"1"}, None], None, [{"key": "b", "value": None}]],
        HEADERS,
    ).slice(1)
    at, keys, values = pairs_of_headers(given)
    assert (at.tolist(), keys.to_pylist(), values.to_pylist()) == ([0, 2], ["a", "b"], [b"1", None])


def test_nothing() -> None:
    assert rows(maps_of_pairs(pairs_of_maps(pa.array([], MAP)), 0)) == []
    assert rows(maps_of_pairs(with_property(None, "k", pa.array([None, None], pa.string())), 2)) == [[], []]
