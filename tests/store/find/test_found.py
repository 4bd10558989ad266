import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import NATIVE_SCHEMA, CorruptRecordError, DataLossError, OnCorrupt, OnLoss, ScanSpec, Snapshot
from segmentlog.store.find import ASKED, Finder, KeyField
from segmentlog.store.find.found import CoveredRange, IndexSpan, Source, cover, fetch, without
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
    return Finder(Snapshot.open(tmp_path / "store"))


def test_rows_have_a_column_with_the_key_that_found_them(finder: Finder, tmp_path: Path) -> None:
    found = finder.by_keys(["T", "S"], ["key-7", "both", "none"])
    spec = ScanSpec(columns=tuple(NATIVE_SCHEMA.names), property_columns=("UNIQ_KEY",))
    table = found.to_table(spec)
    assert table.schema == found.schema(spec)
    assert table.schema.names == [*NATIVE_SCHEMA.names, "UNIQ_KEY", ASKED]
    assert len(found) == table.num_rows == 51
    assert all(row[ASKED] in row["keys"].split(" ") for row in table.to_pylist())
    assert table.filter(pa.compute.equal(table[ASKED], "key-7"))["body"].to_pylist() == [bytes(7)]
    places = [record.physical_offset for record in every_record(tmp_path / "store")]
    assert finder.by_keys(["T", "S"], ["both"]).physical_offset.tolist() == places
    table = finder.by_keys(["T", "S"], ["key-7", "key-8"]).to_table(ScanSpec(columns=()))
    assert table[ASKED].to_pylist() == ["key-7", "key-8"]


def test_keys_without_a_hit_are_missing_per_topic_and_an_empty_result_has_its_schema(finder: Finder) -> None:
    missing = finder.by_keys(["T", "S"], ["key-7", "none"]).missing().to_pylist()
    assert sorted((row["topic"], row["key"]) for row in missing) == [("S", "none"), ("T", "key-7"), ("T", "none")]
    table = finder.by_keys(["T"], ["none"], KeyField.UNIQUE).to_table(ScanSpec(columns=("body",)))
    assert table.schema == pa.schema([("body", pa.binary()), (ASKED, pa.string())])
    assert table.num_rows == 0


