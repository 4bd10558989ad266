"""Marker and ledger of batches, and the part of the log that a reader may see."""

from pathlib import Path

import pytest

from segmentlog.store import FileTooLargeError, FormatError
from segmentlog.store.files import small_file
from segmentlog.store.files.store_lock import StoreLock
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.format.ledger import Ledger, LedgerEntry
from segmentlog.store.log import batch_state
from segmentlog.store.log.batch_state import BatchRecords, Visibility

FS = LocalWritableFileSystem()
FLIGHT = BatchMark(3, 500, 500, in_flight=True)
LANDED = BatchMark(3, 500, 900)


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / ".segmentlog").mkdir()
    return str(tmp_path)


def write_mark(path: str, mark: BatchMark) -> None:
    BatchRecords(FS, path).write_mark(FS, mark, f"{path}/.segmentlog/making")


def write_ledger(path: str, sequence: int) -> Ledger:
    ledger = Ledger().with_entry("q", LedgerEntry(0, sequence, 500, 900, 4, 400, 0), ())
    BatchRecords(FS, path).write_ledger(FS, ledger, f"{path}/.segmentlog/making")
    return ledger


def test_a_store_without_batches(path: str) -> None:
    records = BatchRecords(FS, path)
    assert (records.mark(), records.ledger(), records.pending(records.mark())) == (BatchMark(), Ledger(), False)


def test_what_was_written_is_read(path: str) -> None:
    write_mark(path, LANDED)
    ledger = write_ledger(path, 3)
    assert BatchRecords(FS, path).mark() == LANDED
    assert BatchRecords(FS, path).ledger() == ledger
    assert sorted(each.name for each in Path(path, ".segmentlog").iterdir()) == ["batch", "ledger"]


def test_a_ledger_older_than_its_store_is_an_error(path: str) -> None:
    write_ledger(path, 2)
    write_mark(path, LANDED)
    with pytest.raises(FormatError, match="the ledger ends with batch 2 of this store, which holds 3") as caught:
        BatchRecords(FS, path).ledger()
    assert caught.value.path == f"{path}/.segmentlog/ledger"


@pytest.mark.parametrize(
    ("mark", "sequence", "pending"),
    [(FLIGHT, 2, True), (FLIGHT, 3, False), (LANDED._replace(sequence=2), 2, False)],
    ids=["not in the ledger", "in the ledger", "not in flight"],
)
def test_a_batch_is_pending_until_it_is_in_the_ledger(path: str, mark: BatchMark, sequence: int, pending: bool) -> None:
    write_mark(path, mark)
    write_ledger(path, sequence)
    assert BatchRecords(FS, path).pending(mark) is pending


def test_a_damaged_ledger_is_an_error(path: str) -> None:
    write_ledger(path, 3)
    file = Path(path, ".segmentlog", "ledger")
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(FormatError):
        BatchRecords(FS, path).ledger()


def test_a_ledger_that_no_reader_would_read_is_not_written(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ledger(path, 3)
    before = Path(path, ".segmentlog", "ledger").read_bytes()
    monkeypatch.setattr(batch_state, "DOCUMENT_BYTES_MAX", 10)
    with pytest.raises(FileTooLargeError):
        write_ledger(path, 4)
    assert Path(path, ".segmentlog", "ledger").read_bytes() == before
    assert small_file.DOCUMENT_BYTES_MAX > 10


# What a reader sees


def test_a_batch_in_flight_is_hidden(path: str) -> None:
    write_mark(path, FLIGHT)
    seen = Visibility(FS, path)
    assert (seen.hidden_from(), seen.cut(400), seen.cut(800)) == (500, 400, 500)


def test_a_batch_that_landed_after_the_first_look_stays_hidden(path: str) -> None:
    write_mark(path, FLIGHT)
    seen = Visibility(FS, path)
    write_mark(path, LANDED)
    assert seen.cut(900) == 500
    assert Visibility(FS, path).cut(900) == 900


def test_a_batch_that_began_after_the_first_look_is_hidden(path: str) -> None:
    seen = Visibility(FS, path)
    assert (seen.hidden_from(), seen.cut(900)) == (None, 900)
    write_mark(path, BatchMark(1, 500, 500, in_flight=True))
    assert seen.cut(900) == 500


@pytest.mark.parametrize("is_signed", [True, False])
def test_a_broker_that_took_the_store_over_made_its_rows_messages(path: str, is_signed: bool) -> None:
    write_mark(path, FLIGHT)
    lock = StoreLock(f"{path}/lock")
    lock.sign()
    lock.release()
    if not is_signed:
        Path(path, "lock").write_bytes(b"lock")  # as a broker writes it
    assert Visibility(FS, path).cut(900) == (500 if is_signed else 900)


def test_the_mark_of_a_replica_hides_what_it_receives(path: str) -> None:
    Path(path, "lock").touch()
    with StoreLock(f"{path}/lock") as lock:
        lock.sign()
        before = Visibility(FS, path)
        BatchRecords(FS, path).write_incoming(FS, FLIGHT._replace(sequence=1), f"{path}/.segmentlog/making")
        assert [each.hidden_from() for each in (before, Visibility(FS, path))] == [500, 500]
        BatchRecords(FS, path).write_incoming(FS, LANDED._replace(sequence=1), f"{path}/.segmentlog/making")
        assert [each.hidden_from() for each in (before, Visibility(FS, path))] == [500, None]
        write_mark(path, BatchMark(1, 700, 700, in_flight=True))
        assert [each.hidden_from() for each in (before, Visibility(FS, path))] == [500, 700]
        BatchRecords(FS, path).forget_incoming(FS)
        BatchRecords(FS, path).forget_incoming(FS)
        assert before.hidden_from() == 700


@pytest.mark.parametrize("content", [b"", b"damaged", bytes(10_000)])
def test_a_damaged_mark_of_a_replica_hides_nothing(path: str, content: bytes) -> None:
    Path(path, ".segmentlog", "incoming").write_bytes(content)
    assert BatchRecords(FS, path).incoming() == BatchMark()
    assert Visibility(FS, path).hidden_from() is None
