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

    ledger, newest batch of the application is 7            (`find_replay`)
    batch 8      ──► new: it is appended
    batch 7, 6   ──► a replay: nothing is appended    same rows        silent
                                                      other bodies     warning with both digests
                                                      other row count  ChangedReplayError, or a warning (SKIP)
    batch 10     ──► BatchGapError, where numbers are contiguous

    place     [0][1][2]      [3]                         calling thread, in the order of the batch: columns alone
    write        [chunk 0][chunk 2]                      records, read, patched and written by one thread while they
                    [chunk 1][chunk 3]                   are in its cache; each at its place, in any order
    append                [0][1]  [2][3]                 calling thread, in the order of the batch
    sync                     [up to 1] [up to 3]                                        (`CommitPipeline`)
    aside                    [0, 1]    [2, 3]            releases what was read, and may wait for the device

A replay with another number of rows means that rows are lost: they are not in the store, and no batch brings them
again. It happens when a checkpoint lost its newest files. Spark then plans the next batches again, with the rows that
the source holds by then. A batch that is in the ledger exists. If the disk is too full to dispatch it, it stays hidden,
and `Publication.publish_waiting` tries again.

No other thread puts a message meanwhile. An error in the middle, staged rows that differ from what their task wrote
included, is as final as a crash, and undone like one. RocketMQ has no counterpart. A broker that is started on the
store before we open it again takes the first rows of an unfinished batch for ordinary messages.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, Self, TypeVar

from ..config import OnChangedReplay
from ..directory.topics import TopicTable
from ..encode.staged_rows import add_digests
from ..errors import BatchGapError, ChangedReplayError, ConfigError, Remedy, SegmentLogError
from ..files.writable_fs import WritableFileSystem
from ..format.ledger import LOST, VERSION_MAX, Ledger, LedgerEntry, QueueSpan, check_app
from ..log.batch_state import BatchRecords
from ..log.epochs import find_epochs
from ..recovery.batch_marker import BatchMarker
from ..types import QueueKey
from .group_commit import Failure, Flusher, GroupCommit
from .put_path import AheadPiece, PutPath
from .staging import Staged, StagedChunk, discard_staged, survey_staged, take_staged

_log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

_ASIDE_MAX: Final = 2  # releases of staged rows that wait: the kernel can use their pages again only afterwards
_WRITERS_MAX: Final = 4  # each has a chunk of some megabytes in memory, and one waits for its turn to be appended
_SYNC_BYTES: Final = 64 << 20  # of a batch that wait to be synced before it ends


@dataclass(frozen=True, slots=True)
class BatchId:
    """Identity of a batch.

    Attributes
    ----------
    app
        Application that numbers the batches: a streaming query, a ``txnAppId``. None for a batch that is not repeated.
    version
        Its number; it was appended before if the ledger has this number or a later one. Ignored without ``app``.
    contiguous
        Whether numbers have no gaps: a number that is left out is a batch that was never appended.

    Raises
    ------
    ConfigError
        If no ledger can have the name or the number.
    """

    app: str | None = None
    version: int = 0
    contiguous: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.version <= VERSION_MAX:
            raise ConfigError(f"batch number {self.version} is not between 0 and {VERSION_MAX}", fix="Count from 0")
        try:
            check_app("-" if self.app is None else self.app)
        except ValueError as error:
            raise ConfigError(
                f"the name of the application that numbers the batches is {self.app!a}: {error}",
                fix="Choose another name",
            ) from None

    def __str__(self) -> str:
        return "a batch without an id" if self.app is None else f"batch {self.version} of {self.app}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommittedBatch:
    """A committed batch and its place in the store.

    Attributes
    ----------
    app, version
        Identity of the batch, see `BatchId`.
    rows, bytes
        Number of records, and their bytes.
    start, stop
        Physical offsets between which the records are stored.
    committed_ms
        Time of the commit, ms since the epoch.
    queues
        Queue offsets of the rows per queue; only known of the newest batch of an application.
    repeated
        Whether the batch was committed before, so that nothing was appended now.
    """

    app: str | None
    version: int
    rows: int
    bytes: int
    start: int
    stop: int
    committed_ms: int
    queues: tuple[QueueSpan, ...]
    repeated: bool = False

    @classmethod
    def of(
        cls, app: str | None, entry: LedgerEntry, queues: tuple[QueueSpan, ...], *, repeated: bool = False
    ) -> "CommittedBatch":
        """Return a batch as the ledger describes it."""
        return cls(
            app=app,
            version=entry.version,
            rows=entry.rows,
            bytes=entry.bytes,
            start=entry.start,
            stop=entry.stop,
            committed_ms=entry.committed_ms,
            queues=queues,
            repeated=repeated,
        )


