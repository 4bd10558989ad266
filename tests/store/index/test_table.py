from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from segmentlog.store.errors import FormatError
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.files.writable_fs import WritableFileSystem
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.index_file import ENTRY, HEADER, SLOT, Geometry
from segmentlog.store.index import table as tables
from segmentlog.store.index.table import (
    JUMP_BYTES,
    IndexTable,
    Listing,
    follow,
    list_entries,
    look_up,
    open_table,
    sorted_rows,
)
from segmentlog.store.index.writer import IndexWriter
from support.crash.memory_fs import MemoryFileSystem
from support.indexed_stores import Row, build, colliding, entry_bytes, write_index
from support.tampering import put_at

GEOMETRY = Geometry(211, 2000)


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    build(tmp_path / "store", [Row("T", f"a{i % 40} b{i}", f"U{i}") for i in range(500)])
    (file,) = write_index(tmp_path / "store", GEOMETRY)
    return file


def opened(file: Path) -> IndexTable:
    table = open_table(FS, str(file))
    assert table is not None
    return table


class Parts:
    def __init__(self, data: npt.NDArray[np.uint8], geometry: Geometry) -> None:
        start = geometry.entry_position(0)
        self.data, self.geometry = data, geometry
        self.header: npt.NDArray[np.void] = data[: HEADER.itemsize].view(HEADER)
        self.slots = data[HEADER.itemsize : start].view(SLOT)
        self.entries: npt.NDArray[np.void] = data[start:].view(ENTRY)

    @property
    def count(self) -> int:
        return int(self.header["count"][0])


class Bytes(Parts):
    def __init__(self, file: Path) -> None:
        super().__init__(np.frombuffer(bytearray(file.read_bytes()), np.uint8), GEOMETRY)
        self._file = file

    def write(self) -> None:
        self._file.write_bytes(self.data.tobytes())


def test_a_file_without_entries_opens_as_none_and_a_deleted_file_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "20261123000000000"
    file.write_bytes(bytes(GEOMETRY.file_bytes))
    asks = (lambda: open_table(FS, str(file)), lambda: list_entries(FS, str(file), 5))
    assert [ask() for ask in asks] == [None, None]
    file.unlink()
    for ask in asks:
        with pytest.raises(FileNotFoundError):
            ask()


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


def chained(parts: Bytes, at: int) -> int:
    """Number of an entry that has one before it in its chain."""
    return int(np.flatnonzero(parts.entries["previous"] > 0)[at])


def forward(parts: Bytes) -> None:
    same = parts.entries["key_hash"] % GEOMETRY.slots == parts.entries["key_hash"][700] % GEOMETRY.slots
    parts.entries["previous"][700] = np.flatnonzero(same)[-1]


def shortened_chain(parts: Bytes) -> None:
    for number in range(parts.count - 200, 0, -1):
        previous = int(parts.entries["previous"][number])
        if previous and parts.entries["previous"][previous]:
            parts.entries["previous"][number] = parts.entries["previous"][previous]
            return
    raise AssertionError("no chain of three")


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


def set_entry(field: str, number: int, value: int) -> Callable[[Bytes], None]:
    return lambda parts: parts.entries[field].__setitem__(number, value)


def set_slot(value: Callable[[Bytes], int]) -> Callable[[Bytes], None]:
    return lambda parts: parts.slots.__setitem__(np.flatnonzero(parts.slots)[3], value(parts))


def set_count(value: Callable[[Bytes], int]) -> Callable[[Bytes], None]:
    return lambda parts: parts.header["count"].__setitem__(0, value(parts))


