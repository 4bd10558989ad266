from itertools import pairwise

from segmentlog.store.format.durable_point import (
    FILE_BYTES,
    SLOT_BYTES,
    DurablePoint,
    decode,
    encode,
    position_of,
)

POINTS = [
    DurablePoint(sequence=sequence, log=1 << 40 | sequence, queues=sequence * 7, clean=sequence % 3 == 0,
                 index_file=20_261_121_000_000_000 + sequence, index_count=sequence + 1)
    for sequence in range(5)
]  # fmt: skip


def written(*points: DurablePoint) -> bytearray:
    data = bytearray(FILE_BYTES)
    for number, point in enumerate(points):
        raw, at = encode(point), SLOT_BYTES * (number % 2)
        data[at : at + len(raw)] = raw
    return data


def test_a_point_is_read_as_it_was_written_and_the_newer_of_two_counts() -> None:
    assert all(decode(bytes(written(point))) == point for point in POINTS)
    for older, newer in pairwise(POINTS):
        assert decode(bytes(written(older, newer))) == newer
    assert len(encode(POINTS[0])) <= 512  # one that is not torn is written at once or not at all


def test_position_of_finds_the_slot_of_the_newer_point() -> None:
    assert position_of(bytes(written(*POINTS[:2]))) == SLOT_BYTES
    assert position_of(bytes(written(POINTS[1], POINTS[0]))) == 0
    assert position_of(bytes(FILE_BYTES)) == 0


def test_invalid_bytes_hold_no_durable_point_and_a_file_cut_short_its_whole_slot() -> None:
    for data in (b"", bytes(10), bytes(FILE_BYTES), b"\xff" * FILE_BYTES):
        assert decode(data) is None
    data = bytes(written(*POINTS[3:]))
    assert decode(data[:SLOT_BYTES]) == decode(data[: SLOT_BYTES + 20]) == POINTS[3]


def test_a_torn_write_leaves_the_point_before() -> None:
    before = written(*POINTS[:4])
    after = written(*POINTS)
    changed = [at for at in range(FILE_BYTES) if before[at] != after[at]]
    for cut in range(changed[0] + 1, changed[-1] + 1):
        assert decode(bytes(after[:cut] + before[cut:])) == POINTS[3]


def test_no_flipped_bit_makes_another_point() -> None:
    newest = written(*POINTS[3:])
    for bit in range(8 * len(encode(POINTS[4]))):
        data = bytearray(newest)
        data[SLOT_BYTES + bit // 8] ^= 1 << bit % 8
        assert decode(bytes(data)) == POINTS[3]