def find_replay(
    ledger: Ledger, batch_id: BatchId, rows: int, digest: int, *, on_changed: OnChangedReplay, path: str, epoch: int = 0
) -> CommittedBatch | None:
    """Find a batch among the committed batches; None if it is new."""
    if batch_id.app is None:
        return None
    known = ledger.applications.get(batch_id.app)
    if known is None or known.newest.rows == LOST or batch_id.version > known.newest.version:
        _check_gap(batch_id, known.newest if known is not None else None, epoch, on_changed, path)
        return None
    entry = known.find(batch_id.version)
    if entry is None:
        entry = _forgotten(batch_id, known.newest, rows, on_changed, path)
    elif entry.rows != rows:
        _report_change(f"{batch_id} has {rows} rows, and had {entry.rows} rows when it was committed", on_changed, path)
    elif entry.digest is not None and entry.digest != digest:
        _log.warning(
            "%s: %s has other bodies or topics than when it was committed: digest %016x now, %016x then. "
            "The committed rows stay, the new rows are not appended",
            path,
            batch_id,
            digest,
            entry.digest,
        )
    queues = known.queues if entry is known.newest else ()
    return CommittedBatch.of(batch_id.app, entry, queues, repeated=True)


def _check_gap(
    batch_id: BatchId, newest: LedgerEntry | None, epoch: int, on_changed: OnChangedReplay, path: str
) -> None:
    """Refuse a new batch if numbers are contiguous, and the numbers before it are missing."""
    if newest is None:
        first = batch_id.version if epoch == 0 else 0
        problem = (
            f"follows {batch_id.version} batches, and this store, the master since epoch {epoch}, has none of these"
        )
    elif newest.rows == LOST:
        first, problem = newest.version, f"follows batches that this store lost: all from {newest.version} on"
    else:
        first, problem = newest.version + 1, f"comes after batch {newest.version}: this store has none in between"
    if not batch_id.contiguous or batch_id.version <= first:
        return
    if newest is None and on_changed is OnChangedReplay.SKIP:
        # Nothing tells a stream that is new here from one whose batches the former master alone had.
        _log.warning("%s: %s %s", path, batch_id, problem)
        return
    raise BatchGapError(
        f"{batch_id} {problem}",
        path=path,
        fix="Find the missing batches: another sink, another copy of this store, the copy that a promotion or demotion "
        "cut off, or a checkpoint of another time may have them. If the source still has their rows, rewind the "
        "checkpoint to the last batch that this store has, and they are written again",
        remedies=(Remedy.SKIP_CHANGED_REPLAY if newest is None else Remedy.NEW_APP,),
    )


def _forgotten(
    batch_id: BatchId, newest: LedgerEntry, rows: int, on_changed: OnChangedReplay, path: str
) -> LedgerEntry:
    """Entry of a batch that the ledger no longer has: its place is before the newest one, its rows are not known."""
    if batch_id.contiguous:  # jobs may leave numbers out: a missing number may never have had rows
        problem = f"{batch_id} has {rows} rows, and the ledger no longer has the number of committed rows"
        _report_change(f"{problem}: its newest batch is {newest.version}", on_changed, path)
    return newest._replace(version=batch_id.version, start=newest.stop, rows=0, bytes=0)


def _report_change(problem: str, on_changed: OnChangedReplay, path: str) -> None:
    if on_changed is OnChangedReplay.FAIL:
        raise ChangedReplayError(
            problem,
            path=path,
            fix="Find out what changed: a checkpoint that lost its newest files, a query or source that returns other "
            "rows",
            remedies=(Remedy.NEW_APP, Remedy.SKIP_CHANGED_REPLAY),
        )
    _log.warning("%s: %s. The committed rows stay, the new rows are not appended", path, problem)


