from pathlib import Path

import pytest

from segmentlog.store import MessageStore, UnconfirmedError
from segmentlog.store.files.store_lock import StoreLock
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.confirmation import Confirmation
from segmentlog.store.log.confirmed import ConfirmationFile, confirmed_offset, find_confirmation, settle_confirmation
from support.written_stores import SMALL, message

FS = LocalWritableFileSystem()


@pytest.fixture
def path(tmp_path: Path) -> str:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        for serial in range(20):
            store.append(message(1, 1, serial))
    return str(tmp_path / "store")


def settle(path: str, end: int, *, was_ours: bool = True) -> None:
    settle_confirmation(FS, path, end, was_ours=was_ours)


def test_a_store_without_a_master_is_an_error(path: str) -> None:
    assert find_confirmation(FS, path) is None
    with pytest.raises(UnconfirmedError, match="no master publishes a confirmed offset") as caught:
        confirmed_offset(FS, path)
    assert "segmentlog serve" in str(caught.value)


def test_a_published_confirmation_is_read_and_never_falls(path: str) -> None:
    with ConfirmationFile(FS, path, 2) as file:
        assert confirmed_offset(FS, path) == 0
        for offset, expected in ((700, 700), (300, 700), (900, 900)):
            file.publish(offset, 2)
            assert find_confirmation(FS, path) == file.last
            assert (file.last.offset, file.last.copies) == (expected, 2)
    assert find_confirmation(FS, path) == Confirmation(file.last.sequence, 900, 2, 1)
    with ConfirmationFile(FS, path, 3) as file:
        assert file.last[1:] == (900, 3, 1)


def test_recovery_lowers_the_confirmation_to_the_end_of_the_log(path: str) -> None:
    with ConfirmationFile(FS, path, 2) as file:
        file.publish(900, 2)
    settle(path, 900)
    assert confirmed_offset(FS, path) == 900
    settle(path, 899)
    assert confirmed_offset(FS, path) == 899


def test_a_broker_since_then_makes_it_worthless(path: str) -> None:
    with ConfirmationFile(FS, path, 2) as file:
        file.publish(900, 2)
    lock = Path(path, "lock")
    lock.write_bytes(b"lock")  # as a broker does at its start
    with pytest.raises(UnconfirmedError):
        confirmed_offset(FS, path)
    with MessageStore.open(path, SMALL):
        assert find_confirmation(FS, path) is None
    with StoreLock(str(lock)) as held:
        assert held.is_signed
    settle(path, 1 << 40, was_ours=False)
