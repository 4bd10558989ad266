import shutil
import socket
import time
from pathlib import Path

import pytest

from segmentlog.store import (
    BatchId,
    DivergedLogError,
    MessageStore,
    ReplicationError,
    Snapshot,
    StaleMasterError,
)
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.ha import Address, Promotion, demote, promote
from segmentlog.store.log.epochs import check_current, find_epochs, supersede, write_epochs
from segmentlog.store.maintenance import verify
from segmentlog.store.sink import Staging, commit_batch, prepare_store
from segmentlog.store.types import QueueSource
from segmentlog.store.write import message_store
from support.batches import batch_of
from support.promoted import PLAIN, Pair, append, follow_up, part, served
from support.reading import read
from support.replicas import log_bytes
from support.written_stores import message

pytestmark = pytest.mark.usefixtures("frequent_heartbeats")

FS = LocalWritableFileSystem()


def bodies(path: Path | str) -> list[bytes]:
    rows = read(Snapshot.open(path, queue_source=QueueSource.COMMIT_LOG))
    return [row["body"] for row in sorted(rows, key=lambda row: row["physicalOffset"])]


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


# Demotion


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return part(tmp_path_factory.mktemp("pair"), old=30, new=90)


@pytest.fixture
def pair(written: Pair, tmp_path: Path) -> Pair:
    shutil.copytree(written.old.parent, tmp_path, dirs_exist_ok=True)
    return written._replace(old=tmp_path / "old", new=tmp_path / "new")


@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize("replaced", [True, False])
def test_it_is_cut_where_the_logs_part_and_follows(pair: Pair, *, replaced: bool) -> None:
    if replaced:
        supersede(FS, str(pair.old), 1)
    before, rows = log_bytes(pair.old), bodies(pair.old)
    with served(pair.new) as server:
        master = Address("127.0.0.1", server.port)
        planned = demote(pair.old, master, dry_run=True)
        assert log_bytes(pair.old) == before
        assert find_epochs(FS, str(pair.old)).newest == 0
        assert demote(pair.old, master) == planned
        assert (planned.epoch, planned.start) == (1, pair.parting)
        check_current(FS, str(pair.old))
        assert planned.copy is not None
        assert bodies(planned.copy)[-30:] == rows[-30:]
        assert bodies(pair.old) == rows[:-30]
        assert verify(pair.old).findings == ()
        again = demote(pair.old, master)
        assert (again.start, again.stop, again.copy) == (pair.parting, pair.parting, None)
        with MessageStore.open(pair.new, PLAIN) as store:
            end = store.end_offset
        follow_up(pair.old, server.port, end)
    assert log_bytes(pair.old)[:end] == log_bytes(pair.new)[:end]
    assert find_epochs(FS, str(pair.old)) == find_epochs(FS, str(pair.new))
    assert bodies(planned.copy)[-30:] == rows[-30:], "the copy stays"


def test_a_replaced_master_takes_no_rows_until_it_is_demoted_or_promoted(pair: Pair) -> None:
    rows = batch_of([message(3, 1, 500)])
    with Staging.open(pair.old, "job", 0, "a", PLAIN) as staging:
        staging.add(rows)
        staged = [staging.finish()]
    supersede(FS, str(pair.old), 1)
    before = log_bytes(pair.old)
    with MessageStore.open(pair.old, PLAIN) as store:
        for put in (lambda: store.append(message(3, 1, 500)), lambda: store.append_batch(rows)):
            with pytest.raises(StaleMasterError, match="epoch 1 has replaced it"):
                put()
    with pytest.raises(StaleMasterError, match="segmentlog demote"):
        prepare_store(pair.old, PLAIN)
    with pytest.raises(StaleMasterError):
        commit_batch(pair.old, PLAIN, BatchId("job", 0), staged)
    assert log_bytes(pair.old) == before
    assert len(bodies(pair.old)) == 130
    promote(pair.old)
    prepare_store(pair.old, PLAIN)
    commit_batch(pair.old, PLAIN, BatchId("job", 0), staged)
    assert len(bodies(pair.old)) == 131


def test_a_writer_that_has_a_replaced_master_open_is_stopped(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_store, "_CURRENT_S", 0.05)
    with MessageStore.open(pair.old, PLAIN) as store:
        store.append(message(3, 1, 500))
        supersede(FS, str(pair.old), 1)
        time.sleep(0.06)
        before = store.end_offset
        for put in (
            lambda: store.append(message(3, 1, 501)),
            lambda: store.append_batch(batch_of([message(3, 1, 502)])),
        ):
            with pytest.raises(StaleMasterError, match="epoch 1 has replaced it"):
                put()
        assert store.end_offset == before
    assert len(bodies(pair.old)) == 131


def test_a_store_with_nothing_of_its_own_needs_no_cut(tmp_path: Path) -> None:
    pair = part(tmp_path, old=0, new=20)
    supersede(FS, str(pair.old), 1)
    with served(pair.new) as server:
        found = demote(pair.old, Address("127.0.0.1", server.port))
    assert (found.start, found.stop, found.copy, found.epoch) == (pair.parting, pair.parting, None, 1)
    check_current(FS, str(pair.old))


def test_an_older_master_is_refused(pair: Pair) -> None:
    before = log_bytes(pair.new)
    with served(pair.old) as server, pytest.raises(StaleMasterError, match="is of epoch 0, and this replica knows"):
        demote(pair.new, Address("127.0.0.1", server.port))
    assert log_bytes(pair.new) == before


def test_two_stores_of_the_same_epoch_replace_neither(pair: Pair) -> None:
    promote(pair.old)
    append(pair.old, range(10))
    before = log_bytes(pair.old)
    with served(pair.new) as server, pytest.raises(DivergedLogError, match="neither of them replaces the other"):
        demote(pair.old, Address("127.0.0.1", server.port))
    assert log_bytes(pair.old) == before
    promote(pair.new)
    with served(pair.new) as server:
        assert demote(pair.old, Address("127.0.0.1", server.port)).start == pair.parting


def test_a_master_without_a_promotion_that_lost_its_end_is_refused(tmp_path: Path) -> None:
    pair = part(tmp_path, old=5, new=0)
    write_epochs(FS, str(pair.old), find_epochs(FS, str(pair.new)))
    with served(pair.new) as server, pytest.raises(DivergedLogError, match="neither of them replaces the other"):
        demote(pair.old, Address("127.0.0.1", server.port))


def test_logs_without_a_common_byte_are_left_alone(pair: Pair) -> None:
    with MessageStore.open(pair.old, PLAIN) as store:
        segments = store.end_offset // PLAIN.segment_bytes
    for file in sorted((pair.old / "commitlog").iterdir())[: pair.parting // PLAIN.segment_bytes + 1]:
        file.unlink()
    assert segments > pair.parting // PLAIN.segment_bytes
    before = log_bytes(pair.old)
    with served(pair.new) as server, pytest.raises(DivergedLogError, match=f"before {pair.parting} only: nothing is"):
        demote(pair.old, Address("127.0.0.1", server.port))
    assert log_bytes(pair.old) == before


def test_a_master_that_does_not_answer_is_refused_in_time(pair: Pair) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address("127.0.0.1", silent.getsockname()[1])
        with pytest.raises(ReplicationError, match=r"states no epochs within 0\.2 s"):
            demote(pair.old, address, wait_s=0.2)


def test_a_master_that_cannot_be_reached_is_named(pair: Pair) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        address = Address("127.0.0.1", unused.getsockname()[1])
        with pytest.raises(ReplicationError, match=f"{address} cannot be asked for its epochs: Connection refused"):
            demote(pair.old, address, wait_s=0.2)
