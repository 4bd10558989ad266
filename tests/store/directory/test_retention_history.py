import pytest

from segmentlog.store.directory import retention_history as history
from segmentlog.store.directory.retention_history import Deleted, History, deletion_note, deletions
from segmentlog.store.errors import NoSpaceError, Remedy
from support.crash.memory_fs import MemoryFileSystem

STORE = "/store"
FILE = "/store/.segmentlog/retention-history"


def segment(number: int, ms: int = 1_763_700_000_000) -> Deleted:
    return Deleted(ms, f"commitlog/{number * 1000:020d}", 1000, "expired (time)")


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_dir(STORE)
    return made


def test_deletions_are_read_in_their_order_and_torn_and_foreign_lines_skipped(fs: MemoryFileSystem) -> None:
    assert list(deletions(fs, STORE)) == []
    writer = History(fs, STORE)
    writer.add([segment(0), segment(1)])
    for torn in (b'{"ms": 5, "fi', b'\n{"ms": "x", "file": "a", "bytes": 1, "reason": ""}\n[1]\n{"a": 1}\n'):
        file = fs.open(FILE)
        file.write(fs.size(FILE) or 0, torn)
    writer.add([segment(2)])
    assert list(deletions(fs, STORE)) == [segment(0), segment(1), segment(2)]
    said = "retention deleted commitlog/00000000000000001000 at 2025-11-21T04:40:09.000+00:00: expired (time)"
    assert str(segment(1, 1_763_700_009_000)) == said


def test_lines_of_odd_depth_and_names_of_odd_length_are_no_segments(fs: MemoryFileSystem) -> None:
    History(fs, STORE).add([segment(0), Deleted(5, "commitlog/" + "9" * 5_000, 1, "")])
    file = fs.open(FILE)
    file.write(fs.size(FILE) or 0, b"\n" + b"[" * 100_000 + b"\n")
    assert deletion_note(STORE, fs).text == f"; {segment(0)}, the last of the CommitLog"


def test_a_note_names_the_last_segment(fs: MemoryFileSystem) -> None:
    assert deletion_note(STORE, fs) == ("", ())
    index = Deleted(5, "index/00000000000001500", 1000, "below log start 9")
    History(fs, STORE).add([index])
    assert deletion_note(STORE, fs) == ("", ())
    History(fs, STORE).add([segment(0), segment(1), index])
    assert deletion_note(STORE, fs) == (f"; {segment(1)}, the last of the CommitLog", ())


def test_the_history_is_bounded_and_keeps_the_newest_deletions(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "BYTES_MAX", 2000)
    writer = History(fs, STORE)
    for number in range(100):
        writer.add([segment(number)])
        assert (fs.size(FILE) or 0) <= 2000
        found = list(deletions(fs, STORE))
        assert found[-1] == segment(number)
        assert found == [segment(each) for each in range(number + 1 - len(found), number + 1)]
    assert len(found) >= 5


def test_a_full_disk_is_said(fs: MemoryFileSystem) -> None:
    History(fs, STORE).add([segment(0)])
    fs.capacity = 0
    with pytest.raises(NoSpaceError):
        History(fs, STORE).add([segment(number) for number in range(100)])
    assert next(iter(deletions(fs, STORE))) == segment(0)


def test_a_note_about_an_archived_segment_names_the_archive(fs: MemoryFileSystem) -> None:
    history = History(fs, STORE)
    history.add([segment(1)])
    assert b"archive" not in fs.read(f"{STORE}/.segmentlog/retention-history", 0, 9999)
    history.add([segment(2)._replace(archive="/mnt/archive")])
    assert [each.archive for each in deletions(fs, STORE)] == ["", "/mnt/archive"]
    note = deletion_note(STORE, fs)
    assert note.text == f"; {segment(2)}, archived in /mnt/archive, the last of the CommitLog"
    assert note.remedies == (Remedy.READ_ARCHIVE,)
    fs.unlink(f"{STORE}/.segmentlog/retention-history")
    fs.create(f"{STORE}/.segmentlog/retention-history").write(
        0, b'{"ms": 1, "file": "commitlog/0", "bytes": 1, "reason": "x", "archive": 7}\n'
    )
    assert deletion_note(STORE, fs) == ("", ())
