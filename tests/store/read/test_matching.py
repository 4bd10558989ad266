from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store import OnCorrupt, Predicate, PropertyFilter, Snapshot, Sql92Filter, Tags
from segmentlog.store.format.consume_queue import EXTENSION_ADDRESS_MAX, NATIVE
from segmentlog.store.format.hashing import java_hash
from segmentlog.store.format.message import Mask
from segmentlog.store.read.matching import Matcher
from support import reading
from support.store_builder import StoreBuilder, messages
from support.tampering import overwrite

COUNT = 90


@dataclass(frozen=True)
class Equal:
    """A filter of a caller's own: some properties have given values, all of them."""

    values: tuple[tuple[str, str], ...]

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.values)

    def mask(self, properties: pa.RecordBatch) -> Mask:
        assert properties.schema.names == sorted(self.columns)
        keep = np.ones(properties.num_rows, np.bool_)
        for name, value in self.values:
            keep &= np.array([each == value for each in properties.column(name).to_pylist()], np.bool_)
        return keep


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with StoreBuilder(tmp_path / "s") as builder:
        builder.append(messages(COUNT, tags=("a", "b", "c")))
    return tmp_path / "s"


def found(store: Path, wanted: PropertyFilter, **spec: Any) -> list[int]:
    snapshot = Snapshot.open(store)
    rows = reading.read(snapshot, predicate=Predicate(filter=wanted), **spec)
    return sorted(-1 if row["keys"] is None else int(row["keys"].removeprefix("key-")) for row in rows)


B_TAGS = list(range(1, COUNT, 3))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Equal((("TAGS", "b"),)), B_TAGS),
        (Equal((("KEYS", "key-7"), ("TAGS", "b"))), [7]),
        (Equal((("KEYS", "key-7"), ("TAGS", "c"))), []),
        (Equal((("none", "x"),)), []),
        (Equal(()), list(range(COUNT))),
        (Sql92Filter.compile("TAGS = 'b'"), B_TAGS),
        (Sql92Filter.compile("KEYS = 'key-7' AND TAGS = 'b' AND missing IS NULL"), [7]),
        (Sql92Filter.compile("KEYS ENDSWITH '-7' OR missing > 5"), [7]),
        (Sql92Filter.compile("KEYS > 5"), []),
        (Sql92Filter.compile("TRUE"), list(range(COUNT))),
    ],
)
def test_a_filter_selects_its_messages_by_the_properties_that_it_names(
    store: Path, wanted: PropertyFilter, expected: list[int]
) -> None:
    assert found(store, wanted) == expected


def test_a_damaged_record_matches_no_filter(store: Path) -> None:
    snapshot = Snapshot.open(store)
    place = next(row["physicalOffset"] for row in reading.read(snapshot) if row["keys"] == "key-7")
    overwrite(store, place + 4, b"\0\0\0\0")
    for on_corrupt in (OnCorrupt.SKIP, OnCorrupt.NULL):
        for wanted in (Equal(()), Sql92Filter.compile("TRUE"), Sql92Filter.compile("TAGS IS NULL OR KEYS IS NOT NULL")):
            assert found(store, wanted, on_corrupt=on_corrupt) == [n for n in range(COUNT) if n != 7]


def entries(*codes: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    made = np.zeros(len(codes), NATIVE)
    made["tags_code"] = codes
    made["physical_offset"] = range(len(codes))
    return made


def test_entries_are_left_out_only_where_no_record_can_match() -> None:
    matcher = Matcher(Predicate(filter=Tags(frozenset({"a"}))))
    held = entries(java_hash("a"), java_hash("a"), java_hash("b"), EXTENSION_ADDRESS_MAX)
    assert matcher.by_entries("T", held).tolist() == [True, True, False, True]  # type: ignore[union-attr]
    assert matcher.by_entries("SCHEDULE_TOPIC_XXXX", held) is None
    assert Matcher(Predicate(filter=Equal(()))).by_entries("T", held) is None
