"""Batches that are appended as a whole, and once: staged by many tasks, committed by one.

::

    ledger has (app, version)?  ──► it was done before: nothing is appended
    space for all of it reserved, what is in front of it   synced
    .segmentlog/batch    in flight, from physical offset P          synced     readers see nothing from P on
    staged rows ──► put path: number, place, patch, write           synced
    .segmentlog/ledger   one entry more                             synced     ← the batch exists from here on
    all of it dispatched to queues and index
    .segmentlog/batch    no longer in flight                        synced     ← and is visible from here on

    opened after a crash:   in flight, not in the ledger  ──► the log ends at P again, zeros behind it
                            in flight, in the ledger      ──► dispatched like everything else

Nobody else puts a message meanwhile. What goes wrong in the middle, staged rows that are not what their task wrote
included, is as final as a crash, and undone like one. RocketMQ has no such thing; a broker that is started on the store
before we opened it again takes the first rows of an unfinished batch for messages like any other.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from ..config import OnChangedReplay
from ..directory.topics import TopicTable
from ..encode.batch import EncodedRows, Lookups
from ..errors import SegmentLogError
from ..files.writable_fs import WritableFileSystem
from ..format.batch_mark import BatchMark
from ..format.encoded_batch import EncodedBatch, Frames
from ..format.ledger import Ledger, LedgerEntry, QueueSpan
from ..format.row_digest import add_digests
from ..format.staged_rows import StagedRows
from ..format.store_paths import StorePaths
from ..log.batch_state import BatchRecords
from ..queues.keys import queues_among
from ..types import QueueKey
from .commit_pipeline import Ahead
from .failure import Failure
from .group_commit import Flusher
from .put_path import PutPath
from .replays import BatchId, CommittedBatch, find_replay
from .staging import Staged, discard_staged, survey_staged, take_staged

_log = logging.getLogger(__name__)

_SYNC_BYTES: Final = 64 << 20  # of a batch that wait to be synced before it ends


class BatchAppend:
    """Appends batches to one store that is open.

    Parameters
    ----------
    fs, path
        Which store.
    was_ours
        Whether nobody else had the store open since a batch was in flight.
    is_threaded
        Whether the store has threads of its own.
    own
        Raises if the store is not ours any more.
    """

    def __init__(
        self, fs: WritableFileSystem, path: str, *, was_ours: bool, is_threaded: bool, own: Callable[[], None]
    ) -> None:
        self._fs = fs
        self._path = path
        self._making = StorePaths(path).making_batch  # its own: checkpoints are written meanwhile
        self._is_threaded = is_threaded
        self._own = own
        self._records = BatchRecords(fs, path)
        self._mark = self._records.mark()
        self._ledger: Ledger | None = None
        self._waits = False  # whether the last batch is in the ledger, and there was no room to make it visible
        self.undone_from: int | None = None
        """Physical offset from which an unfinished batch lies in the log, if one does: recovery cuts it off."""
        if self._records.pending(self._mark):
            if was_ours:
                self.undone_from = self._mark.start
                _log.warning("%s: batch %d was not finished and is undone", path, self._mark.sequence)
            else:
                _log.error(
                    "%s: batch %d, from physical offset %d on, was not finished when a broker took the store over: "
                    "its first rows are messages now, and come again if the batch is repeated",
                    path,
                    self._mark.sequence,
                    self._mark.start,
                )

    @property
    def in_flight(self) -> bool:
        """Whether readers are kept from what is appended, so that it can be dispatched before it is on the device."""
        return self._mark.in_flight

    def settle(self, log_end: int) -> None:
        """Say that recovery did what there was to do: nothing is hidden from readers any more."""
        if self._mark.in_flight:
            start = min(self._mark.start, log_end)
            stop = start if self.undone_from is not None else log_end
            self._write_mark(BatchMark(self._mark.sequence, start, stop))
            self.undone_from = None

    def commit(
        self,
        batch_id: BatchId,
        staged: Sequence[Staged],
        topics: Mapping[str, int],
        on_changed_replay: OnChangedReplay,
        *,
        put_path: PutPath,
        flusher: Flusher,
        failure: Failure,
        table: TopicTable,
        keep_up: Callable[[], None],
        make_visible: Callable[[], None],
    ) -> CommittedBatch:
        """Append a batch, unless it was appended before; see `MessageStore.commit_batch`.

        Parameters
        ----------
        put_path, flusher, failure, table
            Those of the store.
        keep_up
            Called after each piece that was put.
        make_visible
            Dispatches everything.
        """
        with put_path.turn:
            failure.check()
            self._own()
            self._publish_waiting(put_path.end, flusher, failure, make_visible)
            ledger = self._ledger = self._ledger or self._records.ledger()
            rows, digest = sum(each.rows for each in staged), add_digests(*(each.digest for each in staged))
            repeated = find_replay(ledger, batch_id, rows, digest, on_changed=on_changed_replay, path=self._path)
            if repeated is not None:
                self._discard(staged)
                return repeated
            put_path.reserve(sizes for each in staged for sizes in survey_staged(self._fs, self._path, each))
            start = put_path.end
            flusher.wait(start)  # what a crash undoes ends where it began
            sequence = max(ledger.sequence, self._mark.sequence) + 1
            with failure.fatal_unless_full():
                self._write_mark(BatchMark(sequence, start, start, in_flight=True))
            with failure.fatal():
                spans = self._put(staged, put_path, flusher, keep_up)
                flusher.wait(put_path.end)
                table.note([QueueKey(topic, count - 1) for topic, count in topics.items()])
                entry = LedgerEntry(
                    version=batch_id.version,
                    sequence=sequence,
                    start=start,
                    stop=put_path.end,
                    rows=rows,
                    bytes=sum(each.record_bytes for each in staged),
                    committed_ms=time.time_ns() // 1_000_000,
                    digest=digest,
                )
                ledger = ledger.with_entry(batch_id.app, entry, spans)
                self._own()
                self._records.write_ledger(self._fs, ledger, self._making)
            self._ledger = ledger
            self._show(batch_id, entry.stop, failure, make_visible)
            self._discard(staged)
            return CommittedBatch.of(batch_id.app, entry, spans)

    def _put(
        self, staged: Sequence[Staged], put_path: PutPath, flusher: Flusher, keep_up: Callable[[], None]
    ) -> tuple[QueueSpan, ...]:
        """Put all rows, in the order of the tasks; give where those of each queue went."""
        firsts: dict[QueueKey, int] = {}
        chunks = (rows for each in staged for rows in take_staged(self._fs, self._path, each))
        with Ahead(is_threaded=self._is_threaded) as ahead:
            for rows in ahead.items(chunks):
                for key in rows.queues:
                    firsts.setdefault(key, put_path.next_offset(key))
                put_path.put_batch([_encoded(rows)])
                if put_path.end - flusher.flushed >= _SYNC_BYTES:
                    ahead.sync(partial(flusher.wait, put_path.end))
                keep_up()
        return tuple(_spans(firsts, put_path))

    def _show(self, batch_id: BatchId, stop: int, failure: Failure, make_visible: Callable[[], None]) -> None:
        """Make a batch visible that is in the ledger; what fails is logged, since the batch exists all the same."""
        try:
            self._publish(stop, failure, make_visible)
        except (SegmentLogError, OSError) as error:
            self._waits = True
            _log.error(
                "%s: %s is committed, but readers do not see it yet: %s They see it once that is solved and the store "
                "works on, or is opened again",
                self._path,
                batch_id,
                error,
            )

    def publish_waiting(
        self, put_path: PutPath, flusher: Flusher, failure: Failure, make_visible: Callable[[], None]
    ) -> None:
        """Make a committed batch visible that a lack of room kept hidden; do nothing while another thread puts.

        Raises
        ------
        NoSpaceError
            If there is still no room; the batch stays hidden.
        """
        if self._waits and put_path.turn.acquire(blocking=False):
            try:
                self._publish_waiting(put_path.end, flusher, failure, make_visible)
            finally:
                put_path.turn.release()

    def _publish_waiting(self, end: int, flusher: Flusher, failure: Failure, make_visible: Callable[[], None]) -> None:
        if self._waits:
            flusher.wait(end)  # what was put after the batch was dispatched without waiting for that
            self._publish(end, failure, make_visible)
            self._waits = False

    def _publish(self, stop: int, failure: Failure, make_visible: Callable[[], None]) -> None:
        make_visible()
        with failure.fatal_unless_full():
            self._write_mark(BatchMark(self._mark.sequence, self._mark.start, stop))

    def _discard(self, staged: Sequence[Staged]) -> None:
        """Take away what is not needed any more; the batch is there, whatever comes of this."""
        try:
            discard_staged(self._path, staged, fs=self._fs)
        except (SegmentLogError, OSError) as error:
            _log.warning("%s: staged rows of a batch that is in the store were left behind: %s", self._path, error)

    def _write_mark(self, mark: BatchMark) -> None:
        self._records.write_mark(self._fs, mark, self._making)
        self._mark = mark


def _encoded(rows: StagedRows) -> EncodedRows:
    stops = np.cumsum(rows.sizes)
    frames = Frames(rows.records, stops - rows.sizes, stops)
    records = EncodedBatch(frames.positions, rows.sizes, lambda: frames, rows.crcs)
    lookups = None
    if rows.hashes is not None and rows.hash_rows is not None:
        lookups = Lookups(rows.tags_codes, rows.hashes, rows.hash_rows)
    return EncodedRows(records, queues_among(rows.queues), rows.queue_of, rows.counts, lookups)


def _spans(firsts: Mapping[QueueKey, int], put_path: PutPath) -> Iterator[QueueSpan]:
    for key, first in sorted(firsts.items()):
        stop = put_path.next_offset(key)
        if stop > first:
            yield QueueSpan(key.topic, key.queue_id, first, stop - 1, stop - first)
