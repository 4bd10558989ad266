import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import ConfigError, Snapshot
from segmentlog.store.find import ALWAYS, Coverage, Finder, Found, KeyField, Order, Source, Window
from segmentlog.store.find.search import KeySearch
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.index_file import Geometry, decode_header
from segmentlog.store.index import table
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
from support.scale import sample, scale
from support.tampering import overwrite, put_at


def look(path: Path, keys: list[str]) -> Found:
    return Finder(Snapshot.open(path)).by_keys(TOPICS, keys, KeyField.EITHER)


def kinds(field: KeyField, window: Window = ALWAYS) -> dict[str, Any]:
    """Arguments of the comparison with every record, for a field and a window."""
    wanted = {"keys": field is not KeyField.UNIQUE, "unique": field is not KeyField.KEYS}
    return {**wanted, "start_ms": window.start_ms, "stop_ms": window.stop_ms}


def covered(found: Found) -> Coverage:
    assert found.coverage is not None
    return found.coverage


def check(path: Path, keys: list[str], window: Window = ALWAYS) -> Coverage:
    records, pairs = every_record(path), [(topic, key) for topic in TOPICS for key in keys]
    for field in KeyField:
        found = Finder(Snapshot.open(path)).by_keys(TOPICS, keys, field, window=window)
        assert sorted(pairs_of(found)) == brute_force(records, pairs, **kinds(field, window))
        assert pairs_of(found) == sorted(pairs_of(found), key=lambda each: each[0])
    edges = [(each.start, each.stop) for each in covered(found).ranges]
    assert all(before[1] == after[0] for before, after in itertools.pairwise(edges))
    return covered(found)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def files(path: Path) -> list[Path]:
    return a_store(path)


def test_keys_are_found_through_the_index_alone_but_for_its_edges(path: Path, files: list[Path]) -> None:
    coverage = check(path, KEYS)
    assert coverage.scanned_bytes < 8 * 200
    assert coverage.indexed_bytes > 900 * 100
    finder, snapshot = Finder(Snapshot.open(path)), Snapshot.open(path)
    assert len(finder.by_keys([], ["order-1"])) == len(finder.by_keys(TOPICS, [])) == 0
    min((path / "commitlog").iterdir()).unlink()  # a segment that goes denies no index
    left = [record for record in every_record(path) if record.physical_offset >= 1 << 16]
    found = Finder(snapshot).by_keys(TOPICS, KEYS, KeyField.EITHER)  # also if it goes meanwhile
    assert sorted(pairs_of(found)) == brute_force(left, [(topic, key) for topic in TOPICS for key in KEYS])
    assert covered(found).scanned_bytes < 8 * 200
    coverage = check(path, KEYS)
    assert coverage.ranges[0].start == 1 << 16
    assert coverage.scanned_bytes < 8 * 200


LATER_MS = START_MS + 37 * 300


WINDOWS = [
    ALWAYS,
    Window(START_MS + 1000, START_MS + 2000),
    Window(None, LATER_MS),
    Window(LATER_MS, None),
    Window(LATER_MS, LATER_MS + 1),
    Window(LATER_MS + 1, LATER_MS + 37),
]


@pytest.mark.scaled
@pytest.mark.parametrize("window", sample(WINDOWS, 3))
def test_windows_are_exact(window: Window, path: Path, files: list[Path]) -> None:
    check(path, KEYS, window)
    check_keys(path, window)


@pytest.mark.scaled
@pytest.mark.parametrize("damage", sample(BROKEN, 5), ids=lambda each: each.__name__)
def test_ranges_of_a_damaged_index_are_scanned(
    damage: Callable[[list[Path]], None], path: Path, files: list[Path]
) -> None:
    damage(files)
    coverage = check(path, KEYS)
    assert coverage.scanned_bytes > 2000
    if damage is cycles:
        (scan,) = (each for each in coverage.scanned() if len(each) > 10_000)
        assert scan.source is Source.SCAN
        assert f"{files[1]} is damaged: " in scan.reason
    check_keys(path)


