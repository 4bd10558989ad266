"""The cached point: one kernel's, and of one durable point."""

import pytest

from segmentlog.store.format import durable_point
from segmentlog.store.format.cached_point import FILE_BYTES, decode, encode
from segmentlog.store.format.durable_point import DurablePoint

BOOT = "7d1c0a54-0000-4000-8000-000000000001"
POINT = DurablePoint(sequence=4, log=900, queues=700, entries=12, clean=True)


def test_a_file_is_read_as_it_was_written() -> None:
    data = encode(POINT, 9, BOOT)
    assert len(data) == FILE_BYTES
    assert decode(data, 9, BOOT) == POINT


def test_the_newer_slot_counts() -> None:
    data = bytearray(encode(POINT, 9, BOOT))
    newer = DurablePoint(sequence=5, log=1000)
    slot = durable_point.encode(newer)
    data[durable_point.SLOT_BYTES : durable_point.SLOT_BYTES + len(slot)] = slot
    assert decode(bytes(data), 9, BOOT) == newer


@pytest.mark.parametrize(("sequence", "boot"), [(8, BOOT), (10, BOOT), (9, BOOT[:-1] + "2"), (9, BOOT[:-1]), (9, "")])
def test_another_kernel_or_durable_point_makes_it_void(sequence: int, boot: str) -> None:
    assert decode(encode(POINT, 9, BOOT), sequence, boot) is None


def test_a_kernel_without_a_name_never_counts() -> None:
    assert decode(encode(POINT, 9, ""), 9, "") is None


@pytest.mark.parametrize("at", [0, 30, durable_point.FILE_BYTES, durable_point.FILE_BYTES + 6, FILE_BYTES - 1])
def test_a_changed_byte_makes_it_void(at: int) -> None:
    data = bytearray(encode(POINT, 9, BOOT))
    data[at] ^= 1
    assert decode(bytes(data), 9, BOOT) is None


@pytest.mark.parametrize("size", [0, 1, durable_point.FILE_BYTES, FILE_BYTES - 1])
def test_a_short_file_is_void(size: int) -> None:
    assert decode(encode(POINT, 9, BOOT)[:size], 9, BOOT) is None
