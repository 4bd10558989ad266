import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store import (
    BatchId,
    ConfigError,
    CorruptError,
    Flush,
    MessageStore,
    Outgoing,
    Snapshot,
    StoreConfig,
    UnknownQueueError,
)
from segmentlog.store.archive.push import push
from segmentlog.store.errors import NotAStoreError, StoreInUseError, StoreIOError
from segmentlog.store.files.fresh_directory import locked
from segmentlog.store.format.archive_manifest import ArchivedFile, PrunedQueue
from segmentlog.store.maintenance import archive_push, verify
from segmentlog.store.maintenance.archives import pull
from segmentlog.store.objects.manifests import newest, publish
from segmentlog.store.sink import commit_batch
from segmentlog.store.types import Window
from support.archived_store import CONFIG, START_MS, all_rows, append_rows, write_whole
from support.archives import content
from support.batches import stage_messages
from support.faulty_objects import Fault, FaultyObjects, Killed
from support.memory_objects import MemoryObjects
from support.scale import scale, spread
from support.written_stores import tree

ROWS = 150


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_whole(tmp_path / "store", ROWS)


@pytest.fixture
def objects(store: Path) -> FaultyObjects:
    made = FaultyObjects()
    push(store, made)
    with MessageStore.open(store, CONFIG) as opened:
        append_rows(opened, ROWS, 20)
    push(store, made)
    return made


def is_same(store: Path, restored: Path) -> bool:
    """Compare the files of two stores that hold the same, but for those that name their own times."""
    names = sorted(os.listdir(store / "commitlog"))
    assert sorted(os.listdir(restored / "commitlog")) == names
    for name in names:
        assert (restored / "commitlog" / name).read_bytes() == (store / "commitlog" / name).read_bytes(), name
    assert all_rows(Snapshot.open(restored)) == all_rows(Snapshot.open(store))
    assert verify(restored).findings == ()
    config = {path.name: path.read_bytes() for path in (store / "config").iterdir() if path.suffix == ".json"}
    assert {path.name: path.read_bytes() for path in (restored / "config").iterdir()} == config
    return True


def test_a_whole_store_is_restored_byte_for_byte_and_can_be_written_on(
    store: Path, objects: FaultyObjects, tmp_path: Path
) -> None:
    report = pull(objects, tmp_path / "restored")
    assert is_same(store, tmp_path / "restored")
    assert (report.entries, report.keys, report.queues, report.kept_bytes) == (ROWS + 20, ROWS + 20, 3, 0)
    assert not (tmp_path / "restored.pulling").exists()
    for each in (store, tmp_path / "restored"):
        with MessageStore.open(each, CONFIG) as opened:
            append_rows(opened, 900, 10)
    assert len(all_rows(Snapshot.open(tmp_path / "restored"))) == ROWS + 30
    assert push(tmp_path / "restored", objects).records == 10  # the same log: its archive continues


def test_a_window_of_times_and_a_topic_restore_whole_segments_in_between(
    store: Path, objects: FaultyObjects, tmp_path: Path
) -> None:
    pieces = content(objects).pieces
    window = Window(pieces[1].first_time, pieces[2].first_time + 1)
    report = pull(objects, tmp_path / "part", topics=["refunds"], window=window)
    assert (report.start, report.stop, report.segments) == (pieces[1].segment, pieces[2].stop, 2)
    assert os.listdir(tmp_path / "part" / "consumequeue") == ["refunds"]
    assert not (tmp_path / "part" / ".segmentlog" / "id").exists()
    rows = all_rows(Snapshot.open(tmp_path / "part"))
    whole = all_rows(Snapshot.open(store))
    assert rows == [row for row in whole if report.start <= row["physicalOffset"] < report.stop]


