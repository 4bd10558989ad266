"""Changes of a written store that a watch notices, and their cost."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing, QueueKey, QueueSource, StoreReader
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.follow import QueueWatch, message_identity
from support import fixtures, store_builder, writing
from support.live_copy import copy_live

Watched = Callable[..., QueueWatch]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", writing.SMALL) as opened:
        yield opened


def put(store: MessageStore, total: int, topic: str = "T", queue: int = 0) -> None:
    for number in range(total):
        store.append(Outgoing(topic=topic, body=b"%d" % number, queue_id=queue))
    store.wait_dispatched()


def watch(path: str | Path, topic: str | None = None, **options: object) -> QueueWatch:
    reader = StoreReader.open(path, **options)
    return QueueWatch(reader, lambda name: topic in (None, name), lambda _: True)


def keys(found: frozenset[QueueKey]) -> list[str]:
    return sorted(map(str, found))


def test_it_sees_what_moved_and_nothing_else(store: MessageStore) -> None:
    put(store, 5)
    put(store, 3, queue=1)
    seen = watch(store.path)
    assert keys(seen.look().moved) == ["T/0", "T/1"]
    assert seen.ends == {"T": {0: 5, 1: 3}}
    assert not seen.look().moved
    put(store, 2, queue=1)
    sighting = seen.look()
    assert keys(sighting.moved) == ["T/1"]
    assert not sighting.rewritten
    assert seen.ends == {"T": {0: 5, 1: 5}}
    assert not seen.look().moved


def test_it_follows_a_queue_over_the_ends_of_its_files(store: MessageStore) -> None:
    seen = watch(store.path)
    for total in range(1, 3 * writing.SMALL.queue_segment_entries + 2):
        put(store, 1)
        assert keys(seen.look().moved) == ["T/0"], total
        assert seen.ends == {"T": {0: total}}
        assert not seen.look().moved
    assert seen.bounds(QueueKey("T", 0)).min_offset == 0


def test_new_topics_and_queues(store: MessageStore) -> None:
    seen = watch(store.path)
    only = watch(store.path, "T")
    assert seen.look().moved == frozenset()
    put(store, 1)
    assert keys(seen.look().moved) == ["T/0"]
    put(store, 1, queue=7)
    put(store, 1, topic="U")
    assert keys(seen.look().moved) == ["T/7", "U/0"]
    assert keys(only.look().moved) == ["T/0", "T/7"]
    assert only.ends == {"T": {0: 1, 7: 1}}


def test_an_old_directory_is_not_listed_again(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, 1)
    for folder in Path(store.path).rglob("*"):
        if folder.is_dir():
            os.utime(folder, (1, 1))
    seen = watch(store.path)
    seen.look()
    listed = []
    monkeypatch.setattr(LocalFileSystem, "list_dir", lambda _, path: listed.append(path))
    assert not seen.look().moved
    assert listed == []


def test_a_deleted_topic_is_gone_and_forgotten(store: MessageStore) -> None:
    put(store, 2)
    put(store, 2, topic="U")
    store.close()
    seen = watch(store.path)
    seen.look()
    shutil.rmtree(Path(store.path, "consumequeue", "U"))
    sighting = seen.look()
    assert (keys(sighting.gone), keys(sighting.moved)) == (["U/0"], [])
    assert seen.ends == {"T": {0: 2}}
    assert not seen.look().gone


def test_a_queue_made_anew_between_two_looks_is_rewritten(store: MessageStore, tmp_path: Path) -> None:
    put(store, 4)
    store.close()
    seen = watch(store.path)
    seen.look()
    with MessageStore.open(tmp_path / "other", writing.SMALL) as other:
        put(other, 1, topic="before")
        put(other, 9)
    for tree in ("consumequeue", "commitlog"):
        shutil.rmtree(Path(store.path, tree))
        shutil.copytree(tmp_path / "other" / tree, Path(store.path, tree))
    sighting = seen.look()
    assert keys(sighting.rewritten) == ["T/0"]
    assert seen.ends["T"] == {0: 9}


def test_retention_moves_the_front_only_for_who_asks(store: MessageStore) -> None:
    for number in range(400):
        store.append(Outgoing(topic="T", body=b"x" * 600, queue_id=number % 2))
    store.close()
    seen = watch(store.path)
    seen.look()
    key = QueueKey("T", 0)
    assert seen.bounds(key).min_offset == 0
    segments = sorted(Path(store.path, "commitlog").iterdir())
    segments[0].unlink()
    assert not seen.look().moved
    assert seen.bounds(key).min_offset > 0
    assert seen.bounds(key) == StoreReader.open(store.path).bounds(key)


def test_a_derived_store_moves_with_its_log(store: MessageStore) -> None:
    put(store, 3)
    seen = watch(store.path, queue_source=QueueSource.COMMIT_LOG)
    assert keys(seen.look().moved) == ["T/0"]
    assert not seen.look().moved
    put(store, 2)
    seen.look()
    assert seen.ends == {"T": {0: 5}}
    assert not seen.look().moved


def test_a_store_that_is_closed_and_opened_again(store: MessageStore) -> None:
    put(store, 3)
    seen = watch(store.path)
    seen.look()
    store.close()
    seen.look()
    assert seen.ends == {"T": {0: 3}}
    with MessageStore.open(store.path, writing.SMALL) as again:
        put(again, 1)
        seen.look()
        assert seen.ends == {"T": {0: 4}}


@pytest.mark.parametrize("name", ["basic-5.3.3", "retention-5.3.3", "time-5.3.3"])
def test_it_agrees_with_a_reader_on_stores_of_rocketmq(name: str, tmp_path: Path) -> None:
    path = fixtures.unpack(name, tmp_path)
    seen = watch(path)
    seen.look()
    reader = StoreReader.open(path)
    bounds = {each.key: each for topic in reader.topics() for each in reader.queues(topic)}
    assert {QueueKey(t, q): end for t, of in seen.ends.items() for q, end in of.items()} == {
        key: each.max_offset for key, each in bounds.items()
    }
    assert {key: seen.bounds(key) for key in bounds} == bounds
    assert not seen.look().moved


@pytest.mark.slow
def test_ten_thousand_queues_of_which_ten_move(tmp_path: Path) -> None:
    """The calls of a look are counted, not timed: one read per unchanged queue, and no list of files."""
    builder = store_builder.StoreBuilder(
        tmp_path / "store", geometry=store_builder.Geometry(segment_bytes=1 << 26, queue_segment_entries=64)
    )
    builder.append(store_builder.messages(10_000, queues=10_000))

    class Counting(LocalFileSystem):
        reads = lists = 0

        def read(self, path: str, offset: int, count: int) -> bytes:
            Counting.reads += 1
            return super().read(path, offset, count)

        def list_dir(self, path: str) -> list[object]:
            Counting.lists += 1
            return super().list_dir(path)

        def read_each(self, pieces: Iterable[tuple[str, int, int]]) -> list[bytes | None]:
            asked = list(pieces)
            Counting.reads += len(asked)
            return super().read_each(asked)

    for folder in (tmp_path / "store").rglob("*"):
        if folder.is_dir():
            os.utime(folder, (1, 1))
    fs = Counting()
    seen = QueueWatch(StoreReader.open(tmp_path / "store", fs=fs), lambda _: True, lambda _: True, fs=fs)
    assert len(seen.look().moved) == 10_000
    builder.append(store_builder.messages(10, queues=10))
    Counting.reads = Counting.lists = 0
    assert len(seen.look().moved) == 10
    assert Counting.reads <= 10_000 + 10 * 12
    assert Counting.lists <= 10 * 4
    builder.close()


@pytest.mark.slow
def test_thousands_of_looks_leave_nothing_open(tmp_path: Path) -> None:
    geometry = store_builder.Geometry(segment_bytes=1 << 22, queue_segment_entries=10_000)
    builder = store_builder.StoreBuilder(tmp_path / "store", geometry=geometry)
    builder.append(store_builder.messages(20, queues=2))
    seen = watch(tmp_path / "store")
    seen.look()
    key = QueueKey("Orders", 0)
    message_identity(StoreReader.open(tmp_path / "store"), key, 0)

    def held() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").count(str(tmp_path))
        return len(os.listdir("/proc/self/fd")), maps

    before = held()
    for number in range(3000):
        if number % 30 == 0:
            builder.append(store_builder.messages(2, queues=2))
        seen.look()
        seen.bounds(key)
    assert held() == before
    assert seen.ends == {"Orders": {0: 110, 1: 110}}
    builder.close()


def test_a_message_in_any_queue_ends_a_wait(store: MessageStore) -> None:
    put(store, 5)
    put(store, 3, queue=1)
    seen = watch(store.path)
    seen.look()
    pauses = []

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 3:
            put(store, 1, queue=1)
        return False

    assert not seen.wait(1000, pause)
    assert len(pauses) == 3
    assert keys(seen.look().moved) == ["T/1"]


@pytest.mark.parametrize("why", ["derived", "many"])
def test_where_tails_do_not_tell_a_wait_takes_as_long_as_asked(
    store: MessageStore, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 5)
    seen = watch(store.path, **({"queue_source": QueueSource.COMMIT_LOG} if why == "derived" else {}))
    if why == "many":
        monkeypatch.setattr("segmentlog.store.read.queue_watch._TAILS_MAX", 0)
    seen.look()
    put(store, 1)
    pauses: list[float] = []
    assert seen.wait(7, lambda seconds: bool(pauses.append(seconds)) or True)
    assert pauses == [7]


def test_the_owner_of_a_live_store_is_looked_for_every_few_seconds_while_nothing_moves(store: MessageStore) -> None:
    now, asked = [0.0], []

    class Asked(LocalFileSystem):
        def lock_owner(self, path: str) -> int | None:
            asked.append(now[0])
            return super().lock_owner(path)

    put(store, 1)
    reader = StoreReader.open(store.path, fs=Asked())
    seen = QueueWatch(reader, lambda _: True, lambda _: True, clock=lambda: now[0])
    seen.look()
    for moment in range(1, 40):
        now[0] = moment / 2
        if now[0] >= 10:  # a queue that moves has a writer
            put(store, 1)
        seen.look()
    assert [moment for moment in asked if moment] == [5.0, 10.0]
    store.close()
    seen.look()
    now[0] += 5
    seen.look()
    assert not reader.is_live
    asked.clear()
    for _ in range(3):
        seen.look()
    assert len(asked) == 3  # a closed store may be opened at any moment


def test_a_file_of_0_bytes_becomes_a_segment(store: MessageStore, tmp_path: Path) -> None:
    size = writing.SMALL.segment_bytes
    while store.end_offset < 2 * size:
        put(store, 1)
    path = copy_live(store.path, tmp_path / "copy")
    last = path / "commitlog" / f"{2 * size:020d}"
    written = last.read_bytes()
    last.write_bytes(b"")
    (path / "abort").unlink()
    os.utime(path / "commitlog", (1, 1))
    seen = watch(path)
    seen.look()
    before = seen.ends["T"][0]
    seen.look()
    assert seen.ends["T"][0] == before
    with last.open("r+b") as file:  # its directory stays the same
        file.write(written)
    assert keys(seen.look().moved) == ["T/0"]
    assert seen.ends["T"][0] > before
