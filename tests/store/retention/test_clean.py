import logging
from collections.abc import Generator
from dataclasses import replace

import pytest

from segmentlog.store.directory.retention_history import deletions
from segmentlog.store.errors import NoSpaceError, StoreInUseError, StoreIOError
from segmentlog.store.files.segments import SegmentFile
from segmentlog.store.retention.archive import Archive
from segmentlog.store.retention.clean import Cleaner, DirectoryRemover, finish
from segmentlog.store.retention.policy import Deletion, Plan
from segmentlog.store.retention.settings import RetentionSettings
from segmentlog.store.retention.state import FileId, FileKind, Memory
from segmentlog.store.retention.survey import StoreFiles
from segmentlog.store.types import QueueKey
from support.crash.memory_fs import MemoryFileSystem
from support.crash.recorder import Kind as Call
from support.crash.recorder import RecordingFileSystem

STORE = "/store"
A, B = QueueKey("T", 0), QueueKey("T", 1)
NOW = 1_763_700_000_000
LOG = [FileId(FileKind.LOG, base) for base in (0, 1000, 2000)]
QUEUE = [FileId(FileKind.QUEUE, 0, A), FileId(FileKind.QUEUE, 40, A), FileId(FileKind.QUEUE, 0, B)]
INDEX = [FileId(FileKind.INDEX, 20261121021346480)]
SETTINGS = RetentionSettings(log_pause_ms=100, queue_pause_ms=20)


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    for path in ("", "commitlog", "consumequeue", "consumequeue/T", "consumequeue/T/0", "consumequeue/T/1", "index"):
        made.make_dir(f"{STORE}/{path}".rstrip("/"))
    for file in [
        *LOG,
        FileId(FileKind.LOG, 3000),
        *QUEUE,
        FileId(FileKind.QUEUE, 80, A),
        FileId(FileKind.QUEUE, 40, B),
        *INDEX,
    ]:
        made.create(f"{STORE}/{file}").extend(1000)
    return made


def plan(*files: FileId, disk_wins: bool = False) -> Plan:
    said = dict.fromkeys(("space_short", "manual", "forced", "disk_full_checked"), False)
    deletions = tuple(Deletion(file, "expired (time)") for file in files)
    memory = Memory(queues_cleaned_to=3000, retried_ms=NOW)
    texts = {"wanted": "", "failure": ""}
    return Plan(deletions=deletions, disk_wins=disk_wins, time_up=True, log_start=3000, memory=memory, **texts, **said)


class Refusing(DirectoryRemover):
    def __init__(self, fs: MemoryFileSystem, *refused: FileId, error: Exception | None = None) -> None:
        super().__init__(fs, lambda: None)
        self.refused = set(refused)
        self.error = error or StoreIOError("deleting failed: Operation not permitted", path="x", errno=1)

    def remove(self, file: FileId, found: SegmentFile) -> None:
        if file in self.refused:
            raise self.error
        super().remove(file, found)


def cleaner(fs: MemoryFileSystem, *refused: FileId, error: Exception | None = None) -> Cleaner:
    return Cleaner(fs, StoreFiles(fs, STORE), Refusing(fs, *refused, error=error), SETTINGS)


def driven(steps: Generator[float, None, Memory]) -> tuple[list[float], Memory]:
    pauses: list[float] = []
    return pauses, finish(steps, pauses.append)


def left(fs: MemoryFileSystem, *files: FileId) -> list[FileId]:
    return [file for file in files if fs.size(f"{STORE}/{file}") is not None]


ALL = (*LOG, *QUEUE, *INDEX)


def test_files_go_in_order_with_pauses(fs: MemoryFileSystem) -> None:
    recorder = RecordingFileSystem(fs)  # what is durable when: crash/test_retention_crashes
    made = Cleaner(recorder, StoreFiles(recorder, STORE), DirectoryRemover(recorder, lambda: None), SETTINGS)
    pauses, memory = driven(made.steps(plan(*ALL), Memory(), NOW))
    assert pauses == [0.1, 0.1, 0.1, 0.02, 0.02, 0.0]
    assert memory == plan().memory
    assert left(fs, *ALL) == []
    assert len(left(fs, FileId(FileKind.LOG, 3000), FileId(FileKind.QUEUE, 80, A), FileId(FileKind.QUEUE, 40, B))) == 3
    unlinked = [op.path.removeprefix(STORE + "/") for op in recorder.recording.ops if op.kind is Call.UNLINK]
    assert [path for path in unlinked if "0" * 10 in path] == [str(file) for file in (*LOG, *QUEUE)]
    assert made.counts.files == {FileKind.LOG: 3, FileKind.QUEUE: 3, FileKind.INDEX: 1}
    assert (made.counts.bytes, made.counts.failures) == (7000, 0)


def test_each_file_is_archived_and_recorded_in_the_history(fs: MemoryFileSystem) -> None:
    made = archiving(fs)
    pauses, memory = driven(made.steps(plan(*ALL), Memory(), NOW))
    assert [pause for pause in pauses if pause] == [0.1, 0.1, 0.1, 0.02, 0.02]
    assert memory == plan().memory
    assert (left(fs, *ALL), copies(fs, *ALL)) == ([], list(ALL))
    found = [(each.file, each.archive) for each in deletions(fs, STORE)]
    assert found == [(str(file), ARCHIVE) for file in ALL]
    assert (made.counts.archived, made.counts.failures) == (7, 0)


