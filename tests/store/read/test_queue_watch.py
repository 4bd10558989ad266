import mmap
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from segmentlog.store import BatchId, MessageStore, Outgoing, QueueKey, QueueSource, Snapshot, StoreConfig
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.follow import QueueWatch, message_identity
from segmentlog.store.read.queue_watch import PAUSE_MAX_S, PAUSE_MIN_S, Piece, QueueTails
from segmentlog.store.sink import Staging
from segmentlog.store.write.batch_commit import Publication
from support import writing
from support.live_copy import copy_live
from support.store_builder import Geometry, StoreBuilder, messages
from support.tampering import WatchedFiles, overwrite, put_at
from support.telling import batch_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", writing.SMALL) as opened:
        yield opened


def put(store: MessageStore, total: int, topic: str = "T", queue: int = 0) -> None:
    for number in range(total):
        store.append(Outgoing(topic=topic, body=b"%d" % number, queue_id=queue))
    store.wait_dispatched()


def watch(path: str | Path, topic: str | None = None, **options: object) -> QueueWatch:
    snapshot = Snapshot.open(path, **options)
    return QueueWatch(snapshot, lambda name: topic in (None, name), lambda _: True)


def keys(found: frozenset[QueueKey]) -> list[str]:
    return sorted(map(str, found))


def test_a_look_reports_only_the_queues_that_moved(store: MessageStore) -> None:
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


@pytest.fixture
def seen(store: MessageStore) -> QueueWatch:
    """A watch that has looked at some messages of T/0."""
    put(store, 4)
    made = watch(store.path)
    made.look()
    return made


def make_old(path: str | Path) -> None:
    """Let directories seem unchanged for long."""
    for folder in Path(path).rglob("*"):
        if folder.is_dir():
            os.utime(folder, (1, 1))


def test_an_old_directory_is_not_listed_again(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, 1)
    make_old(store.path)
    seen = watch(store.path)
    seen.look()
    listed = []
    monkeypatch.setattr(LocalFileSystem, "list_dir", lambda _, path: listed.append(path))
    assert not seen.look().moved
    assert listed == []


def test_a_deleted_topic_is_gone_and_forgotten(store: MessageStore, seen: QueueWatch) -> None:
    put(store, 2, topic="U")
    store.close()
    seen.look()
    shutil.rmtree(Path(store.path, "consumequeue", "U"))
    sighting = seen.look()
    assert (keys(sighting.gone), keys(sighting.moved)) == (["U/0"], [])
    assert seen.ends == {"T": {0: 4}}
    assert not seen.look().gone


def test_a_queue_recreated_between_two_looks_is_reported_as_rewritten(
    store: MessageStore, seen: QueueWatch, tmp_path: Path
) -> None:
    store.close()
    seen.look()
    with MessageStore.open(tmp_path / "other", writing.SMALL) as other:
        put(other, 1, topic="before")
        put(other, 9)
    for tree in ("consumequeue", "commitlog"):
        shutil.rmtree(Path(store.path, tree))
        shutil.copytree(tmp_path / "other" / tree, Path(store.path, tree))
    assert keys(seen.look().rewritten) == ["T/0"]
    assert seen.ends["T"] == {0: 9}


def test_retention_changes_the_bounds_but_no_look_reports_a_move(store: MessageStore) -> None:
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
    assert seen.bounds(key) == Snapshot.open(store.path).bounds(key)


@pytest.mark.parametrize("source", [QueueSource.AUTO, QueueSource.COMMIT_LOG])
def test_a_store_that_is_closed_and_opened_again_moves_on(store: MessageStore, source: QueueSource) -> None:
    put(store, 3)
    seen = watch(store.path, queue_source=source)
    assert keys(seen.look().moved) == ["T/0"]
    assert not seen.look().moved
    put(store, 2)
    for close in (bool, store.close):
        close()
        seen.look()
        assert seen.ends == {"T": {0: 5}}
        assert not seen.look().moved
    with MessageStore.open(store.path, writing.SMALL) as again:
        put(again, 1)
        seen.look()
        assert seen.ends == {"T": {0: 6}}


def test_a_batch_is_seen_when_it_is_published_if_the_log_has_all_queues(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 1)
    seen = watch(store.path, queue_source=QueueSource.COMMIT_LOG)
    seen.look()
    publish = Publication._publish

    def look_then_publish(publication: Publication, stop: int) -> None:
        publication._make_visible()
        seen.look()
        assert seen.ends == {"T": {0: 1}}
        publish(publication, stop)

    monkeypatch.setattr(Publication, "_publish", look_then_publish)
    with Staging.open(store.path, "job", 0, "a", writing.SMALL) as staging:
        staging.add(batch_of([(QueueKey("T", 0), 1, 2)]))
        staged = staging.finish()
    store.commit_batch(BatchId("q", 0), [staged])
    assert keys(seen.look().moved) == ["T/0"]
    assert seen.ends == {"T": {0: 3}}


