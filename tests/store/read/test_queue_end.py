"""`queue_bounds`: where a queue begins and ends, whatever retention, copies and damage left of it."""

from pathlib import Path

import pytest

from segmentlog.store import CorruptError, OnCorrupt, QueueKey, QueueSource, StoreReader
from support import reading
from support.orders_store import COUNT, GEOMETRY, KEY, build_orders, offsets
from support.store_builder import Appended, StoreBuilder, messages
from support.tampering import QueueFiles, segments


@pytest.fixture
def built(tmp_path: Path) -> tuple[Path, Appended]:
    return tmp_path / "s", build_orders(tmp_path / "s")


@pytest.fixture
def store(built: tuple[Path, Appended]) -> Path:
    return built[0]


def test_retention_moves_the_front(built: tuple[Path, Appended]) -> None:
    store, appended = built
    for path in segments(store)[:2]:
        path.unlink()
    alive = appended.queue_offsets[appended.physical_offsets >= 8192]
    for source in QueueSource:
        assert offsets(store, queue_source=source)[0] == int(alive[:4].min())
    files = QueueFiles(store, "Orders", 0)
    files.files[0].unlink()
    assert offsets(store)[0] == max(10, int(alive[:4].min()))


def test_a_missing_first_file(store: Path) -> None:
    """Without its first file a queue begins later, as it does where retention took that file."""
    QueueFiles(store, "Orders", 0).files[0].unlink()
    assert offsets(store) == list(range(10, 30))


def test_pads_in_front_are_no_messages(store: Path) -> None:
    QueueFiles(store, "Orders", 0).pad(17)
    assert offsets(store) == list(range(17, 30))


@pytest.mark.parametrize("garbage", [(1 << 60, 200), (100, 200), (-9, 200), (0, 1)])
def test_garbage_behind_the_end(tmp_path: Path, garbage: tuple[int, int]) -> None:
    with StoreBuilder(tmp_path / "s", geometry=GEOMETRY) as builder:
        builder.append(messages(100))
    files = QueueFiles(tmp_path / "s", "Orders", 0)
    files.put(25, *garbage)
    files.put(28, *garbage)
    assert len(files.entries) == 30
    reader = StoreReader.open(tmp_path / "s")
    found = [row for row in reading.read(reader, on_corrupt=OnCorrupt.SKIP) if row["queueId"] == 0]
    assert [row["queueOffset"] for row in found] == list(range(25))
    if garbage[0] >= 1 << 60 or garbage[0] < 0 or garbage[1] < 91:
        assert reader.bounds(KEY).max_offset == 25


def test_a_segment_that_a_copy_cut_short(built: tuple[Path, Appended]) -> None:
    store, appended = built
    last = segments(store)[-1]
    end = int(appended.physical_offsets[-1] + appended.sizes[-1])
    with last.open("r+b") as file:
        file.truncate(end - int(last.name) + 7)
    assert len(offsets(store)) == 30
    retry = StoreReader.open(store).bounds(QueueKey("%RETRY%group", 0))
    assert retry.max_offset <= 10


def test_a_gap_between_segments(built: tuple[Path, Appended]) -> None:
    store, appended = built
    segments(store)[2].unlink()
    reader = StoreReader.open(store)
    with pytest.raises(CorruptError):
        list(reading.read(reader))
    found = list(reading.read(reader, on_corrupt=OnCorrupt.SKIP))
    places = appended.physical_offsets
    kept = int(((places < 8192) | (places >= 12288)).sum())
    assert sum(row["topic"] == "Orders" for row in found) == kept
    assert 0 < kept < COUNT
