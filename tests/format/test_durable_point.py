"""The durable point: what was written last counts, and a torn write leaves what was there before."""

from dataclasses import replace
from itertools import pairwise

import pytest

from segmentlog.store.format.durable_point import FILE_BYTES, SLOT_BYTES, DurablePoint, decode, encode

POINTS = [
    DurablePoint(sequence=sequence, log=1 << 40 | sequence, queues=sequence * 7, clean=sequence % 3 == 0,
                 index_file=20_261_121_000_000_000 + sequence, index_count=sequence + 1)
    for sequence in range(5)
]  # fmt: skip


def written(*points: DurablePoint) -> bytearray:
    data = bytearray(FILE_BYTES)
    for point in points:
        raw = encode(point)
        data[point.position : point.position + len(raw)] = raw
    return data


@pytest.mark.parametrize("point", POINTS)
def test_a_point_is_read_as_it_was_written(point: DurablePoint) -> None:
    assert decode(bytes(written(point))) == point


def test_points_go_to_either_slot_in_turns() -> None:
    assert [point.position for point in POINTS] == [0, SLOT_BYTES, 0, SLOT_BYTES, 0]
    assert len(encode(POINTS[0])) <= 512  # a sector: it is written at once or not at all


def test_the_newer_of_two_counts() -> None:
    for older, newer in pairwise(POINTS):
        assert decode(bytes(written(older, newer))) == newer


@pytest.mark.parametrize("data", [b"", bytes(10), bytes(FILE_BYTES), b"\xff" * FILE_BYTES])
def test_bytes_that_are_none_are_no_point(data: bytes) -> None:
    assert decode(data) is None


def test_a_torn_write_leaves_the_point_before() -> None:
    before = written(*POINTS[:4])
    after = written(*POINTS)
    changed = [at for at in range(FILE_BYTES) if before[at] != after[at]]
    for cut in range(changed[0] + 1, changed[-1] + 1):
        assert decode(bytes(after[:cut] + before[cut:])) == POINTS[3]


def test_no_flipped_bit_makes_another_point() -> None:
    newest = written(*POINTS[3:])
    raw = encode(POINTS[4])
    for bit in range(8 * len(raw)):
        data = bytearray(newest)
        data[POINTS[4].position + bit // 8] ^= 1 << bit % 8
        assert decode(bytes(data)) == POINTS[3]


def test_a_file_that_was_cut_short_gives_what_is_whole() -> None:
    data = bytes(written(*POINTS[3:]))
    assert decode(data[:SLOT_BYTES]) == POINTS[4]
    assert decode(data[: SLOT_BYTES + 20]) == POINTS[4]


def test_the_next_one_goes_to_the_other_slot() -> None:
    assert replace(POINTS[2], sequence=3).position != POINTS[2].position