DAMAGE: dict[str, Callable[[Bytes], None]] = {
    "cycle": set_entry("previous", 700, 700),
    "another chain": lambda parts: parts.entries["previous"].__setitem__(
        at := chained(parts, -1), parts.entries["previous"][at] - 1
    ),
    "cut chain": lambda parts: parts.entries["previous"].__setitem__(chained(parts, 0), 0),
    "zeros": lambda parts: parts.entries[600:610].view(np.uint8).fill(0),
    "another hash": lambda parts: parts.entries["key_hash"].__setitem__(700, parts.entries["key_hash"][700] ^ 1),
    "falling offset": lambda parts: parts.entries["physical_offset"].__setitem__(
        700, parts.entries["physical_offset"][700] - (1 << 13)
    ),
    "negative link": set_entry("previous", 700, -1),
    "negative hash": set_entry("key_hash", 700, -7),
    "negative offset": set_entry("physical_offset", 1, -1),
    "slot beyond": set_slot(lambda _: GEOMETRY.entries),
    "negative slot": set_slot(lambda _: -5),
    "zero slot": set_slot(lambda _: 0),
    "slot of another": set_slot(lambda parts: parts.slots[np.flatnonzero(parts.slots)[4]]),
    "slot to a spare entry": set_slot(lambda parts: parts.count + 3),
    "count too large": set_count(lambda parts: parts.count + 1),
    "count beyond": set_count(lambda _: GEOMETRY.entries + 7),
} | {each.__name__: each for each in (forward, shortened_chain, slots_exchanged, detached_cycle)}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_not_believed(damage: Callable[[Bytes], None], indexed: Path) -> None:
    parts = Bytes(indexed)
    damage(parts)
    parts.write()
    with pytest.raises(FormatError, match=r"index/\d{17}"):
        open_table(FS, str(indexed))


def test_entries_not_yet_counted_by_the_header_are_not_damage_and_a_cut_file_is(indexed: Path) -> None:
    """A broker adds entry, slot and count in this order; a reader may come in between."""
    parts = Bytes(indexed)
    parts.header["count"] -= 20
    parts.write()
    table = opened(indexed)
    assert table.count == 1481
    assert table.last == int(table.entries["physical_offset"][1480])
    indexed.write_bytes(indexed.read_bytes()[: GEOMETRY.entry_position(900)])
    with pytest.raises(FormatError):
        open_table(FS, str(indexed))


def test_spans_of_log_without_entries_are_told(tmp_path: Path) -> None:
    store = tmp_path / "store"
    build(store, [Row("T", f"k{i}" if i < 300 or i > 1200 else None) for i in range(1500)])
    (file,) = write_index(store, GEOMETRY)
    (jump,) = opened(file).jumps.tolist()
    assert jump[1] - jump[0] >= JUMP_BYTES
    offsets = opened(file).entries["physical_offset"]
    assert jump == [int(offsets[300]), int(offsets[301])]


def table_of(hashes: list[int], slots: int, fs: WritableFileSystem | None = None) -> IndexTable:
    """Index records that are 100 bytes apart, of one key each."""
    fs = fs or MemoryFileSystem()
    fs.make_dir("/index")
    index = IndexWriter(fs, "/index", "/making", Geometry(slots, len(hashes) + 2))
    rows = np.arange(1, len(hashes) + 1, dtype=np.int64)
    index.put(np.array(hashes, np.int64), rows * 100, 1_700_000_000_000 + rows)
    index.write_slots()
    (name,) = index.names()
    index.close()
    table = open_table(fs, index.path_of(name))
    assert table is not None
    return table


def found(table: IndexTable, asked: list[int]) -> list[tuple[int, int]]:
    wanted = np.array(sorted(asked), np.int64)
    candidates = look_up(table, wanted)
    return sorted(zip(wanted[candidates.which].tolist(), candidates.physical_offset.tolist(), strict=True))


def expected(hashes: list[int], asked: list[int]) -> list[tuple[int, int]]:
    return sorted((each, 100 * number) for number, each in enumerate(hashes, 1) if each in asked)


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=300),
    st.sets(st.integers(0, 45)),
    st.sampled_from([1, 3, 17, 1000]),
    st.sampled_from([1, 2, 5, 256]),
)
def test_all_entries_of_all_hashes_are_found(hashes: list[int], asked: set[int], slots: int, most: int) -> None:
    table = table_of(hashes, slots)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "GENERATIONS_MAX", most)
        patch.setattr(tables, "_COMPARED_ENTRIES", 7)
        assert found(table, list(asked)) == expected(hashes, list(asked))