def test_hundreds_of_looks_leave_nothing_open(tmp_path: Path) -> None:
    geometry, key = Geometry(segment_bytes=1 << 22, queue_segment_entries=10_000), QueueKey("Orders", 0)
    builder = StoreBuilder(tmp_path / "store", geometry=geometry)
    builder.append(messages(20, queues=2))
    seen = watch(tmp_path / "store")
    seen.look()
    message_identity(Snapshot.open(tmp_path / "store"), key, 0)

    def held() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").count(str(tmp_path))
        return len(os.listdir("/proc/self/fd")), maps

    before = held()
    for number in range(300):
        if number % 30 == 0:
            builder.append(messages(2, queues=2))
        seen.look()
        seen.bounds(key)
    assert held() == before
    assert seen.ends == {"Orders": {0: 20, 1: 20}}
    builder.close()


def test_a_message_in_any_queue_ends_a_wait(store: MessageStore, seen: QueueWatch) -> None:
    put(store, 3, queue=1)
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


def test_a_store_that_is_closed_and_opened_is_live_at_the_next_look(store: MessageStore) -> None:
    put(store, 1)
    seen = QueueWatch(Snapshot.open(store.path), lambda _: True, lambda _: True)
    seen.look()
    assert seen.snapshot.is_live
    store.close()
    seen.look()
    assert not seen.snapshot.is_live
    with MessageStore.open(store.path, writing.SMALL):
        seen.look()
        assert seen.snapshot.is_live


def test_a_file_of_0_bytes_becomes_a_segment(store: MessageStore, tmp_path: Path) -> None:
    size = writing.SMALL.segment_bytes
    while store.end_offset < 2 * size:
        store.append(Outgoing(topic="T", body=bytes(1000), queue_id=0))
    store.wait_dispatched()
    path = copy_live(store.path, tmp_path / "copy")
    last = path / "commitlog" / f"{2 * size:020d}"
    written = last.read_bytes()
    last.write_bytes(b"")
    (path / "abort").unlink()
    make_old(path)
    seen = watch(path)
    seen.look()
    before = seen.ends["T"][0]
    seen.look()
    assert seen.ends["T"][0] == before
    put_at(last, 0, written)  # its directory stays the same
    assert keys(seen.look().moved) == ["T/0"]
    assert seen.ends["T"][0] > before


QUEUES = 100
KEYS = [QueueKey("T", queue_id) for queue_id in range(QUEUES)]
CONFIG = StoreConfig(segment_bytes=32 << 10, queue_segment_entries=40, index=False)
LONG_S = 100.0


class SizedFiles(WatchedFiles):
    """Counts the files that are opened."""

    def size(self, path: str) -> int | None:
        self.calls["size"] += 1
        return super().size(path)

    @property
    def opened(self) -> int:
        return self.calls["read"] + self.calls["size"]


class Quiet:
    """A watch, its clock, and a store that it watches."""

    def __init__(self, quiet_store: MessageStore, topic: str | None = None) -> None:
        self.store = quiet_store
        self.ends = dict.fromkeys(KEYS, 0)
        self.fs = SizedFiles()
        self.now = 0.0
        snapshot = Snapshot.open(quiet_store.path, fs=self.fs)
        self.watch = QueueWatch(
            snapshot, lambda name: topic in (None, name), lambda _: True, fs=self.fs, clock=lambda: self.now
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
        before = self.fs.opened
        assert self.look() == []
        return self.fs.opened - before


@pytest.fixture
def quiet_store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "quiet_store", CONFIG) as opened:
        opened.append_batch(batch_of([(key, 0, 1) for key in KEYS]))
        opened.wait_dispatched()
        yield opened


@pytest.fixture
def quiet(quiet_store: MessageStore) -> Quiet:
    made = Quiet(quiet_store)
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
    quiet.put(KEYS[7])
    assert quiet.look() == ["T/7"]
    for pause in (0.9, 0.9, 0.9, 1.9, 0):  # not before all must have been dispatched
        assert quiet.cost() > QUEUES
        quiet.now += pause
    assert quiet.cost() < 10


@pytest.mark.slow
def test_appended_messages_are_seen_by_the_next_look_across_segment_ends(quiet: Quiet) -> None:
    segments = set()
    for number in range(12):
        quiet.settle()
        quiet.put(KEYS[number % 9], rows=16 + number % 5)
        assert quiet.look() == [f"T/{number % 9}"]
        assert quiet.watch.ends["T"][number % 9] == quiet.ends[KEYS[number % 9]]
        segments.add(quiet.watch.bounds(KEYS[0]) and len(quiet.watch.snapshot.log.segments))
    assert len(segments) > 1


def test_topics_that_are_not_watched_do_not_keep_it_busy(quiet_store: MessageStore) -> None:
    quiet = Quiet(quiet_store, "T")
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
    put_at(path, 20, bytes(20))
    quiet.now += LONG_S
    quiet.look()
    quiet.settle()
    put_at(path, 20, entry)
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
    overwrite(Path(quiet.store.path), int.from_bytes(queue.read_bytes()[20:28], "big"), bytes(91))
    put_at(queue, 20, bytes(20))
    assert quiet.watch.look().rewritten == {KEYS[8]}
    assert quiet.watch.ends["T"][8] == 1
    quiet.settle()
    assert quiet.cost() < 10


