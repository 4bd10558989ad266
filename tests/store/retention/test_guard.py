import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from segmentlog.store import MessageStore, Outgoing, QueueKey, Services, Snapshot, StoreConfig
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.groups import commit_offsets
from segmentlog.store.retention.guard import Guard, TopicAges
from segmentlog.store.retention.state import UNKNOWN_MS, Unread
from segmentlog.store.retention.survey import StoreFiles
from support.tampering import WatchedFiles, overwrite, put_at, segments

CONFIG = StoreConfig(segment_bytes=4 << 10, queue_segment_entries=10, index=False, services=Services.ON_CALL)
A, B, OTHER = QueueKey("orders", 0), QueueKey("orders", 1), QueueKey("other", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def placed(path: Path) -> dict[QueueKey, list[int]]:
    found: dict[QueueKey, list[int]] = {A: [], B: [], OTHER: []}
    with MessageStore.open(path, CONFIG) as store:
        for number in range(60):
            key = (A, B, OTHER)[number % 3]
            put = store.append(Outgoing(topic=key.topic, queue_id=key.queue_id, body=bytes(300)))
            found[key].append(put.physical_offset)
    return found


def unread(path: Path, *groups: str, dispatched: int = 1 << 62) -> Unread:
    return Guard(StoreFiles(LocalFileSystem(), str(path)), groups, lambda: dispatched).unread()


def test_the_lowest_of_all_queues_and_groups_counts(path: Path, placed: dict[QueueKey, list[int]]) -> None:
    commit_offsets(path, "g", {A: 12})
    assert unread(path, "g") == (placed[B][0], "group g has read orders/1 up to offset 0")
    commit_offsets(path, "g", {A: 12, B: 15})
    commit_offsets(path, "h", {OTHER: 5})
    assert unread(path, "g") == (placed[A][12], "group g has read orders/0 up to offset 12")
    assert unread(path, "h") == (placed[OTHER][5], "group h has read other/0 up to offset 5")
    assert unread(path, "g", "h") == unread(path, "h", "g") == unread(path, "h")


def test_a_group_that_has_read_everything_keeps_nothing_unless_offsets_are_missing(
    path: Path, tmp_path: Path, placed: dict[QueueKey, list[int]]
) -> None:
    commit_offsets(path, "g", {A: len(placed[A]), B: len(placed[B])})
    assert unread(path, "g").physical_offset == 1 << 62
    assert unread(path, "g", dispatched=77) == (77, "records after it are not in their queues yet")
    assert unread(path, "g", "typo") == (0, "group typo has no offsets yet")
    commit_offsets(path, "g", {OTHER: 3})
    assert unread(path, "g").physical_offset == placed[OTHER][3]
    (path / "consumequeue" / "other").rename(tmp_path / "gone")
    assert unread(path, "g").physical_offset == 1 << 62, "a topic that was deleted keeps nothing"
    (path / ".segmentlog" / "groups.json").write_text("[]")
    found = unread(path, "g")
    assert found.physical_offset == 0
    assert found.text.startswith("offsets of groups cannot be read: ")


def test_messages_that_are_gone_already_are_not_waited_for(path: Path, placed: dict[QueueKey, list[int]]) -> None:
    commit_offsets(path, "g", {A: 0, B: 0})
    for segment in segments(path)[:2]:
        segment.unlink()
    assert Snapshot.open(path).bounds(A).min_offset > 0
    start = 2 * CONFIG.segment_bytes
    assert unread(path, "g").physical_offset == min(each for key in (A, B) for each in placed[key] if each >= start)


# Store times of the newest messages of topics below a physical offset


NOW = 1_763_700_000_000
STEP = 1000
ENTRY = 20


class Put(NamedTuple):
    topic: str
    physical: int
    store_ms: int


@pytest.fixture
def puts(tmp_path: Path) -> list[Put]:
    rng, now, found = random.Random(7), NOW, []
    with MessageStore.open(tmp_path / "store", CONFIG, clock=lambda: now) as store:
        for number in range(200):
            key = QueueKey("orders", rng.randrange(3)) if number >= 50 or rng.random() < 0.9 else QueueKey("refunds", 0)
            put = store.append(Outgoing(topic=key.topic, queue_id=key.queue_id, body=bytes(rng.randrange(400))))
            found.append(Put(key.topic, put.physical_offset, now))
            now += STEP
    return found


def ages(tmp_path: Path, dispatched: Callable[[], int] = lambda: 1 << 62) -> TopicAges:
    return TopicAges(StoreFiles(LocalFileSystem(), str(tmp_path / "store")), dispatched)


def test_the_newest_message_below_each_end_of_a_segment_is_found(tmp_path: Path, puts: list[Put]) -> None:
    found = ages(tmp_path)
    ends = range(CONFIG.segment_bytes, puts[-1].physical + CONFIG.segment_bytes, CONFIG.segment_bytes)
    assert len(ends) > 10
    for topic in ("orders", "refunds", "none"):
        for stop in ends:
            below = [put.store_ms for put in puts if put.topic == topic and put.physical < stop]
            assert found.newest(topic, stop) == (max(below) if below else None), (topic, stop)


def test_known_ages_are_cached_and_unknown_ages_are_not(tmp_path: Path, puts: list[Put]) -> None:
    fs, reached, stop = WatchedFiles(), [0], 5 * CONFIG.segment_bytes
    found = TopicAges(StoreFiles(fs, str(tmp_path / "store")), lambda: reached[0])
    assert found.newest("orders", stop) == UNKNOWN_MS
    reached[0] = stop
    newest = found.newest("orders", stop)
    assert newest == max(put.store_ms for put in puts if put.topic == "orders" and put.physical < stop)
    reads = fs.calls["read"]
    assert 3 <= reads <= 60
    assert found.newest("orders", stop) == newest
    assert fs.calls["read"] == reads


def test_messages_that_are_deleted_already_do_not_count(tmp_path: Path, puts: list[Put]) -> None:
    last = max(put.physical for put in puts if put.topic == "refunds")
    for segment in sorted((tmp_path / "store" / "commitlog").iterdir()):
        if int(segment.name) <= last:
            segment.unlink()
    stop = (last // CONFIG.segment_bytes + 2) * CONFIG.segment_bytes
    assert ages(tmp_path).newest("refunds", stop) is None
    assert ages(tmp_path).newest("orders", stop) is not None


@pytest.mark.parametrize("side", [0, -1])
def test_damaged_entries_beside_the_place_make_the_age_unknown(tmp_path: Path, puts: list[Put], side: int) -> None:
    stop = 5 * CONFIG.segment_bytes
    number = sum(put.topic == "refunds" and put.physical < stop for put in puts) if side else 0
    queue = tmp_path / "store" / "consumequeue" / ("refunds" if side else "orders") / "0"
    files = sorted(queue.iterdir())
    if not side:
        entries = b"".join(file.read_bytes() for file in files)
        places = [int.from_bytes(entries[at : at + 8], "big") for at in range(0, len(entries), ENTRY)]
        number = next(at for at, place in enumerate(places) if place >= stop)
    at = (number + side) * ENTRY
    put_at(files[at // (10 * ENTRY)], at % (10 * ENTRY), b"\xff" * 8)
    assert ages(tmp_path).newest("refunds" if side else "orders", stop) == UNKNOWN_MS


def test_ages_are_unknown_without_the_record_or_the_queues(tmp_path: Path, puts: list[Put]) -> None:
    stop = 5 * CONFIG.segment_bytes
    at = max(put.physical for put in puts if put.topic == "refunds" and put.physical < stop)
    overwrite(tmp_path / "store", at, bytes(8))
    assert ages(tmp_path).newest("refunds", stop) == UNKNOWN_MS
    (tmp_path / "store" / "consumequeue").rename(tmp_path / "queues")
    assert ages(tmp_path).newest("orders", CONFIG.segment_bytes) == UNKNOWN_MS