class Publication:
    """Hides one batch at a time and publishes it. The caller of `begin` and `publish` holds `PutPath.turn`."""

    # `make_visible` dispatches everything that was put.

    def __init__(
        self,
        path: str,
        *,
        marker: BatchMarker,
        put_path: PutPath,
        flusher: Flusher,
        failure: Failure,
        make_visible: Callable[[], None],
    ) -> None:
        self._path = path
        self._marker = marker
        self._put_path = put_path
        self._flusher = flusher
        self._failure = failure
        self._make_visible = make_visible
        self._waits = False  # whether the last batch is in the ledger, and a full disk kept it hidden

    @property
    def sequence(self) -> int:
        """Number of the last batch; 0 without one."""
        return self._marker.mark.sequence

    def begin(self, sequence: int, start: int) -> None:
        """Hide everything from a physical offset on; the mark is on the device afterwards."""
        with self._failure.fatal_unless_full:
            self._marker.write(self._marker.mark.begun(sequence, start))

    def publish(self, batch_id: BatchId, stop: int) -> None:
        """Publish a batch that is in the ledger, up to a physical offset; an error is logged, not raised."""
        try:
            self._publish(stop)
        except (SegmentLogError, OSError) as error:
            self._waits = True
            _log.error(
                "%s: %s is committed, but readers do not see it yet: %s They see it once that is solved and the store "
                "works on, or is opened again",
                self._path,
                batch_id,
                error,
            )

    def publish_waiting(self) -> None:
        """Publish a committed batch that a full disk kept hidden; return at once while another thread puts."""
        if self._waits and self._put_path.turn.acquire(blocking=False):
            try:
                self.publish_before_next()
            finally:
                self._put_path.turn.release()

    def publish_before_next(self) -> None:
        """Publish a committed batch that is still hidden; the caller holds the turn. Raises as `publish_waiting`."""
        if self._waits:
            end = self._put_path.end
            self._flusher.wait(end)  # records that were put after the batch were dispatched without waiting for that
            self._publish(end)
            self._waits = False

    def _publish(self, stop: int) -> None:
        self._make_visible()
        with self._failure.fatal_unless_full:
            self._marker.write(self._marker.mark.ended(stop))


class CommitPipeline:
    """Threads of one batch commit; a context manager that waits for them. For one thread, which no Ctrl-C reaches."""

    # Without threads everything runs in the order of the calls, and nothing is synced early.

    def __init__(self, *, is_threaded: bool) -> None:
        # A pool each: a call of one kind may wait for a call of another one.
        self._writers = min(os.cpu_count() or 1, _WRITERS_MAX)
        sizes = {"aside": 1, "put": self._writers, "sync": 1} if is_threaded else {}
        self._pools = {kind: ThreadPoolExecutor(size, f"segmentlog-{kind}") for kind, size in sizes.items()}
        self._sync: Future[None] | None = None
        self._running_aside: deque[Future[None]] = deque()

    def run_aside(self, work: Callable[[], None]) -> None:
        """Make a call on a thread of its own, in the order of the calls; wait if many are pending. For one thread."""
        # An error of an earlier call is raised here. The last calls are dropped at the end if they have not begun.
        if not self._pools:
            work()
            return
        self._running_aside.append(self._pools["aside"].submit(work))
        if len(self._running_aside) > _ASIDE_MAX:
            self._running_aside.popleft().result()

    def written(self, items: Iterable[T], write: Callable[[T], R]) -> Iterator[tuple[T, R]]:
        """Call ``write`` for items on several threads, and yield each with its result in the order of the items."""
        # Items are taken in the calling thread, a few of them ahead. The first error of an item is raised in its turn.
        if not self._pools:
            for item in items:
                yield item, write(item)
            return
        waiting: deque[tuple[T, Future[R]]] = deque()
        for item in items:
            waiting.append((item, self._pools["put"].submit(write, item)))
            if len(waiting) > self._writers:
                first, result = waiting.popleft()
                yield first, result.result()
        for first, result in waiting:
            yield first, result.result()

    def sync(self, work: Callable[[], None]) -> None:
        """Start a sync unless one is running. Its errors are not reported here: the caller syncs again at the end."""
        if self._pools and (self._sync is None or self._sync.done()):
            self._sync = self._pools["sync"].submit(work)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools.values():
            pool.shutdown(cancel_futures=True)


