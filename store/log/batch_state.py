"""State of batches: the in-flight marker and the ledger, and the part of the log that a reader may see.

::

    .segmentlog/batch      part of the log that is a batch in flight        format.batch_mark
    .segmentlog/incoming   part that a replica has of an unfinished batch   format.batch_mark
    .segmentlog/ledger     newest batches of each application               format.ledger
    .segmentlog/batches    all batches of the log                           format.batch_history

    reader   ends of queues ──► marks ──► cut off batches in flight, and batches after the first look
    commit   the ledger's newest batch ──► batches, synced ──► ledger with one batch more, synced
    cut      batches up to the new end, synced ──► ledger made of them, synced          promotion, demotion

A reader reads the marker after the ends of queues: the marker is written before any record of its batch. A batch
that a crash left in flight stays hidden until the store is opened again, whether it is in the ledger or not. A batch
that was visible once therefore stays visible. The ledger is read after the marker: a batch enters it before its marker
is cleared.
"""

from dataclasses import replace
from typing import Final

from ..errors import FileTooLargeError, FormatError, ReplicationError
from ..files.fs import FileSystem
from ..files.small_file import DOCUMENT_BYTES_MAX, check_size, made_aside, read_front, read_whole, replace_file
from ..files.store_lock import is_signed
from ..files.writable_fs import WritableFileSystem
from ..format import batch_history, batch_mark
from ..format import ledger as ledgers
from ..format.batch_history import TITLE_BYTES, BatchHistory, Title, encode_line, encode_lines, newest_line
from ..format.batch_mark import NO_BATCH, BatchMark, hidden_from
from ..format.ledger import Batch, Ledger, LedgerEntry
from ..format.store_paths import StorePaths
from ..types import ReadFrom
from .commit_log import CommitLog
from .confirmed import confirmed_offset

_COMPACT_EVERY: Final = 1024  # batches: the history is read and written again, which takes some 10 ms
_HISTORY_MAX: Final = 250_000  # batches; with the longest names they are within `DOCUMENT_BYTES_MAX`
_UNKNOWN: Final = 1 << 63
_ZEROS_MAX: Final = 2  # bytes at the end of a record: the length of its properties, if it has none


