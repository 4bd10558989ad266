"""Index files that are believed, and each kind of damage for which they are not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from segmentlog.store.errors import FormatError
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.index_file import ENTRY, HEADER, SLOT, Geometry
from segmentlog.store.index.table import JUMP_BYTES, IndexTable, open_table
from support.indexed_stores import Row, build, write_index

GEOMETRY = Geometry(211, 2000)
FS = LocalFileSystem()


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    build(tmp_path / "store", [Row("T", f"a{i % 40} b{i}", f"U{i}") for i in range(500)])
    (file,) = write_index(tmp_path / "store", GEOMETRY)
    return file


def opened(file: Path) -> IndexTable:
    table = open_table(FS, str(file))
    assert table is not None
    return table


class Bytes:
    """The parts of an index file, to be changed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.data = np.frombuffer(bytearray(file.read_bytes()), np.uint8)
        start = GEOMETRY.entry_position(0)
        self.header = self.data[: HEADER.itemsize].view(HEADER)
        self.slots = self.data[HEADER.itemsize : start].view(SLOT)
        self.entries: npt.NDArray[np.void] = self.data[start:].view(ENTRY)

    @property
    def count(self) -> int:
        return int(self.header["count"][0])

    def write(self) -> None:
        self._file.write_bytes(self.data.tobytes())


def test_a_sound_file_tells_what_it_covers(indexed: Path) -> None:
    table = opened(indexed)
    assert (table.count, table.geometry) == (1501, GEOMETRY)
    assert table.first == 0
    assert table.last == int(table.entries["physical_offset"][1500])
    assert table.jumps.shape == (0, 2)


def test_a_file_without_entries_is_no_table(tmp_path: Path) -> None:
    file = tmp_path / "20261123000000000"
    file.write_bytes(bytes(GEOMETRY.file_bytes))
    assert open_table(FS, str(file)) is None


def test_a_file_that_was_deleted_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_table(FS, str(tmp_path / "20261123000000000"))


def test_a_slot_that_changes_while_the_slots_are_searched(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy counts first, and raises if it then finds another number of slots."""
    real = np.flatnonzero
    used = int(real(Bytes(indexed).slots)[0])

    def counted_twice(values: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
        count = real(values).size
        with indexed.open("r+b") as file:
            file.seek(GEOMETRY.slot_position(used))
            file.write(bytes(4))
        if real(values).size != count:
            raise RuntimeError("number of non-zero array elements changed during function execution.")
        return real(values)

    monkeypatch.setattr(np, "flatnonzero", counted_twice)
    assert opened(indexed).count == 1501


def cycle(parts: Bytes) -> None:
    parts.entries["previous"][700] = 700


def forward(parts: Bytes) -> None:
    number = 700
    same = parts.entries["key_hash"] % GEOMETRY.slots == parts.entries["key_hash"][number] % GEOMETRY.slots
    parts.entries["previous"][number] = np.flatnonzero(same)[-1]


def another_chain(parts: Bytes) -> None:
    number = int(np.flatnonzero(parts.entries["previous"] > 0)[-1])
    parts.entries["previous"][number] = parts.entries["previous"][number] - 1


def cut_chain(parts: Bytes) -> None:
    parts.entries["previous"][int(np.flatnonzero(parts.entries["previous"] > 0)[0])] = 0


def shortened_chain(parts: Bytes) -> None:
    for number in range(parts.count - 200, 0, -1):
        previous = int(parts.entries["previous"][number])
        if previous and parts.entries["previous"][previous]:
            parts.entries["previous"][number] = parts.entries["previous"][previous]
            return
    raise AssertionError("no chain of three")


def negative_link(parts: Bytes) -> None:
    parts.entries["previous"][700] = -1


def slot_beyond(parts: Bytes) -> None:
    parts.slots[np.flatnonzero(parts.slots)[3]] = GEOMETRY.entries


def slot_negative(parts: Bytes) -> None:
    parts.slots[np.flatnonzero(parts.slots)[3]] = -5


def slot_zero(parts: Bytes) -> None:
    parts.slots[np.flatnonzero(parts.slots)[3]] = 0


def slot_of_another(parts: Bytes) -> None:
    used = np.flatnonzero(parts.slots)
    parts.slots[used[3]] = parts.slots[used[4]]


def slots_exchanged(parts: Bytes) -> None:
    used = np.flatnonzero(parts.slots)[3:5]
    parts.slots[used] = parts.slots[used[::-1]]


def detached_cycle(parts: Bytes) -> None:
    """The older entries of a chain name each other; each entry is still named once."""
    for head in parts.slots[parts.slots > 0].tolist():
        second = int(parts.entries["previous"][head])
        third = int(parts.entries["previous"][second])
        if second and third and not parts.entries["previous"][third]:
            parts.entries["previous"][head] = 0
            parts.entries["previous"][third] = second
            return
    raise AssertionError("no chain of three")


def slot_to_a_spare_entry(parts: Bytes) -> None:
    parts.slots[np.flatnonzero(parts.slots)[3]] = parts.count + 3


def zeros(parts: Bytes) -> None:
    parts.entries[600:610].view(np.uint8)[:] = 0


def hash_changed(parts: Bytes) -> None:
    parts.entries["key_hash"][700] ^= 1


def hash_negative(parts: Bytes) -> None:
    parts.entries["key_hash"][700] = -7


def offset_falls(parts: Bytes) -> None:
    parts.entries["physical_offset"][700] -= 1 << 13


def offset_negative(parts: Bytes) -> None:
    parts.entries["physical_offset"][1] = -1


def count_too_large(parts: Bytes) -> None:
    parts.header["count"] += 1


def count_beyond(parts: Bytes) -> None:
    parts.header["count"] = GEOMETRY.entries + 7


DAMAGE = (
    cycle,
    forward,
    another_chain,
    cut_chain,
    shortened_chain,
    negative_link,
    slot_beyond,
    slot_negative,
    slot_zero,
    slot_of_another,
    slots_exchanged,
    detached_cycle,
    slot_to_a_spare_entry,
    zeros,
    hash_changed,
    hash_negative,
    offset_falls,
    offset_negative,
    count_too_large,
    count_beyond,
)


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda each: each.__name__)
def test_a_damaged_file_is_not_believed(damage: Callable[[Bytes], None], indexed: Path) -> None:
    parts = Bytes(indexed)
    damage(parts)
    parts.write()
    with pytest.raises(FormatError, match=r"index/\d{17}"):
        open_table(FS, str(indexed))


def test_a_truncated_file_is_not_believed(indexed: Path) -> None:
    indexed.write_bytes(indexed.read_bytes()[: GEOMETRY.entry_position(900)])
    with pytest.raises(FormatError):
        open_table(FS, str(indexed))


def test_entries_that_the_header_does_not_count_yet_are_no_damage(indexed: Path) -> None:
    """A broker adds entry, slot and count in this order; a reader may come in between."""
    parts = Bytes(indexed)
    parts.header["count"] -= 20
    parts.write()
    table = opened(indexed)
    assert table.count == 1481
    assert table.last == int(table.entries["physical_offset"][1480])


def test_spans_of_log_without_entries_are_told(tmp_path: Path) -> None:
    store = tmp_path / "store"
    build(store, [Row("T", f"k{i}" if i < 300 or i > 1200 else None) for i in range(1500)])
    (file,) = write_index(store, GEOMETRY)
    (jump,) = opened(file).jumps.tolist()
    assert jump[1] - jump[0] >= JUMP_BYTES
    offsets = opened(file).entries["physical_offset"]
    assert jump == [int(offsets[300]), int(offsets[301])]
