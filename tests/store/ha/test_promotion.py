"""Promotion: an epoch begins where the log ends, durable, and whatever a process has open is left alone."""

from pathlib import Path

import pytest

from segmentlog.store import MessageStore, NotAStoreError, StoreInUseError
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.ha import Promotion, promote
from segmentlog.store.log.epochs import check_current, find_epochs, supersede
from segmentlog.store.maintenance import verify
from support.promoted import PLAIN, append
from support.replicas import log_bytes

FS = LocalWritableFileSystem()


def test_each_promotion_begins_an_epoch_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "store"
    ends = []
    for number in (1, 2, 3):
        ends.append(append(path, range(10)))
        before = log_bytes(path)
        assert promote(path) == Promotion(str(path), number, ends[-1])
        assert log_bytes(path) == before
    history = find_epochs(FS, str(path)).history
    assert [(each.number, each.start) for each in history] == list(zip((1, 2, 3), ends, strict=True))
    assert len({each.token for each in history}) == 3
    assert verify(path).findings == ()
    with MessageStore.open(path, PLAIN) as store:
        assert store.recovered.was_clean


def test_a_replaced_master_is_current_again_after_its_promotion(tmp_path: Path) -> None:
    path = tmp_path / "store"
    append(path, range(10))
    supersede(FS, str(path), 7)
    assert promote(path).epoch == 8
    check_current(FS, str(path))


def test_a_store_that_is_open_is_refused(tmp_path: Path) -> None:
    append(tmp_path / "store", range(10))
    with MessageStore.open(tmp_path / "store", PLAIN), pytest.raises(StoreInUseError):
        promote(tmp_path / "store")
    assert find_epochs(FS, str(tmp_path / "store")).newest == 0
    with pytest.raises(NotAStoreError):
        promote(tmp_path / "nothing")