def test_entries_that_name_records_without_their_key_cost_their_file_its_credit(path: Path, files: list[Path]) -> None:
    data = bytearray(files[1].read_bytes())
    records = [record.physical_offset for record in every_record(path)]
    wanted = Index.open(files[0].parent, GEOMETRY).query("Orders", "order-300")[0]
    for number in range(1, GEOMETRY.entries - 1):
        at = entry_bytes(GEOMETRY, number, "physical_offset")
        if int.from_bytes(data[at : at + 8], "big") == wanted:  # its entries now name the record after it
            data[at : at + 8] = records[records.index(wanted) + 1].to_bytes(8, "big")
    files[1].write_bytes(data)
    finder = Finder(Snapshot.open(path))
    assert finder.by_keys(["Orders"], ["order-300"]).physical_offset.tolist() == [wanted]
    coverage = covered(finder.by_keys(["Orders"], ["nothing"]))
    assert any("lack the key of their entry" in each.reason for each in coverage.scanned())


def test_an_index_that_was_disabled_for_a_while_is_scanned_there(path: Path) -> None:
    build(path, [Row(TOPICS[0], f"order-{i}") for i in range(3000)])
    (first, stop) = (every_record(path)[at].physical_offset for at in (500, 2000))
    write_index(path, Geometry(211, 4000), wanted=lambda offset: not first <= offset < stop)
    coverage = check(path, [f"order-{i}" for i in range(0, 3000, 9)])
    (hole,) = (each for each in coverage.scanned() if len(each) > 1000)
    assert (hole.start, hole.stop) == (first, stop)


def test_large_records_do_not_count_as_a_gap_of_the_index(path: Path) -> None:
    build(path, [Row(TOPICS[0], f"order-{i}", body_bytes=70_000) for i in range(20)], segment_bytes=1 << 18)
    write_index(path, GEOMETRY)
    coverage = check(path, [f"order-{i}" for i in range(20)])
    assert coverage.scanned_bytes < 72_000  # the last record


def whole(data: bytearray) -> None:
    """Leave the file as the broker wrote it."""


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


@pytest.mark.parametrize("damage", [whole, changed_hash, moved])
def test_a_file_that_grew_is_checked_from_where_it_ended(
    damage: Callable[[bytearray], None], path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    grown = bytearray(files[-1].read_bytes())
    old_header(files)
    finder = Finder(Snapshot.open(path))
    before = finder.by_keys(TOPICS, KEYS)
    monkeypatch.setattr(table, "_checked", checks := Mock(side_effect=table._checked))
    damage(grown)
    put_at(files[-1], 0, bytes(grown))
    finder = finder.newer()
    after = finder.by_keys(TOPICS, KEYS)
    assert pairs_of(after) == pairs_of(before)
    assert checks.called == (damage is not whole)
    if damage is whole:
        assert covered(after).scanned_bytes < covered(before).scanned_bytes


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from("AB"),
            st.lists(st.sampled_from(["Aa", "BB", "AaAa", "BBBB", "AaBB", "k", "\u00e4", "\U0001f600x"]), max_size=3),
            st.one_of(st.none(), st.sampled_from(["Aa", "u1", "u2", "u3"])),
            st.integers(-2000, 2000),
            st.sampled_from([0x0, 0x0, 0x4, 0x8, 0xC]),
        ),
        max_size=40,
    ),
    st.none() | st.builds(Geometry, st.integers(1, 9), st.integers(3, 60)),
    st.sets(st.sampled_from(["Aa", "BB", "AaAa", "BBAa", "BBBB", "k", "u1", "\u00e4", "\U0001f600x", ""])),
    st.tuples(st.none() | st.integers(-1500, 1500), st.none() | st.integers(-1500, 1500)),
)
def test_any_store_is_searched_as_by_reading_all_of_it(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[tuple[str, list[str], str | None, int, int]],
    geometry: Geometry | None,
    asked: set[str],
    times: tuple[int | None, int | None],
) -> None:
    path = tmp_path_factory.mktemp("any") / "store"
    rows = [
        Row(topic, " ".join(keys) or None, unique, START_MS + at, flag) for topic, keys, unique, at, flag in messages
    ]
    build(path, rows, segment_bytes=2048)
    if geometry is not None:
        write_index(path, geometry)
    window = Window(*(None if time is None else START_MS + time for time in times))
    records, finder = every_record(path), Finder(Snapshot.open(path))
    for field in KeyField:
        found = finder.by_keys(["A", "B", "C"], [*sorted(asked), *asked], field, window=window)
        expected = brute_force(records, [(topic, key) for topic in "AB" for key in asked], **kinds(field, window))
        assert sorted(pairs_of(found)) == expected


