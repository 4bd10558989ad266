"""Batch commit: batches that tasks staged are appended as a whole, and once.

::

    ledger has (app, version)?  ──► it was committed before: nothing is appended
    space for all of it reserved, the log before it        synced
    .segmentlog/batch    in flight, from physical offset P          synced     readers see nothing from P on
    staged rows ──► put path: number, place ──► patch, write        synced     pieces are written in any order
    .segmentlog/batches  the newest batch of the ledger             synced
    .segmentlog/ledger   one entry more                             synced     ← the batch exists from here on
    all of it dispatched to queues and index
    .segmentlog/batch    no longer in flight                        synced     ← and is visible from here on

    opened after a crash:   in flight, not in the ledger  ──► the log ends at P again, zeros after it
                            in flight, in the ledger      ──► dispatched like other records

No other thread puts a message meanwhile. An error in the middle, staged rows that differ from what their task wrote
included, is as final as a crash, and undone like one. RocketMQ has no counterpart. A broker that is started on the
store before we open it again takes the first rows of an unfinished batch for ordinary messages.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from ..config import OnChangedReplay
from ..directory.topics import TopicTable
from ..encode.batch import EncodedRows
from ..errors import SegmentLogError
from ..files.writable_fs import WritableFileSystem
from ..format.ledger import Ledger, LedgerEntry, QueueSpan
from ..format.row_digest import add_digests
from ..log.batch_state import BatchRecords
from ..log.epochs import find_epochs
from ..types import QueueKey
from .commit_pipeline import CommitPipeline
from .failure import Failure
from .group_commit import Flusher, GroupCommit
from .placed_rows import AheadPiece
from .publication import Publication
from .put_path import PutPath
from .replays import BatchId, CommittedBatch, find_replay
from .staging import Staged, discard_staged, survey_staged, take_staged

_log = logging.getLogger(__name__)

_SYNC_BYTES: Final = 64 << 20  # of a batch that wait to be synced before it ends


class BatchCommitter:
    """Commits batches to one open store. Thread-safe: one batch at a time, and no other put meanwhile.

    Parameters
    ----------
    fs, path
        File system and directory of the store.
    put_path, flusher, commit, publication, failure, topics
        Parts of the store; ``flusher`` makes rows durable, ``commit`` is waited for before the call returns.
    own
        Raises if another process has the store.
    keep_up
        Called after each piece that was put.
    is_threaded
        Whether a batch may use threads.
    """

    def __init__(
        self,
        fs: WritableFileSystem,
        path: str,
        *,
        put_path: PutPath,
        flusher: Flusher,
        commit: GroupCommit,
        publication: Publication,
        failure: Failure,
        topics: TopicTable,
        own: Callable[[], None],
        keep_up: Callable[[], None],
        is_threaded: bool,
    ) -> None:
        self._fs = fs
        self._path = path
        self._put_path = put_path
        self._flusher = flusher
        self._commit = commit
        self._publication = publication
        self._failure = failure
        self._topics = topics
        self._own = own
        self._keep_up = keep_up
        self._is_threaded = is_threaded
        self._records = BatchRecords(fs, path)
        self._ledger: Ledger | None = None  # read when the first batch comes: most stores have none

    def commit(
        self,
        batch_id: BatchId,
        staged: Sequence[Staged],
        topics: Mapping[str, int],
        on_changed_replay: OnChangedReplay,
    ) -> CommittedBatch:
        """Append a batch unless it was appended before; see `MessageStore.commit_batch`."""
        # A Ctrl-C between two steps is fatal: how many of them were taken is not known.
        with self._put_path.turn, self._failure.fatal_if_interrupted():
            committed = self._commit_once(batch_id, staged, topics, on_changed_replay)
        # A replay may be of a batch that a damaged log lost: no acknowledgement of an offset beyond the end ever comes.
        self._commit.wait(min(committed.stop, self._put_path.end))
        return committed

    def _commit_once(
        self,
        batch_id: BatchId,
        staged: Sequence[Staged],
        topics: Mapping[str, int],
        on_changed_replay: OnChangedReplay,
    ) -> CommittedBatch:
        put_path, flusher, failure = self._put_path, self._flusher, self._failure
        failure.check()
        self._own()
        self._publication.publish_before_next()
        ledger = self._ledger = self._ledger or self._records.ledger()
        rows, digest = sum(each.rows for each in staged), add_digests(*(each.digest for each in staged))
        path, epoch = self._path, find_epochs(self._fs, self._path).newest
        repeated = find_replay(ledger, batch_id, rows, digest, on_changed=on_changed_replay, path=path, epoch=epoch)
        if repeated is not None:
            self._discard(staged)
            return repeated
        with failure.fatal():
            ledger = self._ledger = self._records.clamp(self._fs, ledger, put_path.end)
        put_path.reserve(sizes for each in staged for sizes in survey_staged(self._fs, self._path, each))
        start = put_path.end
        # Records are dispatched before they are flushed while a batch is in flight, and recovery of a crash removes
        # entries of the batch alone.
        flusher.wait(start)
        sequence = max(ledger.sequence, self._publication.sequence) + 1
        self._publication.begin(sequence, start)
        with failure.fatal():
            spans = self._put(staged)
            flusher.wait(put_path.end)
            self._topics.note([QueueKey(topic, count - 1) for topic, count in topics.items()])
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
            extended = ledger.with_entry(batch_id.app, entry, spans)
            self._own()
            self._ledger = self._records.commit(self._fs, ledger, extended)
        self._publication.publish(batch_id, entry.stop)
        self._discard(staged)
        return CommittedBatch.of(batch_id.app, entry, spans)

    def _put(self, staged: Sequence[Staged]) -> tuple[QueueSpan, ...]:
        """Put all rows in the order of the tasks; return the span of each queue."""
        put_path, flusher = self._put_path, self._flusher
        before = put_path.queue_offsets()
        with CommitPipeline(is_threaded=self._is_threaded) as pipeline:
            chunks = (
                rows for each in staged for rows in take_staged(self._fs, self._path, each, run=pipeline.run_aside)
            )
            pieces = self._placed(pipeline.prefetched(chunks))
            for piece, request in pipeline.written(pieces, AheadPiece.write):
                put_path.append_ahead(piece, request)
                if put_path.end - flusher.flushed >= _SYNC_BYTES:
                    pipeline.sync(partial(flusher.wait, put_path.end))
                self._keep_up()
        spans = sorted(put_path.spans_since(before))
        return tuple(QueueSpan(key.topic, key.queue_id, first, stop - 1, stop - first) for key, first, stop in spans)

    def _placed(self, chunks: Iterable[EncodedRows]) -> Iterator[AheadPiece]:
        """Place chunks one after the other, from the end of the log on."""
        end = self._put_path.end
        for rows in chunks:
            piece = self._put_path.place_ahead(rows, end)
            yield piece
            last = piece.placed.runs[-1]
            end = last.base + last.position + last.stop - last.start

    def _discard(self, staged: Sequence[Staged]) -> None:
        """Delete the staged files of a batch that is in the store; an error is only logged."""
        try:
            discard_staged(self._path, staged, fs=self._fs)
        except (SegmentLogError, OSError) as error:
            _log.warning("%s: staged rows of a batch that is in the store were left behind: %s", self._path, error)
