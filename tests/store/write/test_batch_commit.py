import errno
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from segmentlog.store import (
    BatchGapError,
    BatchId,
    ChangedReplayError,
    CommittedBatch,
    ConfigError,
    Flush,
    FormatError,
    MessageStore,
    NoSpaceError,
    OnChangedReplay,
    Outgoing,
    QueueKey,
    QueueSource,
    QueueSpan,
    Services,
    Snapshot,
    StoreClosedError,
    StoreConfig,
    StoreFailedError,
)
from segmentlog.store.dispatch.dispatcher import Dispatcher, DispatchRequest
from segmentlog.store.encode.message import encode_message
from segmentlog.store.entries import choose
from segmentlog.store.entries.missing import find_undispatched_tail
from segmentlog.store.errors import Remedy
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.files.writable_fs import WritableFileSystem
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.format.ledger import LOST, Application, Ledger, LedgerEntry
from segmentlog.store.format.store_paths import StorePaths
from segmentlog.store.log.batch_state import BatchRecords
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.sink import Staged, Staging
from segmentlog.store.write.batch_commit import CommitPipeline, find_replay
from segmentlog.store.write.put_path import AheadPiece, PutPath
from support.batches import batch_of, stage_messages
from support.interrupting import own_threads
from support.live_copy import copy_live
from support.parted_store import PartedStore
from support.reading import read
from support.written_stores import SMALL

SPANS = (QueueSpan("T", 0, 0, 4, 5),)


def entry(version: int) -> LedgerEntry:
    start = version * 1000
    return LedgerEntry(
        version=version,
        sequence=version + 1,
        start=start,
        stop=start + 900,
        rows=5,
        bytes=900,
        committed_ms=1_000 + version,
        digest=77,
    )


def ledger(*versions: int) -> Ledger:
    made = Ledger()
    for version in versions:
        made = made.with_entry("q", entry(version), SPANS)
    return made


def find(
    batch_id: BatchId,
    rows: int = 5,
    digest: int = 77,
    *,
    on_changed: OnChangedReplay = OnChangedReplay.FAIL,
    known: Ledger | None = None,
) -> CommittedBatch | None:
    return find_replay(known or ledger(6, 7), batch_id, rows, digest, on_changed=on_changed, path="/s")


def test_queues_are_known_of_the_newest_batch_alone() -> None:
    assert find(BatchId("q", 6)) == CommittedBatch.of("q", entry(6), (), repeated=True)


def test_a_digest_that_an_old_ledger_lacks_is_not_compared(caplog: pytest.LogCaptureFixture) -> None:
    known = Ledger().with_entry("q", entry(7)._replace(digest=None), SPANS)
    assert find(BatchId("q", 7), digest=0xABC, known=known) is not None
    assert caplog.records == []


def test_a_forgotten_batch_is_refused_where_numbers_are_contiguous() -> None:
    with pytest.raises(ChangedReplayError, match="the ledger no longer has the number"):
        find(BatchId("q", 2, contiguous=True))
    for batch_id, on_changed in (
        (BatchId("q", 2, contiguous=True), OnChangedReplay.SKIP),
        (BatchId("q", 2), OnChangedReplay.FAIL),
    ):
        found = find(batch_id, on_changed=on_changed)
        assert found is not None
        assert (found.version, found.rows, found.bytes, found.start, found.stop) == (2, 0, 0, 7900, 7900)
        assert found.queues == ()
        assert found.repeated


@pytest.mark.parametrize("app", ["", "a\nb", "\ud800", "x" * 256])
def test_a_name_that_no_ledger_can_have_is_refused(app: str) -> None:
    with pytest.raises(ConfigError, match=r"name of the application .*Choose another name"):
        BatchId(app)


@pytest.mark.parametrize("version", [-1, (1 << 62) + 1])
def test_a_number_that_no_ledger_can_have_is_refused(version: int) -> None:
    with pytest.raises(ConfigError, match="is not between 0 and"):
        BatchId("q", version)


