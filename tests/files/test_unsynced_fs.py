"""A file system that does not sync some files and names, and does everything else."""

import pytest

from segmentlog.store.files.unsynced_fs import unsynced
from support.crash.memory_fs import MemoryFileSystem
from support.crash.recorder import Kind, RecordingFileSystem


@pytest.fixture
def recorder() -> RecordingFileSystem:
    disk = MemoryFileSystem()
    for path in ("/s", "/s/log", "/s/queues", "/s/queues/0", "/s/own", "/s/logs"):
        disk.make_dir(path)
    return RecordingFileSystem(disk)


def synced(recorder: RecordingFileSystem) -> list[str]:
    return [op.path for op in recorder.recording.ops if op.kind in {Kind.SYNC, Kind.SYNC_DIR}]


@pytest.mark.parametrize(
    ("path", "is_synced"),
    [("/s/log/0", False), ("/s/queues/0/0", False), ("/s/one", False), ("/s/own/x", True), ("/s/logs/0", True)],
)
def test_files(recorder: RecordingFileSystem, path: str, is_synced: bool) -> None:
    fs = unsynced(recorder, ["/s/log", "/s/queues", "/s/one"], [])
    for open_it in (fs.create, fs.open):
        file = open_it(path)
        file.write(0, b"abc")
        file.sync()
        file.close()
    assert synced(recorder) == [path, path] * is_synced
    assert fs.read(path, 0, 9) == b"abc"


def test_names(recorder: RecordingFileSystem) -> None:
    fs = unsynced(recorder, ["/s/log"], ["/s/queues"])
    for path in ("/s/log", "/s/queues", "/s/queues/0", "/s"):
        fs.sync_dir(path)
    assert synced(recorder) == ["/s/log", "/s"]
    fs.sync_all("/s/queues")
    assert synced(recorder) == ["/s/log", "/s"]
    fs.sync_all("/s")
    assert len(synced(recorder)) > 2


def test_the_name_decides_that_a_file_has_now(recorder: RecordingFileSystem) -> None:
    fs = unsynced(recorder, ["/s/log"], [])
    file = fs.create("/s/own/spare")
    file.allocate(100)
    file.extend(200)
    file.sync()
    fs.rename("/s/own/spare", "/s/log/0")
    assert file.is_at("/s/log/0")
    file.path = "/s/log/0"
    file.sync()
    assert synced(recorder) == ["/s/own/spare"]
    assert fs.size("/s/log/0") == 200
