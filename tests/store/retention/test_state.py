from segmentlog.store.retention.state import MANUAL_RUNS, FileId, FileKind, Memory
from segmentlog.store.types import QueueKey


def test_files_are_named_as_they_are_in_a_store() -> None:
    assert str(FileId(FileKind.LOG, 1 << 30)) == "commitlog/00000000001073741824"
    assert str(FileId(FileKind.QUEUE, 40, QueueKey("%RETRY%g", 3))) == "consumequeue/%RETRY%g/3/00000000000000000040"
    assert str(FileId(FileKind.INDEX, 20261121021346480)) == "index/20261121021346480"


def test_a_trigger_starts_the_count_again() -> None:
    memory = Memory(manual_left=3, disk_full=True)
    assert memory.triggered() == Memory(manual_left=MANUAL_RUNS, disk_full=True)
