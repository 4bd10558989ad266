import gc
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segmentlog.store import QueueKey
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.files.segments import list_segments
from segmentlog.store.files.writable_fs import WritableFile, WritableFileSystem
from segmentlog.store.format.consume_queue import ENTRY, ENTRY_BYTES, PAD_SIZE, Entries
from segmentlog.store.format.message import MIN_RECORD_BYTES
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.queues.writer import EACH_MIN, OpenFiles, QueueEnds, QueueWriter, find_ends
from support.crash.memory_fs import MemoryFileSystem
from support.crash.recorder import Kind, RecordingFileSystem
from support.scale import scale
from support.store_builder import Geometry, StoreBuilder, messages
from support.tampering import put_at, segments

KEY = QueueKey("Orders", 3)
PER_FILE = 4
FILE_BYTES = PER_FILE * ENTRY_BYTES


def entries(start: int, count: int) -> Entries:
    made = np.zeros(count, ENTRY)
    made["physical_offset"] = np.arange(start, start + count) * 100
    made["size"] = 100
    made["tags_code"] = 7
    return made


def writer(fs: WritableFileSystem) -> QueueWriter:
    fs.make_dir("/queues")
    return QueueWriter(fs, "/queues", "/making", PER_FILE)


def content(fs: MemoryFileSystem, key: QueueKey = KEY) -> dict[int, bytes]:
    folder = f"/queues/{key.topic}/{key.queue_id}"
    return {int(listed.name): fs.read(f"{folder}/{listed.name}", 0, 1 << 20) for listed in fs.list_dir(folder)}


def files_of(count: int) -> dict[int, bytes]:
    raw = entries(0, count).tobytes()
    return {base: raw[base : base + FILE_BYTES].ljust(FILE_BYTES, b"\0") for base in range(0, len(raw), FILE_BYTES)}


@pytest.mark.parametrize("stop", [3, 4, 9])
def test_entries_go_file_by_file_and_a_truncated_queue_continues_at_its_new_end(stop: int) -> None:
    fs = MemoryFileSystem()
    queues = writer(fs)
    at = 0
    for count in (1, 2, 3, 7, 1):
        queues.append(KEY, at, entries(at, count))
        at += count
    assert content(fs) == files_of(at)
    assert list(queues.queues()) == [KEY]
    queues.truncate(KEY, stop)
    assert content(fs) == files_of(stop)
    queues.append(KEY, stop, entries(stop, 6))
    assert content(fs) == files_of(stop + 6)
    queues.close()


def test_only_wrong_entries_are_corrected_and_an_entry_is_found_by_its_record() -> None:
    fs = MemoryFileSystem()
    queues = writer(fs)
    queues.append(KEY, 0, entries(0, 6))
    assert queues.correct(KEY, 0, entries(0, 6)) == 0
    wrong = entries(0, 6)
    wrong["size"][[2, 5]] = 1
    assert queues.correct(KEY, 0, wrong) == 2
    assert queues.correct(KEY, 0, entries(0, 6)) == 2
    assert content(fs) == files_of(6)
    assert queues.correct(KEY, 6, entries(6, 5)) == 5
    assert [queues.find(KEY, physical, 0, 11) for physical in (0, 700, 1000, 750, 1100)] == [0, 7, 10, None, None]
    assert queues.find(KEY, 700, 8, 11) is None


def test_a_full_file_is_dropped_and_the_queue_continues() -> None:
    recorder = RecordingFileSystem(MemoryFileSystem())
    queues = writer(recorder)
    queues.append(KEY, 0, entries(0, 10))
    first, second, third = list_segments(recorder, ["/queues/Orders/3"])
    before = len(recorder.recording.ops)
    queues.drop(KEY, first)  # its bytes were not synced: the next sync must not want it
    assert [op.kind for op in recorder.recording.ops[before:]] == [Kind.UNLINK, Kind.SYNC_DIR]
    queues.append(KEY, 10, entries(10, 1))
    queues.sync()
    assert list_segments(recorder, ["/queues/Orders/3"]) == [second, third]
    with pytest.raises(ValueError, match="cannot be dropped"):
        queues.drop(KEY, third)
    queues.drop(KEY, second)
    assert list_segments(recorder, ["/queues/Orders/3"]) == [third]
    assert recorder.read(third.path, 0, FILE_BYTES) == entries(8, 3).tobytes().ljust(FILE_BYTES, b"\0")
    queues.close()