@pytest.mark.parametrize(
    ("slots", "asked"), [(1, [2]), (2, [2, 5]), (1, [2, 5, 9])], ids=["one chain", "two", "more keys than slots"]
)
def test_chains_longer_than_generations_are_compared_whole(slots: int, asked: list[int]) -> None:
    # 2 is three times as frequent as 5: its chain is left at a later entry than that of 5.
    hashes = [(2, 2, 5, 2)[each % 4] for each in range(20 * tables.GENERATIONS_MAX)]
    assert found(table_of(hashes, slots), asked) == expected(hashes, asked)


@example([1 << 62])
@given(st.lists(st.integers(-3, 3) | st.integers(0, 1 << 31) | st.integers(-(1 << 63), (1 << 63) - 1), max_size=40))
def test_numbers_are_sorted_with_their_places(numbers: list[int]) -> None:
    order, ascending = sorted_rows(np.array(numbers, np.int64))
    expected = sorted(range(len(numbers)), key=numbers.__getitem__)
    assert order.tolist() == expected
    assert ascending.tolist() == [numbers[row] for row in expected]


def broken(**changed: int) -> IndexTable:
    """Change the link of the fourth of five entries of one chain, or its slot, as if after the check."""
    table = table_of([7, 7, 7, 7, 7], 1)
    entries, slots = np.array(table.entries), np.array(table.slots)
    entries["previous"][4] = changed.get("link", entries["previous"][4])
    slots[0] = changed.get("slot", slots[0])
    return replace(table, slots=slots.view(SLOT), entries=entries.view(ENTRY))


@pytest.mark.parametrize(
    "changed",
    [
        *({"link": link} for link in (4, 5, 90, -3, 1 << 30)),
        *({"slot": slot} for slot in (-1, -(1 << 31), 7, (1 << 31) - 1)),
    ],
    ids=str,
)
def test_a_link_or_slot_that_breaks_after_the_check_is_damage(changed: dict[str, int]) -> None:
    with pytest.raises(FormatError, match="damaged chain"):
        look_up(broken(**changed), np.array([7], np.int64))


