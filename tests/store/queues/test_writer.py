"""ConsumeQueues, written."""

import random

import numpy as np
import pytest

from segmentlog.store.errors import NoSpaceError
from segmentlog.store.files.segments import list_segments
from segmentlog.store.files.writable_fs import WritableFile, WritableFileSystem
from segmentlog.store.format.consume_queue import ENTRY, ENTRY_BYTES, Entries
from segmentlog.store.queues import open_files
from segmentlog.store.queues.writer import QueueWriter
from segmentlog.store.types import QueueKey
from support.crash.faults import Failure, Fault, FaultyFileSystem
from support.crash.memory_fs import MemoryFile, MemoryFileSystem
from support.crash.recorder import Kind, RecordingFileSystem

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


def test_entries_go_file_by_file() -> None:
    fs = MemoryFileSystem()
    queues = writer(fs)
    at = 0
    for count in (1, 2, 3, 7, 1):
        queues.append(KEY, at, entries(at, count))
        at += count
    raw = entries(0, at).tobytes()
    assert content(fs) == {
        base: raw[base : base + FILE_BYTES].ljust(FILE_BYTES, b"\0") for base in range(0, len(raw), FILE_BYTES)
    }
    assert list(queues.queues()) == [KEY]
    queues.close()


@pytest.mark.parametrize("stop", [3, 4, 9])
def test_a_queue_that_was_cut_goes_on_where_it_ends(stop: int) -> None:
    fs = MemoryFileSystem()
    queues = writer(fs)
    queues.append(KEY, 0, entries(0, 11))
    queues.truncate(KEY, stop)
    queues.append(KEY, stop, entries(stop, 6))
    raw = entries(0, stop + 6).tobytes()
    assert content(fs) == {
        base: raw[base : base + FILE_BYTES].ljust(FILE_BYTES, b"\0") for base in range(0, len(raw), FILE_BYTES)
    }


def test_a_file_appears_with_its_first_entries() -> None:
    recorder = RecordingFileSystem(MemoryFileSystem())
    queues = writer(recorder)
    queues.append(KEY, 0, entries(0, 1))
    kinds = [op.kind for op in recorder.recording.ops if op.kind is not Kind.MAKE_DIR]
    assert kinds == [Kind.CREATE, Kind.EXTEND, Kind.WRITE, Kind.RENAME]


def test_a_queue_that_begins_later_is_padded() -> None:
    fs = MemoryFileSystem()
    writer(fs).append(KEY, 6, entries(6, 1))
    (base, data), = content(fs).items()  # fmt: skip
    found = np.frombuffer(data, ENTRY)
    assert base == FILE_BYTES
    assert found["size"].tolist() == [0x7FFFFFFF, 0x7FFFFFFF, 100, 0]
    assert found["physical_offset"].tolist() == [0, 0, 600, 0]


def test_syncing_covers_bytes_and_names() -> None:
    recorder = RecordingFileSystem(MemoryFileSystem())
    queues = writer(recorder)
    queues.append(KEY, 0, entries(0, 5))
    before = len(recorder.recording.ops)
    queues.sync()
    synced = [(op.kind, op.path) for op in recorder.recording.ops[before:]]
    assert [kind for kind, _ in synced] == [Kind.SYNC] * 2 + [Kind.SYNC_DIR] * 3
    assert {path for kind, path in synced if kind is Kind.SYNC_DIR} == {"/queues", "/queues/Orders", "/queues/Orders/3"}
    before = len(recorder.recording.ops)
    queues.sync()
    assert len(recorder.recording.ops) == before


def test_only_wrong_entries_are_corrected() -> None:
    fs = MemoryFileSystem()
    queues = writer(fs)
    queues.append(KEY, 0, entries(0, 6))
    right = content(fs)
    assert queues.correct(KEY, 0, entries(0, 6)) == 0
    wrong = entries(0, 6)
    wrong["size"][[2, 5]] = 1
    assert queues.correct(KEY, 0, wrong) == 2
    assert queues.correct(KEY, 0, entries(0, 6)) == 2
    assert content(fs) == right
    assert queues.correct(KEY, 6, entries(6, 3)) == 3


def test_an_entry_is_found_by_its_record() -> None:
    queues = writer(MemoryFileSystem())
    queues.append(KEY, 0, entries(0, 11))
    assert [queues.find(KEY, physical, 0, 11) for physical in (0, 700, 1000, 750, 1100)] == [0, 7, 10, None, None]
    assert queues.find(KEY, 700, 8, 11) is None


def test_many_queues_need_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 100
    monkeypatch.setattr(open_files, "OPEN_MAX", most)
    fs = CountingFileSystem()
    queues = writer(fs)
    keys = [QueueKey("T", number) for number in range(most + 50)]
    order = random.Random(1)
    for round_ in range(2):
        for key in order.sample(keys, len(keys)):
            queues.append(key, round_, entries(round_, 1))
    queues.sync()
    assert most <= fs.most_open <= most + 1
    queues.close()
    assert fs.open_now == 0
    for key in keys:
        assert content(fs, key)[0] == entries(0, 2).tobytes().ljust(FILE_BYTES, b"\0")


class CountingFileSystem(MemoryFileSystem):
    """Counts open files."""

    def __init__(self) -> None:
        super().__init__()
        self.open_now = self.most_open = 0

    def create(self, path: str) -> WritableFile:
        return self._counted(super().create(path))

    def open(self, path: str) -> WritableFile:
        return self._counted(super().open(path))

    def sync_all(self, path: str) -> None:
        """Nothing is lost here."""

    def _counted(self, file: MemoryFile) -> MemoryFile:
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        close = file.close

        def closing() -> None:
            self.open_now -= 1
            close()

        file.close = closing  # type: ignore[method-assign]
        return file


@pytest.mark.parametrize("call", ["create", "extend", "write", "rename"])
def test_without_room_it_goes_on_when_there_is(call: str) -> None:
    disk = MemoryFileSystem()
    queues = writer(FaultyFileSystem(disk, Fault(error=Failure.ENOSPC, at=2, calls=(call,))))
    queues.append(KEY, 0, entries(0, 4))
    with pytest.raises(NoSpaceError):
        queues.append(KEY, 4, entries(4, 3))
    queues.sync()
    queues.append(KEY, 4, entries(4, 3))
    queues.sync()
    raw = entries(0, 7).tobytes()
    assert b"".join(content(disk).values()) == raw.ljust(2 * FILE_BYTES, b"\0")
    assert disk.size("/making") is None


def test_a_full_file_is_dropped_and_the_queue_goes_on() -> None:
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
