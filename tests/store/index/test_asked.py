import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store.errors import ConfigError
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.message import Problem, Records
from segmentlog.store.index.asked import ask, confirm, each_in
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.types import ALWAYS, KeyField, Window
from support.indexed_stores import START_MS, Row, brute_force, build, every_record


def records_of(path: Path, rows: Sequence[Row]) -> Records:
    build(path, rows, segment_bytes=1 << 18)
    log = CommitLog(LocalFileSystem(), [str(path / "commitlog")])
    (found,) = log.walk(0, log.stop)
    return found.records


def test_pairs_are_distinct_and_ordered_by_their_hash() -> None:
    asked = ask(pa.array(["T", "S", "T", "T"]), pa.array(["Aa", "Aa", "BB", "Aa"]), KeyField.KEYS, ALWAYS)
    pairs = list(zip(asked.topics.to_pylist(), asked.keys.to_pylist(), strict=True))
    assert sorted(pairs) == [("S", "Aa"), ("T", "Aa"), ("T", "BB")]
    assert asked.hashes.tolist() == sorted(index_key_hash(*pair) for pair in pairs)
    assert [index_key_hash(*pair) for pair in pairs] == asked.hashes.tolist()
    topics, keys = each_in(["T", "S"], pa.chunked_array([["a"], ["b"]]))
    assert (topics.to_pylist(), keys.to_pylist()) == (["T", "T", "S", "S"], ["a", "b"] * 2)
    text, null = pa.array(["a"]), pa.nulls(1, pa.string())
    for name, pair in (("keys", (text, null)), ("topics", (null, text))):
        with pytest.raises(ConfigError, match=f"{name} holds nulls"):
            ask(*pair, KeyField.KEYS, ALWAYS)


ROWS = [
    Row("T", "a", "u"),
    Row("T", "Aa", "BB", START_MS + 5),
    Row("S", "Aa", "u", START_MS + 6),
    Row("T", "a b Aa", "v"),
    Row("T", None, "a"),
    Row("T", "a", "w", sys_flag=0xC),
    Row("T", None, None),
    Row("S", "BB BB", None, START_MS + 7),
    Row("Ä", "ö", "ü"),
]
PAIRS = [*(("T", key) for key in ("a", "Aa", "BB", "a b Aa", "", "u")), *(("S", "Aa"), ("S", "BB"), ("Ä", "ö"))]


@pytest.fixture
def store(tmp_path: Path) -> tuple[Path, Records]:
    return tmp_path / "store", records_of(tmp_path / "store", ROWS)


@pytest.mark.scaled(quick=6)
@pytest.mark.parametrize("window", [ALWAYS, Window(START_MS + 5, START_MS + 7)])
@pytest.mark.parametrize("field", list(KeyField))
@pytest.mark.parametrize("pairs", [PAIRS, PAIRS[:1], PAIRS[1:3], PAIRS[6:7]])
def test_each_record_is_compared_with_the_keys_of_its_entry(
    store: tuple[Path, Records], pairs: list[tuple[str, str]], field: KeyField, window: Window
) -> None:
    path, records = store
    asked = ask(pa.array([topic for topic, _ in pairs]), pa.array([key for _, key in pairs]), field, window)
    kinds = {"keys": field is not KeyField.UNIQUE, "unique": field is not KeyField.KEYS}
    carried = brute_force(every_record(path), pairs, **kinds, start_ms=window.start_ms, stop_ms=window.stop_ms)
    # Every record is a candidate of every hash.
    hashes = np.unique(asked.hashes)
    row, hash_of = (each.ravel() for each in np.meshgrid(np.arange(len(ROWS)), hashes))
    result = confirm(records.take(row), hash_of, asked)
    found = {
        (int(records.positions[row[at]]), asked.keys[key].as_py())
        for at, key in zip(result.row.tolist(), result.asked.tolist(), strict=True)
    }
    assert sorted(found) == carried
    has_hash = [
        hash_of[at]
        in {index_key_hash(each.topic, key) for key in [*(each.keys or "").split(), each.unique or ""] if key}
        and each.sys_flag != 0xC
        for at, each in enumerate(ROWS[number] for number in row.tolist())
    ]
    assert result.denied.tolist() == [at for at, has in enumerate(has_hash) if not has]


def test_a_damaged_record_is_denied_and_nothing_asked_confirms_hashes_alone(store: tuple[Path, Records]) -> None:
    _, records = store
    nothing = ask(pa.nulls(0, pa.string()), pa.nulls(0, pa.string()), KeyField.EITHER, ALWAYS)
    result = confirm(records, np.full(len(records), index_key_hash("T", "Aa")), nothing)
    assert result.row.size == result.asked.size == 0
    assert result.denied.tolist() == [0, 2, 4, 5, 6, 7, 8]
    records.flag_problem(np.arange(len(records)) == 0, Problem.MAGIC)
    asked = ask(pa.array(["T"]), pa.array(["a"]), KeyField.EITHER, ALWAYS)
    result = confirm(records, np.full(len(records), index_key_hash("T", "a")), asked)
    assert sorted(set(result.row.tolist())) == [3, 4]
    assert result.denied.tolist() == [0, 1, 2, 5, 6, 7, 8]


def test_a_window_is_half_open() -> None:
    windows = {ALWAYS: "1111", Window(0, 10): "0110", Window(None, 5): "1100", Window(5): "0011", Window(5, 5): "0000"}
    for window, inside in windows.items():
        assert window.holds(np.array([-1, 0, 5, 10])).tolist() == [each == "1" for each in inside]


def test_stating_criteria_loads_no_search() -> None:
    code = "import sys; from segmentlog.store.find import KeyField, Window; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pyarrow.compute", "segmentlog.store.find.finder"} & set(ran.stdout.split())
