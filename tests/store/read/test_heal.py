"""`heal`: which entries in doubt the log replaces, and which it confirms."""

import struct
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store.dispatch.derive import WalkCache
from segmentlog.store.format.consume_queue import NATIVE, Entries
from segmentlog.store.format.message import Mask
from segmentlog.store.read.heal import Block, Healed, heal
from segmentlog.store.read.store_reader import StoreReader
from segmentlog.store.types import QueueKey
from support.store_builder import Geometry, StoreBuilder, messages
from support.tampering import QueueFiles, overwrite

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


def healed_by_log(store: Path, block: Block, doubtful: Mask) -> Healed:
    reader = StoreReader.open(store)
    return heal(reader, WalkCache(reader.log, [KEY]), KEY, block, doubtful)


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
