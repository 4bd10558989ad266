"""Batch mark when a store is opened: which batches are undone, and what the settled mark says."""

import logging
from pathlib import Path

import pytest

from segmentlog.store.config import StoreConfig
from segmentlog.store.directory.own_state import ABORT_SIGNATURE
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format import durable_point
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.format.durable_point import DurablePoint
from segmentlog.store.format.ledger import LOST, Ledger, LedgerEntry
from segmentlog.store.log.batch_state import BatchRecords
from segmentlog.store.recovery.batch_marker import BatchMarker, TornBatches, UnfinishedBatch
from segmentlog.store.recovery.durability import Durability

FS = LocalWritableFileSystem()
FLIGHT = BatchMark(3, 500, 500, in_flight=True)


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / ".segmentlog").mkdir()
    return str(tmp_path)


def ledger_up_to(path: str, sequence: int) -> None:
    ledger = Ledger().with_entry("q", LedgerEntry(0, sequence, 500, 900, 4, 400, 0), ())
    BatchRecords(FS, path).commit(FS, Ledger(), ledger)


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


def test_a_published_mark_does_not_outlast_its_rows(path: str) -> None:
    BatchMarker(FS, path, BatchMark()).write(BatchMark(3, 500, 900))
    ledger_up_to(path, 3)
    found = UnfinishedBatch.find(FS, path, was_ours=True)
    assert found.settled(900) == BatchMark(3, 500, 900)
    assert found.settled(500) == BatchMark(3, 500, 500)
    assert found.settled(100) == BatchMark(3, 100, 100)


def left_open(path: str, log: int, *, was_ours: bool = True) -> Durability:
    """A store that was not closed, and whose log is on the device up to a physical offset."""
    for name, content in (
        ("abort", b"1" + ABORT_SIGNATURE),
        (".segmentlog/durable", durable_point.encode(DurablePoint(log=log))),
    ):
        file = FS.create(f"{path}/{name}")
        file.write(0, content)
        file.close()
    return Durability(FS, path, StoreConfig(), was_ours=was_ours)


def test_a_batch_whose_rows_are_gone_is_forgotten(path: str, caplog: pytest.LogCaptureFixture) -> None:
    ledger_up_to(path, 3)
    found = TornBatches.find(FS, path, 899, left_open(path, 100))
    assert found.log_end == 500
    with caplog.at_level(logging.ERROR):
        found.forget(FS, path)
    assert "a power cut took batch 0 of q, 4 rows at [500, 900)" in caplog.text
    after = BatchRecords(FS, path).ledger()
    newest = after.applications["q"].newest
    assert (after.sequence, newest.rows, newest.start, newest.stop) == (3, LOST, 500, 500)


def test_a_batch_that_a_cut_took_is_no_error(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """A demotion cuts the log at 500; a store that is open has `abort`, as after a crash."""
    ledger_up_to(path, 3)
    with caplog.at_level(logging.INFO):
        TornBatches.find(FS, path, 500, left_open(path, 900), undone_from=500).forget(FS, path)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "a demotion or promotion cut off batch 0 of q, 4 rows at [500, 900)" in record.getMessage()


def test_a_power_cut_before_an_unfinished_batch(path: str, caplog: pytest.LogCaptureFixture) -> None:
    ledger_up_to(path, 3)
    TornBatches.find(FS, path, 899, left_open(path, 100), undone_from=950).forget(FS, path)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "a power cut took batch 0 of q" in caplog.text


def test_whole_batches_stay(path: str, caplog: pytest.LogCaptureFixture) -> None:
    ledger_up_to(path, 3)
    found = TornBatches.find(FS, path, 900, left_open(path, 100))
    assert found[:3] == TornBatches(900)
    found.forget(FS, path)
    assert "q" in BatchRecords(FS, path).ledger().applications
    assert not caplog.records


def test_damage_below_the_durable_point_takes_no_batch(path: str) -> None:
    ledger_up_to(path, 3)
    assert TornBatches.find(FS, path, 700, left_open(path, 900))[:3] == TornBatches(700)


def test_rows_that_a_broker_took_for_messages_stay(path: str) -> None:
    ledger_up_to(path, 3)
    found = TornBatches.find(FS, path, 700, left_open(path, 100, was_ours=False))
    assert (found.log_end, len(found.lost)) == (700, 1)
