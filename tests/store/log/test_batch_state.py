from pathlib import Path

import pytest

from segmentlog.store import FileTooLargeError, FormatError, ReplicationError
from segmentlog.store.files import small_file
from segmentlog.store.files.store_lock import StoreLock
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.batch_history import BatchHistory, encode_lines
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.format.ledger import LOST, Batch, Ledger, LedgerEntry
from segmentlog.store.log import batch_state
from segmentlog.store.log.batch_state import BatchRecords, Visibility, end_following

FS = LocalWritableFileSystem()
FLIGHT = BatchMark(3, 500, 500, in_flight=True)
LANDED = BatchMark(3, 500, 900)


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / ".segmentlog").mkdir()
    return str(tmp_path)


def write_mark(path: str, mark: BatchMark) -> None:
    BatchRecords(FS, path).write_mark(FS, mark)


def write_ledger(path: str, sequence: int) -> Ledger:
    ledger = Ledger().with_entry("q", LedgerEntry(0, sequence, 500, 900, 4, 400, 0), ())
    return BatchRecords(FS, path).commit(FS, Ledger(), ledger)


@pytest.mark.parametrize(
    ("mark", "sequence", "pending"),
    [(FLIGHT, 2, True), (FLIGHT, 3, False), (LANDED._replace(sequence=2), 2, False)],
    ids=["not in the ledger", "in the ledger", "not in flight"],
)
def test_a_batch_is_pending_until_it_is_in_the_ledger(path: str, mark: BatchMark, sequence: int, pending: bool) -> None:
    write_mark(path, mark)
    write_ledger(path, sequence)
    assert BatchRecords(FS, path).pending(mark) is pending


