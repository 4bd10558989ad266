"""Stores whose index is damaged in every way that a file can be: look-ups have to find the same as before."""

import shutil
from pathlib import Path

from segmentlog.store.find import Found
from segmentlog.store.format.index_file import Geometry, decode_header

from .indexed_stores import START_MS, Row, build, colliding, entry_bytes, write_index

GEOMETRY = Geometry(211, 700)  # a prime, so that no single byte of a hash can change and leave its slot the same
TOPICS = ("Orders", "Refunds")


def a_store(path: Path, count: int = 900) -> list[Path]:
    """Index messages of two topics: keys of many and of few, of one hash and other text, and in both topics."""
    rows = [
        Row(
            TOPICS[i % 3 // 2],
            f"order-{i} customer-{i % 40} {colliding(f'order-{i}') if i % 5 == 0 else ''}",
            f"unique-{i}",
            START_MS + 37 * i,
            queue_id=i % 4,
        )
        for i in range(count)
    ]
    build(path, rows)
    return write_index(path, GEOMETRY)


def pairs_of(found: Found) -> list[tuple[int, str]]:
    keys = found.asked.column("key").to_pylist()
    return [
        (offset, keys[asked]) for offset, asked in zip(found.physical_offset.tolist(), found.asked_index, strict=True)
    ]


KEYS = [f"order-{i}" for i in range(0, 900, 7)] + [
    *(f"customer-{i}" for i in (0, 11, 39, 40)),
    *(f"unique-{i}" for i in (0, 5, 450, 899, 900)),
    *(colliding(f"order-{i}") for i in (5, 6, 10, 11)),
    "",
    "order-1 customer-1",
    "nothing",
]


def no_index(files: list[Path]) -> None:
    shutil.rmtree(files[0].parent)


def one_file_missing(files: list[Path]) -> None:
    files[1].unlink()


def truncated(files: list[Path]) -> None:
    files[1].write_bytes(files[1].read_bytes()[: GEOMETRY.entry_position(300)])


def empty(files: list[Path]) -> None:
    files[1].write_bytes(b"")


def all_zero(files: list[Path]) -> None:
    files[1].write_bytes(bytes(GEOMETRY.file_bytes))


def not_an_index(files: list[Path]) -> None:
    files[1].write_bytes(b"\xff" * 1000)


def old_header(files: list[Path]) -> None:
    data = bytearray(files[-1].read_bytes())
    data[36:40] = (decode_header(data).count // 2).to_bytes(4, "big")
    files[-1].write_bytes(data)


def no_slots(files: list[Path]) -> None:
    data = bytearray(files[1].read_bytes())
    data[40 : GEOMETRY.entry_position(0)] = bytes(4 * GEOMETRY.slots)
    files[1].write_bytes(data)


def zero_page(files: list[Path]) -> None:
    data = bytearray(files[1].read_bytes())
    data[4096:8192] = bytes(4096)
    files[1].write_bytes(data)


def cycles(files: list[Path]) -> None:
    data = bytearray(files[1].read_bytes())
    for number in range(1, GEOMETRY.entries - 1):
        at = entry_bytes(GEOMETRY, number, "previous")
        data[at : at + 4] = (number + 1).to_bytes(4, "big")
    files[1].write_bytes(data)


def of_another_store(files: list[Path]) -> None:
    """Exchange a file for one whose chains are whole and whose records are others."""
    other = files[0].parent.parent.parent / "other"
    build(other, [Row("Orders", f"thing-{i} {i % 7}", f"u-{i}") for i in range(900)])
    shutil.copy(write_index(other, GEOMETRY)[1], files[1])


BROKEN = (
    no_index,
    one_file_missing,
    truncated,
    empty,
    all_zero,
    not_an_index,
    old_header,
    no_slots,
    zero_page,
    cycles,
    of_another_store,
)
