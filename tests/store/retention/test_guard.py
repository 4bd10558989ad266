"""The first message that a protected group has not read."""

from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing, QueueKey, Services, StoreConfig, StoreReader
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.groups import commit_offsets
from segmentlog.store.retention.guard import Guard
from segmentlog.store.retention.state import Unread
from segmentlog.store.retention.survey import StoreFiles

CONFIG = StoreConfig(segment_bytes=4 << 10, queue_segment_entries=10, index=False, services=Services.ON_CALL)
A, B, OTHER = QueueKey("orders", 0), QueueKey("orders", 1), QueueKey("other", 0)


@pytest.fixture
def placed(tmp_path: Path) -> dict[QueueKey, list[int]]:
    """Physical offsets by queue, of a store of sixty messages."""
    found: dict[QueueKey, list[int]] = {A: [], B: [], OTHER: []}
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        for number in range(60):
            key = (A, B, OTHER)[number % 3]
            put = store.append(Outgoing(topic=key.topic, queue_id=key.queue_id, body=bytes(300)))
            found[key].append(put.physical_offset)
    return found


def unread(path: Path, *groups: str, dispatched: int = 1 << 62) -> Unread:
    return Guard(StoreFiles(LocalFileSystem(), str(path)), groups, lambda: dispatched).unread()


def test_the_lowest_of_all_queues_and_groups_counts(tmp_path: Path, placed: dict[QueueKey, list[int]]) -> None:
    path = tmp_path / "store"
    commit_offsets(path, "g", {A: 12, B: 15})
    commit_offsets(path, "h", {OTHER: 5})
    assert unread(path, "g") == (placed[A][12], "group g has read orders/0 up to offset 12")
    assert unread(path, "h") == (placed[OTHER][5], "group h has read other/0 up to offset 5")
    assert unread(path, "g", "h") == unread(path, "h", "g") == unread(path, "h")


def test_a_group_that_has_read_everything_keeps_nothing(tmp_path: Path, placed: dict[QueueKey, list[int]]) -> None:
    path = tmp_path / "store"
    commit_offsets(path, "g", {A: len(placed[A]), B: len(placed[B])})
    assert unread(path, "g").physical_offset == 1 << 62
    assert unread(path, "g", dispatched=77) == (77, "records after it are not in their queues yet")


def test_a_queue_without_an_offset_is_unread(tmp_path: Path, placed: dict[QueueKey, list[int]]) -> None:
    path = tmp_path / "store"
    commit_offsets(path, "g", {A: 12})
    assert unread(path, "g") == (placed[B][0], "group g has read orders/1 up to offset 0")


def test_a_group_without_offsets_keeps_everything(tmp_path: Path, placed: dict[QueueKey, list[int]]) -> None:
    path = tmp_path / "store"
    commit_offsets(path, "g", {A: len(placed[A]), B: len(placed[B])})
    assert unread(path, "g", "typo") == (0, "group typo has no offsets yet")


def test_offsets_that_cannot_be_read_keep_everything(tmp_path: Path, placed: dict[QueueKey, list[int]]) -> None:
    path = tmp_path / "store"
    commit_offsets(path, "g", {A: len(placed[A]), B: len(placed[B])})
    (path / ".segmentlog" / "groups.json").write_text("[]")
    found = unread(path, "g")
    assert found.physical_offset == 0
    assert found.text.startswith("offsets of groups cannot be read: ")


def test_messages_that_are_gone_already_are_not_waited_for(tmp_path: Path, placed: dict[QueueKey, list[int]]) -> None:
    path = tmp_path / "store"
    commit_offsets(path, "g", {A: 0, B: 0})
    for segment in sorted((path / "commitlog").iterdir())[:2]:
        segment.unlink()
    first = StoreReader.open(path).bounds(A).min_offset
    assert first > 0
    start = 2 * CONFIG.segment_bytes
    assert unread(path, "g").physical_offset == min(each for key in (A, B) for each in placed[key] if each >= start)


def test_a_topic_that_was_deleted_keeps_nothing(tmp_path: Path, placed: dict[QueueKey, list[int]]) -> None:
    path = tmp_path / "store"
    commit_offsets(path, "g", {A: len(placed[A]), B: len(placed[B]), OTHER: 3})
    (path / "consumequeue" / "other").rename(tmp_path / "gone")
    assert unread(path, "g").physical_offset == 1 << 62