@pytest.mark.parametrize(
    ("newest", "version", "epoch", "is_gap"),
    [
        (None, 7, 0, False),  # a stream that wrote elsewhere
        (None, 0, 3, False),
        (None, 1, 3, True),
        ((4, LOST), 4, 3, False),
        ((4, LOST), 5, 3, True),
        ((4, 9), 5, 3, False),
        ((4, 9), 6, 0, True),
    ],
)
def test_a_stream_is_told_of_batches_that_a_store_lost(
    newest: tuple[int, int] | None, version: int, epoch: int, is_gap: bool, caplog: pytest.LogCaptureFixture
) -> None:
    found = Ledger()
    if newest is not None:
        last = LedgerEntry(newest[0], 1, 100, 100 if newest[1] == LOST else 190, newest[1], 0, 0)
        found = Ledger(1, {"q": Application((last,), ())})
    batch = BatchId("q", version, contiguous=True)
    for on_changed in OnChangedReplay:
        refused = is_gap and (newest is not None or on_changed is OnChangedReplay.FAIL)
        with pytest.raises(BatchGapError, match=f"batch {version} of q ") if refused else nullcontext() as raised:
            assert find_replay(found, batch, 5, 0, on_changed=on_changed, path="s", epoch=epoch) is None
        assert raised is None or (Remedy.NEW_APP in raised.value.remedies) == (newest is not None)
    assert ("has none of these" in caplog.text) == (is_gap and newest is None)
    job = BatchId("q", version)
    assert find_replay(found, job, 5, 0, on_changed=OnChangedReplay.FAIL, path="", epoch=epoch) is None


WAIT_S = 300


def threads() -> set[str]:
    names = {thread.name.rpartition("_")[0] for thread in own_threads()}
    return names & {"segmentlog-prefetch", "segmentlog-aside", "segmentlog-put", "segmentlog-sync"}


@pytest.fixture(autouse=True)
def _no_thread_of_a_commit_is_left() -> Iterator[None]:
    yield
    assert threads() == set()


def test_items_are_written_at_the_same_time_and_few_of_them_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    both = threading.Barrier(2)
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(20):
            taken.append(item)
            yield item

    with CommitPipeline(is_threaded=True) as pipeline:
        for item, _ in pipeline.written(items(), lambda _: both.wait(WAIT_S)):
            assert len(taken) <= item + 3


@pytest.mark.parametrize("is_threaded", [False, True])
def test_an_error_of_a_call_aside_is_raised_by_a_later_call(is_threaded: bool) -> None:
    def fail() -> None:
        raise OSError("release")

    with CommitPipeline(is_threaded=is_threaded) as pipeline, pytest.raises(OSError, match="release"):  # noqa: PT012
        for _ in range(9):
            pipeline.run_aside(fail)


HELLO = Outgoing(topic="Orders", body=b"hello")
BACKGROUND = replace(SMALL, services=Services.BACKGROUND)


