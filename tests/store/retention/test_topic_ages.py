"""Store times of the newest messages of topics below a physical offset."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from segmentlog.store import MessageStore, Outgoing, QueueKey, Services, StoreConfig
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.retention.state import UNKNOWN_MS
from segmentlog.store.retention.survey import StoreFiles
from segmentlog.store.retention.topic_ages import TopicAges

CONFIG = StoreConfig(segment_bytes=4 << 10, queue_segment_entries=10, index=False, services=Services.ON_CALL)
NOW = 1_763_700_000_000
STEP = 1000
ENTRY = 20


class Put(NamedTuple):
    topic: str
    physical: int
    store_ms: int


@pytest.fixture
def placed(tmp_path: Path) -> list[Put]:
    """Messages of a store, in order: three queues of orders that are busy, and one of refunds that ends early."""
    rng, now, found = random.Random(7), NOW, []
    with MessageStore.open(tmp_path / "store", CONFIG, clock=lambda: now) as store:
        for number in range(200):
            key = QueueKey("orders", rng.randrange(3)) if number >= 50 or rng.random() < 0.9 else QueueKey("refunds", 0)
            put = store.append(Outgoing(topic=key.topic, queue_id=key.queue_id, body=bytes(rng.randrange(400))))
            found.append(Put(key.topic, put.physical_offset, now))
            now += STEP
    return found


class Counting(LocalFileSystem):
    """Counts the reads of entries."""

    reads = 0

    def read(self, path: str, offset: int, count: int) -> bytes:
        self.reads += 1
        return super().read(path, offset, count)


def ages(tmp_path: Path, dispatched: Callable[[], int] = lambda: 1 << 62) -> TopicAges:
    return TopicAges(StoreFiles(LocalFileSystem(), str(tmp_path / "store")), dispatched)


def test_the_newest_message_below_each_end_of_a_segment_is_found(tmp_path: Path, placed: list[Put]) -> None:
    found = ages(tmp_path)
    ends = range(CONFIG.segment_bytes, placed[-1].physical + CONFIG.segment_bytes, CONFIG.segment_bytes)
    assert len(ends) > 10
    for topic in ("orders", "refunds", "none"):
        for stop in ends:
            below = [put.store_ms for put in placed if put.topic == topic and put.physical < stop]
            assert found.newest(topic, stop) == (max(below) if below else None), (topic, stop)


def test_answers_are_remembered_and_unknown_ones_are_not(tmp_path: Path, placed: list[Put]) -> None:
    fs, reached, stop = Counting(), [0], 5 * CONFIG.segment_bytes
    found = TopicAges(StoreFiles(fs, str(tmp_path / "store")), lambda: reached[0])
    assert found.newest("orders", stop) == UNKNOWN_MS
    reached[0] = stop
    newest = found.newest("orders", stop)
    assert newest == max(put.store_ms for put in placed if put.topic == "orders" and put.physical < stop)
    reads = fs.reads
    assert 3 <= reads <= 60
    assert found.newest("orders", stop) == newest
    assert fs.reads == reads


def test_messages_that_are_deleted_already_do_not_count(tmp_path: Path, placed: list[Put]) -> None:
    last = max(put.physical for put in placed if put.topic == "refunds")
    for segment in sorted((tmp_path / "store" / "commitlog").iterdir()):
        if int(segment.name) <= last:
            segment.unlink()
    stop = (last // CONFIG.segment_bytes + 2) * CONFIG.segment_bytes
    assert ages(tmp_path).newest("refunds", stop) is None
    assert ages(tmp_path).newest("orders", stop) is not None


@pytest.mark.parametrize("side", [0, -1])
def test_damaged_entries_beside_the_place_make_the_age_unknown(tmp_path: Path, placed: list[Put], side: int) -> None:
    stop = 5 * CONFIG.segment_bytes
    number = sum(put.topic == "refunds" and put.physical < stop for put in placed) if side else 0
    queue = tmp_path / "store" / "consumequeue" / ("refunds" if side else "orders") / "0"
    files = sorted(queue.iterdir())
    if not side:
        entries = b"".join(file.read_bytes() for file in files)
        places = [int.from_bytes(entries[at : at + 8], "big") for at in range(0, len(entries), ENTRY)]
        number = next(at for at, place in enumerate(places) if place >= stop)
    at = (number + side) * ENTRY
    file = files[at // (10 * ENTRY)]
    data = bytearray(file.read_bytes())
    data[at % (10 * ENTRY) : at % (10 * ENTRY) + 8] = b"\xff" * 8
    file.write_bytes(data)
    assert ages(tmp_path).newest("refunds" if side else "orders", stop) == UNKNOWN_MS


def test_a_record_that_cannot_be_read_has_an_unknown_age(tmp_path: Path, placed: list[Put]) -> None:
    stop = 5 * CONFIG.segment_bytes
    at = max(put.physical for put in placed if put.topic == "refunds" and put.physical < stop)
    file = tmp_path / "store" / "commitlog" / f"{at - at % CONFIG.segment_bytes:020d}"
    data = bytearray(file.read_bytes())
    data[at % CONFIG.segment_bytes : at % CONFIG.segment_bytes + 8] = bytes(8)
    file.write_bytes(data)
    assert ages(tmp_path).newest("refunds", stop) == UNKNOWN_MS


def test_without_queues_all_ages_are_unknown(tmp_path: Path, placed: list[Put]) -> None:
    (tmp_path / "store" / "consumequeue").rename(tmp_path / "queues")
    assert ages(tmp_path).newest("orders", CONFIG.segment_bytes) == UNKNOWN_MS
