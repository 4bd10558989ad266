"""Results of look-ups: their rows, their order, and what was not found."""

from pathlib import Path

import pyarrow as pa
import pytest

from segmentlog.store import NATIVE_SCHEMA, ScanSpec, StoreReader
from segmentlog.store.find import ASKED, Finder, KeyField, Order
from segmentlog.store.format.index_file import Geometry
from support.indexed_stores import Row, build, every_record, write_index


@pytest.fixture
def finder(tmp_path: Path) -> Finder:
    rows = [Row("TS"[i % 2], f"key-{i} both", f"u-{i}", body_bytes=i) for i in range(50)]
    build(tmp_path / "store", rows, segment_bytes=4096)
    write_index(tmp_path / "store", Geometry(31, 40))
    return Finder(StoreReader.open(tmp_path / "store"))


def test_rows_state_what_they_were_asked_by(finder: Finder) -> None:
    found = finder.by_keys(["T", "S"], ["key-7", "both", "none"])
    spec = ScanSpec(columns=tuple(NATIVE_SCHEMA.names), property_columns=("UNIQ_KEY",))
    table = found.to_table(spec)
    assert table.schema == found.schema(spec)
    assert table.schema.names == [*NATIVE_SCHEMA.names, "UNIQ_KEY", ASKED]
    assert len(found) == table.num_rows == 51
    for row in table.to_pylist():
        assert row[ASKED] in row["keys"].split(" ")
    assert table.filter(pa.compute.equal(table[ASKED], "key-7"))["body"].to_pylist() == [bytes(7)]


def test_what_found_nothing_is_missing_per_topic(finder: Finder) -> None:
    missing = finder.by_keys(["T", "S"], ["key-7", "none"]).missing()
    assert sorted(missing.to_pylist(), key=str) == [
        {"topic": "S", "key": "none"},
        {"topic": "T", "key": "key-7"},
        {"topic": "T", "key": "none"},
    ]


def test_rows_come_oldest_or_newest_first(finder: Finder) -> None:
    oldest = finder.by_keys(["T", "S"], ["both"])
    newest = finder.by_keys(["T", "S"], ["both"], order=Order.NEWEST_FIRST)
    spec = ScanSpec(columns=("physicalOffset",), batch_rows=7)
    offsets = oldest.to_table(spec)["physicalOffset"].to_pylist()
    assert offsets == sorted(offsets)
    assert newest.to_table(spec)["physicalOffset"].to_pylist() == offsets[::-1]
    assert newest.physical_offset.tolist() == offsets[::-1]


def test_an_empty_result_has_its_schema(finder: Finder) -> None:
    table = finder.by_keys(["T"], ["none"], KeyField.UNIQUE).to_table(ScanSpec(columns=("body",)))
    assert table.schema == pa.schema([("body", pa.binary()), (ASKED, pa.string())])
    assert table.num_rows == 0


def test_no_columns_are_wanted_but_what_was_asked(finder: Finder) -> None:
    table = finder.by_keys(["T", "S"], ["key-7", "key-8"]).to_table(ScanSpec(columns=()))
    assert table[ASKED].to_pylist() == ["key-7", "key-8"]


def test_every_record_has_a_place(finder: Finder, tmp_path: Path) -> None:
    records = every_record(tmp_path / "store")
    assert finder.by_keys(["T", "S"], ["both"]).physical_offset.tolist() == [r.physical_offset for r in records]


def test_a_result_apart_reads_by_a_view_of_its_own(finder: Finder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may read it, or the finder."""
    found = finder.by_keys(["T", "S"], ["both"], order=Order.NEWEST_FIRST)
    spec = ScanSpec(columns=("physicalOffset", "body"))
    expected = found.to_table(spec)
    apart = found.apart()

    def used(*_: object) -> None:
        raise AssertionError("it reads by the finder's view of the log")

    monkeypatch.setattr(found._log, "view", used)
    with pytest.raises(AssertionError, match="the finder's view"):
        found.to_table(spec)
    assert apart.to_table(spec).equals(expected)
