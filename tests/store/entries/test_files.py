import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segmentlog.store import (
    MessageStore,
    Outgoing,
    QueueKey,
    QueueRange,
    Snapshot,
    StoreConfig,
)
from segmentlog.store.entries.files import FileEntries
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.consume_queue import PAD_SIZE
from segmentlog.store.queues.consume_queues import ConsumeQueues
from support.orders_store import KEY, offsets
from support.store_builder import Geometry, StoreBuilder, messages
from support.tampering import QueueFiles, segments


@pytest.mark.scaled(quick=6)
@pytest.mark.parametrize("place", [0.5, 1.0, None])
@pytest.mark.parametrize(("count", "pads"), [(300, 0), (1200, 0), (300, 7), (1100, 256), (1100, 257), (1100, 1000)])
def test_an_entry_that_looks_like_a_pad_after_messages_is_damage(
    tmp_path: Path, count: int, pads: int, place: float | None
) -> None:
    """A broker fills the front of a queue with pads, and no other place. One probe of the front has 256 entries."""
    store = tmp_path / "s"
    with StoreBuilder(store, geometry=Geometry(segment_bytes=1 << 20, queue_segment_entries=4096)) as builder:
        builder.append(messages(count, queues=1))
    files = QueueFiles(store, "Orders", 0)
    entries = files.entries
    entries[:pads] = (0, PAD_SIZE, 0)
    if place is not None:
        entries[int(pads + (count - pads - 1) * place)] = (0, PAD_SIZE, 0)
    files.entries = entries
    assert offsets(store) == list(range(pads, count))
    snapshot = Snapshot.open(store)
    assert isinstance(snapshot.entries, FileEntries)
    assert snapshot.entries.bounds_alone(KEY) == snapshot.bounds(KEY) == snapshot.queues(KEY.topic)[0]
    assert len(snapshot.bounds(KEY)) == count - pads


# Many queues at once


class Hiding:
    """Visibility that hides records from a physical offset on."""

    def __init__(self, offset: int | None) -> None:
        self.offset = offset

    def hidden_from(self) -> int | None:
        return self.offset


def cut_off(files: QueueFiles) -> None:
    with files.files[0].open("r+b") as file:
        file.truncate(HELD * 20 - 7)


def renamed(files: QueueFiles, base: int) -> None:
    files.files[0].rename(files.directory / f"{base:020d}")


HELD = 50
QUEUE_BYTES = 100 * 20
DAMAGE: dict[str, Callable[[QueueFiles], object]] = {
    "nothing": lambda files: None,
    "pads": lambda files: files.pad(7),
    "only pads": lambda files: files.pad(HELD),
    "zeros in the middle": lambda files: files.zero(3, 9),
    "garbage in the middle": lambda files: files.put(9, 1 << 60, 200),
    "garbage at the end": lambda files: files.put(HELD, 1 << 60, 200),
    "a torn end": lambda files: files.put(HELD, 5, 0),
    "an entry before the end of the queue": lambda files: files.put(HELD, 0, 200),
    "no entries": lambda files: files.zero(0, HELD),
    "retention of segments": lambda files: [each.unlink() for each in segments(files.directory.parents[2])[:2]],
    "a short file": cut_off,
    "no file": lambda files: files.files[0].unlink(),
    "two files": lambda files: shutil.copy(files.files[0], files.directory / f"{QUEUE_BYTES:020d}"),
    "a later first file": lambda files: renamed(files, QUEUE_BYTES),
    "a base that is no multiple": lambda files: renamed(files, 7),
    "a name that is no number": lambda files: files.files[0].rename(files.directory / "x"),
}


@pytest.mark.scaled(quick=8)
@pytest.mark.parametrize("how", DAMAGE)
def test_bounds_of_queues_read_together_equal_bounds_read_alone(tmp_path: Path, how: str) -> None:
    store = tmp_path / "s"
    with StoreBuilder(store, geometry=Geometry(segment_bytes=4096, queue_segment_entries=100)) as builder:
        appended = builder.append(messages(HELD * 3, queues=3))
    DAMAGE[how](QueueFiles(store, KEY.topic, KEY.queue_id))
    snapshot = Snapshot.open(store)
    keys = [QueueKey(KEY.topic, queue_id) for queue_id in range(4)]  # the last is not there
    assert isinstance(snapshot.entries, FileEntries)
    fs, middle = LocalFileSystem(), int(appended.physical_offsets[HELD])
    for is_live, hidden in product([False, True], [None, 0, middle, 1 << 40]):
        hiding: Any = Hiding(hidden)
        each, together = (
            FileEntries(
                snapshot.log, ConsumeQueues(fs, str(store), snapshot.log), snapshot.entries.ids, hiding, is_live=is_live
            )
            for _ in range(2)
        )
        expected = [each.bounds_alone(key) for key in keys]
        assert together.bounds(keys) == expected
        if hidden is None or hidden > middle:
            assert expected[1].max_offset == HELD
        elif hidden == 0:
            assert len(expected[1]) == 0


QUEUE_1 = QueueKey("Orders", 1)


def test_a_damaged_entry_has_no_place_and_no_size(store: Path) -> None:
    QueueFiles(store, QUEUE_1.topic, QUEUE_1.queue_id).zero(5, 6)
    snapshot = Snapshot.open(store)
    assert snapshot.entries.place_of(QUEUE_1, 5) is None
    assert (snapshot.entries.places(QUEUE_1, np.arange(10)) < 0).tolist() == [offset == 5 for offset in range(10)]
    assert np.flatnonzero(snapshot.entries.sizes(QueueRange(QUEUE_1, 0, 10)) == 0).tolist() == [5]


def test_a_queue_of_a_live_store_ends_with_the_listed_segments_if_no_listed_record_is_its_own(tmp_path: Path) -> None:
    """Retention took its older messages before the segments were listed; newer ones are in a later segment."""
    path = tmp_path / "s"

    def put(topic: str, count: int) -> None:
        for _ in range(count):
            store.append(Outgoing(topic=topic, body=b"x" * 200))
        store.flush()
        store.wait_dispatched()

    with MessageStore.open(path, StoreConfig(segment_bytes=4096, queue_segment_entries=1000)) as store:
        put("Orders", 10)
        put("Others", 40)
        segments(path)[0].unlink()
        snapshot = Snapshot.open(path)
        assert snapshot.is_live
        put("Others", 40)
        put("Orders", 10)
        assert snapshot.bounds(KEY).max_offset == 10
        snapshot = snapshot.newer()
        assert snapshot.bounds(KEY).max_offset == 20
