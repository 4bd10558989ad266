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


def searched(buffer: Bytes, start: int, stop: int) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FOLLOWED_MIN", buffer.size + 1)
        return flat(buffer, start, stop)


def flat(buffer: Bytes, start: int, stop: int) -> object:
    found = walk(buffer, 0, start, stop)
    return found.positions.tolist(), found.sizes.tolist(), found.damage, found.end, found.blank


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and windows of a few records each."""
    sizes = {"_FOLLOWED_MIN": 1, "_WINDOW_BYTES": 2048, "_BLOCK_BYTES": 512, "_HEAD_BYTES": 256, "_STEPS_MAX": 12}
    for name, value in sizes.items():
        monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("small_blocks")
@given(st.data())
def test_sizes_that_are_followed_lead_to_the_records_that_a_search_finds(data: st.DataObject) -> None:
    bodies = data.draw(st.lists(st.integers(0, 1500), min_size=1, max_size=25))
    parts: list[bytes] = []
    for body in bodies:
        at = sum(map(len, parts))
        inner = one(at=at + HEADER.itemsize) if data.draw(st.integers(0, 7)) == 0 else b""
        parts.append(one(at=at, offset=len(parts), body=inner + b"x" * body))
    buffer = bytearray(b"".join([*parts, *data.draw(st.sampled_from([[], [blank(60)], [bytes(3000)]]))]))
    for _ in range(data.draw(st.integers(0, 2))):
        begin = data.draw(st.integers(0, len(buffer) - 1))
        damage = data.draw(st.binary(min_size=1, max_size=40) | st.integers(1, 400).map(bytes))
        buffer[begin : begin + len(damage)] = damage[: len(buffer) - begin]
    whole = np.frombuffer(bytes(buffer), np.uint8)
    begins = positions(parts)
    start = data.draw(st.sampled_from([0, *begins]) | st.integers(0, whole.size))
    stop = data.draw(st.just(whole.size) | st.integers(start, whole.size))
    assert flat(whole, start, stop) == searched(whole, start, stop)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("body", [0, 150, 700, 5000])
def test_records_are_followed_and_not_searched(monkeypatch: pytest.MonkeyPatch, body: int) -> None:
    parts: list[bytes] = []
    for number in range(60):
        parts.append(one(at=sum(map(len, parts)), offset=number, body=b"x" * (body + number % 7)))
    monkeypatch.setattr(module, "_candidates", lambda *_: pytest.fail("the log was searched"))
    buffer = segment(*parts, blank(100), rest=0)
    assert walked(buffer) == (positions(parts), [], buffer.size, True)


@pytest.mark.parametrize(("start", "stop"), [(-1, 10), (5, 4), (0, 101)])
def test_a_walk_stays_in_its_buffer(start: int, stop: int) -> None:
    with pytest.raises(FormatError, match="leaves a buffer of 100 bytes"):
        walk(np.zeros(100, np.uint8), 0, start, stop)