def test_records_that_a_truncation_left_are_not_found(path: Path) -> None:
    """Old records after a gap, older than those before it: a broker truncated the log there and erased nothing."""
    times = [START_MS + 1000 + i for i in range(30)] + [START_MS + i for i in range(30)]
    build(path, [Row("Orders", f"order-{i}", time_ms=time) for i, time in enumerate(times)])
    records = every_record(path)
    overwrite(path, records[30].physical_offset + 4, bytes(4))
    found = Finder(Snapshot.open(path)).by_keys(["Orders"], [f"order-{i}" for i in range(60)])
    assert found.physical_offset.tolist() == [record.physical_offset for record in records[:30]]


ASKED = [(topic, key) for topic in TOPICS for key in KEYS]


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> Mock:
    walk = KeySearch._walk
    calls = Mock()
    monkeypatch.setattr(KeySearch, "_walk", lambda *given: (calls(), walk(*given))[1])
    return calls


def warm(path: Path) -> Finder:
    """Look up twice: the second look-up opens the files, and keeps the keys that are in none of them."""
    finder = Finder(Snapshot.open(path))
    for _ in range(2):
        finder.by_keys(["Orders"], ["order-3"])
    return finder


def one(finder: Finder, topic: str, key: str, field: KeyField = KeyField.EITHER, window: Window = ALWAYS) -> Found:
    return finder.by_keys([topic], [key], field, window=window)


def check_keys(path: Path, window: Window = ALWAYS) -> None:
    records, finder = every_record(path), warm(path)
    for field in KeyField:
        asked = ASKED[:: scale(7, 1, 1)]
        for (topic, key), expected in brute_force_each(records, asked, **kinds(field, window)).items():
            assert pairs_of(one(finder, topic, key, field, window)) == expected


@pytest.mark.scaled
def test_a_look_up_of_an_unchanged_store_walks_nothing_and_one_key_is_found_as_among_several(
    path: Path, files: list[Path], walked: Mock
) -> None:
    finder = warm(path)
    walked.reset_mock()
    for topic, key in ASKED[:: scale(7, 1, 1)]:
        one(finder, topic, key)
    assert not walked.called
    for order in Order:
        alone = finder.by_keys(["Orders"], ["customer-11"], order=order)
        in_bulk = finder.by_keys(["Orders"], ["customer-11", "nothing"], order=order)
        assert alone.physical_offset.tolist() == in_bulk.physical_offset.tolist()
        assert alone.asked.schema == in_bulk.asked.schema
        assert alone.coverage == in_bulk.coverage
        assert alone.missing().num_rows == 0
    assert one(finder, "Orders", "nothing").missing().to_pylist() == [{"topic": "Orders", "key": "nothing"}]
    for topic, key in (("Orders", None), (None, "order-3")):
        with pytest.raises(ConfigError, match="holds nulls"):
            one(finder, topic, key)