class BatchCommitter:
    """Commits batches to one open store. Thread-safe: one batch at a time, and no other put meanwhile."""

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
        check_owned: Callable[[], None],
        after_piece: Callable[[], None],
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
        self._check_owned = check_owned
        self._after_piece = after_piece
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
        outcome: Future[CommittedBatch] = Future()

        def commit() -> None:
            try:
                with self._put_path.turn:
                    outcome.set_result(self._commit_once(batch_id, staged, topics, on_changed_replay))
            except BaseException as error:  # noqa: BLE001 - raised below
                outcome.set_exception(error)

        if self._is_threaded:
            # Python interrupts the main thread alone: no Ctrl-C comes between two steps, or leaves a writer behind.
            # The thread ends soon after an interrupt of the caller is noted, and a close waits for its turn.
            thread = threading.Thread(target=commit, name="segmentlog-commit", daemon=True)
            thread.start()
            thread.join()
        else:
            commit()
        committed = outcome.result()
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
        self._check_owned()
        self._publication.publish_before_next()
        ledger = self._ledger = self._ledger or self._records.ledger()
        rows, digest = sum(each.rows for each in staged), add_digests(*(each.digest for each in staged))
        path, epoch = self._path, 0
        if batch_id.app is not None and batch_id.app not in ledger.applications:  # no other batch depends on it
            epoch = find_epochs(self._fs, path).newest
        repeated = find_replay(ledger, batch_id, rows, digest, on_changed=on_changed_replay, path=path, epoch=epoch)
        if repeated is not None:
            self._discard(staged)
            return repeated
        with failure.fatal:
            ledger = self._ledger = self._records.clamp(self._fs, ledger, put_path.end)
        put_path.reserve(sizes for each in staged for sizes in survey_staged(self._fs, self._path, each))
        start = put_path.end
        # Records are dispatched before they are flushed while a batch is in flight, and recovery of a crash removes
        # entries of the batch alone.
        flusher.wait(start)
        sequence = max(ledger.sequence, self._publication.sequence) + 1
        self._publication.begin(sequence, start)
        with failure.fatal:
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
            self._check_owned()
            self._ledger = self._records.commit(self._fs, ledger, extended)
        self._publication.publish(batch_id, entry.stop)
        self._discard(staged)
        return CommittedBatch.of(batch_id.app, entry, spans)

    def _put(self, staged: Sequence[Staged]) -> tuple[QueueSpan, ...]:
        """Put all rows in the order of the tasks; return the span of each queue."""
        put_path, flusher = self._put_path, self._flusher
        before = put_path.queue_offsets()
        with CommitPipeline(is_threaded=self._is_threaded) as pipeline:
            placed = self._placed(chunk for each in staged for chunk in take_staged(self._fs, self._path, each))
            for (piece, release), request in pipeline.written(placed, lambda each: each[0].write()):
                put_path.append_ahead(piece, request)
                if release is not None:
                    pipeline.run_aside(release)
                if put_path.end - flusher.flushed >= _SYNC_BYTES:
                    pipeline.sync(partial(flusher.wait, put_path.end))
                self._after_piece()
        spans = sorted(put_path.queues.spans_since(before))
        return tuple(QueueSpan(key.topic, key.queue_id, first, stop - 1, stop - first) for key, first, stop in spans)

    def _placed(self, chunks: Iterable[StagedChunk]) -> Iterator[tuple[AheadPiece, Callable[[], None] | None]]:
        """Place chunks one after the other, from the end of the log on; each comes with its ``release``."""
        end = self._put_path.end
        for chunk in chunks:
            piece = self._put_path.place_ahead(chunk.rows, end)
            yield piece, chunk.release
            end = piece.placed.runs[-1].end

    def _discard(self, staged: Sequence[Staged]) -> None:
        """Delete the staged files of a batch that is in the store; an error is only logged."""
        try:
            discard_staged(self._path, staged, fs=self._fs)
        except (SegmentLogError, OSError) as error:
            _log.warning("%s: staged rows of a batch that is in the store were left behind: %s", self._path, error)