KEY, OTHER = QueueKey("T", 0), QueueKey("T", 1)
WAIT_S = 1000.0
ENTRY = bytes(range(1, 21))


class Tails:
    """Tails of a file, a clock that pauses move on, and what happens in the first pause."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "00000000000000000000")
        Path(self.path).write_bytes(bytes(1 << 18))
        self.now = 0.0
        self.pauses: list[float] = []
        self.event: Callable[[], object] = bool
        self.fs = WatchedFiles()
        self.tails = QueueTails(self.fs, lambda: self.now)

    def at(self, position: int, length: int = 20, still: bytes | None = bytes(20)) -> Piece:
        return Piece(self.path, position, length, still, begins_with_last=False)

    def place(self, *positions: int) -> None:
        for position in positions:
            self.tails.place({KEY: [self.at(position)]})

    def write(self, position: int, data: bytes = ENTRY) -> None:
        with open(self.path, "rb+", buffering=0) as file:
            os.pwrite(file.fileno(), data, position)

    def _pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.now += seconds
        event, self.event = self.event, bool
        event()
        return False

    def wait(self, limit_s: float = WAIT_S) -> float:
        began, self.pauses = self.now, []
        assert not self.tails.wait(limit_s, self._pause)
        return self.now - began


@pytest.fixture
def tails(tmp_path: Path) -> Tails:
    return Tails(tmp_path)


def mapped_store(tails: Tails) -> None:
    with open(tails.path, "rb+") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[20:40] = ENTRY


def test_a_change_of_any_byte_ends_the_wait_at_once_however_it_is_written(tmp_path: Path) -> None:
    one_byte = [lambda tails, index=index: tails.write(20 + index, b"\1") for index in range(20)]
    for number, write in enumerate((lambda tails: tails.write(20), mapped_store, *one_byte)):
        (tmp_path / str(number)).mkdir()
        tails = Tails(tmp_path / str(number))
        tails.place(20)
        tails.event = lambda write=write, tails=tails: write(tails)
        assert tails.wait() == PAUSE_MIN_S
    tails.place(40)
    tails.write(40)
    assert tails.wait() == 0
    assert not tails.pauses


def test_a_change_is_reported_once_and_the_next_one_again_at_its_place(tails: Tails) -> None:
    tails.place(20)
    tails.write(20, b"\1")
    assert tails.wait() == 0
    tails.place(20)  # a look that found nothing: the entry is hidden, or half written
    assert tails.wait(2) == pytest.approx(2)
    tails.write(20)
    assert tails.wait() == 0
    tails.tails.place({KEY: [tails.at(20, 40, ENTRY + bytes(20))]})
    assert tails.wait(1) == pytest.approx(1)
    tails.write(40)
    assert tails.wait() == 0


def test_a_queue_has_two_tails_at_the_end_of_a_file_and_none_when_it_is_gone(tails: Tails) -> None:
    last, following = tails.at(20, still=ENTRY), tails.at(1 << 16)
    tails.write(20)
    tails.tails.place({KEY: [last, following], OTHER: [tails.at(60)]})
    tails.write(1 << 16)
    assert tails.wait() == 0
    tails.tails.place({KEY: ()})
    tails.write(20, bytes(20))
    assert tails.wait(1) == pytest.approx(1)
    tails.write(60)
    assert tails.wait() == 0


@pytest.mark.parametrize("lacks", ["no file yet", "deleted", "shorter"])
def test_a_file_that_is_not_there_is_left_to_the_next_look(tails: Tails, lacks: str) -> None:
    piece = tails.at(20, still=None if lacks == "no file yet" else bytes(20))
    if lacks == "deleted":
        os.unlink(tails.path)
    if lacks == "shorter":
        os.truncate(tails.path, 30)
    tails.tails.place({KEY: [piece]})
    assert tails.wait(1) == pytest.approx(1)


def test_pauses_grow_while_nothing_comes_and_are_short_again_after_a_change(tails: Tails) -> None:
    tails.place(20)
    tails.wait(0.05)
    assert set(tails.pauses[:-1]) == {PAUSE_MIN_S}
    tails.wait(10)
    assert tails.pauses[:-1] == sorted(tails.pauses[:-1])
    assert tails.pauses[-2] == PAUSE_MAX_S
    assert [tails.wait(limit) for limit in (0.0005, 0)] == [pytest.approx(0.0005), 0], "the limit is kept"
    assert tails.tails.wait(WAIT_S, lambda _: True), "a pause ends the wait"
    tails.write(20)
    assert tails.wait() == 0
    tails.place(40)
    tails.wait(0.05)
    assert set(tails.pauses[:-1]) == {PAUSE_MIN_S}