def test_records_that_no_file_answers_for_are_walked_for_each_look_up_if_they_are_too_many(
    path: Path, walked: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(path, [Row("A", f"k-{number}") for number in range(300)])
    stop = every_record(path)[200].physical_offset
    write_index(path, Geometry(211, 700), stop=stop)
    places = {key: each.physical_offset for each in every_record(path) for key in each.keys}
    for kept_bytes, walks in ((1 << 20, 0), (1000, 5)):
        monkeypatch.setattr("segmentlog.store.find.search._KEPT_BYTES", kept_bytes)
        finder = warm(path)
        walked.reset_mock()
        for number in (0, 199, 200, 201, 299):
            assert one(finder, "A", f"k-{number}").physical_offset.tolist() == [places[f"k-{number}"]]
        assert walked.call_count == walks * len(list(finder.by_keys(["A"], ["k"]).coverage.scanned()))


@pytest.mark.parametrize("times", [1, 40])
def test_other_keys_and_topics_with_an_equal_hash_are_not_hits(path: Path, times: int) -> None:
    build(path, [Row("A", "key-1"), Row("A", colliding("key-1")), Row("B", "key-1"), Row("A", None, "key-1")] * times)
    write_index(path, Geometry(3, 700))
    finder = warm(path)
    for field, found in ((KeyField.KEYS, 1), (KeyField.UNIQUE, 1), (KeyField.EITHER, 2)):
        assert len(one(finder, "A", "key-1", field)) == found * times
    build(path.with_name("topics"), [Row("Aa", "k", "u"), Row("BB", "k", "u"), Row("C", "k", "u")])
    write_index(path.with_name("topics"), GEOMETRY)
    finder, records = warm(path.with_name("topics")), every_record(path.with_name("topics"))
    for topic in ("Aa", "BB"):  # Aa#k and BB#k hash alike
        for field in KeyField:
            key = "u" if field is KeyField.UNIQUE else "k"
            assert pairs_of(one(finder, topic, key, field)) == brute_force(records, [(topic, key)])


def test_a_file_whose_entry_names_a_record_without_its_key_is_not_believed_any_more(
    path: Path, files: list[Path]
) -> None:
    finder = warm(path)
    (wanted,) = one(finder, "Orders", "order-301").physical_offset.tolist()
    segment = path / "commitlog" / f"{wanted >> 16 << 16:020d}"
    at = segment.read_bytes().index(b"order-301 ", wanted - (wanted >> 16 << 16))
    overwrite(path, (wanted >> 16 << 16) + at, b"order-3zz ")
    found = one(finder, "Orders", "order-301")
    assert len(found) == 0
    assert any("lack the key of their entry" in each.reason for each in covered(found).scanned())
    again = one(finder, "Orders", "order-3zz")
    assert again.physical_offset.tolist() == [wanted]
    assert again.coverage == found.coverage


def test_an_added_key_is_found_by_a_newer_finder_as_are_keys_of_other_characters(path: Path) -> None:
    build(path, [Row("A", "k-0")])
    finder = warm(path)
    assert len(one(finder, "A", "k-1")) == 0
    shutil.rmtree(path)
    build(path, [Row("A", "k-0"), Row("A", "k-1"), Row("A", "ключ other"), Row("A", "ключ")])
    write_index(path, GEOMETRY)
    finder = finder.newer()
    assert [len(one(finder, "A", "k-1")) for _ in range(3)] == [1, 1, 1]
    assert [len(one(finder, "A", key)) for key in ("ключ", "other")] == [2, 1]


def test_records_of_a_segment_that_was_deleted_are_not_found(path: Path, files: list[Path]) -> None:
    finder = warm(path)
    finder.store.log._maps.clear()
    min((path / "commitlog").iterdir()).unlink()
    assert len(one(finder, "Orders", "order-0")) == 0
    left = [each for each in every_record(path) if each.physical_offset >= 1 << 16]
    assert pairs_of(one(finder, "Orders", "order-600")) == brute_force(left, [("Orders", "order-600")])


def test_a_first_look_up_checks_one_chain_alone(path: Path, files: list[Path]) -> None:
    slots = {f"order-{i}": index_key_hash("Orders", f"order-{i}") % GEOMETRY.slots for i in range(900)}
    put_at(files[1], 40 + 4 * 5, bytes(4))  # the slot
    of_slot = next(key for key, slot in slots.items() if slot == 5)
    other = next(key for key, slot in slots.items() if slot != 5)
    finder = Finder(Snapshot.open(path))
    for is_believed in (True, False):
        reasons = {each.reason for each in covered(one(finder, "Orders", other)).ranges}
        assert (str(files[1]) in reasons) is is_believed
    coverage = covered(one(Finder(Snapshot.open(path)), "Orders", of_slot))
    assert str(files[1]) not in {each.reason for each in coverage.ranges}
