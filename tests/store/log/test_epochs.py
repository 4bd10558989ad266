from pathlib import Path

import pytest

from segmentlog.store import FormatError, MessageStore, StaleMasterError
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.epochs import Epoch, Epochs
from segmentlog.store.format.store_paths import StorePaths
from segmentlog.store.log.epochs import (
    EpochWatch,
    check_current,
    find_epochs,
    greatest_epoch,
    supersede,
    write_epochs,
)
from support.written_stores import SMALL

FS = LocalWritableFileSystem()
ONE = Epochs((Epoch(3, 100, 7),))


@pytest.fixture
def path(tmp_path: Path) -> str:
    MessageStore.open(tmp_path / "store", SMALL).close()
    return str(tmp_path / "store")


def test_a_store_that_was_never_promoted_is_of_epoch_0_and_current(path: str) -> None:
    assert (find_epochs(FS, path), greatest_epoch(FS, path)) == (Epochs(), 0)
    check_current(FS, path)


def test_a_superseded_store_is_current_again_with_a_greater_epoch(path: str) -> None:
    write_epochs(FS, path, ONE)
    supersede(FS, path, 5)
    supersede(FS, path, 4)
    assert (find_epochs(FS, path), greatest_epoch(FS, path)) == (ONE, 5)
    with pytest.raises(StaleMasterError, match="master of epoch 3, and the master of epoch 5 has replaced it"):
        check_current(FS, path)
    write_epochs(FS, path, ONE.promoted(200, 8, above=greatest_epoch(FS, path)))
    check_current(FS, path)
    assert greatest_epoch(FS, path) == 6


@pytest.mark.parametrize("name", ["epochs", "superseded"])
def test_a_damaged_epoch_file_is_an_error_and_not_epoch_0(path: str, name: str) -> None:
    Path(getattr(StorePaths(path), name)).write_bytes(bytes(16))
    with pytest.raises(FormatError, match="damaged"):
        check_current(FS, path)


def test_a_watch_sees_each_replacement_once(path: str) -> None:
    watch = EpochWatch(FS, path)
    assert (watch.look(), watch.now) == (False, Epochs())
    for number in (3, 4, 5):
        epochs = Epochs((Epoch(number, 100, 7),))
        write_epochs(FS, path, epochs)
        assert (watch.look(), watch.now, watch.look()) == (True, epochs, False)
    write_epochs(FS, path, watch.now)
    assert not watch.look(), "the same epochs in another file are no change"
    second = EpochWatch(FS, path)
    assert (second.now, second.look()) == (watch.now, False)
    second.close()
    watch.close()
