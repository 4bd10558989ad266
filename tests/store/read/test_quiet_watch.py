"""A watch of many queues asks the log first: when it may, what that costs, and what it notices all the same."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from segmentlog.store import BatchId, MessageStore, QueueKey, StoreConfig, StoreReader
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.follow import QueueWatch
from segmentlog.store.sink import Staging
from segmentlog.store.write.batch_commit import Publication
from support.telling import batch_of

QUEUES = 100
KEYS = [QueueKey("T", queue_id) for queue_id in range(QUEUES)]
CONFIG = StoreConfig(segment_bytes=32 << 10, queue_segment_entries=40, index=False)
LONG_S = 100.0


class Counting(LocalFileSystem):
    """Counts the files that are opened."""

    opened = 0

    def read(self, path: str, offset: int, count: int) -> bytes:
        self.opened += 1
        return super().read(path, offset, count)

    def read_each(self, pieces: Iterable[tuple[str, int, int]]) -> list[bytes | None]:
        asked = list(pieces)
        self.opened += len(asked)
        return super().read_each(asked)

    def size(self, path: str) -> int | None:
        self.opened += 1
        return super().size(path)


class Quiet:
    """A watch, its clock, and a store that it watches."""

    def __init__(self, store: MessageStore, topic: str | None = None) -> None:
        self.store = store
        self.ends = dict.fromkeys(KEYS, 0)
        self.fs = Counting()
        self.now = 0.0
        reader = StoreReader.open(store.path, fs=self.fs)
        self.watch = QueueWatch(
            reader, lambda name: topic in (None, name), lambda _: True, fs=self.fs, clock=lambda: self.now
        )
        self.look()

    def put(self, *keys: QueueKey, rows: int = 1) -> None:
        self.store.append_batch(batch_of([(key, self.ends.get(key, 0), rows) for key in keys]))
        for key in keys:
            self.ends[key] = self.ends.get(key, 0) + rows
        self.store.wait_dispatched()

    def look(self) -> list[str]:
        """Look, with directories that have not changed for long, unless there is something new in them."""
        for folder in Path(self.store.path).rglob("*"):
            if folder.is_dir():
                names = len(os.listdir(folder))
                os.utime(folder, (names, names))
        return sorted(map(str, self.watch.look().moved))

    def settle(self) -> None:
        """Let time pass, with full looks, until the log is believed."""
        for _ in range(3):
            self.now += LONG_S
            assert self.look() == []

    def cost(self) -> int:
        """Look once: how many files that opens."""
        before = self.fs.opened
        assert self.look() == []
        return self.fs.opened - before


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", CONFIG) as opened:
        opened.append_batch(batch_of([(key, 0, 1) for key in KEYS]))
        opened.wait_dispatched()
        yield opened


@pytest.fixture
def quiet(store: MessageStore) -> Quiet:
    made = Quiet(store)
    made.ends = dict.fromkeys(KEYS, 1)
    return made


def test_a_quiet_look_opens_a_few_files_only(quiet: Quiet) -> None:
    assert quiet.cost() > QUEUES
    quiet.settle()
    assert quiet.cost() < 10
    quiet.now += 4.0
    assert quiet.cost() < 10
    quiet.now += 4.0  # that was long enough to believe it
    assert quiet.cost() > QUEUES
    assert quiet.cost() < 10


def test_not_before_all_must_have_been_dispatched(quiet: Quiet) -> None:
    quiet.settle()
    quiet.put(KEYS[7])
    assert quiet.look() == ["T/7"]
    for _ in range(4):
        assert quiet.cost() > QUEUES
        quiet.now += 0.9
    quiet.now += 1.0
    assert quiet.cost() > QUEUES
    assert quiet.cost() < 10


@pytest.mark.slow
def test_what_is_put_is_seen_at_once_also_over_the_ends_of_segments(quiet: Quiet) -> None:
    segments = set()
    for number in range(50):
        quiet.settle()
        quiet.put(KEYS[number % 9], rows=4 + number % 5)
        assert quiet.look() == [f"T/{number % 9}"]
        assert quiet.watch.ends["T"][number % 9] == quiet.ends[KEYS[number % 9]]
        segments.add(quiet.watch.bounds(KEYS[0]) and len(quiet.watch._reader.log.segments))
    assert len(segments) > 1


def test_topics_that_are_not_watched_do_not_keep_it_busy(store: MessageStore) -> None:
    quiet = Quiet(store, "T")
    quiet.ends = dict.fromkeys(KEYS, 1)
    other = QueueKey("Other", 0)
    quiet.put(other, rows=500)
    for _ in range(9):
        quiet.settle()
    assert quiet.cost() < 10
    quiet.put(other)
    assert quiet.cost() > QUEUES
    quiet.put(KEYS[3])
    assert quiet.look() == ["T/3"]


def test_an_entry_that_comes_late_is_seen_a_little_later(quiet: Quiet) -> None:
    path = Path(quiet.store.path, "consumequeue", "T", "5", "0" * 20)
    quiet.put(KEYS[5])
    entry = path.read_bytes()[20:40]
    with path.open("r+b") as file:
        file.seek(20)
        file.write(bytes(20))
    quiet.now += LONG_S
    quiet.look()
    quiet.settle()
    with path.open("r+b") as file:
        file.seek(20)
        file.write(entry)
    assert quiet.look() == []
    quiet.now += 6.0
    assert quiet.look() == ["T/5"]


def test_a_batch_is_seen_when_it_is_published_however_long_that_takes(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = Publication._publish
    looked = []

    def wait_then_publish(publication: Publication, stop: int) -> None:
        publication._make_visible()
        for _ in range(4):
            quiet.now += LONG_S
            quiet.look()
        before = quiet.fs.opened
        assert quiet.look() == []
        looked.append(quiet.fs.opened - before)
        assert quiet.watch.ends == {"T": dict.fromkeys(range(QUEUES), 1)}
        publish(publication, stop)

    monkeypatch.setattr(Publication, "_publish", wait_then_publish)
    with Staging.open(quiet.store.path, "job", 0, "a", CONFIG) as staging:
        staging.add(batch_of([(key, 1, 1) for key in KEYS[:20]]))
        staged = staging.finish()
    quiet.store.commit_batch(BatchId("q", 0), [staged])
    assert looked[0] < 10, "it was quiet meanwhile"
    assert len(quiet.look()) == 20


def test_a_log_that_was_cut_is_looked_at_in_full(quiet: Quiet) -> None:
    quiet.put(KEYS[8])
    quiet.look()
    quiet.settle()
    assert quiet.cost() < 10
    queue = Path(quiet.store.path, "consumequeue", "T", "8", "0" * 20)
    at = int.from_bytes(queue.read_bytes()[20:28], "big")
    segment = max(s for s in quiet.watch._reader.log.segments if s.base <= at)
    for file, position, count in ((segment.path, at - segment.base, 91), (queue, 20, 20)):
        with open(file, "r+b") as opened:
            opened.seek(position)
            opened.write(bytes(count))
    sighting = quiet.watch.look()
    assert sighting.rewritten == {KEYS[8]}
    assert quiet.watch.ends["T"][8] == 1
    quiet.settle()
    assert quiet.cost() < 10
