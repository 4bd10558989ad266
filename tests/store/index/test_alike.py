"""Records compared as bytes: never a hit that decoding them would not be, and all that are alike."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.message import Bytes, Ints, Mask, Problem, Records
from segmentlog.store.index.alike import Carriers
from segmentlog.store.index.asked import Asked, ask
from segmentlog.store.index.confirm import confirm
from segmentlog.store.index.criteria import ALWAYS, KeyField, Window
from segmentlog.store.log.commit_log import CommitLog
from support.indexed_stores import START_MS, Row, build

COUNT = 320


def log_of(path: Path, rows: Sequence[Row]) -> tuple[Bytes, Ints]:
    """Return a segment with some messages, writable, and where they are."""
    build(path, rows, segment_bytes=1 << 18)
    log = CommitLog(LocalFileSystem(), [str(path / "commitlog")])
    (found,) = log.walk(0, log.stop)
    return np.array(found.records.buffer), found.records.positions.copy()


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


def test_shapes_that_take_turns(tmp_path: Path) -> None:
    """Keys and bodies of several lengths, two topics, records without the key, several keys: others are left alone."""
    rows = [
        Row(
            topic=("Orders", "Refunds")[number % 2],
            keys=f"k{'x' * (number % 4)}{number}" + (" vip" if number % 16 == 5 else ""),
            unique=f"u{number}",
            body_bytes=number % 7,
            sys_flag=0xC if number % 40 == 7 else 0,
        )
        for number in range(1000, 1000 + COUNT)
    ]
    buffer, positions = log_of(tmp_path / "store", rows)
    keys = [row.keys.removesuffix(" vip") for row in rows if row.keys is not None]
    asked, wanted = asked_for([(row.topic, key) for row, key in zip(rows, keys, strict=True)], KeyField.KEYS)
    alike = np.array([not row.sys_flag and row.keys == key for row, key in zip(rows, keys, strict=True)])
    found = compared(buffer, positions, asked, wanted)
    assert np.count_nonzero(found) > 0.6 * COUNT
    assert not (found & ~alike).any()
    others = asked_for([(row.topic, f"{key[:-1]}~") for row, key in zip(rows, keys, strict=True)], KeyField.KEYS)
    assert not compared(buffer, positions, *others).any()
    swapped = [("Refunds" if row.topic == "Orders" else "Orders", key) for row, key in zip(rows, keys, strict=True)]
    assert not compared(buffer, positions, *asked_for(swapped, KeyField.KEYS)).any()


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


def test_a_text_of_several_keys_is_left_to_decoding(tmp_path: Path) -> None:
    buffer, positions = log_of(tmp_path / "store", [Row("T", "a b")] * COUNT)
    asked, _ = asked_for([("T", "a b")], KeyField.KEYS)
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


def test_a_window_of_time_is_left_to_decoding(tmp_path: Path) -> None:
    buffer, positions = log_of(tmp_path / "store", [Row("T", "key", time_ms=START_MS)] * COUNT)
    asked, _ = asked_for([("T", "key")], KeyField.KEYS, Window(START_MS + 1, None))
    assert not compared(buffer, positions, asked, np.zeros(COUNT, np.int64)).any()


def test_messages_that_were_rolled_back_carry_nothing(tmp_path: Path) -> None:
    buffer, positions = log_of(tmp_path / "store", [Row("T", "key", sys_flag=0xC)] * COUNT)
    asked, _ = asked_for([("T", "key")], KeyField.KEYS)
    assert not compared(buffer, positions, asked, np.zeros(COUNT, np.int64)).any()


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
