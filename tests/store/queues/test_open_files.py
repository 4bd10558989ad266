"""Open files of queues: which stay open, and the limit that all writers of a process share."""

import gc
import resource

import pytest

from segmentlog.store.files.writable_fs import WritableFile
from segmentlog.store.queues.open_files import EACH_MIN, OpenFiles
from support.crash.memory_fs import MemoryFileSystem

DESCRIPTORS = 2000


class CountingFileSystem(MemoryFileSystem):
    """Files named by numbers, and which of them were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open(self, path: str) -> WritableFile:
        self.opened.append(path)
        return super().open(path)


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # writers of other tests that were not closed
    monkeypatch.setattr(resource, "getrlimit", lambda _: (DESCRIPTORS, DESCRIPTORS))


@pytest.fixture
def fs() -> CountingFileSystem:
    made = CountingFileSystem()
    made.make_dir("/queues")
    for number in range(2 * DESCRIPTORS):
        made.create(path_of(number)).close()
    return made


def path_of(number: int) -> str:
    return f"/queues/{number}"


def use(files: OpenFiles, count: int) -> None:
    for number in range(count):
        files.open(path_of(number))


def opens_for_two_turns(fs: CountingFileSystem, files: OpenFiles, count: int) -> int:
    """Use so many files in turn, twice; return how often one had to be opened."""
    fs.opened.clear()
    for _ in range(2):
        use(files, count)
    return len(fs.opened)


def test_half_of_the_descriptors_stay_open(fs: CountingFileSystem) -> None:
    files = OpenFiles(fs)
    assert opens_for_two_turns(fs, files, DESCRIPTORS // 2) == DESCRIPTORS // 2
    files.close()


def test_what_was_used_least_lately_is_closed_first(fs: CountingFileSystem) -> None:
    files = OpenFiles(fs)
    use(files, DESCRIPTORS // 2)
    files.open(path_of(0))
    files.open(path_of(DESCRIPTORS))
    fs.opened.clear()
    files.open(path_of(0))
    assert not fs.opened
    files.open(path_of(1))
    assert fs.opened == [path_of(1)]
    files.close()


def test_writers_share_the_limit_and_each_keeps_a_few(fs: CountingFileSystem) -> None:
    first, second = OpenFiles(fs), OpenFiles(fs)
    use(first, DESCRIPTORS // 2)
    assert opens_for_two_turns(fs, second, EACH_MIN) == EACH_MIN
    assert opens_for_two_turns(fs, second, EACH_MIN + 1) > EACH_MIN
    first.open(path_of(DESCRIPTORS))  # makes room for what the second holds
    first.close()
    assert DESCRIPTORS // 2 - EACH_MIN <= opens_for_two_turns(fs, second, DESCRIPTORS // 2) <= DESCRIPTORS // 2
    second.close()


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_writer_that_is_gone_holds_nothing(fs: CountingFileSystem, *, is_closed: bool) -> None:
    first = OpenFiles(fs)
    use(first, DESCRIPTORS // 2)
    if is_closed:
        first.close()
    del first
    gc.collect()
    second = OpenFiles(fs)
    assert opens_for_two_turns(fs, second, DESCRIPTORS // 2) == DESCRIPTORS // 2
    second.close()


def test_a_forgotten_file_makes_room_and_is_opened_again(fs: CountingFileSystem) -> None:
    files = OpenFiles(fs)
    use(files, DESCRIPTORS // 2)
    files.forget(path_of(7))
    files.forget("/queues/never-opened")
    fs.opened.clear()
    files.open(path_of(DESCRIPTORS))
    files.open(path_of(0))
    files.open(path_of(7))
    assert fs.opened == [path_of(DESCRIPTORS), path_of(7)]
    files.close()