LISTED = Geometry(17, 400)
KEYS = ["key-7", "key-8", colliding("key-30"), "hot", "u-11", "nothing"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    texts = [f"key-{i} {'hot' if i % 3 else colliding(f'key-{i}')}" for i in range(120)]
    rows = [Row("T", text, f"u-{i}", body_bytes=8 + i % 2) for i, text in enumerate(texts)]
    rows.insert(60, Row("T", "large", None, body_bytes=1 << 17))
    build(tmp_path / "store", rows, segment_bytes=1 << 20)
    (file,) = write_index(tmp_path / "store", LISTED)
    return file


KEY_30 = index_key_hash("T", "key-30")


def listed(file: Path, key_hash: int = KEY_30) -> Listing:
    listing = list_entries(FS, str(file), key_hash)
    assert listing is not None
    return listing


def test_a_listing_is_equal_to_a_look_up_in_the_checked_file(file: Path) -> None:
    table = opened(file)
    for key in KEYS:
        key_hash = index_key_hash("T", key)
        listing, expected = listed(file, key_hash), look_up(table, np.array([key_hash])).physical_offset
        assert listing.physical_offset.tolist() == sorted(expected.tolist())
        assert (listing.physical_offset.size > 0) == (key != "nothing")
        for name in ("geometry", "count", "first", "last"):
            assert getattr(listing.table, name) == getattr(table, name)
        assert listing.table.jumps.tolist() == table.jumps.tolist() != []


def test_listing_includes_entries_that_a_broker_has_not_counted_yet(file: Path) -> None:
    whole = listed(file)
    put_at(file, 36, (whole.table.count - 3).to_bytes(4, "big"))
    fewer = listed(file)
    assert fewer.table.count == whole.table.count - 3
    assert fewer.physical_offset.tolist() == whole.physical_offset.tolist()


def test_a_zeroed_slot_hides_nothing_and_a_cycle_ends(file: Path) -> None:
    whole = file.read_bytes()
    put_at(file, 40 + 4 * (KEY_30 % LISTED.slots), bytes(4))
    with pytest.raises(FormatError, match=r"the chain of slot \d+ does not have") as caught:
        listed(file)
    assert caught.value.path == str(file)
    file.write_bytes(whole)
    for number in range(1, 240):
        put_at(file, entry_bytes(LISTED, number, "previous"), (number + 1).to_bytes(4, "big"))
    with pytest.raises(FormatError, match="leads to an entry that cannot be its next one"):
        listed(file)


FS = LocalFileSystem()
GROWING = Geometry(17, 200)


class Broker(Parts):
    """An index file that grows as a broker's does. The map of the file sees what is written here at once."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_bytes(bytes(GROWING.file_bytes))
        super().__init__(np.memmap(file, np.uint8, "r+"), GROWING)
        self.header["count"] = 1
        self.offset = 0

    def put(self, key_hash: int, apart: int = 100) -> None:
        slot, number = key_hash % GROWING.slots, self.count
        self.offset += apart
        self.entries[number] = (key_hash, self.offset, 0, self.slots[slot])
        self.slots[slot] = number
        self.header["count"] = number + 1

    @property
    def last_hash(self) -> int:
        return int(self.entries["key_hash"][self.count - 1])


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    made = Broker(tmp_path / "20261123000000000")
    for number in range(40):
        made.put(index_key_hash("T", f"key-{number}"))
    return made


def checked(broker: Broker) -> IndexTable:
    return opened(broker.file)


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
    assert follow(table, GROWING.entries + 1) is None
    while broker.count < GROWING.entries:
        broker.put(1)
    assert checked(broker).heads.size == 0


def last_entry(field: str, value: Callable[[Broker], int]) -> Callable[[Broker], None]:
    return lambda broker: broker.entries[field].__setitem__(broker.count - 1, value(broker))


def rewritten(field: str, by: int) -> Callable[[Broker], None]:
    """Change the newest entry that was checked."""
    return lambda broker: broker.entries[field].__setitem__(40, broker.entries[field][40] + by)


def last_slot(value: Callable[[Broker], int]) -> Callable[[Broker], None]:
    return lambda broker: broker.slots.__setitem__(broker.last_hash % GROWING.slots, value(broker))


ADDED_DAMAGE: dict[str, Callable[[Broker], None]] = {
    "cut link": last_entry("previous", lambda _: 0),
    "link to another slot": last_entry("previous", lambda it: it.slots[(it.last_hash + 1) % GROWING.slots]),
    "skipped entry": last_entry("previous", lambda it: it.entries["previous"][it.entries["previous"][it.count - 1]]),
    "slot left behind": last_slot(lambda it: it.entries["previous"][it.count - 1]),
    "slot ahead of another chain": last_slot(lambda it: it.count + 3),
    "falling offset": last_entry("physical_offset", lambda _: 5),
    "hash below zero": last_entry("key_hash", lambda _: -1),
    "rewritten offset": rewritten("physical_offset", -1),
    "rewritten hash": rewritten("key_hash", 1),
}


@pytest.mark.parametrize("damage", ADDED_DAMAGE.values(), ids=ADDED_DAMAGE)
def test_implausible_additions_are_left_to_the_check_of_the_whole_file(
    broker: Broker, damage: Callable[[Broker], None]
) -> None:
    table = checked(broker)
    broker.put(1)
    broker.put(int(broker.entries["key_hash"][7]))  # of a slot with entries
    damage(broker)
    assert follow(table, broker.count) is None
