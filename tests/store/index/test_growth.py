"""Growth of checked index files: equal to a check of the whole file, and refused where a broker would not write so."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.index_file import ENTRY, HEADER, SLOT, Geometry
from segmentlog.store.index.bulk import look_up
from segmentlog.store.index.growth import follow
from segmentlog.store.index.table import JUMP_BYTES, IndexTable, open_table

if TYPE_CHECKING:
    import numpy.typing as npt

GEOMETRY = Geometry(17, 200)
FS = LocalFileSystem()


class Broker:
    """An index file that grows as a broker's does. The map of the file sees what is written here at once."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_bytes(bytes(GEOMETRY.file_bytes))
        self.data = np.memmap(file, np.uint8, "r+")
        start = GEOMETRY.entry_position(0)
        self.header: npt.NDArray[np.void] = self.data[: HEADER.itemsize].view(HEADER)
        self.slots = self.data[HEADER.itemsize : start].view(SLOT)
        self.entries: npt.NDArray[np.void] = self.data[start:].view(ENTRY)
        self.header["count"] = 1
        self.offset = 0

    @property
    def count(self) -> int:
        return int(self.header["count"][0])

    def put(self, key_hash: int, apart: int = 100) -> None:
        slot, number = key_hash % GEOMETRY.slots, self.count
        self.offset += apart
        self.entries[number] = (key_hash, self.offset, 0, self.slots[slot])
        self.slots[slot] = number
        self.header["count"] = number + 1


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    made = Broker(tmp_path / "20261123000000000")
    for number in range(40):
        made.put(index_key_hash("T", f"key-{number}"))
    return made


def checked(broker: Broker) -> IndexTable:
    table = open_table(FS, str(broker.file))
    assert table is not None
    return table


def same(one: IndexTable, other: IndexTable) -> None:
    assert (one.count, one.first, one.last) == (other.count, other.first, other.last)
    assert one.jumps.tolist() == other.jumps.tolist()
    assert one.heads.tolist() == other.heads.tolist()


@pytest.mark.parametrize("added", [[1], [1, 1], [1, 18, 35], list(range(30)), [5] * 20])
def test_a_file_that_grew_is_as_if_it_was_checked_now(broker: Broker, added: list[int]) -> None:
    table: IndexTable | None = checked(broker)
    for step in range(3):
        for number, key_hash in enumerate(added):
            broker.put(key_hash, JUMP_BYTES + number if number == step else 60)
        assert table is not None
        table = follow(table, broker.count)
        assert table is not None
        same(table, checked(broker))
        assert look_up(table, np.array([added[0]])).which.size == (step + 1) * added.count(added[0])


def test_entries_that_are_not_counted_yet_belong_to_the_next_growth(broker: Broker) -> None:
    broker.put(3)
    broker.put(20)
    broker.header["count"] = broker.count - 2  # both are in slots already
    table = checked(broker)
    assert table.heads.max() == table.count - 1
    broker.header["count"] = broker.count + 1
    grown = follow(table, broker.count)
    assert grown is not None
    same(grown, checked(broker))


def test_a_full_file_and_one_of_which_one_chain_is_known_are_not_followed(broker: Broker) -> None:
    assert follow(checked(broker), broker.count) is None, "nothing was added"
    table = checked(broker)
    broker.put(1)
    assert follow(table, GEOMETRY.entries + 1) is None
    while broker.count < GEOMETRY.entries:
        broker.put(1)
    assert checked(broker).heads.size == 0


def _cut_link(broker: Broker) -> None:
    broker.entries["previous"][broker.count - 1] = 0


def _link_to_another_slot(broker: Broker) -> None:
    other = (int(broker.entries["key_hash"][broker.count - 1]) + 1) % GEOMETRY.slots
    broker.entries["previous"][broker.count - 1] = broker.slots[other]


def _skip_one(broker: Broker) -> None:
    before = int(broker.entries["previous"][broker.count - 1])
    broker.entries["previous"][broker.count - 1] = broker.entries["previous"][before]


def _slot_left_behind(broker: Broker) -> None:
    number = broker.count - 1
    broker.slots[int(broker.entries["key_hash"][number]) % GEOMETRY.slots] = broker.entries["previous"][number]


def _slot_ahead_of_another_chain(broker: Broker) -> None:
    broker.slots[int(broker.entries["key_hash"][broker.count - 1]) % GEOMETRY.slots] = broker.count + 3


def _offset_falls(broker: Broker) -> None:
    broker.entries["physical_offset"][broker.count - 1] = 5


def _hash_below_zero(broker: Broker) -> None:
    broker.entries["key_hash"][broker.count - 1] = -1


def _rewritten(broker: Broker) -> None:
    broker.entries["physical_offset"][40] -= 1


def _rewritten_hash(broker: Broker) -> None:
    broker.entries["key_hash"][40] += 1


@pytest.mark.parametrize(
    "damage",
    [
        _cut_link,
        _link_to_another_slot,
        _skip_one,
        _slot_left_behind,
        _slot_ahead_of_another_chain,
        _offset_falls,
        _hash_below_zero,
        _rewritten,
        _rewritten_hash,
    ],
)
def test_what_no_broker_adds_is_left_to_the_check_of_the_whole_file(broker: Broker, damage: object) -> None:
    table = checked(broker)
    broker.put(1)
    broker.put(int(broker.entries["key_hash"][7]))  # of a slot with entries
    assert callable(damage)
    damage(broker)
    assert follow(table, broker.count) is None
