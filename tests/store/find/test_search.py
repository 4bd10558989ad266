"""Searches for keys: equal to reading every record, whatever became of the index."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import ConfigError, StoreReader
from segmentlog.store.find import ALWAYS, Coverage, Finder, Found, KeyField, Order, Source, Window
from segmentlog.store.find import search as searching
from segmentlog.store.find.search import KeySearch
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.index_file import Geometry, decode_header
from segmentlog.store.index import table
from segmentlog.store.index.asked import each_in
from support.broker_index import Index
from support.damaged_indexes import BROKEN, GEOMETRY, KEYS, TOPICS, a_store, cycles, old_header, pairs_of
from support.indexed_stores import (
    START_MS,
    Row,
    brute_force,
    brute_force_each,
    build,
    colliding,
    entry_bytes,
    every_record,
    write_index,
)
from support.scale import scale
from support.tampering import overwrite, put_at


def look(path: Path, keys: list[str], field: KeyField = KeyField.EITHER, window: Window = ALWAYS) -> Found:
    return Finder(StoreReader.open(path)).by_keys(TOPICS, keys, field, window=window)


def check(path: Path, keys: list[str], window: Window = ALWAYS) -> Coverage:
    """Compare look-ups with reading every record, and that the coverage is the log's."""
    records, pairs = every_record(path), [(topic, key) for topic in TOPICS for key in keys]
    times = {"start_ms": window.start_ms, "stop_ms": window.stop_ms}
    for field in KeyField:
        found = look(path, keys, field, window)
        expected = brute_force(
            records, pairs, keys=field is not KeyField.UNIQUE, unique=field is not KeyField.KEYS, **times
        )
        assert sorted(pairs_of(found)) == expected
        assert pairs_of(found) == sorted(pairs_of(found), key=lambda each: each[0])
    coverage = found.coverage
    assert coverage is not None
    edges = [(each.start, each.stop) for each in coverage.ranges]
    assert all(before[1] == after[0] for before, after in itertools.pairwise(edges))
    return coverage


def test_keys_are_found_through_the_index_alone_but_for_its_edges(tmp_path: Path) -> None:
    a_store(tmp_path / "store")
    coverage = check(tmp_path / "store", KEYS)
    assert coverage.scanned_bytes < 8 * 200
    assert coverage.indexed_bytes > 900 * 100


def test_a_key_of_one_topic_is_not_found_in_another_topic(tmp_path: Path) -> None:
    path = tmp_path / "store"
    build(path, [Row("A", "same"), Row("B", "same"), Row("A", "AaAa"), Row("B", "BBBB"), Row("A", "BBAa")])
    write_index(path, GEOMETRY)
    finder = Finder(StoreReader.open(path))
    assert len(finder.by_keys(["A"], ["same"])) == 1
    assert len(finder.by_keys(["A", "B"], ["same"])) == 2
    assert len(finder.by_keys(["A"], ["AaBB"])) == 0
    assert len(finder.by_pairs(*each_in(["A"], ["AaAa", "BBAa", "BBBB"]))) == 2


def test_records_that_were_rolled_back_carry_no_keys(tmp_path: Path) -> None:
    path = tmp_path / "store"
    build(path, [Row("A", "k", sys_flag=flag) for flag in (0x0, 0x4, 0x8, 0xC)])
    assert len(Finder(StoreReader.open(path)).by_keys(["A"], ["k"])) == 3
    write_index(path, GEOMETRY)
    assert len(Finder(StoreReader.open(path)).by_keys(["A"], ["k"])) == 3


@pytest.mark.parametrize(
    "window",
    [
        ALWAYS,
        Window(START_MS + 1000, START_MS + 2000),
        Window(None, START_MS + 37 * 300),
        Window(START_MS + 37 * 300, None),
        Window(START_MS + 37 * 300, START_MS + 37 * 300 + 1),
        Window(START_MS + 37 * 300 + 1, START_MS + 37 * 301),
    ],
)
def test_windows_are_exact(window: Window, tmp_path: Path) -> None:
    a_store(tmp_path / "store")
    check(tmp_path / "store", KEYS, window)
    check_keys(tmp_path / "store", window)