def test_a_disk_without_room_for_the_history_is_cleaned_first(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cleaner(fs)
    real, attempts = made._history.add, []

    def add(lines: object) -> None:
        attempts.append(len(left(fs, *LOG)))
        if len(attempts) == 1:
            raise NoSpaceError("full")
        real(lines)  # type: ignore[arg-type]

    monkeypatch.setattr(made._history, "add", add)
    driven(made.steps(plan(*LOG), Memory(), NOW))
    assert attempts == [3, 0]
    assert len(list(deletions(fs, STORE))) == 3


def test_a_segment_that_cannot_be_deleted_ends_the_run(fs: MemoryFileSystem, caplog: pytest.LogCaptureFixture) -> None:
    made = cleaner(fs, LOG[1])
    before = Memory(queues_cleaned_to=7)
    _, memory = driven(made.steps(plan(*LOG, *QUEUE, *INDEX), before, NOW))
    assert left(fs, *LOG, *QUEUE, *INDEX) == [*LOG[1:], *QUEUE, *INDEX]
    assert memory == replace(plan().memory, hung={LOG[1]: NOW}, queues_cleaned_to=7)
    assert made.counts.failures == 1
    assert "could not be deleted, a later run tries again" in caplog.text
    _, memory = driven(made.steps(plan(*LOG[1:]), replace(before, hung={LOG[1]: NOW - 9}), NOW))
    assert memory.hung == {LOG[1]: NOW - 9}  # since the first attempt


def test_a_queue_file_that_cannot_be_deleted_keeps_the_later_files_of_its_queue(fs: MemoryFileSystem) -> None:
    _, memory = driven(cleaner(fs, QUEUE[0]).steps(plan(*QUEUE, *INDEX), Memory(), NOW))
    assert left(fs, *QUEUE, *INDEX) == QUEUE[:2]
    assert memory == replace(plan().memory, hung={QUEUE[0]: NOW})


def test_a_store_that_another_process_took_over_keeps_its_files(fs: MemoryFileSystem) -> None:
    made = cleaner(fs, LOG[0], error=StoreInUseError("taken over", path=STORE))
    with pytest.raises(StoreInUseError):
        driven(made.steps(plan(*LOG, *QUEUE), Memory(), NOW))
    assert left(fs, *LOG, *QUEUE) == [*LOG, *QUEUE]

    def own() -> None:
        raise StoreInUseError("taken over", path=STORE)

    with pytest.raises(StoreInUseError):
        DirectoryRemover(fs, own).remove(LOG[0], SegmentFile(0, 1000, f"{STORE}/{LOG[0]}"))
    assert left(fs, *LOG) == LOG


def test_a_file_that_is_gone_already_is_passed_over(fs: MemoryFileSystem) -> None:
    for file in (LOG[0], QUEUE[0], INDEX[0]):
        fs.unlink(f"{STORE}/{file}")
    made = cleaner(fs)
    driven(made.steps(plan(*LOG, *QUEUE, *INDEX), Memory(), NOW))
    assert made.counts.files == {FileKind.LOG: 2, FileKind.QUEUE: 2, FileKind.INDEX: 0}
    assert len(list(deletions(fs, STORE))) == 4


# -- with an archive

ARCHIVE = "/archive"


def archiving(fs: MemoryFileSystem, settings: RetentionSettings | None = None) -> Cleaner:
    settings = replace(settings or SETTINGS, archive=ARCHIVE)
    return Cleaner(fs, StoreFiles(fs, STORE), DirectoryRemover(fs, lambda: None), settings)


def failing_copies(monkeypatch: pytest.MonkeyPatch, *refused: FileId) -> None:
    real = Archive.copy

    def copy(self: Archive, file: FileId, found: SegmentFile) -> Generator[float, None, None]:
        if file in refused:
            raise NoSpaceError("the archive is full", path=ARCHIVE)
        yield from real(self, file, found)

    monkeypatch.setattr(Archive, "copy", copy)


def copies(fs: MemoryFileSystem, *files: FileId) -> list[FileId]:
    return [file for file in files if fs.size(f"{ARCHIVE}/{file}") is not None]


def test_a_segment_that_cannot_be_archived_stays_with_all_after_it(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing_copies(monkeypatch, LOG[1])
    made, before = archiving(fs), Memory(queues_cleaned_to=7)
    _, memory = driven(made.steps(plan(*LOG, *QUEUE, *INDEX), before, NOW))
    assert left(fs, *LOG, *QUEUE, *INDEX) == [*LOG[1:], *QUEUE, *INDEX]
    # It does not count as gone, as one that could not be deleted does: its queue entries stay, too.
    assert memory == replace(plan().memory, queues_cleaned_to=7)
    assert [each.file for each in deletions(fs, STORE)] == [str(LOG[0])]
    assert (made.counts.archived, made.counts.failures) == (1, 1)
    assert f"{STORE}/{LOG[1]} could not be archived and stays" in caplog.text


def test_a_queue_file_that_cannot_be_archived_is_tried_in_the_next_run(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_copies(monkeypatch, QUEUE[0])
    _, memory = driven(archiving(fs).steps(plan(*LOG, *QUEUE, *INDEX), Memory(queues_cleaned_to=7), NOW))
    assert left(fs, *LOG, *QUEUE, *INDEX) == QUEUE[:2]
    assert memory == replace(plan().memory, queues_cleaned_to=7)


def test_above_the_hard_limit_files_go_without_a_copy_and_that_is_an_error(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing_copies(monkeypatch, LOG[1])
    made = archiving(fs)
    driven(made.steps(plan(*LOG, disk_wins=True), Memory(), NOW))
    assert left(fs, *LOG) == []
    assert copies(fs, *LOG) == [LOG[0], LOG[2]]
    assert [(each.archive, each.reason) for each in deletions(fs, STORE)] == [
        (ARCHIVE, "expired (time)"),
        ("", "expired (time), not archived"),
        (ARCHIVE, "expired (time)"),
    ]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "is deleted without a copy, since its disk is above the hard limit: " in errors[0]
