"""Entries of planned ranges: what the ConsumeQueue says, what the log knows better."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store.dispatch.walk_cache import WalkCache
from segmentlog.store.format.consume_queue import NATIVE, Entries
from segmentlog.store.format.message import Ints, Mask
from segmentlog.store.read.plan import PlannedRange
from segmentlog.store.read.queue_entries import Block, Healed, heal, range_blocks
from segmentlog.store.read.store_reader import StoreReader
from segmentlog.store.types import QueueKey
from support.store_builder import Geometry, StoreBuilder, messages
from support.tampering import QueueFiles, overwrite, segments

KEY = QueueKey("Orders", 1)
COUNT = 50


@pytest.fixture
def store(tmp_path: Path) -> Path:
    geometry = Geometry(segment_bytes=4096, queue_segment_entries=10)
    with StoreBuilder(tmp_path / "s", geometry=geometry) as builder:
        builder.append(messages(2 * COUNT, queues=2))
    return tmp_path / "s"


@pytest.fixture
def sound(store: Path) -> Entries:
    return QueueFiles(store, "Orders", 1).entries[:COUNT].astype(NATIVE)


def blocks(store: Path, start: int = 0, stop: int = COUNT, walk: tuple[int, int] | None = None) -> tuple[Ints, Entries]:
    planned = PlannedRange(KEY, start, stop, stop - start, walk)
    reader = StoreReader.open(store)
    found = list(
        range_blocks(
            reader, planned, WalkCache(reader.log, [planned.key], [] if planned.walk is None else [planned.walk])
        )
    )
    return np.concatenate([b.queue_offset for b in found]), np.concatenate([b.entries for b in found])


def healed_by_log(store: Path, block: Block, doubtful: Mask) -> Healed:
    reader = StoreReader.open(store)
    return heal(reader, WalkCache(reader.log, [KEY]), KEY, block, doubtful)


Damage = Callable[[QueueFiles], None]


def implausible(queue: QueueFiles) -> None:
    for slot, entry in enumerate([(-1, 100), (1 << 62, -5), (0, 0), (200, 20)]):
        queue.put(20 + slot, *entry)


SENSELESS: dict[str, Damage] = {
    "a page in the middle": lambda queue: queue.zero(13, 31),
    "the front": lambda queue: queue.zero(0, 15),
    "one entry": lambda queue: queue.zero(7, 8),
    "several holes": lambda queue: [queue.zero(a, a + 3) for a in (2, 9, 18, 40)] and None,
    "all but the last": lambda queue: queue.zero(0, COUNT - 1),
    "nonsense": implausible,
}


@pytest.mark.parametrize("damage", SENSELESS)
def test_entries_that_make_no_sense_are_healed(store: Path, sound: Entries, damage: str) -> None:
    SENSELESS[damage](QueueFiles(store, "Orders", 1))
    offsets, entries = blocks(store)
    assert offsets.tolist() == list(range(COUNT))
    assert entries.tolist() == sound.tolist()


def test_a_missing_middle_file_is_healed(store: Path, sound: Entries) -> None:
    QueueFiles(store, "Orders", 1).files[2].unlink()
    assert blocks(store)[1].tolist() == sound.tolist()


def test_pads_are_left_out(store: Path, sound: Entries) -> None:
    QueueFiles(store, "Orders", 1).pad(12)
    offsets, entries = blocks(store)
    assert offsets.tolist() == list(range(12, COUNT))
    assert entries.tolist() == sound[12:].tolist()


def test_a_walk_gives_what_the_queue_would(store: Path, sound: Entries) -> None:
    offsets, entries = blocks(store, 5, 20, walk=(0, 1 << 40))
    assert offsets.tolist() == list(range(5, 20))
    assert entries.tolist() == sound[5:20].tolist()


def test_what_the_log_does_not_know_stays_as_it_is(store: Path, sound: Entries) -> None:
    overwrite(store, int(sound["physical_offset"][22]) + 4, b"\0\0\0\0")
    QueueFiles(store, "Orders", 1).zero(20, 25)
    _, entries = blocks(store)
    assert entries[22].item() == (0, 0, 0)
    assert np.delete(entries, 22).tolist() == np.delete(sound, 22).tolist()


def test_a_hole_in_a_log_whose_segment_is_gone(store: Path, sound: Entries) -> None:
    gone = segments(store)[1]
    gone.unlink()
    QueueFiles(store, "Orders", 1).zero(0, COUNT - 1)
    _, entries = blocks(store)
    lost = (sound["physical_offset"] >= 4096) & (sound["physical_offset"] < 8192)
    assert lost.any()
    assert entries[lost]["size"].tolist() == [0] * int(lost.sum())
    assert entries[~lost].tolist() == sound[~lost].tolist()


# heal itself


def doubtful(*rows: int) -> Mask:
    found = np.zeros(COUNT, np.bool_)
    found[list(rows)] = True
    return found


def test_only_doubtful_entries_change(store: Path, sound: Entries) -> None:
    wrong = sound.copy()
    wrong["size"][[3, 30]] = 99_999
    healed = healed_by_log(store, Block(np.arange(COUNT), wrong), doubtful(30))
    assert healed.entries[30] == sound[30]
    assert healed.entries[3]["size"] == 99_999
    assert healed.sound.all()
    assert not healed.confirmed.any()


@pytest.mark.parametrize("rows", [(10, 11), (0, 1), (COUNT - 2, COUNT - 1), (4, 40)])
def test_swapped_entries(store: Path, sound: Entries, rows: tuple[int, int]) -> None:
    wrong = sound.copy()
    wrong[list(rows)] = wrong[list(rows[::-1])]
    healed = healed_by_log(store, Block(np.arange(COUNT), wrong), doubtful(*rows))
    assert healed.entries.tolist() == sound.tolist()
    assert healed.sound.all()


def test_burnt_queue_offsets_are_confirmed(store: Path, sound: Entries) -> None:
    """5.0 to 5.1.0: the numbers of records jump, their places in the queue do not. The place counts."""
    for row in range(30, COUNT):
        overwrite(store, int(sound["physical_offset"][row]) + 20, struct.pack(">q", row + 1000))
    rows = range(30, COUNT)
    healed = healed_by_log(store, Block(np.arange(COUNT), sound), doubtful(*rows))
    assert healed.entries.tolist() == sound.tolist()
    assert np.flatnonzero(healed.confirmed).tolist() == list(rows)


def test_a_part_of_a_queue_is_healed_between_its_neighbours(store: Path, sound: Entries) -> None:
    files = QueueFiles(store, "Orders", 1)
    files.zero(20, 23)
    blank = np.zeros(3, sound.dtype)
    healed = healed_by_log(store, Block(np.arange(20, 23), blank), np.ones(3, np.bool_))
    assert healed.entries.tolist() == sound[20:23].tolist()
