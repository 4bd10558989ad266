"""Keys asked for, and their exact comparison with those of records."""

from pathlib import Path

import pyarrow as pa
import pytest

from segmentlog.store.errors import ConfigError
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.message import Records
from segmentlog.store.index.asked import ask, each_in, match
from segmentlog.store.index.criteria import ALWAYS, KeyField, Window
from segmentlog.store.log.commit_log import CommitLog
from support.indexed_stores import START_MS, Row, build


@pytest.fixture
def records(tmp_path: Path) -> Records:
    rows = [
        Row("T", "a b", "a"),
        Row("T", "Aa", "u", START_MS + 5),
        Row("T", "BB", None, START_MS + 6),
        Row("S", "Aa a", "v"),
        Row("T", None, None),
        Row("T", "a", "w", sys_flag=0xC),
    ]
    build(tmp_path / "store", rows)
    log = CommitLog(LocalFileSystem(), [str(tmp_path / "store" / "commitlog")])
    (found,) = log.walk(0, log.stop)
    return found.records


def matched(
    records: Records, pairs: list[tuple[str, str]], field: KeyField, window: Window = ALWAYS
) -> list[tuple[int, str]]:
    topics, keys = zip(*pairs, strict=True)
    asked = ask(pa.array(topics), pa.array(keys), field, window)
    matches = match(records, asked)
    return [(row, asked.keys[at].as_py()) for row, at in zip(matches.row.tolist(), matches.asked.tolist(), strict=True)]


def test_pairs_are_distinct_and_ordered_by_their_hash() -> None:
    asked = ask(pa.array(["T", "S", "T", "T"]), pa.array(["Aa", "Aa", "BB", "Aa"]), KeyField.KEYS, ALWAYS)
    pairs = list(zip(asked.topics.to_pylist(), asked.keys.to_pylist(), strict=True))
    assert sorted(pairs) == [("S", "Aa"), ("T", "Aa"), ("T", "BB")]
    assert asked.hashes.tolist() == sorted(index_key_hash(*pair) for pair in pairs)
    assert [index_key_hash(*pair) for pair in pairs] == asked.hashes.tolist()


def test_nulls_are_no_keys() -> None:
    with pytest.raises(ConfigError, match="keys holds nulls"):
        ask(pa.array(["T"]), pa.array([None], pa.string()), KeyField.KEYS, ALWAYS)
    with pytest.raises(ConfigError, match="topics holds nulls"):
        ask(pa.array([None], pa.string()), pa.array(["a"]), KeyField.KEYS, ALWAYS)


def test_every_topic_is_paired_with_every_key() -> None:
    topics, keys = each_in(["T", "S"], pa.chunked_array([["a"], ["b"]]))
    assert list(zip(topics.to_pylist(), keys.to_pylist(), strict=True)) == [
        ("T", "a"),
        ("T", "b"),
        ("S", "a"),
        ("S", "b"),
    ]


def test_the_field_decides_which_property_counts(records: Records) -> None:
    pairs = [("T", "a"), ("T", "b"), ("T", "u")]
    assert matched(records, pairs, KeyField.KEYS) == [(0, "a"), (0, "b")]
    assert matched(records, pairs, KeyField.UNIQUE) == [(0, "a"), (1, "u")]
    assert sorted(matched(records, pairs, KeyField.EITHER)) == [(0, "a"), (0, "b"), (1, "u")]


def test_neither_an_equal_hash_nor_an_equal_key_of_another_topic_matches(records: Records) -> None:
    assert index_key_hash("T", "Aa") == index_key_hash("T", "BB")
    assert matched(records, [("T", "Aa")], KeyField.KEYS) == [(1, "Aa")]
    assert matched(records, [("S", "Aa")], KeyField.KEYS) == [(3, "Aa")]
    assert matched(records, [("X", "Aa")], KeyField.KEYS) == []


def test_topics_of_one_hash_are_told_apart(tmp_path: Path) -> None:
    build(tmp_path / "store", [Row("Aa", "k"), Row("BB", "k")])
    log = CommitLog(LocalFileSystem(), [str(tmp_path / "store" / "commitlog")])
    (found,) = log.walk(0, log.stop)
    assert index_key_hash("Aa", "k") == index_key_hash("BB", "k")
    assert matched(found.records, [("Aa", "k")], KeyField.KEYS) == [(0, "k")]
    assert matched(found.records, [("BB", "k")], KeyField.KEYS) == [(1, "k")]


def test_the_window_is_half_open(records: Records) -> None:
    pairs = [("T", "Aa"), ("T", "BB")]
    assert matched(records, pairs, KeyField.KEYS, Window(START_MS + 5, START_MS + 6)) == [(1, "Aa")]
    assert matched(records, pairs, KeyField.KEYS, Window(START_MS + 6)) == [(2, "BB")]
    assert matched(records, pairs, KeyField.KEYS, Window(None, START_MS + 5)) == []


def test_all_keys_of_all_records_are_told_by_hash(records: Records) -> None:
    matches = match(records, ask(pa.array(["T"]), pa.array(["nothing"]), KeyField.KEYS, ALWAYS))
    held = [[0, "a"], [0, "a"], [0, "b"], [1, "u"], [1, "Aa"], [2, "BB"]]
    expected = sorted((row, index_key_hash("T", str(key))) for row, key in held)
    expected += sorted((3, index_key_hash("S", key)) for key in ("v", "Aa", "a"))
    assert sorted(zip(matches.key_row.tolist(), matches.key_hash.tolist(), strict=True)) == expected
