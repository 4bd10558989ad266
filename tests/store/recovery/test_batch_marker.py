"""Batch mark when a store is opened: which batches are undone, and what the settled mark says."""

import logging
from pathlib import Path

import pytest

from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.format.ledger import Ledger, LedgerEntry
from segmentlog.store.log.batch_state import BatchRecords
from segmentlog.store.recovery.batch_marker import BatchMarker, UnfinishedBatch

FS = LocalWritableFileSystem()
FLIGHT = BatchMark(3, 500, 500, in_flight=True)


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / ".segmentlog").mkdir()
    return str(tmp_path)


def ledger_up_to(path: str, sequence: int) -> None:
    ledger = Ledger().with_entry("q", LedgerEntry(0, sequence, 500, 900, 4, 400, 0), ())
    BatchRecords(FS, path).write_ledger(FS, ledger, f"{path}/.segmentlog/making")


def test_a_store_without_batches_has_nothing_to_undo(path: str) -> None:
    found = UnfinishedBatch.find(FS, path, was_ours=True)
    assert found == (BatchMark(), None)
    assert found.settled(900) == BatchMark()


def test_a_batch_that_is_not_in_the_ledger_is_undone(path: str) -> None:
    BatchMarker(FS, path, BatchMark()).write(FLIGHT)
    found = UnfinishedBatch.find(FS, path, was_ours=True)
    assert found == (FLIGHT, 500)
    assert found.settled(500) == BatchMark(3, 500, 500)
    assert found.settled(400) == BatchMark(3, 400, 400)  # damage cut the log before the batch


def test_a_batch_that_is_in_the_ledger_is_kept(path: str) -> None:
    BatchMarker(FS, path, BatchMark()).write(FLIGHT)
    ledger_up_to(path, 3)
    found = UnfinishedBatch.find(FS, path, was_ours=True)
    assert found == (FLIGHT, None)
    assert found.settled(900) == BatchMark(3, 500, 900)


def test_a_batch_whose_rows_a_broker_took_for_messages_is_kept(path: str, caplog: pytest.LogCaptureFixture) -> None:
    BatchMarker(FS, path, BatchMark()).write(FLIGHT)
    with caplog.at_level(logging.ERROR):
        found = UnfinishedBatch.find(FS, path, was_ours=False)
    assert found == (FLIGHT, None)
    assert "its first rows are messages now" in caplog.text


def test_a_written_mark_is_the_one_that_is_read(path: str) -> None:
    marker = BatchMarker(FS, path, BatchMark())
    assert not marker.in_flight
    marker.write(FLIGHT)
    assert marker.in_flight
    assert BatchRecords(FS, path).mark() == marker.mark == FLIGHT