COUNT = 120
ALL = ScanSpec(columns=ALL_COLUMNS, property_columns=("UNIQ_KEY",))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with StoreBuilder(tmp_path / "s", geometry=StoreGeometry(segment_bytes=4096, queue_segment_entries=64)) as builder:
        builder.append(messages(COUNT // 2))
        builder.append(messages(COUNT // 2, topic="Refunds", first=COUNT // 2))
    return tmp_path / "s"


def stored(store: Path) -> list[dict[str, Any]]:
    rows = read(Snapshot.open(store), property_columns=("UNIQ_KEY",))
    return sorted(rows, key=lambda row: row["physicalOffset"])


def fetched(snapshot: Snapshot, offsets: list[int], spec: ScanSpec) -> list[tuple[int, dict[str, Any]]]:
    found: list[tuple[int, dict[str, Any]]] = []
    for rows, batch in fetch(snapshot.log, np.array(offsets, np.int64), spec, snapshot.broker_name):
        batch.validate(full=True)
        found += zip(rows.tolist(), batch.to_pylist(maps_as_pydicts="strict"), strict=True)
    return found


def test_rows_come_in_the_order_wanted_and_as_a_scan_has_them(store: Path) -> None:
    rows, snapshot = stored(store), Snapshot.open(store)
    for order in (range(COUNT), range(COUNT)[::-1], np.random.default_rng(7).permutation(COUNT), np.arange(240) // 2):
        expected = [rows[at] for at in order]
        assert fetched(snapshot, [row["physicalOffset"] for row in expected], ALL) == list(enumerate(expected))
    offsets = np.array([row["physicalOffset"] for row in rows])
    for limit, most in (({"batch_rows": 7}, 7), ({"batch_bytes": 500}, 2)):
        batches = fetch(snapshot.log, offsets, ScanSpec(columns=("body",), **limit), "b")
        sizes = [batch.num_rows for _, batch in batches]
        assert (max(sizes), sum(sizes)) == (most, COUNT)


def test_places_outside_the_log_and_in_a_deleted_segment_are_lost(store: Path) -> None:
    offsets = [row["physicalOffset"] for row in stored(store)]
    skip = ScanSpec(columns=("keys",), on_loss=OnLoss.SKIP)
    assert fetched(Snapshot.open(store), [-1, offsets[0], 1 << 40], skip) == [(1, {"keys": "key-0"})]
    with pytest.raises(DataLossError, match=r"1 records, the first at physical offset -1, are no longer"):
        fetched(Snapshot.open(store), [-1, offsets[0]], ScanSpec(columns=("keys",)))
    snapshot = Snapshot.open(store)
    segments(store)[0].unlink()
    with pytest.raises(DataLossError, match="are no longer in the CommitLog"):
        fetched(snapshot, offsets, ScanSpec(columns=("physicalOffset",)))
    found = fetched(snapshot, offsets, ScanSpec(columns=("physicalOffset",), on_loss=OnLoss.SKIP))
    assert [row["physicalOffset"] for _, row in found] == [offset for offset in offsets if offset >= 4096]


def test_rows_of_a_log_that_is_cut_meanwhile_are_damage(store: Path) -> None:
    """A replica that truncates its log overwrites records with zeros, in the pages that are mapped."""
    offsets = np.array([row["physicalOffset"] for row in stored(store)])
    for on_corrupt in (OnCorrupt.FAIL, OnCorrupt.SKIP):
        spec = ScanSpec(columns=("physicalOffset", "body"), batch_bytes=500, on_corrupt=on_corrupt)
        batches = fetch(Snapshot.open(store).log, offsets[:12], spec, "b")
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

    def read_rows(**options: Any) -> dict[int, dict[str, Any]]:
        return dict(fetched(Snapshot.open(store), offsets, ScanSpec(columns=columns, **options)))

    assert len(read_rows()) == COUNT  # no CRC is looked at
    with pytest.raises(CorruptRecordError) as error:
        read_rows(check_crc=True)
    assert error.value.offset == offsets[40]
    assert list(read_rows(check_crc=True, on_corrupt=OnCorrupt.SKIP)) == [at for at in range(COUNT) if at != 40]
    kept = read_rows(check_crc=True, on_corrupt=OnCorrupt.NULL)
    assert kept[40] == {**{name: expected[40][name] for name in columns}, "body": None, "keys": None}
    assert list(kept) == list(range(COUNT))


def compressed(store: Path, bodies: list[bytes]) -> list[int]:
    count = len(bodies)
    with StoreBuilder(store, geometry=StoreGeometry(segment_bytes=1 << 16)) as builder:
        batch = messages(count).set_column(2, "body", pa.array([zlib.compress(body) for body in bodies], pa.binary()))
        flags = pa.array([SYS_COMPRESSED] * count, pa.int32())
        return builder.append(batch.append_column("sysFlag", flags)).physical_offsets.tolist()


def test_bodies_are_inflated_unless_raw_body_is_set_and_damage_if_they_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_INFLATED_BATCHES", 1)
    bodies = [f"body {i} ".encode() * 50 for i in range(40)]
    offsets = compressed(tmp_path / "s", bodies)

    def read_bodies(**options: Any) -> dict[int, bytes]:
        found = fetched(Snapshot.open(tmp_path / "s"), offsets, ScanSpec(columns=("body",), **options))
        return {at: row["body"] for at, row in found}

    assert read_bodies(batch_bytes=2000) == dict(enumerate(bodies))
    assert [zlib.decompress(body) for body in read_bodies(raw_body=True).values()] == bodies
    overwrite(tmp_path / "s", offsets[20] + 88, b"\0\0")
    left = {at: body for at, body in enumerate(bodies) if at != 20}
    assert read_bodies(batch_bytes=2000, on_corrupt=OnCorrupt.SKIP) == left
    assert read_bodies(on_corrupt=OnCorrupt.NULL) == left | {20: None}
    with pytest.raises(CorruptRecordError, match="inflated"):
        read_bodies()


def test_delayed_messages_have_the_code_of_their_delivery(tmp_path: Path) -> None:
    with StoreBuilder(tmp_path / "s", geometry=StoreGeometry(segment_bytes=1 << 16)) as builder:
        batch = messages(4, topic="SCHEDULE_TOPIC_XXXX")
        delays = pa.array([[("DELAY", "3")]] * 4, pa.map_(pa.string(), pa.string()))
        offsets = builder.append(batch.append_column("properties", delays)).physical_offsets.tolist()
    snapshot = Snapshot.open(tmp_path / "s")
    found = fetched(snapshot, offsets, ScanSpec(columns=("tagsCode",)))
    assert [row["tagsCode"] for _, row in found] == [1_700_000_000_000 + at + 10_000 for at in range(4)]


def test_ranges_without_an_index_file_are_scanned_with_a_reason() -> None:
    coverage = cover(100, 1000, [IndexSpan(500, 700, "b"), IndexSpan(50, 300, "a")], [])
    assert coverage.ranges == (
        CoveredRange(100, 300, Source.INDEX, "a"),
        CoveredRange(300, 500, Source.SCAN, "between indexed records"),
        CoveredRange(500, 700, Source.INDEX, "b"),
        CoveredRange(700, 1000, Source.SCAN, "after the last indexed record"),
    )
    assert (coverage.indexed_bytes, coverage.scanned_bytes) == (400, 500)
    assert [each.start for each in coverage.scanned()] == [300, 700]


def test_reasons_name_damaged_files_and_the_front_and_holes_are_cut_out() -> None:
    (scan,) = cover(0, 10, [], ["x is damaged"]).ranges
    assert scan.reason == "no index file answers for this log; x is damaged"
    assert cover(0, 10, [IndexSpan(5, 10, "a")], []).ranges[0].reason == "before the first index file"
    for holes, left in (
        ([], [(10, 50)]),
        ([(20, 30)], [(10, 20), (30, 50)]),
        ([(0, 15), (40, 90)], [(15, 40)]),
        ([(20, 30), (25, 40)], [(10, 20), (40, 50)]),
        ([(0, 90)], []),
    ):
        assert list(without(IndexSpan(10, 50, "f"), holes)) == [IndexSpan(a, b, "f") for a, b in left]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=6), st.integers(0, 50), st.integers(0, 50))
def test_ranges_leave_no_gap_and_index_ranges_are_of_their_files(
    spans: list[tuple[int, int]], start: int, stop: int
) -> None:
    files = [IndexSpan(a, b, str(at)) for at, (a, b) in enumerate(spans)]
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
