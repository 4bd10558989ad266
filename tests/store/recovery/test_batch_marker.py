import logging
from pathlib import Path

import pytest

from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.format.ledger import LOST, Ledger, LedgerEntry
from segmentlog.store.log.batch_state import BatchRecords
from segmentlog.store.recovery.batch_marker import BatchMarker, CutBatches, UnfinishedBatch

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


def test_an_unfinished_batch_with_rows_dispatched_by_a_broker_is_kept(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    BatchMarker(FS, path, BatchMark()).write(FLIGHT)
    with caplog.at_level(logging.ERROR):
        found = UnfinishedBatch.find(FS, path, was_ours=False)
    assert found == (FLIGHT, None)
    assert "its first rows are messages now" in caplog.text


def test_a_published_mark_does_not_outlast_its_rows(path: str) -> None:
    BatchMarker(FS, path, BatchMark()).write(BatchMark(3, 500, 900))
    ledger_up_to(path, 3)
    found = UnfinishedBatch.find(FS, path, was_ours=True)
    assert found.settled(900) == BatchMark(3, 500, 900)
    assert found.settled(500) == BatchMark(3, 500, 500)
    assert found.settled(100) == BatchMark(3, 100, 100)


def test_a_batch_that_a_cut_took_is_forgotten(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """A demotion cuts the log at 500."""
    ledger_up_to(path, 3)
    found = CutBatches.find(FS, path, 500, undone_from=500)
    assert (found.log_end, [each.entry.version for each in found.lost]) == (500, [0])
    with caplog.at_level(logging.INFO):
        found.forget(FS, path)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "a demotion or promotion cut off batch 0 of q, 4 rows at [500, 900)" in record.getMessage()
    after = BatchRecords(FS, path).ledger()
    newest = after.applications["q"].newest
    assert (after.sequence, newest.rows, newest.start, newest.stop) == (3, LOST, 500, 500)


def test_damage_before_a_cut_ends_the_log_between_batches(path: str) -> None:
    ledger_up_to(path, 3)
    records = BatchRecords(FS, path)
    former = records.ledger()
    records.commit(FS, former, former.with_entry("q", LedgerEntry(1, 4, 900, 990, 4, 90, 0), ()))
    found = CutBatches.find(FS, path, 700, undone_from=900)
    assert (found.log_end, [each.entry.version for each in found.lost]) == (500, [0, 1])
    found.forget(FS, path)
    assert [each.rows for each in BatchRecords(FS, path).ledger().applications["q"].entries] == [LOST]


@pytest.mark.parametrize(("end", "undone_from"), [(900, None), (700, None), (900, 900), (950, 950)])
def test_batches_before_a_cut_stay(
    path: str, caplog: pytest.LogCaptureFixture, end: int, undone_from: int | None
) -> None:
    """Damage takes no batch from the ledger: a job that repeats it must not append it again."""
    ledger_up_to(path, 3)
    found = CutBatches.find(FS, path, end, undone_from)
    assert found == CutBatches(end)
    found.forget(FS, path)
    assert BatchRecords(FS, path).ledger().applications["q"].newest.rows == 4
    assert not caplog.records
