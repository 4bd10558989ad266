"""The walk over a segment."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.errors import FormatError
from segmentlog.store.format import walk as module
from segmentlog.store.format.message import HEADER, MAGIC_BLANK, Ints
from segmentlog.store.format.walk import walk
from support.records import Bytes, altered, one, positions, run, segment


def blank(size: int) -> bytes:
    return struct.pack(">ii", size, MAGIC_BLANK) + bytes(size - 8)


def walked(buffer: Bytes, base: int = 0, start: int = 0) -> tuple[list[int], list[tuple[int, int]], int, bool]:
    found = walk(buffer, base, start, buffer.size)
    assert (found.sizes > 0).all()
    return found.positions.tolist(), found.damage, found.end, found.blank


@pytest.mark.parametrize("base", [0, 4096, 1 << 40])
def test_sound_and_empty_segments(base: int) -> None:
    parts = run(9, base)
    size = sum(map(len, parts))
    assert walked(segment(*parts), base) == (positions(parts), [], size, False)
    assert walked(segment(*parts, blank(40), rest=0), base) == (positions(parts), [], size + 40, True)
    assert walked(segment(*parts, rest=0), base) == (positions(parts), [], size, False)
    third = positions(parts)[3]
    assert walked(segment(*parts), base, third)[0] == positions(parts)[3:]
    assert walked(segment(*parts), base + 1)[0] == []  # they state other physical offsets
    assert walked(np.zeros(500, np.uint8), base) == walked(np.zeros(0, np.uint8), base) == ([], [], 0, False)
    assert walked(segment(blank(100), rest=0), base) == ([], [], 100, True)


@pytest.mark.parametrize("victim", [0, 4, 8])
@pytest.mark.parametrize("field", [0, 4, 28, 84])  # size, magic, physical offset, body length
def test_a_damaged_record_costs_itself_alone(victim: int, field: int) -> None:
    parts = run(9)
    at = positions(parts)
    parts[victim] = altered(parts[victim], field, ">i", 0x7FFFFFF0)
    found, damage, end, _ = walked(segment(*parts))
    assert found == at[:victim] + at[victim + 1 :]
    assert (at[victim], at[victim] + len(parts[victim])) == damage[0] if victim < 8 else damage[0][0] == at[8]
    assert end == (sum(map(len, parts)) if victim < 8 else at[8])


def test_records_in_a_body_and_after_a_blank_are_not_found() -> None:
    inner = one(at=HEADER.itemsize)  # even one that states its own offset
    outer = one(body=inner)
    assert walked(segment(outer, one(at=len(outer), offset=1)))[0] == [0, len(outer)]
    parts = run(3)
    stale = one(at=sum(map(len, parts)) + 8)
    buffer = segment(*parts, struct.pack(">ii", 8 + len(stale), MAGIC_BLANK), stale, rest=0)
    assert walked(buffer) == (positions(parts), [], buffer.size, True)


@given(st.data())
def test_a_walk_never_loses_a_sound_record(data: st.DataObject) -> None:
    parts = run(6)
    at = positions(parts)
    buffer = bytearray(b"".join(parts) + bytes(50))
    victim = data.draw(st.integers(0, 5))
    start = data.draw(st.integers(at[victim], at[victim] + len(parts[victim]) - 1))
    stop = data.draw(st.integers(start + 1, at[victim] + len(parts[victim])))
    buffer[start:stop] = data.draw(st.binary(min_size=stop - start, max_size=stop - start))
    found = walk(np.frombuffer(bytes(buffer), np.uint8), 0, 0, len(buffer))
    others: Ints = np.array(at[:victim] + at[victim + 1 :])
    assert set(others.tolist()) <= set(found.positions.tolist()) <= set(at)
    assert (np.diff(found.positions) > 0).all()


@pytest.mark.parametrize("scan_bytes", [61, 64, 1 << 20])
def test_records_begin_between_start_and_stop(monkeypatch: pytest.MonkeyPatch, scan_bytes: int) -> None:
    monkeypatch.setattr(module, "_SCAN_BYTES", scan_bytes)
    parts = run(5, 0)
    buffer, begins = segment(*parts), positions(parts)
    for stop in range(buffer.size + 1):
        assert walk(buffer, 0, 0, stop).positions.tolist() == [at for at in begins if at < stop]
    for start in range(buffer.size):
        assert walk(buffer, 0, start, buffer.size).positions.tolist() == [at for at in begins if at >= start]


@pytest.mark.parametrize(("start", "stop"), [(-1, 10), (5, 4), (0, 101)])
def test_a_walk_stays_in_its_buffer(start: int, stop: int) -> None:
    with pytest.raises(FormatError, match="leaves a buffer of 100 bytes"):
        walk(np.zeros(100, np.uint8), 0, start, stop)