class BatchRecords:
    """The in-flight marker, the ledger and the history of batches of one store."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        paths = StorePaths(path)
        self._mark_path = paths.batch_mark
        self._incoming_path = paths.incoming
        self._ledger_path = paths.ledger
        self._history_path = paths.batch_history
        self._path = path
        self._making = paths.making_batch  # its own: checkpoints are written at the same time
        self._reached = 0  # physical offset that the log is known to reach

    @property
    def is_followed(self) -> bool:
        """True if the store has followed a master, and was neither promoted nor written since."""
        return self._fs.size(self._incoming_path) is not None

    def mark(self) -> BatchMark:
        """Read the mark; see `format.batch_mark.decode`."""
        return batch_mark.decode(read_whole(self._fs, self._mark_path, batch_mark.FILE_BYTES), self._mark_path)

    def ledger(self) -> Ledger:
        """Read the ledger; `FormatError` if it is damaged, or older than the store."""
        # With an older ledger, existing batches would be appended again. Marker and history are read before the ledger,
        # which may be replaced meanwhile. The history of a replica is its master's, and tells nothing here.
        mark, is_followed = self.mark(), self.is_followed
        generation, size = (0, 0) if is_followed else self._lines()
        ledger = self._read_ledger()
        if mark.stop > mark.start and not mark.in_flight and ledger.sequence < mark.sequence:
            raise FormatError(
                f"the ledger ends with batch {ledger.sequence} of this store, which holds {mark.sequence}",
                path=self._ledger_path,
                fix="Take it from the copy that the store is from. If no batch can come again, delete it together with "
                "the files batch and batches beside it",
            )
        if is_followed:
            return ledger
        # The line of the newest batch is written before the ledger of the next batch, and no other line is.
        if generation == ledger.generation and size > ledger.recorded + len(newest_line(ledger)):
            raise FormatError(
                f"the ledger ends with batch {ledger.sequence} of this store, and the file batches has later ones",
                path=self._ledger_path,
                fix="Take both from the copy that the store is from",
            )
        self._check_covered(ledger, *self._lines())
        return ledger

    def history(self) -> BatchHistory:
        """Read all batches of the log, on a replica those of its master; `FormatError` if it is damaged or too old."""
        ledger = self._read_ledger()  # before the history: its newest batch joins the history with the next commit
        content = read_whole(self._fs, self._history_path, DOCUMENT_BYTES_MAX)
        if content is None:
            self._check_covered(ledger, 0, 0)
            return BatchHistory().joined(ledger)
        title = batch_history.decode_title(content, self._history_path)
        history, size = batch_history.decode_lines(content[TITLE_BYTES:], self._history_path, BatchHistory())
        self._check_covered(ledger, title.generation, title.dropped + size)
        return history.joined(ledger) if title.generation == ledger.generation else history

    def _check_covered(self, ledger: Ledger, generation: int, size: int) -> None:
        """Refuse a history that was read after the ledger, and lacks batches of it."""
        if (generation, size) < (ledger.generation, ledger.recorded):
            raise FormatError(
                f"the history of batches has {size} bytes of lines of generation {generation}, and the ledger was "
                f"written with {ledger.recorded} of generation {ledger.generation}",
                path=self._history_path,
                fix="Take it from the copy that the store is from",
            )

    def _read_ledger(self) -> Ledger:
        return ledgers.decode(read_whole(self._fs, self._ledger_path, DOCUMENT_BYTES_MAX), self._ledger_path)

    def _lines(self) -> tuple[int, int]:
        """Return the generation of the history, and the bytes of its lines with the dropped ones."""
        size, title = self._fs.size(self._history_path), self._title()
        return title.generation, 0 if size is None else title.dropped + size - TITLE_BYTES

    def _title(self) -> Title:
        front = read_front(self._fs, self._history_path, TITLE_BYTES)
        return Title() if front is None else batch_history.decode_title(front, self._history_path)

    def incoming(self) -> BatchMark:
        """Read the mark of a replica; where its log is shorter than the mark states, the history hides the rest."""
        # A power cut may damage the mark, or take rows of a batch that was whole. In a copy, the log may be older than
        # the mark.
        try:
            content = read_whole(self._fs, self._incoming_path, batch_mark.FILE_BYTES)
            mark = batch_mark.decode(content, self._incoming_path)
            shown = mark.start if mark.in_flight else mark.stop
        except (FormatError, FileTooLargeError):
            mark, shown = NO_BATCH, _UNKNOWN
        if shown <= self._reached:
            return mark
        end = CommitLog.of_store(self._fs, self._path).data_stop()
        if shown <= end + _ZEROS_MAX:
            self._reached = shown
            return mark
        start = self.history().whole_end(end + _ZEROS_MAX)
        return mark.begun(mark.sequence + 1, start) if start < end else mark

    def pending(self, mark: BatchMark) -> bool:
        """Return whether a batch that is in flight never got into the ledger."""
        return mark.in_flight and self.ledger().sequence < mark.sequence

    def write_mark(self, fs: WritableFileSystem, mark: BatchMark) -> None:
        """Write the mark, onto the device."""
        replace_file(fs, self._mark_path, batch_mark.encode(mark), self._making)

    def write_incoming(self, fs: WritableFileSystem, mark: BatchMark, *, is_synced: bool) -> None:
        """Write the mark of a replica, onto the device or into the page cache."""
        content = batch_mark.encode(mark)
        if is_synced:
            replace_file(fs, self._incoming_path, content, self._making)
            return
        with made_aside(fs, self._making) as made:
            made.write(0, content)
            fs.rename(self._making, self._incoming_path)
        made.close()

    def commit(self, fs: WritableFileSystem, former: Ledger, ledger: Ledger) -> Ledger:
        """Write a ``ledger`` with one batch more than ``former``, onto the device; return it as written."""
        # The newest batch of the former ledger joins the history.
        line = newest_line(former)
        if line:
            self._write_line(fs, former, line)
        if ledger.sequence % _COMPACT_EVERY == 0:
            self._compact(fs, former)
        ledger = replace(ledger, generation=former.generation, recorded=former.recorded + len(line))
        self._write_ledger(fs, ledger)
        return ledger

    def _write_line(self, fs: WritableFileSystem, former: Ledger, line: bytes) -> None:
        """Write the line of the newest batch at its place; a crash may have left it there already."""
        if fs.size(self._history_path) is None:
            replace_file(fs, self._history_path, Title(former.generation).encode() + line, self._making)
            return
        self._write_lines(fs, former.recorded - self._title().dropped, line)

    def _write_lines(self, fs: WritableFileSystem, position: int, lines: bytes) -> None:
        file = fs.open(self._history_path)
        try:
            file.write(TITLE_BYTES + position, lines)
            file.sync()
        finally:
            file.close()

    def _compact(self, fs: WritableFileSystem, ledger: Ledger) -> None:
        """Shorten the history if that halves it; positions in its lines stay those of the ledger."""
        history, title = self.history(), self._title()
        shorter = history.compacted(CommitLog.of_store(self._fs, self._path).min_offset, ledger, _HISTORY_MAX)
        if len(shorter.batches) <= len(history.batches) // 2:
            before, lines = len(encode_lines(history)), encode_lines(shorter)
            title = title._replace(dropped=title.dropped + before - len(lines))
            replace_file(fs, self._history_path, title.encode() + lines, self._making)

    def take_history(self, fs: WritableFileSystem, lines: bytes) -> None:
        """Write the history of a replica's master in place of the replica's own, onto the device."""
        content = Title(self._read_ledger().generation + 1).encode() + lines
        if content != read_whole(fs, self._history_path, DOCUMENT_BYTES_MAX):
            check_size(self._history_path, len(content), DOCUMENT_BYTES_MAX)
            replace_file(fs, self._history_path, content, self._making)

    def append_history(self, fs: WritableFileSystem, position: int, lines: bytes) -> None:
        """Write further lines of the master's history after ``position`` bytes of lines, onto the device."""
        check_size(self._history_path, TITLE_BYTES + position + len(lines), DOCUMENT_BYTES_MAX)
        self._write_lines(fs, position, lines)

    def settle_ledger(self, fs: WritableFileSystem, end: int) -> Ledger:
        """Cut history and ledger to the batches of a log that ends at ``end``, onto the device; return the ledger."""
        # The caller holds the store's lock. The next recovery, promotion or demotion repeats a call that was
        # interrupted, and so does the first put to a store that was a replica.
        former, history, is_followed = self._read_ledger(), self.history(), self.is_followed
        start = history.whole_end(end)
        if start < end:  # its rows would stay visible, and be appended again with the batch
            raise FormatError(
                f"the log ends at physical offset {end}, within the batch that begins at {start}",
                path=self._history_path,
                offset=start,
                fix="Run `segmentlog promote`, which cuts the part of the batch off and keeps a copy of it",
            )
        # An archive of a replica has the history of its master, and no ledger of it.
        is_older = former.generation < self._title().generation
        if is_followed or is_older or history.beyond(end) or former.beyond(end):
            ledger = history.ledger_at(end, former, sequence=self.mark().sequence)
            former = self._rewrite(fs, history.up_to(end), replace(ledger, generation=former.generation))
        if is_followed:
            fs.unlink(self._incoming_path)
        return former

    def clamp(self, fs: WritableFileSystem, ledger: Ledger, end: int) -> Ledger:
        """Return the ledger of a log that was cut at ``end`` because of damage, as it is written onto the device."""
        # Damaged batches stay known, so that a job that repeats one does not append it again. Their places are cut at
        # the end of the log, where the next batch begins.
        if ledger.newest is None or ledger.newest.entry.stop <= end:
            return ledger
        clamped = BatchHistory(tuple(Batch(app, _up_to(each, end)) for app, each in self.history().batches))
        applications = {
            app: held._replace(entries=tuple(_up_to(each, end) for each in held.entries))
            for app, held in ledger.applications.items()
        }
        return self._rewrite(fs, clamped, replace(ledger, applications=applications))

    def _rewrite(self, fs: WritableFileSystem, history: BatchHistory, ledger: Ledger) -> Ledger:
        """Write another history, and the ledger that was made from it; return the ledger."""
        lines, newest = encode_lines(history), encode_line(history.batches[-1]) if history.batches else b""
        generation = max(ledger.generation, self._title().generation) + 1
        # The history first: a ledger of an older generation is made again from it.
        replace_file(fs, self._history_path, Title(generation).encode() + lines, self._making)
        ledger = replace(ledger, generation=generation, recorded=len(lines) - len(newest))
        self._write_ledger(fs, ledger)
        return ledger

    def _write_ledger(self, fs: WritableFileSystem, ledger: Ledger) -> None:
        content = ledgers.encode(ledger)
        check_size(self._ledger_path, len(content), DOCUMENT_BYTES_MAX)
        replace_file(fs, self._ledger_path, content, self._making)


