from collections.abc import Generator
from pathlib import Path

import pytest

from segmentlog.store.errors import ConfigError, NoSpaceError, StoreIOError
from segmentlog.store.files.fs import Space
from segmentlog.store.files.segments import SegmentFile
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.retention import archive as module
from segmentlog.store.retention.archive import Archive
from segmentlog.store.retention.state import FileId, FileKind
from segmentlog.store.types import QueueKey
from support.crash.memory_fs import MemoryFileSystem

STORE, ARCHIVE = "/store", "/archive"
LOG = FileId(FileKind.LOG, 1000)
QUEUE = FileId(FileKind.QUEUE, 40, QueueKey("orders", 3))
CONTENT = bytes(range(1, 251)) * 4
ID = "0123456789abcdef" * 2


@pytest.fixture
def fs(monkeypatch: pytest.MonkeyPatch) -> MemoryFileSystem:
    monkeypatch.setattr(module, "PIECE_BYTES", 300)
    made = MemoryFileSystem()
    for path in ("", "/.segmentlog", "/commitlog", "/consumequeue", "/consumequeue/orders", "/consumequeue/orders/3"):
        made.make_dir(STORE + path)
    for file in (LOG, QUEUE):
        made.create(f"{STORE}/{file}").write(0, CONTENT)
    return made


def found(file: FileId) -> SegmentFile:
    return SegmentFile(file.base, len(CONTENT), f"{STORE}/{file}")


def copied(steps: Generator[float, None, None]) -> int:
    return len(list(steps))


def test_a_copy_has_the_name_and_the_bytes_and_is_made_in_pieces(fs: MemoryFileSystem) -> None:
    archive = Archive(fs, STORE, ARCHIVE)
    assert fs.list_dir(ARCHIVE) == []  # nothing is made before the first copy
    for file in (LOG, QUEUE):
        assert copied(archive.copy(file, found(file))) == 8  # four pieces written, four compared
        assert archive.path_of(file) == f"{ARCHIVE}/{file}"
        assert fs.read(f"{ARCHIVE}/{file}", 0, 9999) == CONTENT
        assert fs.read(f"{STORE}/{file}", 0, 9999) == CONTENT
    assert fs.read(f"{ARCHIVE}/.segmentlog/archive-of", 0, 99) == b"/store\n"
    assert fs.size(f"{ARCHIVE}/.segmentlog/copy") is None


DAMAGED = {"byte": CONTENT[:700] + b"?" + CONTENT[701:], "short": CONTENT[:-1], "long": CONTENT + b"x", "empty": b""}


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_copy_is_found_and_replaced(
    fs: MemoryFileSystem, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    archive = Archive(fs, STORE, ARCHIVE)
    copied(archive.copy(LOG, found(LOG)))
    fs.unlink(archive.path_of(LOG))
    fs.create(archive.path_of(LOG)).write(0, damaged)
    copied(archive.copy(LOG, found(LOG)))
    assert fs.read(archive.path_of(LOG), 0, 9999) == CONTENT
    assert "is not equal to" in caplog.text


def test_a_copy_that_reads_back_as_other_bytes_gets_no_name(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = MemoryFileSystem.read

    def read(disk: MemoryFileSystem, path: str, offset: int, count: int) -> bytes:
        data = real(disk, path, offset, count)
        return data.replace(b"\x07", b"\x08", 1) if path.endswith("/copy") and offset >= 600 else data

    monkeypatch.setattr(MemoryFileSystem, "read", read)
    with pytest.raises(StoreIOError, match="reads back different bytes"):
        copied(Archive(fs, STORE, ARCHIVE).copy(LOG, found(LOG)))
    assert fs.size(f"{ARCHIVE}/{LOG}") is None
    assert fs.size(f"{ARCHIVE}/.segmentlog/copy") is None


def test_without_room_nothing_is_copied(fs: MemoryFileSystem) -> None:
    usable = [len(CONTENT) - 1]
    archive = Archive(fs, STORE, ARCHIVE, space=lambda path: Space(1 << 20, 1 << 20, usable[0]))
    with pytest.raises(NoSpaceError, match="the archive has 999 bytes left, a file of 1000 bytes"):
        copied(archive.copy(LOG, found(LOG)))
    assert fs.size(f"{ARCHIVE}/{LOG}") is None
    usable[0] += 1
    copied(archive.copy(LOG, found(LOG)))
    assert fs.size(f"{ARCHIVE}/{LOG}") == len(CONTENT)


def test_holes_stay_holes(tmp_path: Path) -> None:
    store, archive = tmp_path / "store", tmp_path / "archive"
    (store / "commitlog").mkdir(parents=True)
    size = 5 * module.PIECE_BYTES
    with open(store / str(LOG), "wb") as file:
        file.seek(3 * module.PIECE_BYTES)
        file.write(CONTENT)
        file.truncate(size)
    made = Archive(LocalWritableFileSystem(), str(store), str(archive))
    copied(made.copy(LOG, SegmentFile(1000, size, str(store / str(LOG)))))
    assert (archive / str(LOG)).read_bytes() == (store / str(LOG)).read_bytes()
    assert (archive / str(LOG)).stat().st_blocks * 512 < 2 * module.PIECE_BYTES


def test_an_archive_has_at_most_the_permissions_of_its_store(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    (store / str(LOG)).write_bytes(CONTENT)
    store.chmod(0o700)
    made = Archive(LocalWritableFileSystem(), str(store), str(tmp_path / "archive"))
    copied(made.copy(LOG, SegmentFile(1000, len(CONTENT), str(store / str(LOG)))))
    assert {path.stat().st_mode & 0o77 for path in (tmp_path / "archive").rglob("*")} == {0}


def test_an_archive_belongs_to_one_store(fs: MemoryFileSystem) -> None:
    copied(Archive(fs, STORE, ARCHIVE).copy(LOG, found(LOG)))
    fs.make_dir("/other")
    with pytest.raises(ConfigError, match="archive: this is the archive of /store, and the store is /other"):
        Archive(fs, "/other", ARCHIVE)
    fs.create(f"{STORE}/.segmentlog/id").write(0, ID.encode())  # the store was opened by us since
    copied(Archive(fs, STORE, ARCHIVE).copy(QUEUE, found(QUEUE)))
    assert fs.read(f"{ARCHIVE}/.segmentlog/archive-of", 0, 99) == f"{ID}\n".encode()
    fs.make_dir("/other/.segmentlog")
    fs.create("/other/.segmentlog/id").write(0, ID[::-1].encode())
    with pytest.raises(ConfigError, match=f"archive of store {ID}"):
        Archive(fs, "/other", ARCHIVE)
    with pytest.raises(ConfigError, match="not an archive"):
        Archive(fs, "/other", STORE)