@pytest.mark.parametrize("damage", BROKEN, ids=lambda each: each.__name__)
def test_ranges_of_a_damaged_index_are_scanned(damage: Callable[[list[Path]], None], tmp_path: Path) -> None:
    files = a_store(tmp_path / "store")
    damage(files)
    coverage = check(tmp_path / "store", KEYS)
    assert coverage.scanned_bytes > 2000
    check_keys(tmp_path / "store")


def test_a_damaged_file_is_named_in_the_coverage(tmp_path: Path) -> None:
    files = a_store(tmp_path / "store")
    cycles(files)
    (scan,) = (each for each in check(tmp_path / "store", KEYS).scanned() if len(each) > 10_000)
    assert scan.source is Source.SCAN
    assert f"{files[1]} is damaged: " in scan.reason


def test_entries_that_name_records_without_their_key_cost_their_file_its_credit(tmp_path: Path) -> None:
    files = a_store(tmp_path / "store")
    data = bytearray(files[1].read_bytes())
    records = [record.physical_offset for record in every_record(tmp_path / "store")]
    wanted = Index.open(files[0].parent, GEOMETRY).query("Orders", "order-300")[0]
    for number in range(1, GEOMETRY.entries - 1):
        at = entry_bytes(GEOMETRY, number, "physical_offset")
        if int.from_bytes(data[at : at + 8], "big") == wanted:  # its entries now name the record after it
            data[at : at + 8] = records[records.index(wanted) + 1].to_bytes(8, "big")
    files[1].write_bytes(data)
    finder = Finder(StoreReader.open(tmp_path / "store"))
    assert finder.by_keys(["Orders"], ["order-300"]).physical_offset.tolist() == [wanted]
    coverage = finder.by_keys(["Orders"], ["nothing"]).coverage
    assert coverage is not None
    assert any("lack the key of their entry" in each.reason for each in coverage.scanned())


