"""Confirmation of candidates: equal to comparing each record with each key in Python."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.message import Problem, Records
from segmentlog.store.index.asked import ask
from segmentlog.store.index.confirm import confirm
from segmentlog.store.index.criteria import ALWAYS, KeyField, Window
from segmentlog.store.log.commit_log import CommitLog
from support.indexed_stores import START_MS, Row, brute_force, build, every_record

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
PAIRS = [
    ("T", "a"),
    ("T", "Aa"),
    ("T", "BB"),
    ("S", "Aa"),
    ("S", "BB"),
    ("T", "a b Aa"),
    ("T", ""),
    ("Ä", "ö"),
    ("T", "u"),
]


@pytest.fixture
def store(tmp_path: Path) -> tuple[Path, Records]:
    build(tmp_path / "store", ROWS)
    log = CommitLog(LocalFileSystem(), [str(tmp_path / "store" / "commitlog")])
    (found,) = log.walk(0, log.stop)
    return tmp_path / "store", found.records


@pytest.mark.parametrize("window", [ALWAYS, Window(START_MS + 5, START_MS + 7)])
@pytest.mark.parametrize("field", list(KeyField))
@pytest.mark.parametrize("pairs", [PAIRS, PAIRS[:1], PAIRS[1:3], PAIRS[3:4]])
def test_each_record_is_compared_with_the_keys_of_its_entry(
    store: tuple[Path, Records], pairs: list[tuple[str, str]], field: KeyField, window: Window
) -> None:
    path, records = store
    asked = ask(pa.array([topic for topic, _ in pairs]), pa.array([key for _, key in pairs]), field, window)
    carried = brute_force(
        every_record(path),
        pairs,
        keys=field is not KeyField.UNIQUE,
        unique=field is not KeyField.KEYS,
        start_ms=window.start_ms,
        stop_ms=window.stop_ms,
    )
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


def test_a_damaged_record_is_denied(store: tuple[Path, Records]) -> None:
    _, records = store
    records.flag_problem(np.arange(len(records)) == 0, Problem.MAGIC)
    asked = ask(pa.array(["T"]), pa.array(["a"]), KeyField.EITHER, ALWAYS)
    result = confirm(records, np.full(len(records), index_key_hash("T", "a")), asked)
    assert sorted(set(result.row.tolist())) == [3, 4]
    assert result.denied.tolist() == [0, 1, 2, 5, 6, 7, 8]


def test_nothing_asked_confirms_hashes_alone(store: tuple[Path, Records]) -> None:
    _, records = store
    nothing = ask(pa.nulls(0, pa.string()), pa.nulls(0, pa.string()), KeyField.EITHER, ALWAYS)
    result = confirm(records, np.full(len(records), index_key_hash("T", "Aa")), nothing)
    assert result.row.size == result.asked.size == 0
    assert result.denied.tolist() == [0, 2, 4, 5, 6, 7, 8]