def test_a_ledger_that_no_reader_would_read_is_not_written(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ledger(path, 3)
    before = Path(path, ".segmentlog", "ledger").read_bytes()
    monkeypatch.setattr(batch_state, "DOCUMENT_BYTES_MAX", 10)
    with pytest.raises(FileTooLargeError):
        write_ledger(path, 4)
    assert Path(path, ".segmentlog", "ledger").read_bytes() == before
    assert small_file.DOCUMENT_BYTES_MAX > 10


# What a reader sees


@pytest.mark.parametrize("is_signed", [True, False])
def test_a_broker_that_took_the_store_over_made_its_rows_messages(path: str, is_signed: bool) -> None:
    write_mark(path, FLIGHT)
    lock = StoreLock(f"{path}/lock")
    lock.sign()
    lock.release()
    if not is_signed:
        Path(path, "lock").write_bytes(b"lock")  # as a broker writes it
    assert Visibility(FS, path).cut(900) == (500 if is_signed else 900)


def test_the_mark_of_a_replica_hides_the_batch_it_receives(path: str) -> None:
    Path(path, "lock").touch()
    with StoreLock(f"{path}/lock") as lock:
        lock.sign()
        before = Visibility(FS, path)
        BatchRecords(FS, path).write_incoming(FS, FLIGHT._replace(sequence=1), is_synced=True)
        assert [each.hidden_from() for each in (before, Visibility(FS, path))] == [500, 500]
        BatchRecords(FS, path).write_incoming(FS, LANDED._replace(sequence=1), is_synced=False)
        assert [each.hidden_from() for each in (before, Visibility(FS, path))] == [500, None]
        write_mark(path, BatchMark(1, 700, 700, in_flight=True))
        assert [each.hidden_from() for each in (before, Visibility(FS, path))] == [500, 700]
        end_following(FS, path, 900)
        end_following(FS, path, 900)
        assert not BatchRecords(FS, path).is_followed
        assert before.hidden_from() == 700


@pytest.mark.parametrize("content", [b"", b"damaged", bytes(10_000)])
def test_a_damaged_mark_of_a_replica_without_batches_hides_nothing(path: str, content: bytes) -> None:
    Path(path, ".segmentlog", "incoming").write_bytes(content)
    assert BatchRecords(FS, path).incoming() == BatchMark()
    assert Visibility(FS, path).hidden_from() is None


# All batches of the log


def committed(path: str, count: int, app: str | None = "q", *, before: Ledger | None = None) -> Ledger:
    """Commit ``count`` batches of 90 bytes, 100 bytes apart; return the ledger."""
    records, ledger = BatchRecords(FS, path), before or Ledger()
    for sequence in range(ledger.sequence + 1, ledger.sequence + 1 + count):
        entry = LedgerEntry(sequence, sequence, 100 * sequence, 100 * sequence + 90, 4, 90, 0)
        ledger = records.commit(FS, ledger, ledger.with_entry(app, entry, ()))
    return ledger


def versions(history: BatchHistory) -> list[int]:
    return [each.entry.version for each in history.batches]


@pytest.mark.parametrize("name", ["ledger", "batches"])
def test_a_file_that_is_older_than_the_other_is_refused(path: str, name: str) -> None:
    ledger = committed(path, 3)
    file = Path(path, ".segmentlog", name)
    old = file.read_bytes()
    committed(path, 2, before=ledger)
    file.write_bytes(old)
    with pytest.raises(FormatError, match="batches"):
        BatchRecords(FS, path).ledger()
    if name == "batches":
        file.unlink()
        with pytest.raises(FormatError, match="history of batches has 0 bytes"):
            BatchRecords(FS, path).history()


@pytest.mark.parametrize("end", [90, 100, 190, 290, 590, 700])
def test_a_cut_log_keeps_the_ledger_and_history_of_its_whole_batches(path: str, end: int) -> None:
    committed(path, 5)
    records, whole = BatchRecords(FS, path), [each for each in range(1, 6) if 100 * each + 90 <= end]
    ledger = records.settle_ledger(FS, end)
    assert records.ledger() == ledger
    assert ledger.sequence == 5
    entries = ledger.applications["q"].entries
    assert [(each.version, each.rows) for each in entries] == ([(each, 4) for each in whole] or [(1, LOST)])
    assert versions(records.history()) == (whole or [1])
    again = committed(path, 2, before=ledger)
    assert versions(records.history()) == [*(whole or [1]), 6, 7]
    assert again.applications["q"].newest.version == 7


@pytest.mark.parametrize("end", [101, 250, 589])
def test_an_end_within_a_batch_is_refused(path: str, end: int) -> None:
    ledger = committed(path, 5)
    records = BatchRecords(FS, path)
    with pytest.raises(FormatError, match=f"the log ends at physical offset {end}, within the batch that begins at"):
        records.settle_ledger(FS, end)
    assert records.ledger() == ledger


def test_batches_of_a_log_that_damage_cut_stay_known_up_to_its_end(path: str) -> None:
    ledger = committed(path, 4)
    records = BatchRecords(FS, path)
    assert records.clamp(FS, ledger, 490) is ledger
    clamped = records.clamp(FS, ledger, 250)
    assert records.ledger() == clamped
    assert [(each.start, each.stop) for each in clamped.applications["q"].entries] == [
        (100, 190),
        (200, 250),
        (250, 250),
        (250, 250),
    ]
    assert [each.entry for each in records.history().batches] == [*clamped.applications["q"].entries]
    entry = LedgerEntry(5, 5, 250, 340, 4, 90, 0)
    records.commit(FS, clamped, clamped.with_entry("q", entry, ()))
    assert records.history().batches[-1].entry == entry


def test_the_history_is_compacted_when_that_halves_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_state, "_COMPACT_EVERY", 48)
    log = Path(path, "commitlog")
    log.mkdir()
    (log / f"{6000:020d}").write_bytes(bytes(1000))
    ledger = committed(path, 1, "early")
    ledger = committed(path, 46, before=ledger)
    assert len(BatchRecords(FS, path).history().batches) == 47
    ledger = committed(path, 1, before=ledger)
    assert versions(BatchRecords(FS, path).history()) == [1, *range(32, 49)], "retention deleted the others"
    ledger = committed(path, 20, before=ledger)
    assert BatchRecords(FS, path).ledger() == ledger
    assert versions(BatchRecords(FS, path).history()) == [1, *range(32, 69)]


def test_a_replica_with_a_part_of_a_batch_takes_no_rows(path: str) -> None:
    records = BatchRecords(FS, path)
    records.write_incoming(FS, BatchMark(), is_synced=True)
    records.take_history(FS, encode_lines(BatchHistory(tuple(batch(number) for number in (1, 2, 3)))))
    with pytest.raises(ReplicationError, match="part of a batch, from physical offset 200 to 250"):
        end_following(FS, path, 250)
    assert records.is_followed
    end_following(FS, path, 290)
    assert not records.is_followed
    assert versions(records.history()) == [1, 2]
    assert records.ledger().applications["q"].newest.version == 2


def batch(number: int) -> Batch:
    return Batch("q", LedgerEntry(number, number, 100 * number, 100 * number + 90, 4, 90, 0))


@pytest.mark.parametrize("end", [150, 250, 300, 400])
def test_a_damaged_mark_of_a_replica_hides_the_unfinished_batch_of_the_history(path: str, end: int) -> None:
    log = Path(path, "commitlog")
    log.mkdir()
    (log / f"{0:020d}").write_bytes(b"r" * end + bytes(1000 - end))
    with StoreLock(f"{path}/lock") as lock:
        lock.sign()
        records = BatchRecords(FS, path)
        records.take_history(FS, encode_lines(BatchHistory(tuple(batch(number) for number in (1, 2, 3)))))
        Path(path, ".segmentlog", "incoming").write_bytes(b"")
        hidden = {150: 100, 250: 200, 300: None, 400: None}[end]
        assert Visibility(FS, path).hidden_from() == hidden
