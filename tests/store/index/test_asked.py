import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store import Snapshot
from segmentlog.store.errors import ConfigError
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.message import Bytes, Ints, Mask, Problem, Record, Records
from segmentlog.store.index.asked import Asked, Carriers, SingleKey, ask, confirm, each_in
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.types import ALWAYS, KeyField, Window
from support.indexed_stores import START_MS, SYS_ROLLBACK, Row, brute_force, build, colliding, every_record


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


COUNT = 320


def log_of(path: Path, rows: Sequence[Row]) -> tuple[Bytes, Ints]:
    """Return a segment with some messages, writable, and where they are."""
    records = records_of(path, rows)
    return np.array(records.buffer), records.positions.copy()


def asked_for(pairs: Sequence[tuple[str, str]], field: KeyField, window: Window = ALWAYS) -> tuple[Asked, Ints]:
    """Return keys, and which of them each pair became."""
    asked = ask(pa.array([topic for topic, _ in pairs]), pa.array([key for _, key in pairs]), field, window)
    found = zip(asked.topics.to_pylist(), asked.keys.to_pylist(), strict=True)
    places = {pair: place for place, pair in enumerate(found)}
    return asked, np.array([places[pair] for pair in pairs])


def decoded(buffer: Bytes, positions: Ints, asked: Asked, wanted: Ints) -> Mask:
    """Return which records carry the key that they are compared with, by decoding all of them."""
    records = Records(buffer, positions)
    records.flag_problem(records.field("physical_offset") != positions, Problem.PHYSICAL_OFFSET)
    result = confirm(records, asked.hashes[wanted], asked)
    carries = np.zeros(positions.size, np.bool_)
    carries[result.row[result.asked == wanted[result.row]]] = True
    return carries


def compared(buffer: Bytes, positions: Ints, asked: Asked, wanted: Ints) -> Mask:
    """Return what `Carriers` found, after checking that decoding finds the same in these records."""
    found = Carriers(asked).find(buffer, 0, positions, wanted)
    carries = decoded(buffer, positions, asked, wanted)
    assert not (found & ~carries).any(), np.flatnonzero(found & ~carries)
    return found


@pytest.mark.scaled(quick=6)
@pytest.mark.parametrize("value", [0, 1, 2, 3, ord(" "), ord("A"), 0xFF])
@pytest.mark.parametrize("field", list(KeyField))
def test_each_byte_of_a_record_may_be_damaged(tmp_path: Path, field: KeyField, value: int) -> None:
    """Record i has another byte at place i, in its header, its topic and each of its properties."""
    rows = [Row("Topic", f"order{number:03d}", f"{number:03d}unique{number:03d}") for number in range(COUNT)]
    buffer, positions = log_of(tmp_path / "store", rows)
    pairs = [(row.topic, (row.unique if field is KeyField.UNIQUE else row.keys) or "") for row in rows]
    asked, wanted = asked_for(pairs, field)
    assert compared(buffer, positions, asked, wanted).all()
    size = int(positions[1] - positions[0])
    body = slice(88, 88 + rows[0].body_bytes)
    assert 64 + size < COUNT, "each place of a record is damaged in one of them"
    before = buffer.copy()
    damaged = positions[64 : 64 + size]
    buffer[damaged + np.arange(size)] = value
    found = compared(buffer, positions, asked, wanted)
    same = (before == buffer)[damaged + np.arange(size)]
    assert found[:64].all()
    assert found[64 + size :].all()
    assert found[64 : 64 + size][same].all()
    assert found[64 + body.start : 64 + body.stop].all(), "a body may have any bytes"


def test_places_where_no_record_begins(tmp_path: Path) -> None:
    rows = [Row("T", f"key{number:03d}") for number in range(COUNT)]
    buffer, positions = log_of(tmp_path / "store", rows)
    asked, wanted = asked_for([("T", row.keys or "") for row in rows], KeyField.KEYS)
    end = int(positions[-1] + positions[1] - positions[0])
    for size in (end, end - 1, end - 20, end - 100, 50, 0):
        cut = buffer[:size]
        found = Carriers(asked).find(cut, 0, positions, wanted)
        assert not found[positions + (positions[1] - positions[0]) > size].any()
    elsewhere = positions + np.where(np.arange(COUNT) < 100, 0, 1)
    elsewhere[-2:] = (-5, 1 << 40)
    assert Carriers(asked).find(buffer, 0, elsewhere, wanted).tolist() == [True] * 100 + [False] * 220
    assert not Carriers(asked).find(buffer, 4096, positions, wanted).any(), "they state other offsets"


