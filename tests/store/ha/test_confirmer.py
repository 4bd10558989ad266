"""Confirmer: offsets that are published are ends of records and of batches, held by enough replicas."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, StoreInUseError
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.ha import Quorum
from segmentlog.store.ha.confirmer import Confirmer
from segmentlog.store.log.confirmed import confirmed_offset, find_confirmation

FS = LocalWritableFileSystem()


@pytest.fixture
def path(tmp_path: Path) -> str:
    MessageStore.open(tmp_path / "store").close()
    return str(tmp_path / "store")


@pytest.fixture
def quorum() -> Quorum:
    return Quorum(2)


@pytest.fixture
def confirmer(path: str, quorum: Quorum) -> Iterator[Confirmer]:
    confirmer = Confirmer(path, quorum)
    quorum.serve_by(lambda: None, confirmer.confirm)
    yield confirmer
    confirmer.close()


def test_only_noted_ends_are_published(path: str, quorum: Quorum, confirmer: Confirmer) -> None:
    for end in (100, 100, 250):
        confirmer.note(end)
    published = []
    for held in (0, 99, 100, 180, 249, 250, 250):
        quorum.acknowledge(1, held)
        published.append(confirmed_offset(FS, path))
    assert published == [0, 0, 100, 100, 100, 250, 250]
    confirmer.note(400)
    quorum.acknowledge(1, 399)
    assert confirmer.confirmed == 250


def test_an_acknowledgement_within_a_record_confirms_what_is_before_it(
    path: str, quorum: Quorum, confirmer: Confirmer
) -> None:
    for end in (100, 250):
        confirmer.note(end)
    quorum.acknowledge(1, 180)
    assert confirmed_offset(FS, path) == 100


def test_copies_in_sync_are_published(path: str, quorum: Quorum, confirmer: Confirmer) -> None:
    confirmer.note(1 << 30)
    quorum.acknowledge(1, 1 << 30)
    quorum.acknowledge(2, 5)  # a large gap
    found = find_confirmation(FS, path)
    assert found is not None
    assert (found.copies, found.offset) == (2, 1 << 30)
    quorum.forget(1)
    found = find_confirmation(FS, path)
    assert found is not None
    assert (found.copies, found.offset) == (1, 1 << 30)


def test_an_append_that_waited_is_published_before_it_returns(path: str, quorum: Quorum, confirmer: Confirmer) -> None:
    confirmer.note(100)
    quorum.acknowledge(1, 100)
    quorum.wait(100)
    assert confirmed_offset(FS, path) == 100


def test_memory_is_bounded_while_no_replica_answers(quorum: Quorum, confirmer: Confirmer) -> None:
    for end in range(20_000):
        confirmer.note(end)
    assert len(confirmer._ends) <= 4096
    quorum.acknowledge(1, 19_999)
    assert confirmer.confirmed == 19_999


def test_one_server_publishes_for_a_store(path: str, confirmer: Confirmer) -> None:
    assert confirmer.confirmed == 0
    with pytest.raises(StoreInUseError, match="another process serves this store to replicas"):
        Confirmer(path, Quorum(2))