@given(st.data())
def test_no_changed_byte_of_an_index_hides_or_invents_a_hit(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = damaged_copy(tmp_path_factory)
    files = sorted((path / "index").iterdir())
    file = data.draw(st.sampled_from(files))
    raw = bytearray(file.read_bytes())
    used = GEOMETRY.entry_position(decode_header(raw).count)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(used, len(raw)) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    file.write_bytes(raw)
    keys = [*KEYS, *(f"order-{i}" for i in range(900))]
    found = look(path, keys)
    assert sorted(pairs_of(found)) == EXPECTED[0]


EXPECTED: list[list[tuple[int, str]]] = []
_PRISTINE: list[Path] = []


def damaged_copy(factory: pytest.TempPathFactory) -> Path:
    """A copy of one store, whose index may be changed; its log is the same file."""
    if not _PRISTINE:
        path = factory.mktemp("pristine") / "store"
        a_store(path)
        _PRISTINE.append(path)
        keys = [*KEYS, *(f"order-{i}" for i in range(900))]
        EXPECTED.append(brute_force(every_record(path), [(topic, key) for topic in TOPICS for key in keys]))
    index = _PRISTINE[0] / "index"
    if not (_PRISTINE[0] / "sound").exists():
        shutil.copytree(index, _PRISTINE[0] / "sound")
    shutil.rmtree(index)
    shutil.copytree(_PRISTINE[0] / "sound", index)
    return _PRISTINE[0]


def test_an_index_that_was_disabled_for_a_while_is_scanned_there(tmp_path: Path) -> None:
    path = tmp_path / "store"
    build(path, [Row(TOPICS[0], f"order-{i}") for i in range(3000)])
    (first, stop) = (every_record(path)[at].physical_offset for at in (500, 2000))
    write_index(path, Geometry(211, 4000), wanted=lambda offset: not first <= offset < stop)
    coverage = check(path, [f"order-{i}" for i in range(0, 3000, 9)])
    (hole,) = (each for each in coverage.scanned() if len(each) > 1000)
    assert (hole.start, hole.stop) == (first, stop)


def test_large_records_do_not_count_as_a_gap_of_the_index(tmp_path: Path) -> None:
    path = tmp_path / "store"
    build(path, [Row(TOPICS[0], f"order-{i}", body_bytes=70_000) for i in range(20)], segment_bytes=1 << 18)
    write_index(path, GEOMETRY)
    coverage = check(path, [f"order-{i}" for i in range(20)])
    assert coverage.scanned_bytes < 72_000  # the last record


def test_index_entries_added_later_reduce_the_scan(tmp_path: Path) -> None:
    path = tmp_path / "store"
    files = a_store(path)
    held = {file: file.read_bytes() for file in files}
    old_header(files)
    finder = Finder(StoreReader.open(path))
    before = finder.by_keys(TOPICS, KEYS)
    files[-1].write_bytes(held[files[-1]])
    after = finder.by_keys(TOPICS, KEYS)
    assert pairs_of(before) == pairs_of(after)
    assert before.coverage is not None
    assert after.coverage is not None
    assert after.coverage.scanned_bytes < before.coverage.scanned_bytes


def whole(data: bytearray) -> None:
    """Leave the file as the broker wrote it."""


def cut_link(data: bytearray) -> None:
    """Let an added entry end the chain that it continues."""
    for number in range(decode_header(data).count - 1, 1, -1):
        at = entry_bytes(GEOMETRY, number, "previous")
        if any(data[at : at + 4]):
            data[at : at + 4] = bytes(4)
            return


def changed_hash(data: bytearray) -> None:
    """Let an added entry hold the hash of no key of its record."""
    at = entry_bytes(GEOMETRY, decode_header(data).count - 1, "key_hash")
    data[at + 3] ^= 1


def moved(data: bytearray) -> None:
    """Let all added entries name places at which no record begins."""
    count = decode_header(data).count
    for number in range(count // 2, count):
        at = entry_bytes(GEOMETRY, number, "physical_offset")
        data[at : at + 8] = (int.from_bytes(data[at : at + 8], "big") + 1).to_bytes(8, "big")


@pytest.mark.parametrize("damage", [whole, cut_link, changed_hash, moved])
def test_a_file_that_grew_is_checked_from_where_it_ended(
    damage: Callable[[bytearray], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    files = a_store(path)
    grown = bytearray(files[-1].read_bytes())
    old_header(files)
    finder = Finder(StoreReader.open(path))
    before = finder.by_keys(TOPICS, KEYS)
    monkeypatch.setattr(table, "_checked", checks := Mock(side_effect=table._checked))
    damage(grown)
    put_at(files[-1], 0, bytes(grown))
    finder.refresh()
    after = finder.by_keys(TOPICS, KEYS)
    assert pairs_of(after) == pairs_of(before)
    assert checks.called == (damage is not whole)
    assert before.coverage is not None
    assert after.coverage is not None
    if damage is whole:
        assert after.coverage.scanned_bytes < before.coverage.scanned_bytes


def test_a_record_is_found_once_per_key_that_it_carries(tmp_path: Path) -> None:
    path = tmp_path / "store"
    build(path, [Row("A", "k k other", "k")])
    write_index(path, GEOMETRY)
    finder = Finder(StoreReader.open(path))
    assert len(finder.by_keys(["A"], ["k", "k"], KeyField.EITHER)) == 1
    assert len(finder.by_keys(["A"], ["k", "other"], KeyField.EITHER)) == 2


def test_a_segment_that_retention_deleted_denies_no_index(tmp_path: Path) -> None:
    path = tmp_path / "store"
    a_store(path)
    min((path / "commitlog").iterdir()).unlink()
    coverage = check(path, KEYS)
    assert coverage.ranges[0].start == 1 << 16
    assert coverage.scanned_bytes < 8 * 200


def test_a_segment_that_is_deleted_during_a_look_up_denies_no_index(tmp_path: Path) -> None:
    path = tmp_path / "store"
    a_store(path)
    reader = StoreReader.open(path)
    min((path / "commitlog").iterdir()).unlink()
    found = Finder(reader).by_keys(TOPICS, KEYS, KeyField.EITHER)
    left = [record for record in every_record(path) if record.physical_offset >= 1 << 16]
    assert sorted(pairs_of(found)) == brute_force(left, [(topic, key) for topic in TOPICS for key in KEYS])
    assert found.coverage is not None
    assert found.coverage.scanned_bytes < 8 * 200


def test_no_keys_and_no_topics_find_nothing(tmp_path: Path) -> None:
    a_store(tmp_path / "store")
    finder = Finder(StoreReader.open(tmp_path / "store"))
    assert len(finder.by_keys([], ["order-1"])) == len(finder.by_keys(TOPICS, [])) == 0


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from("AB"),
            st.lists(st.sampled_from(["Aa", "BB", "AaAa", "BBBB", "AaBB", "k", "\u00e4", "\U0001f600x"]), max_size=3),
            st.one_of(st.none(), st.sampled_from(["Aa", "u1", "u2", "u3"])),
            st.integers(-2000, 2000),
        ),
        max_size=40,
    ),
    st.builds(Geometry, st.integers(1, 9), st.integers(3, 60)),
    st.sets(st.sampled_from(["Aa", "BB", "AaAa", "BBAa", "BBBB", "k", "u1", "\u00e4", "\U0001f600x", ""])),
    st.tuples(st.none() | st.integers(-1500, 1500), st.none() | st.integers(-1500, 1500)),
)
def test_any_store_is_searched_as_by_reading_all_of_it(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[tuple[str, list[str], str | None, int]],
    geometry: Geometry,
    asked: set[str],
    times: tuple[int | None, int | None],
) -> None:
    path = tmp_path_factory.mktemp("any") / "store"
    rows = [Row(topic, " ".join(keys) or None, unique, START_MS + at) for topic, keys, unique, at in messages]
    build(path, rows, segment_bytes=2048)
    write_index(path, geometry)
    window = Window(*(None if time is None else START_MS + time for time in times))
    records, finder = every_record(path), Finder(StoreReader.open(path))
    for field in KeyField:
        found = finder.by_keys(["A", "B", "C"], sorted(asked), field, window=window)
        expected = brute_force(
            records,
            [(topic, key) for topic in "AB" for key in asked],
            keys=field is not KeyField.UNIQUE,
            unique=field is not KeyField.KEYS,
            start_ms=window.start_ms,
            stop_ms=window.stop_ms,
        )
        assert sorted(pairs_of(found)) == expected


def test_records_that_a_truncation_left_are_not_found(tmp_path: Path) -> None:
    """Old records after a gap, older than those before it: a broker truncated the log there and erased nothing."""
    path = tmp_path / "store"
    times = [START_MS + 1000 + i for i in range(30)] + [START_MS + i for i in range(30)]
    build(path, [Row("Orders", f"order-{i}", time_ms=time) for i, time in enumerate(times)])
    records = every_record(path)
    overwrite(path, records[30].physical_offset + 4, bytes(4))
    found = Finder(StoreReader.open(path)).by_keys(["Orders"], [f"order-{i}" for i in range(60)])
    assert found.physical_offset.tolist() == [record.physical_offset for record in records[:30]]


ASKED = [(topic, key) for topic in TOPICS for key in KEYS]


class Counted:
    """Number of searches in bulk."""

    def __init__(self) -> None:
        self.bulk = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    count, find = Counted(), KeySearch.find

    def counting(*given: object) -> object:
        count.bulk += 1
        return find(*given)

    monkeypatch.setattr(KeySearch, "find", counting)
    return count


def warm(path: Path) -> Finder:
    """Look up twice: the second look-up of an unchanged store prepares for single keys."""
    finder = Finder(StoreReader.open(path))
    for _ in range(2):
        finder.by_keys(["Orders"], ["order-3"])
    return finder


def one(finder: Finder, topic: str, key: str, field: KeyField = KeyField.EITHER, window: Window = ALWAYS) -> Found:
    return finder.by_keys([topic], [key], field, window=window)


def check_keys(path: Path, window: Window = ALWAYS) -> None:
    """Compare single look-ups with reading every record."""
    records, times = every_record(path), {"start_ms": window.start_ms, "stop_ms": window.stop_ms}
    finder = warm(path)
    for field in KeyField:
        kinds = {"keys": field is not KeyField.UNIQUE, "unique": field is not KeyField.KEYS}
        for (topic, key), expected in brute_force_each(records, ASKED, **kinds, **times).items():
            assert pairs_of(one(finder, topic, key, field, window)) == expected


def test_a_warm_look_up_searches_nothing_in_bulk(tmp_path: Path, counted: Counted) -> None:
    a_store(tmp_path / "store")
    finder = warm(tmp_path / "store")
    before = counted.bulk
    for topic, key in ASKED:
        one(finder, topic, key)
    assert counted.bulk - before == len(TOPICS) * KEYS.count("")


def test_a_result_is_that_of_a_search_in_bulk(tmp_path: Path) -> None:
    a_store(tmp_path / "store")
    finder = warm(tmp_path / "store")
    for order in Order:
        alone = finder.by_keys(["Orders"], ["customer-11"], order=order)
        in_bulk = finder.by_keys(["Orders"], ["customer-11", "nothing"], order=order)
        assert alone.physical_offset.tolist() == in_bulk.physical_offset.tolist()
        assert alone.asked.schema == in_bulk.asked.schema
        assert alone.coverage == in_bulk.coverage
        assert alone.missing().num_rows == 0
    assert one(finder, "Orders", "nothing").missing().to_pylist() == [{"topic": "Orders", "key": "nothing"}]


def test_records_that_no_file_answers_for_are_found(tmp_path: Path) -> None:
    path = tmp_path / "store"
    build(path, [Row("A", f"k-{number}") for number in range(300)])
    stop = every_record(path)[200].physical_offset
    write_index(path, Geometry(211, 700), stop=stop)
    finder = warm(path)
    places = {key: each.physical_offset for each in every_record(path) for key in each.keys}
    for number in (0, 199, 200, 201, 299):
        assert one(finder, "A", f"k-{number}").physical_offset.tolist() == [places[f"k-{number}"]]


def test_too_much_that_is_not_indexed_is_searched_in_bulk(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmentlog.store.find.search._KEPT_BYTES", 1000)
    path = tmp_path / "store"
    build(path, [Row("A", f"k-{number}") for number in range(300)])
    finder = warm(path)
    before = counted.bulk
    assert len(one(finder, "A", "k-7")) == 1
    assert counted.bulk == before + 1


@pytest.mark.slow
def test_whether_bulk_has_to_search_is_found_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_store(tmp_path / "store")
    shutil.rmtree(tmp_path / "store" / "index")
    monkeypatch.setattr("segmentlog.store.find.search._KEPT_BYTES", 0)
    prepare, calls = KeySearch._for_single_keys, []
    monkeypatch.setattr(KeySearch, "_for_single_keys", lambda *given: calls.append(given) or prepare(*given))
    finder = warm(tmp_path / "store")
    for topic, key in ASKED:
        one(finder, topic, key)
    assert len(calls) == 1


def test_other_keys_with_an_equal_hash_are_not_hits(tmp_path: Path, counted: Counted) -> None:
    path = tmp_path / "store"
    build(path, [Row("A", "key-1"), Row("A", colliding("key-1")), Row("B", "key-1"), Row("A", None, "key-1")] * 40)
    write_index(path, Geometry(3, 700))
    finder = warm(path)
    before = counted.bulk
    assert len(one(finder, "A", "key-1", KeyField.KEYS)) == 40
    assert counted.bulk == before + 1  # more candidates than are read one by one
    build(tmp_path / "few", [Row("A", "key-1"), Row("A", colliding("key-1")), Row("A", None, "key-1")])
    write_index(tmp_path / "few", Geometry(3, 700))
    finder = warm(tmp_path / "few")
    before = counted.bulk
    assert len(one(finder, "A", "key-1", KeyField.KEYS)) == 1
    assert len(one(finder, "A", "key-1", KeyField.UNIQUE)) == 1
    assert len(one(finder, "A", "key-1", KeyField.EITHER)) == 2
    assert counted.bulk == before


def test_another_topic_with_an_equal_hash_is_not_a_hit(tmp_path: Path, counted: Counted) -> None:
    path = tmp_path / "store"
    build(path, [Row("Aa", "k", "u"), Row("BB", "k", "u"), Row("C", "k", "u")])  # Aa#k and BB#k hash alike
    write_index(path, GEOMETRY)
    finder = warm(path)
    before = counted.bulk
    for topic in ("Aa", "BB"):
        for field in KeyField:
            key = "u" if field is KeyField.UNIQUE else "k"
            assert pairs_of(one(finder, topic, key, field)) == brute_force(every_record(path), [(topic, key)])
    assert counted.bulk == before


def test_a_record_that_lacks_the_key_of_its_entry_is_left_to_bulk(tmp_path: Path, counted: Counted) -> None:
    """A file loses its credit after its trust check: as much as in bulk is then scanned."""
    path = tmp_path / "store"
    a_store(path)
    finder = warm(path)
    (wanted,) = one(finder, "Orders", "order-301").physical_offset.tolist()
    segment = path / "commitlog" / f"{wanted >> 16 << 16:020d}"
    at = segment.read_bytes().index(b"order-301 ", wanted - (wanted >> 16 << 16))
    overwrite(path, (wanted >> 16 << 16) + at, b"order-3zz ")
    before = counted.bulk
    found = one(finder, "Orders", "order-301")
    assert (len(found), counted.bulk) == (0, before + 1)
    assert found.coverage is not None
    assert any("lack the key of their entry" in each.reason for each in found.coverage.scanned())
    again = one(finder, "Orders", "order-3zz")
    assert again.physical_offset.tolist() == [wanted]
    assert again.coverage == found.coverage


def test_an_added_key_is_found_after_refresh(tmp_path: Path) -> None:
    path = tmp_path / "store"
    build(path, [Row("A", "k-0")])
    finder = warm(path)
    assert len(one(finder, "A", "k-1")) == 0
    shutil.rmtree(path)
    build(path, [Row("A", "k-0"), Row("A", "k-1")])
    finder.refresh()
    assert len(one(finder, "A", "k-1")) == len(one(finder, "A", "k-1")) == len(one(finder, "A", "k-1")) == 1


def test_a_segment_that_was_deleted_is_left_to_bulk(tmp_path: Path) -> None:
    path = tmp_path / "store"
    a_store(path)
    finder = warm(path)
    finder._store.log._maps.clear()
    gone = min((path / "commitlog").iterdir())
    gone.unlink()
    assert len(one(finder, "Orders", "order-0")) == 0
    left = [each for each in every_record(path) if each.physical_offset >= 1 << 16]
    assert pairs_of(one(finder, "Orders", "order-600")) == brute_force(left, [("Orders", "order-600")])


@pytest.mark.parametrize(("topic", "key"), [("Orders", None), (None, "order-3")])
def test_nulls_are_refused_as_in_bulk(tmp_path: Path, topic: Any, key: Any) -> None:
    a_store(tmp_path / "store")
    finder = warm(tmp_path / "store")
    with pytest.raises(ConfigError, match="holds nulls"):
        one(finder, topic, key)


def test_other_keys_are_found_in_bulk(tmp_path: Path) -> None:
    path = tmp_path / "store"
    build(path, [Row("A", "ключ other"), Row("A", "ключ")])
    write_index(path, GEOMETRY)
    finder = warm(path)
    assert len(one(finder, "A", "ключ")) == 2
    assert len(one(finder, "A", "other")) == 1
    assert searching.CANDIDATES_MAX == 64


@pytest.mark.slow
@pytest.mark.scaled
@pytest.mark.parametrize("damage", [None, *BROKEN], ids=lambda each: each.__name__ if each else "whole")
def test_the_first_look_up_of_a_process_is_equal_to_reading_every_record(
    tmp_path: Path, damage: Callable[[list[Path]], object] | None
) -> None:
    files = a_store(tmp_path / "store")
    if damage is not None:
        damage(files)
    records = every_record(tmp_path / "store")
    for topic, key in ASKED[:: scale(23, 5, 5)]:
        finder = Finder(StoreReader.open(tmp_path / "store"))
        expected = brute_force(records, [(topic, key)])
        assert pairs_of(one(finder, topic, key)) == expected
        assert pairs_of(one(finder, topic, key)) == expected


def test_a_first_look_up_checks_one_chain_alone(tmp_path: Path) -> None:
    path = tmp_path / "store"
    files = a_store(path)
    other = next(i for i in range(900) if index_key_hash("Orders", f"order-{i}") % GEOMETRY.slots == 5)
    overwritten = bytearray(files[1].read_bytes())
    overwritten[40 + 4 * 5 : 44 + 4 * 5] = bytes(4)  # the slot
    files[1].write_bytes(overwritten)
    key = next(
        f"order-{i}" for i in range(900) if i != other and index_key_hash("Orders", f"order-{i}") % GEOMETRY.slots != 5
    )
    finder = Finder(StoreReader.open(path))
    for is_believed in (True, False):
        coverage = one(finder, "Orders", key).coverage
        assert coverage is not None
        assert (str(files[1]) in {each.reason for each in coverage.ranges}) is is_believed
    finder = Finder(StoreReader.open(path))
    coverage = one(finder, "Orders", f"order-{other}").coverage
    assert coverage is not None
    assert str(files[1]) not in {each.reason for each in coverage.ranges}
