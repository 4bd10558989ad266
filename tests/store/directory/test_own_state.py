"""Recorded state of a store: its durable point, checkpoint and last owner, and what is concluded from them."""

import shutil
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing
from segmentlog.store.directory.own_state import ABORT_SIGNATURE, OwnState
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.follow import store_id
from segmentlog.store.format import checkpoint as checkpoints
from segmentlog.store.format import durable_point
from segmentlog.store.format.checkpoint import Checkpoint
from segmentlog.store.format.durable_point import DurablePoint
from segmentlog.store.sink import ensure_store_id
from support.written_stores import SMALL

FS = LocalFileSystem()
POINT = DurablePoint(sequence=3, log=900, queues=700, entries=11, has_record_crc=True)
OURS = b"4711" + ABORT_SIGNATURE


def store(path: Path, *, point: DurablePoint | None = POINT, abort: bytes | None = OURS) -> Path:
    (path / ".segmentlog").mkdir()
    if point is not None:
        (path / ".segmentlog" / "durable").write_bytes(durable_point.encode(point))
    if abort is not None:
        (path / "abort").write_bytes(abort)
    return path


def read(path: Path, *, is_signed: bool = True) -> OwnState:
    return OwnState.read(FS, str(path), is_signed=is_signed)


def test_an_empty_directory_has_no_state(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert found == OwnState(point=None, checkpoint=Checkpoint(), was_aborted=False, was_ours=False)
    assert (found.crash_point, found.sealed_from) == (None, None)


def test_a_store_that_we_left_open_is_ours(tmp_path: Path) -> None:
    found = read(store(tmp_path))
    assert (found.was_aborted, found.was_ours) == (True, True)
    assert found.point is not None
    assert (found.point.log, found.point.queues) == (900, 700)
    assert found.crash_point == found.point


@pytest.mark.parametrize(
    "abort",
    [None, b"", b"4711", OURS + b"x", b" " * 60 + OURS],
    ids=["none", "of 4.x", "of a broker", "changed", "longer than ours"],
)
def test_another_last_owner_leaves_nothing_known(tmp_path: Path, abort: bytes | None) -> None:
    found = read(store(tmp_path, abort=abort))
    assert (found.was_aborted, found.was_ours) == (abort is not None, False)
    assert found.point is not None
    assert (found.crash_point, found.sealed_from) == (None, None)


def test_a_lock_that_another_process_took_makes_it_another_s(tmp_path: Path) -> None:
    assert not read(store(tmp_path), is_signed=False).was_ours


@pytest.mark.parametrize("content", [None, b"damaged" * 100], ids=["absent", "damaged"])
def test_without_a_durable_point_it_is_not_ours(tmp_path: Path, content: bytes | None) -> None:
    store(tmp_path, point=None)
    if content is not None:
        (tmp_path / ".segmentlog" / "durable").write_bytes(content)
    found = read(tmp_path)
    assert (found.point, found.was_aborted, found.was_ours) == (None, True, False)


@pytest.mark.parametrize(("has_record_crc", "sealed_from"), [(True, 700), (False, None)])
def test_records_are_sealed_from_the_queue_position_of_the_durable_point(
    tmp_path: Path, has_record_crc: bool, sealed_from: int | None
) -> None:
    point = DurablePoint(log=900, queues=700, has_record_crc=has_record_crc)
    assert read(store(tmp_path, point=point)).sealed_from == sealed_from


def test_the_checkpoint_is_read(tmp_path: Path) -> None:
    store(tmp_path)
    (tmp_path / "checkpoint").write_bytes(checkpoints.encode(Checkpoint(physic_timestamp=17, logics_timestamp=19)))
    found = read(tmp_path).checkpoint
    assert (found.physic_timestamp, found.logics_timestamp) == (17, 19)


def test_own_state_tells_an_open_store_from_a_closed_store(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL) as made:
        made.append(Outgoing(topic="T", body=b"x"))
        assert read(path).was_ours
    closed = read(path)
    assert (closed.was_aborted, closed.was_ours) == (False, False)
    assert closed.point is not None
    assert closed.point.log == closed.point.queues > 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "store" / ".segmentlog").mkdir(parents=True)
    return tmp_path / "store"


def test_a_name_is_given_once_and_goes_along(path: Path, tmp_path: Path) -> None:
    assert store_id(str(path)) is None
    made = ensure_store_id(LocalWritableFileSystem(), str(path))
    assert ensure_store_id(LocalWritableFileSystem(), str(path)) == made == store_id(str(path))
    assert store_id(str(shutil.copytree(path, tmp_path / "copy"))) == made
    assert sorted(file.name for file in (path / ".segmentlog").iterdir()) == ["id"]


def test_two_stores_have_two_names(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / ".segmentlog").mkdir(parents=True)
    fs = LocalWritableFileSystem()
    assert ensure_store_id(fs, str(path)) != ensure_store_id(fs, str(other))


@pytest.mark.parametrize("content", [b"", b"0123", b"\0" * 33, b"Z" * 32, b"../../etc/passwd"])
def test_an_invalid_store_id_is_replaced(path: Path, content: bytes) -> None:
    (path / ".segmentlog" / "id").write_bytes(content)
    assert store_id(str(path)) is None
    made = ensure_store_id(LocalWritableFileSystem(), str(path))
    assert store_id(str(path)) == made


def test_a_store_that_is_not_ours_has_none(tmp_path: Path) -> None:
    assert store_id(str(tmp_path)) is None
    assert store_id(str(tmp_path / "nowhere")) is None