@pytest.mark.parametrize(
    ("row", "key", "window"),
    [
        (Row("T", "a b"), "a b", ALWAYS),
        (Row("T", "key", time_ms=START_MS), "key", Window(START_MS + 1, None)),
        (Row("T", "key", sys_flag=SYS_ROLLBACK), "key", ALWAYS),
        (Row("S", "key"), "key", ALWAYS),
    ],
    ids=["several keys", "window", "rolled back", "another topic"],
)
def test_records_that_are_left_to_decoding(tmp_path: Path, row: Row, key: str, window: Window) -> None:
    buffer, positions = log_of(tmp_path / "store", [row] * COUNT)
    asked, _ = asked_for([("T", key)], KeyField.KEYS, window)
    assert not compared(buffer, positions, asked, np.zeros(COUNT, np.int64)).any()


def test_a_text_of_several_properties_is_left_to_decoding(tmp_path: Path) -> None:
    buffer, positions = log_of(tmp_path / "store", [Row("T", "a-KEYS+b")] * COUNT)
    for mark, byte in ((b"a-K", 2), (b"S+b", 1)):
        buffer[[buffer.tobytes().index(mark, at) + 1 for at in positions.tolist()]] = byte
    asked, _ = asked_for([("T", "a\x02KEYS\x01b")], KeyField.KEYS)
    assert not compared(buffer, positions, asked, np.zeros(COUNT, np.int64)).any()
    asked, _ = asked_for([("T", "b")], KeyField.KEYS)
    assert not compared(buffer, positions, asked, np.zeros(COUNT, np.int64)).any(), "the model has the property twice"


@pytest.mark.parametrize("field", [KeyField.KEYS, KeyField.UNIQUE])
def test_a_value_that_became_another_property(tmp_path: Path, field: KeyField) -> None:
    """Of equal names the last one counts. One of the fields comes before the damage, one after it."""
    is_unique = field is KeyField.UNIQUE
    rows = [Row("T", "k-UNIQ_KEY+z" if is_unique else "key1", "uniq1" if is_unique else "u-KEYS+z")] * COUNT
    buffer, positions = log_of(tmp_path / "store", rows)
    asked, _ = asked_for([("T", "uniq1" if is_unique else "key1")], field)
    wanted = np.zeros(COUNT, np.int64)
    assert compared(buffer, positions, asked, wanted).all()
    for at in positions[COUNT // 2 :].tolist():
        found = buffer[at:].tobytes().index(b"k-U" if is_unique else b"u-K")
        buffer[at + found + 1] = 2
        buffer[at + buffer[at:].tobytes().index(b"+z")] = 1
    assert compared(buffer, positions, asked, wanted)[: COUNT // 2].all()


def test_a_body_of_less_than_nothing_ends_before_its_record(tmp_path: Path) -> None:
    """The sizes of record and body fit each other, and name the tail of another record, or none."""
    buffer, positions = log_of(tmp_path / "store", [Row("T", "key")] * COUNT)
    asked, _ = asked_for([("T", "key")], KeyField.KEYS)
    size = int(positions[1] - positions[0])
    for number, less in ((COUNT - 1, size), (COUNT - 2, 1 << 20)):
        for place, stated in ((0, size), (84, 8)):
            at = int(positions[number]) + place
            buffer[at : at + 4] = np.frombuffer((stated - less).to_bytes(4, "big", signed=True), np.uint8)
    found = compared(buffer, positions, asked, np.zeros(COUNT, np.int64))
    assert found.tolist() == [True] * (COUNT - 2) + [False] * 2


def test_a_window_is_half_open() -> None:
    windows = {ALWAYS: "1111", Window(0, 10): "0110", Window(None, 5): "1100", Window(5): "0011", Window(5, 5): "0000"}
    for window, inside in windows.items():
        assert window.holds(np.array([-1, 0, 5, 10])).tolist() == [each == "1" for each in inside]


def test_stating_criteria_loads_no_search() -> None:
    code = "import sys; from segmentlog.store.find import KeyField, Window; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pyarrow.compute", "segmentlog.store.find.finder"} & set(ran.stdout.split())


def record_of(path: Path, row: Row) -> Record:
    build(path, [row])
    found = Snapshot.open(path).log.record_at(0)
    assert found is not None
    return found.record


def test_other_topics_rollbacks_and_other_characters_carry_no_single_key(tmp_path: Path) -> None:
    record = record_of(tmp_path / "other", Row("Topic", "vip"))
    assert SingleKey(colliding("Topic"), "vip").is_of(record) is False
    record = record_of(tmp_path / "back", Row("T", "vip", sys_flag=SYS_ROLLBACK))
    assert SingleKey("T", "vip").is_of(record) is None
    plain = {("A", "k"): True, ("A", ""): False, ("A", "ключ"): False, ("Ä", "k"): False}
    assert {pair: SingleKey(*pair).is_plain for pair in plain} == plain