@pytest.mark.parametrize("mode", [0o700, 0o750])
def test_a_restored_store_has_at_most_the_permissions_of_the_original(store: Path, tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(0o755)
    store.chmod(mode)
    objects = MemoryObjects()
    push(store, objects)
    pull(objects, tmp_path / "restored")
    made = [tmp_path / "restored", *(tmp_path / "restored").rglob("*")]
    assert {path.stat().st_mode & ~mode & 0o777 for path in made} == {0}
    manifest = newest(objects)[1]
    publish(objects, 2, replace(manifest, store={**manifest.store, "mode": "777"}))
    pull(objects, tmp_path / "again")
    assert (tmp_path / "again").stat().st_mode & 0o022 == 0, "as the directory that it is in"


def test_a_window_without_messages_and_an_unknown_topic_are_refused(objects: FaultyObjects, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such messages"):
        pull(objects, tmp_path / "part", window=Window(1, 2))
    with pytest.raises(UnknownQueueError, match=r"topic `ordrs` is not in this archive.*Its topics are `"):
        pull(objects, tmp_path / "part", topics=["ordrs"])
    number, manifest = newest(objects)
    publish(objects, number + 1, replace(manifest, pruned=(PrunedQueue("returns", 0, 9),)))
    with pytest.raises(ConfigError, match="no such messages"):
        pull(objects, tmp_path / "part", topics=["returns"])
    with pytest.raises(NotAStoreError, match="no archive here"):
        pull(MemoryObjects(), tmp_path / "part")
    assert not list(tmp_path.glob("part*"))


def test_an_archive_with_a_gap_is_restored_on_one_side_of_it(store: Path, tmp_path: Path) -> None:
    objects = MemoryObjects()
    push(store, objects)
    with MessageStore.open(store, CONFIG) as opened:
        append_rows(opened, ROWS, 200)
    segments = sorted((store / "commitlog").iterdir())
    for each in segments[:8]:
        each.unlink()
    push(store, objects)
    with pytest.raises(ConfigError, match="the archive lacks"):
        pull(objects, tmp_path / "restored")
    start = Snapshot.open(store).log.min_offset
    first = next(piece for piece in content(objects).pieces if piece.start >= start)
    pull(objects, tmp_path / "restored", window=Window(first.first_time))
    assert verify(tmp_path / "restored").findings == ()


def commit(store: Path, version: int) -> None:
    staged = stage_messages(store, [Outgoing(topic="orders", body=b"%d" % row, queue_id=0) for row in range(5)], CONFIG)
    commit_batch(store, CONFIG, BatchId("app", version), [staged])


def test_batches_of_a_restored_store_are_known_as_far_as_its_log_has_them(store: Path, tmp_path: Path) -> None:
    objects = MemoryObjects()
    commit(store, 0)
    push(store, objects)
    number, manifest = newest(objects)
    commit(store, 1)
    # As if batch 1 had been committed after the push looked for the end of the log, and before it read the ledger.
    ledger = np.frombuffer((store / ".segmentlog" / "ledger").read_bytes(), np.uint8)
    batches = np.frombuffer((store / ".segmentlog" / "batches").read_bytes(), np.uint8)
    newer = {".segmentlog/ledger": ledger, ".segmentlog/batches": batches}
    named = [ArchivedFile(path, data.size, sha256(data.data).hexdigest()) for path, data in newer.items()]
    for file in named:
        objects.put(file.key, newer[file.path])
    others = tuple(file for file in manifest.files if file.path not in newer)
    assert publish(objects, number + 1, replace(manifest, files=(*others, *named)))
    pull(objects, tmp_path / "restored")
    ends = [Snapshot.open(tmp_path / "restored").readable_stop()]
    for version in (0, 1, 1):
        commit(tmp_path / "restored", version)
        ends.append(Snapshot.open(tmp_path / "restored").readable_stop())
    assert ends[0] == ends[1] < ends[2] == ends[3]


def test_a_directory_with_something_in_it_is_refused_and_unchanged(objects: FaultyObjects, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(ConfigError, match="something is there"):
        pull(objects, tmp_path / "full")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="something is there"):
        pull(objects, tmp_path / "file")
    (tmp_path / "other.pulling").mkdir()
    (tmp_path / "other.pulling" / "letter.txt").write_text("mine")
    with pytest.raises(ConfigError, match="another pull was begun here"):
        pull(objects, tmp_path / "other")
    (tmp_path / "empty").mkdir()
    assert pull(objects, tmp_path / "empty").segments > 1


@pytest.mark.parametrize("topics", [None, ["refunds"]])
def test_a_pull_that_was_killed_after_its_rename_reports_what_it_restored(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, topics: list[str] | None
) -> None:
    objects = FaultyObjects()
    push(store, objects)
    target = tmp_path / "restored"
    done = pull(objects, target, topics=topics)
    before = tree(target)
    again = pull(objects, target, topics=topics)
    assert again == replace(done, fetched_bytes=0, kept_bytes=done.stop - done.start)
    assert tree(target) == before
    assert "was restored by this pull before" in caplog.text
    with pytest.raises(ConfigError, match="something is there"):
        pull(objects, target, topics=topics, window=Window(None, START_MS + 10**9))
    with MessageStore.open(store, CONFIG) as opened:
        append_rows(opened, ROWS, 5)
    push(store, objects)
    with pytest.raises(ConfigError, match="something is there"):
        pull(objects, target, topics=topics)


def test_a_pulled_store_that_was_written_to_is_not_restored_again(objects: FaultyObjects, tmp_path: Path) -> None:
    pull(objects, tmp_path / "restored")
    with MessageStore.open(tmp_path / "restored", CONFIG) as opened:
        append_rows(opened, ROWS, 5)
    with pytest.raises(ConfigError, match="something is there"):
        pull(objects, tmp_path / "restored")


@pytest.mark.parametrize("begun", [None, b"", b'{"url": "mem'])
def test_a_pull_that_was_killed_as_it_began_is_begun_again(
    objects: FaultyObjects, tmp_path: Path, begun: bytes | None
) -> None:
    ours = tmp_path / "restored.pulling" / ".segmentlog"
    ours.mkdir(parents=True)
    if begun is not None:
        (ours / "pulled-from").write_bytes(begun)
    assert pull(objects, tmp_path / "restored").segments > 1
    assert not ours.exists()


def test_a_second_pull_into_a_directory_is_refused_before_it_changes_anything(
    objects: FaultyObjects, tmp_path: Path
) -> None:
    (tmp_path / "restored.pulling").mkdir()
    lock = locked(str(tmp_path / "restored.pulling"))
    assert lock is not None
    with pytest.raises(StoreInUseError, match="another process pulls"):
        pull(objects, tmp_path / "restored")
    assert not any((tmp_path / "restored.pulling").iterdir())
    os.close(lock)
    assert pull(objects, tmp_path / "restored").segments > 1


def test_a_continued_pull_has_nothing_of_a_log_that_was_cut_meanwhile(store: Path, tmp_path: Path) -> None:
    shorter = shutil.copytree(store, tmp_path / "shorter")
    with MessageStore.open(store, CONFIG) as opened:
        append_rows(opened, ROWS, 5)
    objects = FaultyObjects()
    push(store, objects)
    pull(objects, tmp_path / "whole")
    (tmp_path / "whole").rename(tmp_path / "restored.pulling")  # killed before this
    assert push(shorter, objects).replaced is not None
    pull(objects, tmp_path / "restored")
    assert is_same(shorter, tmp_path / "restored")


def test_a_continued_pull_of_a_part_has_no_identity_of_the_whole_store(store: Path, tmp_path: Path) -> None:
    objects = FaultyObjects()
    push(store, objects)
    window = Window(None, START_MS + 10**9)
    pull(objects, tmp_path / "whole", window=window)
    (tmp_path / "whole").rename(tmp_path / "restored.pulling")  # killed before this
    assert (tmp_path / "restored.pulling" / ".segmentlog" / "id").exists()
    with MessageStore.open(store, CONFIG, clock=lambda: START_MS + 10**9) as opened:
        append_rows(opened, ROWS, 100)
    push(store, objects)
    pull(objects, tmp_path / "restored", window=window)
    assert not (tmp_path / "restored" / ".segmentlog" / "id").exists()


def test_a_damaged_object_is_an_error_with_its_name(objects: FaultyObjects, tmp_path: Path) -> None:
    key = content(objects).pieces[1].ranges[0].key
    data, info = objects.objects[key]
    objects.objects[key] = data[:-1] + b"?", info
    with pytest.raises(CorruptError, match="contradict their digest") as caught:
        pull(objects, tmp_path / "restored")
    assert caught.value.path == f"{objects.url}/{key}"
    assert not (tmp_path / "restored").exists()
    objects.objects[key] = data, info
    assert pull(objects, tmp_path / "restored").kept_bytes > 0


@pytest.mark.scaled
@pytest.mark.slow
def test_a_pull_continues_after_a_fault_or_kill_at_any_call(
    store: Path, objects: FaultyObjects, tmp_path: Path
) -> None:
    counted = FaultyObjects.copy(objects)
    pull(counted, tmp_path / "first")
    count = counted.count
    for number in sorted(spread(2 * count, scale(4, 40, 2 * count))):
        fault = [Fault.BEFORE, Fault.KILL_AFTER][number % 2]
        with pytest.raises((StoreIOError, Killed)):
            pull(FaultyObjects.copy(objects, fault, number // 2), tmp_path / "again")
        assert not (tmp_path / "again").exists()
        report = pull(objects, tmp_path / "again")
        assert report.kept_bytes + report.fetched_bytes == report.stop - report.start
        assert is_same(store, tmp_path / "again")
        shutil.rmtree(tmp_path / "again")


_ACTION = """
import sys
from segmentlog.command.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.scaled(quick=0)
@pytest.mark.slow
def test_the_next_run_completes_the_work_of_killed_processes(store: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/archive"
    (tmp_path / "archive").mkdir()
    push_words, pull_words = ["push", str(store), url], ["pull", url, str(tmp_path / "restored")]
    delays = np.linspace(0.2, 1.5, scale(3, 10, 100)).tolist()
    for at, delay in enumerate(delays):
        with MessageStore.open(store, CONFIG) as opened:
            append_rows(opened, 1000 + 7 * at, 7)
        for words in (push_words, pull_words):
            process = subprocess.Popen(
                [sys.executable, "-c", _ACTION, "archive", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            try:
                process.wait(delay)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
            done = subprocess.run(
                [sys.executable, "-c", _ACTION, "archive", *words], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr[-2000:]
        assert is_same(store, tmp_path / "restored")
        shutil.rmtree(tmp_path / "restored")


_PEAK = """
import sys, threading
from segmentlog.store.maintenance import archive_pull

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))

def sample():
    while not done.wait(0.005):
        found.append(anonymous())

done, found = threading.Event(), [0]
thread = threading.Thread(target=sample)
thread.start()
archive_pull(*sys.argv[1:])
done.set()
thread.join()
print(max(found))
"""


@pytest.mark.scaled(quick=0)
@pytest.mark.slow
def test_the_memory_of_a_pull_does_not_grow_with_the_archive(tmp_path: Path) -> None:
    segment = 16 << 20
    rows = pa.RecordBatch.from_pydict({"topic": ["orders"] * 4096, "body": [os.urandom(1 << 12) for _ in range(4096)]})
    peaks = []
    with MessageStore.open(tmp_path / "store", StoreConfig(segment_bytes=segment, flush=Flush.ASYNC)) as opened:
        for number, segments in enumerate((4, 20)):
            for _ in range(segments):
                opened.append_batch(rows)
            opened.wait_dispatched()
            url, restored = f"file://{tmp_path}/archive", tmp_path / f"restored-{number}"
            assert archive_push(tmp_path / "store", url).records >= segments * 4096
            command = [sys.executable, "-c", _PEAK, url, str(restored)]
            peaks.append(int(subprocess.run(command, check=True, capture_output=True).stdout))
            assert verify(restored).findings == ()
    assert peaks[1] < peaks[0] + 4 * segment, "the second archive has 20 segments more than the first"