DESCRIPTORS = 2000


class NumberedFiles(MemoryFileSystem):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open(self, path: str) -> WritableFile:
        self.opened.append(path)
        return super().open(path)


@pytest.fixture
def fs(monkeypatch: pytest.MonkeyPatch) -> NumberedFiles:
    gc.collect()  # writers of other tests that were not closed
    monkeypatch.setattr(resource, "getrlimit", lambda _: (DESCRIPTORS, DESCRIPTORS))
    made = NumberedFiles()
    made.make_dir("/queues")
    for number in range(2 * DESCRIPTORS):
        made.create(path_of(number)).close()
    return made


def path_of(number: int) -> str:
    return f"/queues/{number}"


def use(files: OpenFiles, count: int) -> None:
    for number in range(count):
        files.open(path_of(number))


def opens_for_two_turns(fs: NumberedFiles, files: OpenFiles, count: int) -> int:
    """Use so many files in turn, twice; return how often one had to be opened."""
    fs.opened.clear()
    for _ in range(2):
        use(files, count)
    return len(fs.opened)


def test_writers_share_the_limit_and_each_keeps_a_few(fs: NumberedFiles) -> None:
    first, second = OpenFiles(fs), OpenFiles(fs)
    use(first, DESCRIPTORS // 2)
    assert opens_for_two_turns(fs, second, EACH_MIN) == EACH_MIN
    assert opens_for_two_turns(fs, second, EACH_MIN + 1) > EACH_MIN
    first.open(path_of(DESCRIPTORS))  # makes room for what the second holds
    first.close()
    assert DESCRIPTORS // 2 - EACH_MIN <= opens_for_two_turns(fs, second, DESCRIPTORS // 2) <= DESCRIPTORS // 2
    second.close()


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_writer_that_is_gone_holds_nothing(fs: NumberedFiles, *, is_closed: bool) -> None:
    first = OpenFiles(fs)
    use(first, DESCRIPTORS // 2)
    if is_closed:
        first.close()
    del first
    gc.collect()
    second = OpenFiles(fs)
    assert opens_for_two_turns(fs, second, DESCRIPTORS // 2) == DESCRIPTORS // 2
    second.close()


LONG_FILE = 8
QUEUES = 4
FS = LocalFileSystem()
TORN: Final[dict[str, Callable[[bytes, bytes], bytes]]] = {
    "never written": lambda _, __: bytes(ENTRY_BYTES),
    "its second half": lambda raw, _: bytes(10) + raw[10:],
    "its first half": lambda raw, _: raw[:10] + bytes(10),
    "another size": lambda raw, _: raw[:8] + (107).to_bytes(4, "big") + raw[12:],
    "the entry before": lambda _, before: before,
    "a pad": lambda _, __: bytes(8) + PAD_SIZE.to_bytes(4, "big") + bytes(8),
    "below zero": lambda _, __: b"\xff" * ENTRY_BYTES,
    "another record": lambda raw, _: raw[:7] + bytes([raw[7] ^ 1]) + raw[8:],
}
"""Torn or damaged forms of an entry; the second argument is the entry before it."""


class Built:
    """A store whose queues are torn again and again."""

    def __init__(self, path: Path) -> None:
        geometry = Geometry(segment_bytes=4096, queue_segment_entries=LONG_FILE)
        with StoreBuilder(path / "s", geometry=geometry, log_start=4096) as builder:
            builder.append(messages(20 * QUEUES, queues=QUEUES))
        self.end = builder.end
        shutil.copytree(path / "s" / "commitlog", path / "later")
        for segment in segments(path / "s")[: len(segments(path / "s")) - 1]:
            (path / "later" / segment.name).unlink()
        self.logs = [CommitLog(FS, [str(folder)]) for folder in (path / "s" / "commitlog", path / "later")]
        folders = {QueueKey("Orders", queue): path / "s" / "consumequeue" / "Orders" / str(queue) for queue in range(4)}
        self.files = {key: list_segments(FS, [str(folder)]) for key, folder in folders.items()}
        self.raw = {file.path: Path(file.path).read_bytes() for files in self.files.values() for file in files}

    def restore(self) -> None:
        for path, raw in self.raw.items():
            Path(path).write_bytes(raw)

    def tear(self, queue: int, offset: int, how: str) -> None:
        file = self.files[QueueKey("Orders", queue)][offset // LONG_FILE]
        at = offset % LONG_FILE * ENTRY_BYTES
        raw = Path(file.path).read_bytes()
        before = raw[at - ENTRY_BYTES : at] if at else bytes(ENTRY_BYTES)
        put_at(Path(file.path), at, TORN[how](raw[at : at + ENTRY_BYTES], before))

    def expected(self, log: CommitLog, log_end: int) -> QueueEnds:
        """Return the ends by the rules, one entry after the other."""
        found, reached = {}, -1
        for key, files in self.files.items():
            for file in reversed(files):
                entries = np.fromfile(file.path, ENTRY).tolist()
                row = last_staying(entries, log, log_end)
                if row is not None:
                    found[key] = file.base // ENTRY_BYTES + row + 1
                    reached = max(reached, entries[row][0])
                    break
        return QueueEnds(found, reached)


def last_staying(entries: list[tuple[int, int, int]], log: CommitLog, log_end: int) -> int | None:
    kept, most, before = None, -1, None
    for row, (physical, size, _) in enumerate(entries):
        if not (physical >= 0 and MIN_RECORD_BYTES <= size < PAD_SIZE and physical + size <= log_end):
            before = None
            continue
        if physical > most or (physical == most and (physical, size) == before):
            record = log.record_at(physical)
            if physical < log.min_offset or (record is not None and record.record.total_size == size):
                kept = row
        most = max(most, physical)
        before = (physical, size)
    return kept


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("ends"))


TEARS = st.lists(
    st.tuples(st.integers(0, QUEUES - 1), st.integers(0, 19) | st.integers(17, 19), st.sampled_from(sorted(TORN))),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=scale(30, 150, 3000))
@given(tears=TEARS, cut=st.integers(0, 2000), later=st.booleans(), together=st.sampled_from([1, 300, 1 << 20]))
def test_queues_end_where_each_entry_says(
    built: Built, tears: list[tuple[int, int, str]], cut: int, later: bool, together: int
) -> None:
    built.restore()
    for queue, offset, how in tears:
        built.tear(queue, offset, how)
    log = built.logs[later]
    with patch("segmentlog.store.queues.writer._TOGETHER_BYTES", together):
        found = find_ends(FS, built.files, built.end - cut, log)
    assert found == built.expected(log, built.end - cut)


def test_queues_that_end_well_are_compared_together_and_queues_without_files_have_no_end(built: Built) -> None:
    built.restore()
    with patch.object(CommitLog, "sound", autospec=True, side_effect=CommitLog.sound) as sound:
        found = find_ends(FS, built.files, built.end, built.logs[0])
    assert sound.call_count == 1
    assert found == QueueEnds(dict.fromkeys(built.files, 20), found.last_physical)
    assert find_ends(FS, {}, built.end, built.logs[0]) == QueueEnds({}, -1)
    assert find_ends(FS, {QueueKey("Orders", 0): []}, built.end, built.logs[0]) == QueueEnds({}, -1)
    key = QueueKey("Orders", 1)
    last = Path(built.files[key][-1].path)
    last.write_bytes(last.read_bytes()[: 3 * ENTRY_BYTES + 7])  # cut inside of an entry
    found = find_ends(FS, built.files, built.end, built.logs[0])
    assert found == built.expected(built.logs[0], built.end)
    assert found.ends[key] == 16 + 3
