"""Look-ups of a single key in an unchanged store: equal to the search in bulk, whatever became of the index."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store import ConfigError, StoreReader
from segmentlog.store.find import ALWAYS, Finder, Found, KeyField, Order, Window
from segmentlog.store.find import single as singles
from segmentlog.store.find.search import KeySearch
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.index_file import Geometry
from support.damaged_indexes import BROKEN, GEOMETRY, KEYS, TOPICS, a_store, pairs_of
from support.indexed_stores import (
    START_MS,
    Row,
    brute_force,
    brute_force_each,
    build,
    colliding,
    every_record,
    write_index,
)
from support.scale import scale
from support.tampering import overwrite

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


def check(path: Path, window: Window = ALWAYS) -> None:
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


@pytest.mark.parametrize("window", [ALWAYS, Window(START_MS + 37 * 300, START_MS + 37 * 600)])
def test_equal_to_reading_every_record(tmp_path: Path, window: Window) -> None:
    a_store(tmp_path / "store")
    check(tmp_path / "store", window)


@pytest.mark.parametrize("damage", BROKEN, ids=lambda each: each.__name__)
def test_equal_with_a_damaged_index(damage: Callable[[list[Path]], None], tmp_path: Path) -> None:
    damage(a_store(tmp_path / "store"))
    check(tmp_path / "store")


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


def test_equal_hashes_of_other_texts_are_no_hits(tmp_path: Path, counted: Counted) -> None:
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


def test_a_topic_of_an_equal_hash_is_another_one(tmp_path: Path, counted: Counted) -> None:
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


def test_what_was_added_is_found_after_refresh(tmp_path: Path) -> None:
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
    assert singles.CANDIDATES_MAX == 64


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
