"""Results of look-ups: their rows, their order, and what was not found."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import NATIVE_SCHEMA, CorruptRecordError, DataLossError, OnCorrupt, OnLoss, ScanSpec, StoreReader
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.find import ASKED, Finder, KeyField, Order
from segmentlog.store.find.found import CoveredRange, Source, Span, cover, fetch, without
from segmentlog.store.format.index_file import Geometry
from segmentlog.store.format.message import SYS_COMPRESSED
from segmentlog.store.read import scan
from support.indexed_stores import Row, build, every_record, write_index
from support.reading import ALL_COLUMNS, read
from support.store_builder import Geometry as StoreGeometry
from support.store_builder import StoreBuilder, messages
from support.tampering import overwrite, segments


@pytest.fixture
def finder(tmp_path: Path) -> Finder:
    rows = [Row("TS"[i % 2], f"key-{i} both", f"u-{i}", body_bytes=i) for i in range(50)]
    build(tmp_path / "store", rows, segment_bytes=4096)
    write_index(tmp_path / "store", Geometry(31, 40))
    return Finder(StoreReader.open(tmp_path / "store"))


def test_rows_have_a_column_with_the_key_that_found_them(finder: Finder) -> None:
    found = finder.by_keys(["T", "S"], ["key-7", "both", "none"])
    spec = ScanSpec(columns=tuple(NATIVE_SCHEMA.names), property_columns=("UNIQ_KEY",))
    table = found.to_table(spec)
    assert table.schema == found.schema(spec)
    assert table.schema.names == [*NATIVE_SCHEMA.names, "UNIQ_KEY", ASKED]
    assert len(found) == table.num_rows == 51
    for row in table.to_pylist():
        assert row[ASKED] in row["keys"].split(" ")
    assert table.filter(pa.compute.equal(table[ASKED], "key-7"))["body"].to_pylist() == [bytes(7)]


def test_keys_without_a_hit_are_missing_per_topic(finder: Finder) -> None:
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


def test_a_spec_without_columns_returns_only_the_asked_key(finder: Finder) -> None:
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


COUNT = 120
ALL = ScanSpec(columns=ALL_COLUMNS, property_columns=("UNIQ_KEY",))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with StoreBuilder(tmp_path / "s", geometry=StoreGeometry(segment_bytes=4096, queue_segment_entries=64)) as builder:
        builder.append(messages(COUNT // 2))
        builder.append(messages(COUNT // 2, topic="Refunds", first=COUNT // 2))
    return tmp_path / "s"


def stored(store: Path) -> list[dict[str, Any]]:
    rows = read(StoreReader.open(store), property_columns=("UNIQ_KEY",))
    return sorted(rows, key=lambda row: row["physicalOffset"])


def fetched(reader: StoreReader, offsets: list[int], spec: ScanSpec) -> list[tuple[int, dict[str, Any]]]:
    found: list[tuple[int, dict[str, Any]]] = []
    for rows, batch in fetch(reader.log, np.array(offsets, np.int64), spec, reader.broker_name):
        batch.validate(full=True)
        found += zip(rows.tolist(), batch.to_pylist(maps_as_pydicts="strict"), strict=True)
    return found


@pytest.mark.parametrize("order", ["forward", "backward", "shuffled", "twice"])
def test_rows_come_in_the_order_wanted_and_as_a_scan_has_them(order: str, store: Path) -> None:
    expected = stored(store)
    if order == "backward":
        expected.reverse()
    elif order == "shuffled":
        expected = [expected[at] for at in np.random.default_rng(7).permutation(COUNT)]
    elif order == "twice":
        expected = [row for row in expected for _ in range(2)]
    reader = StoreReader.open(store)
    found = fetched(reader, [row["physicalOffset"] for row in expected], ALL)
    assert found == list(enumerate(expected))


def test_batches_end_at_their_limits(store: Path) -> None:
    reader = StoreReader.open(store)
    offsets = np.array([row["physicalOffset"] for row in stored(store)])
    by_rows = ScanSpec(columns=("body",), batch_rows=7)
    sizes = [batch.num_rows for _, batch in fetch(reader.log, offsets, by_rows, "b")]
    assert max(sizes) == 7
    assert sum(sizes) == COUNT
    by_bytes = ScanSpec(columns=("body",), batch_bytes=500)
    sizes = [batch.num_rows for _, batch in fetch(reader.log, offsets, by_bytes, "b")]
    assert max(sizes) == 2
    assert sum(sizes) == COUNT


def test_places_outside_the_log_are_lost(store: Path) -> None:
    first = stored(store)[0]["physicalOffset"]
    skip = ScanSpec(columns=("keys",), on_loss=OnLoss.SKIP)
    assert fetched(StoreReader.open(store), [-1, first, 1 << 40], skip) == [(1, {"keys": "key-0"})]
    with pytest.raises(DataLossError, match=r"1 records, the first at physical offset -1, are no longer"):
        fetched(StoreReader.open(store), [-1, first], ScanSpec(columns=("keys",)))


def test_a_segment_deleted_meanwhile_is_a_loss(store: Path) -> None:
    reader = StoreReader.open(store)
    offsets = [row["physicalOffset"] for row in stored(store)]
    segments(store)[0].unlink()
    with pytest.raises(DataLossError, match="are no longer in the CommitLog"):
        fetched(reader, offsets, ScanSpec(columns=("physicalOffset",)))
    found = fetched(reader, offsets, ScanSpec(columns=("physicalOffset",), on_loss=OnLoss.SKIP))
    assert [row["physicalOffset"] for _, row in found] == [offset for offset in offsets if offset >= 4096]


def test_rows_of_a_log_that_is_cut_meanwhile_are_damage(store: Path) -> None:
    """A replica that truncates its log overwrites records with zeros, in the pages that are mapped."""
    offsets = np.array([row["physicalOffset"] for row in stored(store)])
    for on_corrupt in (OnCorrupt.FAIL, OnCorrupt.SKIP):
        spec = ScanSpec(columns=("physicalOffset", "body"), batch_bytes=500, on_corrupt=on_corrupt)
        batches = fetch(StoreReader.open(store).log, offsets[:12], spec, "b")
        before = next(batches)[0].tolist()
        held = segments(store)[0].read_bytes()
        overwrite(store, int(offsets[9]), bytes(4))
        if on_corrupt is OnCorrupt.FAIL:
            with pytest.raises(CorruptRecordError) as caught:
                list(batches)
            assert caught.value.offset == offsets[9]
        else:
            rest = [row for rows, _ in batches for row in rows.tolist()]
            assert before + rest == [row for row in range(12) if row != 9]
        overwrite(store, int(offsets[9]), held[int(offsets[9]) :][:4])


def test_a_damaged_body_follows_check_crc_and_on_corrupt(store: Path) -> None:
    expected = stored(store)
    offsets = [row["physicalOffset"] for row in expected]
    overwrite(store, offsets[40] + 90, b"##")
    columns = ("topic", "queueId", "queueOffset", "physicalOffset", "body", "keys")
    reader = StoreReader.open(store)
    assert len(fetched(reader, offsets, ScanSpec(columns=columns))) == COUNT  # no CRC is looked at
    with pytest.raises(CorruptRecordError) as error:
        fetched(reader, offsets, ScanSpec(columns=columns, check_crc=True))
    assert error.value.offset == offsets[40]
    skipped = fetched(reader, offsets, ScanSpec(columns=columns, check_crc=True, on_corrupt=OnCorrupt.SKIP))
    assert [at for at, _ in skipped] == [at for at in range(COUNT) if at != 40]
    kept = fetched(reader, offsets, ScanSpec(columns=columns, check_crc=True, on_corrupt=OnCorrupt.NULL))
    row = {**{name: expected[40][name] for name in columns}, "body": None, "keys": None}
    assert kept[40] == (40, row)
    assert [at for at, _ in kept] == list(range(COUNT))


def compressed(store: Path, bodies: list[bytes]) -> list[int]:
    count = len(bodies)
    with StoreBuilder(store, geometry=StoreGeometry(segment_bytes=1 << 16)) as builder:
        batch = messages(count).set_column(2, "body", pa.array([zlib.compress(body) for body in bodies], pa.binary()))
        flags = pa.array([SYS_COMPRESSED] * count, pa.int32())
        return builder.append(batch.append_column("sysFlag", flags)).physical_offsets.tolist()


def test_bodies_are_inflated_unless_raw_body_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_INFLATED_BATCHES", 1)
    bodies = [f"body {i} ".encode() * 50 for i in range(40)]
    offsets = compressed(tmp_path / "s", bodies)
    reader = StoreReader.open(tmp_path / "s")
    spec = ScanSpec(columns=("body",), batch_bytes=2000)
    assert [row["body"] for _, row in fetched(reader, offsets, spec)] == bodies
    raw = ScanSpec(columns=("body",), raw_body=True)
    assert [zlib.decompress(row["body"]) for _, row in fetched(reader, offsets, raw)] == bodies


def test_a_body_that_cannot_be_inflated_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_INFLATED_BATCHES", 1)
    bodies = [f"body {i} ".encode() * 50 for i in range(40)]
    offsets = compressed(tmp_path / "s", bodies)
    overwrite(tmp_path / "s", offsets[20] + 88, b"\0\0")
    reader = StoreReader.open(tmp_path / "s")
    spec = ScanSpec(columns=("body",), batch_bytes=2000, on_corrupt=OnCorrupt.SKIP)
    expected = [(at, {"body": body}) for at, body in enumerate(bodies) if at != 20]
    assert fetched(reader, offsets, spec) == expected
    kept = fetched(reader, offsets, ScanSpec(columns=("body",), on_corrupt=OnCorrupt.NULL))
    assert kept[20] == (20, {"body": None})
    with pytest.raises(CorruptRecordError, match="inflated"):
        fetched(reader, offsets, ScanSpec(columns=("body",)))


def test_delayed_messages_have_the_code_of_their_delivery(tmp_path: Path) -> None:
    with StoreBuilder(tmp_path / "s", geometry=StoreGeometry(segment_bytes=1 << 16)) as builder:
        batch = messages(4, topic="SCHEDULE_TOPIC_XXXX")
        delays = pa.array([[("DELAY", "3")]] * 4, pa.map_(pa.string(), pa.string()))
        offsets = builder.append(batch.append_column("properties", delays)).physical_offsets.tolist()
    reader = StoreReader.open(tmp_path / "s", fs=LocalFileSystem())
    found = fetched(reader, offsets, ScanSpec(columns=("tagsCode",)))
    assert [row["tagsCode"] for _, row in found] == [1_700_000_000_000 + at + 10_000 for at in range(4)]


def test_ranges_without_an_index_file_are_scanned_with_a_reason() -> None:
    coverage = cover(100, 1000, [Span(500, 700, "b"), Span(50, 300, "a")], [])
    assert coverage.ranges == (
        CoveredRange(100, 300, Source.INDEX, "a"),
        CoveredRange(300, 500, Source.SCAN, "between indexed records"),
        CoveredRange(500, 700, Source.INDEX, "b"),
        CoveredRange(700, 1000, Source.SCAN, "after the last indexed record"),
    )
    assert (coverage.indexed_bytes, coverage.scanned_bytes) == (400, 500)
    assert [each.start for each in coverage.scanned()] == [300, 700]


def test_damaged_files_are_named_where_something_is_scanned() -> None:
    (scan,) = cover(0, 10, [], ["x is damaged"]).ranges
    assert scan.reason == "no index file answers for this log; x is damaged"


def test_the_front_of_a_log_may_have_no_index() -> None:
    assert cover(0, 10, [Span(5, 10, "a")], []).ranges[0].reason == "before the first index file"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=6), st.integers(0, 50), st.integers(0, 50))
def test_ranges_leave_no_gap_and_index_ranges_are_of_their_files(
    spans: list[tuple[int, int]], start: int, stop: int
) -> None:
    files = [Span(a, b, str(at)) for at, (a, b) in enumerate(spans)]
    reached = start
    for each in cover(start, stop, files, []).ranges:
        assert each.start == reached < each.stop <= stop
        reached = each.stop
        held = [any(f.start <= at < f.stop for f in files) for at in range(each.start, each.stop)]
        assert all(held) if each.source is Source.INDEX else not any(held)
        if each.source is Source.INDEX:
            file = files[int(each.reason)]
            assert file.start <= each.start < each.stop <= file.stop
    assert reached == max(start, stop)


@pytest.mark.parametrize(
    ("holes", "left"),
    [
        ([], [(10, 50)]),
        ([(20, 30)], [(10, 20), (30, 50)]),
        ([(0, 15), (40, 90)], [(15, 40)]),
        ([(20, 30), (25, 40)], [(10, 20), (40, 50)]),
        ([(0, 90)], []),
    ],
)
def test_holes_are_cut_out(holes: list[tuple[int, int]], left: list[tuple[int, int]]) -> None:
    assert list(without(Span(10, 50, "f"), holes)) == [Span(a, b, "f") for a, b in left]
