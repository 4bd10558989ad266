import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.format import dledger
from segmentlog.store.format import walk as module
from segmentlog.store.format.dledger import HEADER_BYTES
from segmentlog.store.format.walk import Walk, walk
from support.dledger import BLANK, Entry, entries_of
from support.records import Bytes, run

SEGMENT = 1 << 20


def logged(entries: list[Entry], rest: bytes = bytes(64)) -> Bytes:
    return np.frombuffer(b"".join(each.data for each in entries) + rest, np.uint8)


def walked(buffer: Bytes, base: int = 0, start: int = 0, stop: int | None = None) -> Walk:
    return walk(buffer, base, start, buffer.size if stop is None else stop, HEADER_BYTES)


def places(entries: list[Entry], base: int = 0) -> list[int]:
    return [each.position + HEADER_BYTES - base for each in entries]


@pytest.mark.parametrize("base", [0, SEGMENT, 1 << 40])
def test_records_are_found_between_headers(base: int) -> None:
    entries = entries_of(run(9), SEGMENT, base)
    end = entries[-1].stop - base
    found = walked(logged(entries), base)
    assert (found.positions.tolist(), found.damage, found.end, found.blank) == (places(entries, base), [], end, False)
    blank = BLANK + struct.pack(">i", 40) + bytes(32)
    found = walked(logged(entries, blank), base)
    assert (found.positions.tolist(), found.damage, found.blank) == (places(entries, base), [], True)
    assert found.end == end + 40
    for start in (entries[3].position - base, entries[3].position - base + HEADER_BYTES):  # before or after its header
        found = walked(logged(entries), base, start)
        assert (found.positions.tolist(), found.damage) == (places(entries[3:], base), [])


@pytest.mark.parametrize("at", [0, 4, 24, 44])  # magic, size, position, body size
def test_a_damaged_header_is_damage_and_costs_no_record(at: int) -> None:
    entries = entries_of(run(9), SEGMENT)
    data = bytearray(logged(entries))
    data[entries[4].position + at + 3] ^= 0x55
    found = walked(np.frombuffer(bytes(data), np.uint8))
    assert found.positions.tolist() == places(entries)
    assert found.damage == [(entries[4].position, entries[4].position + HEADER_BYTES)]


def test_a_damaged_record_costs_itself_alone() -> None:
    entries = entries_of(run(9), SEGMENT)
    data = bytearray(logged(entries))
    data[entries[4].position + HEADER_BYTES : entries[4].stop] = bytes(len(entries[4].record))
    found = walked(np.frombuffer(bytes(data), np.uint8))
    assert found.positions.tolist() == places(entries[:4] + entries[5:])
    assert found.damage == [(entries[3].stop, entries[5].position)]


@given(st.data())
def test_any_walk_finds_the_records_that_begin_between_its_ends(data: st.DataObject) -> None:
    entries = entries_of(run(data.draw(st.integers(1, 40))), SEGMENT)
    buffer = logged(entries)
    start, stop = sorted(data.draw(st.tuples(*2 * [st.integers(0, entries[-1].stop)])))
    found = walked(buffer, 0, start, stop)
    assert found.positions.tolist() == [at for at in places(entries) if start <= at < stop]


@given(st.data())
def test_sizes_that_are_followed_lead_to_the_records_that_a_search_finds(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_BLOCK_BYTES", 512), ("_HEAD_BYTES", 128), ("_FOLLOWED_MIN", 256)):
            patch.setattr(module, name, value)
        patch.setattr(module, "_WINDOW_BYTES", data.draw(st.sampled_from([600, 1024, 8192])))
        entries = entries_of(run(60), SEGMENT)
        buffer = bytearray(logged(entries, bytes(600)))
        for _ in range(data.draw(st.integers(0, 3))):
            buffer[data.draw(st.integers(0, entries[-1].stop - 1))] ^= data.draw(st.integers(1, 255))
        array = np.frombuffer(bytes(buffer), np.uint8)
        followed = walked(array)
        patch.setattr(module, "_FOLLOWED_MIN", 1 << 30)
        searched = walked(array)
    assert followed.positions.tolist() == searched.positions.tolist()
    assert (followed.damage, followed.end, followed.blank) == (searched.damage, searched.end, searched.blank)


def test_records_of_many_blocks_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = entries_of(run(9) * 500, 1 << 30)
    monkeypatch.setattr(module, "_candidates", lambda *_: np.empty(0, np.int64))
    found = walked(logged(entries, bytes(1 << 19)))
    assert found.positions.tolist() == places(entries)
    assert found.damage == []


@pytest.mark.parametrize(
    ("content", "index"),
    [
        (b"committedIndex=59\nendIndex=59\n", 59),
        (b"#Sat Nov 28\r\nendIndex=61\r\ncommittedIndex=59\r\n", 59),
        (b"committedIndex=-1\nendIndex=-1", -1),
        (b"endIndex=59", None),
        (b"", None),
        (b"committedIndex=", None),
        (b"xcommittedIndex=3", None),
    ],
)
def test_the_committed_index_of_a_checkpoint(content: bytes, index: int | None) -> None:
    assert dledger.committed_index(content) == index


def test_headers_that_do_not_fit_before_a_record_are_none() -> None:
    right = dledger.have_headers(np.zeros(100, np.uint8), 0, np.array([0, 47, 48]), np.array([10, 10, 10]))
    assert right.tolist() == [False] * 3
    assert dledger.have_headers(np.zeros(3, np.uint8), 0, np.array([0]), np.array([1])).tolist() == [False]
