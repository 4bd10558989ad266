import shutil
from dataclasses import replace
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


@pytest.mark.parametrize("has_record_crc", [True, False])
def test_a_store_that_we_left_open_is_ours_unless_another_process_took_its_lock(
    tmp_path: Path, has_record_crc: bool
) -> None:
    point = replace(POINT, has_record_crc=has_record_crc)
    found = read(store(tmp_path, point=point))
    assert (found.was_aborted, found.was_ours, found.checkpoint) == (True, True, Checkpoint())
    assert found.point == found.crash_point == point
    assert found.sealed_from == (700 if has_record_crc else None), "the queue position of the durable point"
    (tmp_path / "checkpoint").write_bytes(checkpoints.encode(Checkpoint(physic_timestamp=17, logics_timestamp=19)))
    found = read(tmp_path, is_signed=False)
    assert not found.was_ours
    assert (found.checkpoint.physic_timestamp, found.checkpoint.logics_timestamp) == (17, 19)


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


@pytest.mark.parametrize("content", [None, b"damaged" * 100], ids=["absent", "damaged"])
def test_without_a_durable_point_it_is_not_ours(tmp_path: Path, content: bytes | None) -> None:
    store(tmp_path, point=None)
    if content is not None:
        (tmp_path / ".segmentlog" / "durable").write_bytes(content)
    found = read(tmp_path)
    assert (found.point, found.was_aborted, found.was_ours) == (None, True, False)


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


def test_each_store_gets_a_name_of_its_own_once_and_it_goes_along(path: Path, tmp_path: Path) -> None:
    fs, other = LocalWritableFileSystem(), tmp_path / "other"
    (other / ".segmentlog").mkdir(parents=True)
    assert [store_id(str(each)) for each in (path, tmp_path, tmp_path / "nowhere")] == [None] * 3
    made = ensure_store_id(fs, str(path))
    assert ensure_store_id(fs, str(path)) == made == store_id(str(path)) != ensure_store_id(fs, str(other))
    assert store_id(str(shutil.copytree(path, tmp_path / "copy"))) == made
    assert sorted(file.name for file in (path / ".segmentlog").iterdir()) == ["id"]


@pytest.mark.parametrize("content", [b"", b"0123", b"\0" * 33, b"Z" * 32, b"../../etc/passwd"])
def test_an_invalid_store_id_is_replaced(path: Path, content: bytes) -> None:
    (path / ".segmentlog" / "id").write_bytes(content)
    assert store_id(str(path)) is None
    made = ensure_store_id(LocalWritableFileSystem(), str(path))
    assert store_id(str(path)) == made
