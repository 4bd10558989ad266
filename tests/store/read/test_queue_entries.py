"""Entries of planned ranges: what the ConsumeQueue says, what the log knows better."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store.dispatch.derive import WalkCache
from segmentlog.store.format.consume_queue import NATIVE, Entries
from segmentlog.store.format.message import Ints
from segmentlog.store.read.queue_entries import range_blocks
from segmentlog.store.read.store_reader import StoreReader
from segmentlog.store.read.tasks import PlannedRange
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