def _up_to(entry: LedgerEntry, end: int) -> LedgerEntry:
    return entry._replace(start=min(entry.start, end), stop=min(entry.stop, end))


def end_following(fs: WritableFileSystem, path: str, end: int) -> None:
    """Make a replica, whose log ends at ``end``, a store that takes rows of its own; nothing if it is not a replica."""
    # A replica with a part of a batch is refused: the rows after it would make that part look whole.
    records = BatchRecords(fs, path)
    if not records.is_followed:
        return
    start = records.history().whole_end(end)
    if start < end:
        raise ReplicationError(
            f"this store is a replica that has a part of a batch, from physical offset {start} to {end}",
            path=path,
            fix="Run `segmentlog promote` to make it the master, which cuts the part off",
        )
    records.settle_ledger(fs, end)


class Visibility:
    """Part of the log that a reader may see: up to a batch in flight, and no batch that landed after its first look."""

    def __init__(self, fs: FileSystem, path: str, read_from: ReadFrom = ReadFrom.APPENDED) -> None:
        self._fs = fs
        self._path = path
        self._read_from = read_from
        self._records = BatchRecords(fs, path)
        if read_from is ReadFrom.CONFIRMED:
            confirmed_offset(fs, path)
        self._seen = self._now()

    def newer(self) -> "Visibility":
        """The part that may be seen now; this one if no batch began or ended since its first look."""
        return self if self._now() == self._seen else Visibility(self._fs, self._path, self._read_from)

    def hidden_from(self) -> int | None:
        """Physical offset from which on records that were read before this call are hidden; None for none."""
        starts = [hidden_from(seen, now) for seen, now in zip(self._seen, self._now(), strict=True)]
        hidden = min((start for start in starts if start is not None), default=None)
        if self._read_from is ReadFrom.APPENDED:
            return hidden
        confirmed = confirmed_offset(self._fs, self._path)  # the end of a record, and never within a batch
        return confirmed if hidden is None else min(hidden, confirmed)

    def cut(self, stop: int) -> int:
        """Physical offset up to which records may be seen of a log that was found to end at ``stop``."""
        hidden = self.hidden_from()
        return stop if hidden is None else min(stop, hidden)

    def ledger(self) -> Ledger:
        """Read the batches of the store; see `BatchRecords.ledger`."""
        return self._records.ledger()

    def _now(self) -> tuple[BatchMark, BatchMark]:
        marks = self._records.mark(), self._records.incoming()
        if any(each.in_flight for each in marks) and not is_signed(StorePaths(self._path).lock):
            # A broker has had the store since: all records of its log count.
            return marks[0]._replace(in_flight=False), marks[1]._replace(in_flight=False)
        return marks