@pytest.fixture
def store(path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(path, SMALL) as opened:
        yield opened


def stage(path: Path, *tasks: int, job: str = "job", config: StoreConfig = SMALL) -> list[Staged]:
    staged = []
    for number, rows in enumerate(tasks):
        with Staging.open(path, job, number, "a", config) as staging:
            rows_of = [
                Outgoing(topic="Orders", body=f"{job} {number} {row}".encode(), queue_id=row % 2) for row in range(rows)
            ]
            staging.add(batch_of(rows_of))
            staged.append(staging.finish())
    return staged


def commit(
    store: MessageStore,
    version: int,
    *tasks: int,
    app: str | None = "q",
    job: str = "job",
    on_changed_replay: OnChangedReplay = OnChangedReplay.FAIL,
) -> CommittedBatch:
    batch_id = BatchId(app, version, contiguous=True)
    return store.commit_batch(batch_id, stage(Path(store.path), *tasks, job=job), on_changed_replay=on_changed_replay)


def bodies(path: Path, topic: str = "Orders") -> list[bytes]:
    snapshot = Snapshot.open(path)
    rows = sorted(read(snapshot), key=lambda row: (row["queueId"], row["queueOffset"]))
    return [row["body"] for row in rows if row["topic"] == topic]


def refuses_everything(store: MessageStore) -> None:
    for act in (lambda: store.append(HELLO), store.close):
        with pytest.raises(StoreFailedError):
            act()


def mark(path: Path) -> BatchMark:
    return BatchRecords(LocalFileSystem(), str(path)).mark()


def test_all_rows_are_there_in_the_order_of_the_tasks(store: MessageStore, path: Path) -> None:
    store.append(HELLO)
    committed = commit(store, 0, 5, 0, 4)
    assert committed.queues == (QueueSpan("Orders", 0, 1, 5, 5), QueueSpan("Orders", 1, 0, 3, 4))
    assert (committed.app, committed.version, committed.rows, committed.repeated) == ("q", 0, 9, False)
    assert committed.stop == store.end_offset == store.flushed_offset
    assert committed.bytes == committed.stop - committed.start
    even = [f"job 0 {row}".encode() for row in (0, 2, 4)] + [f"job 2 {row}".encode() for row in (0, 2)]
    odd = [f"job 0 {row}".encode() for row in (1, 3)] + [f"job 2 {row}".encode() for row in (1, 3)]
    assert bodies(path) == [b"hello", *even, *odd]
    assert list(Path(StorePaths(str(path)).staging).iterdir()) == []


def test_a_replay_with_another_number_of_rows_is_refused_or_skipped(
    store: MessageStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    commit(store, 0, 3)
    with pytest.raises(ChangedReplayError, match="batch 0 of q has 8 rows, and had 3 rows when it was") as raised:
        commit(store, 0, 8)
    assert set(raised.value.remedies) == {Remedy.NEW_APP, Remedy.SKIP_CHANGED_REPLAY}
    with pytest.raises(ChangedReplayError, match="has 0 rows, and had 3 rows"):
        commit(store, 0)
    with caplog.at_level(logging.WARNING):
        again = commit(store, 0, 8, job="skipped", on_changed_replay=OnChangedReplay.SKIP)
    assert (again.repeated, again.rows) == (True, 3)
    assert "batch 0 of q has 8 rows, and had 3 rows when it was committed" in caplog.text
    assert len(bodies(path)) == 3
    assert not commit(store, 1, 2, job="next").repeated  # a refused replay changed nothing


@pytest.mark.parametrize("on_changed_replay", OnChangedReplay)
def test_a_replay_with_other_bodies_is_skipped_with_both_digests(
    store: MessageStore, path: Path, caplog: pytest.LogCaptureFixture, on_changed_replay: OnChangedReplay
) -> None:
    (before,) = stage(path, 5)
    store.commit_batch(BatchId("q", 0, contiguous=True), [before])
    (after,) = stage(path, 5, job="other")
    with caplog.at_level(logging.WARNING):
        again = store.commit_batch(BatchId("q", 0, contiguous=True), [after], on_changed_replay=on_changed_replay)
    assert again.repeated
    assert len(bodies(path)) == 5
    assert f"{before.digest:016x}" in caplog.text
    assert f"{after.digest:016x}" in caplog.text


def test_the_same_rows_in_other_tasks_are_the_same_batch(
    store: MessageStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [Outgoing(topic="Orders", body=b"%d" % number, queue_id=number % 3) for number in range(10)]

    def staged(attempt: str, *parts: list[Outgoing]) -> list[Staged]:
        done = []
        for number, part in enumerate(parts):
            done.append(stage_messages(path, part, SMALL, job=attempt, partition=number))
        return done

    store.commit_batch(BatchId("q", 0), staged("one", rows))
    shuffled = [replace(row, queue_id=0, born_timestamp=5, uniq_key=f"K{at}") for at, row in enumerate(rows[::-1])]
    with caplog.at_level(logging.WARNING):
        assert store.commit_batch(BatchId("q", 0), staged("two", shuffled[:3], shuffled[3:])).repeated
    assert "digest" not in caplog.text


def test_a_batch_without_rows_counts(store: MessageStore, path: Path) -> None:
    empty = commit(store, 0)
    assert (empty.rows, empty.bytes, empty.start, empty.queues) == (0, 0, empty.stop, ())
    assert commit(store, 0, 0).repeated
    assert not commit(store, 1, 1).repeated
    assert len(bodies(path)) == 1


def test_a_replay_of_a_batch_that_the_log_lost_does_not_wait_for_it(path: Path) -> None:
    with MessageStore.open(path, SMALL) as store:
        first = commit(store, 0, 5)
    shutil.rmtree(path / "commitlog")
    shutil.rmtree(path / "consumequeue")
    (path / ".segmentlog" / "durable").unlink()
    with MessageStore.open(path, SMALL) as store:
        assert commit(store, 0, 5) == replace(first, repeated=True)


# Readers while it is appended


class Pause:
    """Holds a batch after its first piece until the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        real = PutPath.append_ahead

        def append_ahead(path: PutPath, piece: AheadPiece, request: DispatchRequest) -> None:
            real(path, piece, request)
            self.reached.set()
            assert self.go_on.wait(30)

        monkeypatch.setattr(PutPath, "append_ahead", append_ahead)

    @contextmanager
    def held(self, act: Callable[[], object]) -> Iterator[None]:
        """Run a commit in a thread; it is held while the body runs, and has ended afterwards."""
        worker = threading.Thread(target=act)
        worker.start()
        assert self.reached.wait(30)
        yield
        self.go_on.set()
        worker.join(300)


@pytest.mark.scaled(quick=3)
@pytest.mark.parametrize("source", QueueSource)
@pytest.mark.parametrize("flush", Flush)
def test_readers_see_all_of_it_or_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, source: QueueSource, flush: Flush
) -> None:
    config = StoreConfig(segment_bytes=1 << 16, queue_segment_entries=16, index_slots=20, index_entries=60, flush=flush)
    with PartedStore.open(path, config) as store:
        store.append_batch(pa.record_batch({"topic": ["Orders"] * 3, "body": [b"x", b"y", b"z"]}))
        store.wait_dispatched()
        begun = Snapshot.open(path, queue_source=source)
        before = begun.bounds(QueueKey("Orders", 0))
        pause = Pause(monkeypatch)
        staged = stage(path, 5, 5, 5, config=config)
        with pause.held(lambda: store.commit_batch(BatchId("q", 0), staged)):
            store.parts.housekeeping.dispatch(at_once=True)  # its entries are in the queues by now
            assert len(list((path / "consumequeue" / "Orders" / "1").iterdir())) == 1
            during = Snapshot.open(path, queue_source=source)
            assert during.bounds(QueueKey("Orders", 0)) == before
            assert len(during.bounds(QueueKey("Orders", 1))) == 0
            assert during.message_at(store.end_offset - 100) is None
            hidden = mark(path)
            assert hidden.in_flight
            assert during.message_at(hidden.start) is None
        # A reader from before still sees the same; a new one sees all of it.
        assert len(begun.bounds(QueueKey("Orders", 1))) == 0
        assert len(during.bounds(QueueKey("Orders", 1))) == 0
        after = Snapshot.open(path, queue_source=source)
        assert (len(after.bounds(QueueKey("Orders", 0))), len(after.bounds(QueueKey("Orders", 1)))) == (12, 6)
        during = during.newer()
        assert len(during.bounds(QueueKey("Orders", 1))) == 6
        assert during.message_at(hidden.start) is not None


def test_batches_that_come_while_a_reader_looks_hide_nothing_that_was_there(path: Path) -> None:
    """Messages between two batches were seen before, and no queue ends earlier than at the look before."""
    queue = QueueKey("Orders", 0)
    with MessageStore.open(path, SMALL) as store:
        commit(store, 0, 4)
        store.append(HELLO)
        store.wait_dispatched()
        snapshot = Snapshot.open(path)
        ends = {each.key: each.max_offset for topic in snapshot.topics() for each in snapshot.queues(topic)}
        assert queue in ends
        snapshot = snapshot.newer()  # its first look; the queues are looked at after the batches
        for number in range(1, 4):
            commit(store, number, 4)
            store.append(HELLO)
        store.wait_dispatched()
        assert {each.key: each.max_offset for topic in snapshot.topics() for each in snapshot.queues(topic)} == ends


def test_a_store_that_is_opened_while_its_crash_is_looked_at(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(path, SMALL) as store:
        commit(store, 0, 4)
        crashed = copy_live(path, tmp_path / "crashed")
    staged = stage(crashed, 6, 6)
    pause = Pause(monkeypatch)
    workers: list[threading.Thread] = []

    def commit_meanwhile() -> None:
        with MessageStore.open(crashed, SMALL) as opened:
            opened.commit_batch(BatchId("q", 1), staged)

    def find(log: CommitLog, *arguments: Any, **limits: Any) -> Any:
        workers.append(threading.Thread(target=commit_meanwhile))
        workers[0].start()
        assert pause.reached.wait(30)
        return find_undispatched_tail(log, *arguments, **limits)

    monkeypatch.setattr(choose, "find_undispatched_tail", find)
    snapshot = Snapshot.open(crashed)
    seen = [len(snapshot.bounds(QueueKey("Orders", queue))) for queue in range(2)]
    pause.go_on.set()
    workers[0].join(300)
    seen += [len(Snapshot.open(crashed).bounds(QueueKey("Orders", queue))) for queue in range(2)]
    assert seen == [2, 2, 8, 8]


@pytest.mark.parametrize("what", ["append", "close"])
def test_appends_and_a_close_wait_for_it(path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    store = MessageStore.open(path, SMALL)
    pause = Pause(monkeypatch)
    staged = stage(path, 4, 4)
    done: list[CommittedBatch] = []
    with pause.held(lambda: done.append(store.commit_batch(BatchId(), staged))):
        other = threading.Thread(target=store.close if what == "close" else lambda: store.append(HELLO))
        other.start()
        other.join(0.05)
        assert other.is_alive()
    other.join(300)
    store.close()
    assert len(bodies(path)) == 8 + (what == "append")
    assert done[0].stop - done[0].start == done[0].bytes
    with pytest.raises(StoreClosedError):
        store.commit_batch(BatchId(), [])


# What goes wrong


def test_altered_rows_are_found_before_or_undone(path: Path) -> None:
    store = MessageStore.open(path, SMALL)
    store.append(HELLO)
    staged = stage(path, 5, 5)
    file = Path(StorePaths(str(path)).staging) / staged[1].name
    data = bytearray(file.read_bytes())
    file.write_bytes(data[:-1])
    with pytest.raises(FormatError, match="differ from the rows that their task wrote"):
        store.commit_batch(BatchId("q", 0), staged)
    store.append(HELLO)  # found before the first byte: nothing happened
    data[-1] ^= 1  # only the checksum of the chunk tells
    file.write_bytes(data)
    with pytest.raises(FormatError, match="in the chunk at 0"):
        store.commit_batch(BatchId("q", 0), staged)
    refuses_everything(store)
    assert bodies(path) == [b"hello"] * 2  # a reader of what was left there
    with MessageStore.open(path, SMALL) as again:
        assert again.recovered.undone_from == again.end_offset
        with pytest.raises(FormatError, match="differ from the rows that their task wrote"):
            again.commit_batch(BatchId("q", 0), staged)  # what was put is gone
        assert not commit(again, 0, 5, 5, job="again").repeated
    assert len(bodies(path)) == 12


def test_without_room_nothing_is_appended(store: MessageStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = stage(path, 600)

    def full(*arguments: object) -> None:
        raise NoSpaceError("there is no room")

    with monkeypatch.context() as patch:
        patch.setattr("segmentlog.store.log.appender.SegmentSupply.take_segment", full)
        with pytest.raises(NoSpaceError):
            store.commit_batch(BatchId("q", 0), staged)
    assert not mark(path).in_flight
    store.append(HELLO)
    assert store.commit_batch(BatchId("q", 0), staged).rows == 600


@contextmanager
def no_room(step: str) -> Iterator[None]:
    """Have no room for the queues of a batch, or for the mark that shows it."""
    real = BatchRecords.write_mark

    def fail(*arguments: object, **named: object) -> None:
        raise NoSpaceError("there is no room", path="consumequeue", fix="Make room")

    def write_mark(self: BatchRecords, fs: WritableFileSystem, mark: BatchMark) -> None:
        real(self, fs, mark) if mark.in_flight else fail()

    with pytest.MonkeyPatch.context() as patch:
        if step == "dispatch":
            patch.setattr(Dispatcher, "run", fail)
        else:
            patch.setattr(BatchRecords, "write_mark", write_mark)
        yield


@pytest.mark.parametrize("step", ["dispatch", "mark"])
def test_a_batch_that_a_full_disk_hides_is_committed_and_shown_later(
    store: MessageStore, path: Path, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    with no_room(step):
        with caplog.at_level(logging.ERROR):
            committed = commit(store, 0, 4)
        assert (committed.rows, committed.repeated) == (4, False)
        assert "batch 0 of q is committed, but readers do not see it yet: " in caplog.text
        assert mark(path).in_flight
        assert bodies(path) == []
        with pytest.raises(NoSpaceError):
            commit(store, 1, 4, job="next")  # nothing of it was appended
    assert commit(store, 0, 4, job="again").repeated
    assert len(bodies(path)) == 4
    assert not mark(path).in_flight


def test_a_tick_shows_it_with_all_after_it_on_the_device_unless_another_thread_puts(path: Path) -> None:
    config = replace(SMALL, flush=Flush.ASYNC, flush_interval_ms=1 << 40, queue_flush_thorough_interval_ms=1 << 40)
    with PartedStore.open(path, config) as store:
        with no_room("mark"):
            commit(store, 0, 4)
        store.parts.log.put_path.put([encode_message(HELLO, config)])
        held, release = threading.Event(), threading.Event()

        def put() -> None:
            with store.parts.log.put_path.turn:
                held.set()
                release.wait(WAIT_S)

        thread = threading.Thread(target=put)
        thread.start()
        assert held.wait(WAIT_S)
        store.tick()
        assert bodies(path) == []
        release.set()
        thread.join(WAIT_S)
        assert store.flushed_offset < store.end_offset
        store.tick()
        assert len(bodies(path)) == 5
        shown = mark(path)
        assert (shown.in_flight, shown.stop) == (False, store.end_offset)
        assert store.flushed_offset == store.end_offset, "the mark covers records after the batch"


@pytest.mark.parametrize("how", ["close", "open"])
def test_it_is_shown_as_soon_as_there_is_room(path: Path, how: str) -> None:
    store = MessageStore.open(path, SMALL)
    with no_room("dispatch"):
        commit(store, 0, 4)
        assert bodies(path) == []
        if how == "open":
            with pytest.raises(NoSpaceError):
                store.close()
    if how == "open":
        store = MessageStore.open(path, SMALL)
    store.close()
    assert len(bodies(path)) == 4
    assert not mark(path).in_flight


def test_a_commit_succeeds_even_if_its_mark_cannot_be_cleared(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MessageStore.open(path, SMALL)
    real = BatchRecords.write_mark

    def write_mark(self: BatchRecords, fs: WritableFileSystem, mark: BatchMark) -> None:
        if not mark.in_flight:
            raise OSError(errno.EIO, "the device failed")
        real(self, fs, mark)

    with monkeypatch.context() as patch:
        patch.setattr(BatchRecords, "write_mark", write_mark)
        assert commit(store, 0, 4).rows == 4
    refuses_everything(store)
    with MessageStore.open(path, SMALL) as again:
        assert commit(again, 0, 4, job="again").repeated
    assert len(bodies(path)) == 4


def test_a_damaged_ledger_is_not_taken_for_empty(path: Path) -> None:
    with MessageStore.open(path, SMALL) as store:
        commit(store, 0, 2)
    ledger = path / ".segmentlog" / "ledger"
    good = ledger.read_bytes()
    ledger.write_bytes(good.replace(b"q", b"p"))
    with MessageStore.open(path, SMALL) as store:
        store.append(HELLO)
        with pytest.raises(FormatError, match="ledger of batches is damaged"):
            commit(store, 0, 2)
        ledger.unlink()
        with pytest.raises(FormatError, match=r"the ledger ends with batch 0 of this store, which holds 1"):
            commit(store, 0, 2, job="again")
        ledger.write_bytes(good)
        assert commit(store, 0, 2, job="third").repeated


@pytest.mark.parametrize("reads", [1, 2])
def test_a_batch_lands_while_the_ledger_is_read(store: MessageStore, path: Path, reads: int) -> None:
    """It is of one of the two moments; one between them is no damage."""

    class LandsMeanwhile(LocalFileSystem):
        left = reads

        def read(self, path: str, offset: int, count: int) -> bytes:
            found = super().read(path, offset, count)
            self.left -= 1
            if self.left == 0:
                commit(store, 1, 2)
            return found

    commit(store, 0, 2)
    fs = LandsMeanwhile()
    assert BatchRecords(fs, str(path)).ledger().sequence in {1, 2}
    assert fs.left <= 0


# Threads that write pieces


@pytest.mark.parametrize(("failing", "error"), [(0, OSError(errno.EIO, "")), (2, KeyboardInterrupt()), (4, OSError())])
def test_a_piece_that_cannot_be_written_fails_the_batch(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, failing: int
) -> None:
    real, numbers = AheadPiece.write, iter(range(100))

    def write(piece: AheadPiece) -> DispatchRequest:
        if next(numbers) == failing:
            raise error
        return real(piece)

    store = MessageStore.open(path, BACKGROUND)
    store.append(HELLO)
    staged = stage(path, 3, 3, 3, 3, 3)
    with monkeypatch.context() as patched:
        patched.setattr(AheadPiece, "write", write)
        with pytest.raises((OSError, KeyboardInterrupt)):
            store.commit_batch(BatchId("q", 0), staged)
    assert not [thread.name for thread in own_threads() if thread.name.startswith("segmentlog-put")]
    refuses_everything(store)
    with MessageStore.open(path, BACKGROUND) as again:
        assert bodies(path) == [b"hello"]
        assert not commit(again, 0, 3, 3, 3, 3, 3, job="again").repeated
    assert len(bodies(path)) == 16


def test_pieces_that_are_written_last_first_are_read_in_their_order(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, waiting, all_there = AheadPiece.write, threading.Lock(), threading.Barrier(3)
    order: list[int] = []

    def write(piece: AheadPiece) -> DispatchRequest:
        number = all_there.wait(30)
        start = piece.placed.runs[0].base + piece.placed.runs[0].position
        while True:
            with waiting:
                if len(order) == number:
                    order.append(start)
                    return real(piece)

    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setattr(AheadPiece, "write", write)
    with MessageStore.open(path, BACKGROUND) as store:
        commit(store, 0, 40, 40, 40)
    assert len(order) == 3
    found = bodies(path)
    assert found == [f"job {task} {row}".encode() for odd in (0, 1) for task in range(3) for row in range(odd, 40, 2)]
