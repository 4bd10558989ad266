"""A store that is written: the put path of a broker, without the broker.

::

    append, append_batch ──► check, encode ──► put lock: number, place, stamp, write ──► flush ──► acknowledged
                                                                                           └─► dispatch ──► visible

    store/
      lock                    held from open to close: brokers and other processes stay out
      abort                   there while it is open, and after a crash
      commitlog/ consumequeue/ index/ checkpoint config/topics.json      RocketMQ's, byte for byte
      .segmentlog/durable     up to where it is all on the device        ours; RocketMQ ignores it
      .segmentlog/spare …     the next files in the making

One process has it open at a time, any number of its threads append. Readers (`StoreReader`) never lock and see a
message once its ConsumeQueue entry is there. RocketMQ: ``DefaultMessageStore``.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from ..config import BatchPlacement, Flush, OnChangedReplay, OnDamage, Services, StoreConfig
from ..directory.file_sizes import check_file_sizes
from ..directory.store_id import ensure_store_id
from ..directory.topics import TopicTable
from ..dispatch.dispatcher import Dispatcher
from ..encode.batch import encode_batch
from ..encode.message import Appended, Outgoing, encode_message
from ..errors import NotAStoreError, SegmentLogError, StoreClosedError
from ..files.writable_fs import LocalWritableFileSystem, Lock, WritableFileSystem
from ..format.index_file import Geometry
from ..format.store_paths import ABORT, CHECKPOINT, COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX, LOCK, OURS, StorePaths
from ..index.reader import BATCH_MAX, Index
from ..index.writer import IndexWriter
from ..log.appender import LogAppender
from ..log.segment_supply import SegmentSupply
from ..queues.writer import QueueWriter
from ..read.store_reader import StoreReader
from ..recovery.apply import Repair
from ..recovery.decide import Recovery, decide
from ..recovery.durability import Durability
from ..types import QueueBounds, QueueKey
from .background import BackgroundServices
from .batch_commit import BatchAppend
from .failure import Failure
from .group_append import SinglePuts
from .housekeeping import Upkeep
from .put_path import AppendedBatch, PutPath
from .replays import BatchId, CommittedBatch
from .staging import Staged
from .teardown import Teardown

_log = logging.getLogger(__name__)

_BACKLOG_BYTES: Final = 64 << 20  # records that wait to be dispatched; whoever puts more waits, too
_OWN_NAMES: Final = {OURS, LOCK, ABORT, f"{ABORT}.bak", CONFIG, CHECKPOINT, INDEX, "lost+found"}


class MessageStore:
    """One store directory, open for writing; a context manager. Use `open`."""

    def __init__(
        self,
        path: str,
        config: StoreConfig,
        *,
        fs: WritableFileSystem,
        clock: Callable[[], int],
        lock: Lock,
        teardown: Teardown,
    ) -> None:
        self._teardown = teardown
        self.path = path
        self.config = config
        self._fs = fs
        self._clock = clock
        self._lock = lock
        self._failure = Failure(path)
        self._own = partial(_own, lock, self._failure)
        self._closing = threading.RLock()
        self._closed = False
        self._paths = paths = StorePaths(path)
        self._queues = QueueWriter(fs, paths.consume_queues, paths.making_queue_file, config.queue_segment_entries)
        geometry = Geometry(config.index_slots, config.index_entries)
        self._index = IndexWriter(fs, paths.index, paths.making_index_file, geometry) if config.index else None
        self._durability = Durability(fs, path, config, was_ours=lock.is_signed)
        teardown.add(self._durability.close)
        teardown.add(self._queues.close)
        if self._index is not None:
            teardown.add(self._index.close)
        self._services: BackgroundServices | None = None
        self.recovered: Recovery

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        config: StoreConfig | None = None,
        *,
        on_damage: OnDamage = OnDamage.REFUSE,
        fs: WritableFileSystem | None = None,
        clock: Callable[[], int] | None = None,
    ) -> Self:
        """Open a store directory, a broker's or ours, or make one; what a crash left is put in order.

        Parameters
        ----------
        path
            The store directory; its parent is there.
        config
            How it is written. File sizes must be those of the store that is there.
        on_damage
            What becomes of a log with damage in its middle.
        fs
            What to write through, and to lock with.
        clock
            Gives ms since the epoch.

        Raises
        ------
        StoreInUseError
            If it is open, in this process or another one, a broker's too.
        DamagedLogError
            If the log is damaged and ``on_damage`` is REFUSE; nothing was changed then.
        ConfigError
            If the files are of other sizes than ``config`` says.
        NoSpaceError
            If there is no room for what opening writes.
        """
        path = os.path.abspath(path)
        fs = fs or LocalWritableFileSystem()
        _check_is_store(fs, path)
        fs.make_dir(path)
        fs.sync_dir(os.path.dirname(path))
        teardown = Teardown()
        try:
            lock = fs.lock_store(StorePaths(path).lock)
            teardown.add(lock.release)
            store = cls(path, config or StoreConfig(), fs=fs, clock=clock or _now, lock=lock, teardown=teardown)
            store._recover(on_damage)
            store._start()
        except BaseException:
            teardown.run()
            raise
        return store

    # -- opening

    def _recover(self, on_damage: OnDamage) -> None:
        fs, path, durable = self._fs, self.path, self._durability.found
        check_file_sizes(fs, path, self.config, durable)
        repair = Repair(fs, path, self.config, durability=self._durability, queues=self._queues, index=self._index)
        state = repair.examine()
        self._batches = BatchAppend(
            fs,
            path,
            was_ours=self._durability.was_ours,
            is_threaded=self.config.services is Services.BACKGROUND,
            own=self._own,
        )
        undone_from = self._batches.undone_from
        end = decide(state, durable, on_damage, self._paths.commit_log, undone_from)
        self._own()  # reading all of a log may have taken long
        self._durability.begin(end)
        ensure_store_id(fs, path)
        self._lock.sign()
        cut = repair.cut(end)
        ends, corrected = repair.dispatch(state, end)
        self.recovered = Recovery(
            was_clean=not self._durability.was_aborted,
            adopted=durable is None,
            log_end=end,
            cut_records=state.beyond,
            undone_from=undone_from,
            cut_bytes=cut,
            dispatched_from=state.start,
            corrected=corrected,
        )
        self.recovered.log(path)
        newest = repair.newest_timestamp(state)
        self._dispatcher = Dispatcher(self._queues, self._index, ends, end, newest)
        paths = self._paths
        log_directory = paths.commit_log
        self._supply = SegmentSupply(fs, paths.making_segment, log_directory, self.config.segment_bytes, self._own)
        self._appender = LogAppender(fs, log_directory, self._supply, self.config.segment_bytes, end)
        self._teardown.add(self._appender.abandon)
        self._put_path = PutPath(self._appender, self._dispatcher, self._failure, self.config, clock=self._clock)
        self._topics = TopicTable(fs, paths)
        batches = self._batches  # the parts do not know the store, or it could not be dropped without being closed
        self._upkeep = Upkeep(
            self.config,
            appender=self._appender,
            supply=self._supply,
            dispatcher=self._dispatcher,
            queues=self._queues,
            index=self._index,
            durability=self._durability,
            topics=self._topics,
            failure=self._failure,
            end=end,
            is_hidden=lambda: batches.in_flight,
            own=self._own,
        )
        self._teardown.add(self._upkeep.stop)
        self._singles = SinglePuts(self._put_path, self._upkeep.flusher if self.config.flush is Flush.SYNC else None)
        self._dispatch_all = partial(self._upkeep.dispatch, at_once=True)
        self._publish_waiting = partial(
            self._batches.publish_waiting, self._put_path, self._upkeep.flusher, self._failure, self._dispatch_all
        )
        self._upkeep.flush_queues()
        self._batches.settle(end)

    def _start(self) -> None:
        config = self.config
        if config.services is Services.BACKGROUND:
            interval = max(1, min(config.flush_interval_ms, config.queue_flush_interval_ms)) / 1000
            keep = partial(_one_by_one, self._upkeep.keep, self._publish_waiting)
            self._services = BackgroundServices(self._upkeep.dispatch, keep, interval, self._failure)
            self._teardown.add(self._services.stop)
            self._services.start()

    # -- the put path

    def append(self, message: Outgoing) -> Appended:
        """Append one message.

        With ``Flush.SYNC`` it is on the device when this returns; if this raises `StoreFailedError`, whether it will be
        there after a restart is not known.

        Raises
        ------
        IllegalMessageError
            If RocketMQ would refuse it.
        NoSpaceError
            If the disk is full; nothing was appended.
        StoreFailedError
            If the disk failed, now or before.
        StoreClosedError
            If the store is not open in this process.
        """
        self._check()
        appended = self._singles.put(encode_message(message, self.config))
        self._after_put()
        return appended

    def append_batch(
        self, batch: pa.RecordBatch | pa.Table, *, placement: BatchPlacement = BatchPlacement.RUN_ON
    ) -> AppendedBatch:
        """Append the rows of a batch, in their order; see `outgoing_batch.encode_batch` for its columns.

        All rows are checked before the first is written. With ``Flush.SYNC`` all are on the device when this returns; a
        crash before may leave the first ones of them, each whole. Raises what `append` does.
        """
        self._check()
        appended = self._put_path.put_batch(encode_batch(batch, self.config, placement, bodies_apart=True), placement)
        if appended.sizes.size and self.config.flush is Flush.SYNC:
            self._upkeep.flusher.wait(int(appended.physical_offsets[-1] + appended.sizes[-1]))
        self._after_put()
        return appended

    def commit_batch(
        self,
        batch_id: BatchId,
        staged: Sequence[Staged],
        *,
        topics: Mapping[str, int] | None = None,
        on_changed_replay: OnChangedReplay = OnChangedReplay.FAIL,
    ) -> CommittedBatch:
        """Append what tasks staged, all of it and once, in the order given; on the device when this returns.

        Readers see all of it or nothing. Nobody else puts messages meanwhile.

        Parameters
        ----------
        batch_id
            What makes it the same batch as one that was appended before.
        staged
            What `Staging.finish` gave in each task; the files are gone afterwards, as soon as the first row was put.
        topics
            How many queues topics are to have at least that brokers tell their clients about.
        on_changed_replay
            What happens if the batch was committed before with another number of rows.

        Raises
        ------
        FormatError
            If staged rows are not what their task wrote, or the ledger is damaged. If that shows in the middle, the
            store has to be opened anew, which undoes the batch.
        BatchGapError
            If the batch in front of it never came.
        ChangedReplayError
            If the batch was committed before with another number of rows, and ``on_changed_replay`` is FAIL.
        NoSpaceError
            If the disk is full; nothing was appended. Once the batch is in the ledger this is not raised: readers see
            it as soon as there is room.
        StoreFailedError, StoreClosedError
            As `append`.
        """
        self._check()
        with self._put_path.turn:
            try:
                return self._batches.commit(
                    batch_id,
                    staged,
                    topics or {},
                    on_changed_replay,
                    put_path=self._put_path,
                    flusher=self._upkeep.flusher,
                    failure=self._failure,
                    table=self._topics,
                    keep_up=self._after_put,
                    make_visible=self._dispatch_all,
                )
            except BaseException as error:
                if not isinstance(error, Exception):  # a Ctrl-C between two steps: how far it came nobody knows
                    self._failure.note(error)
                raise

    def _after_put(self) -> None:
        if self.config.services is Services.ON_CALL:
            # What was put is put, whatever becomes of the rest: a failure is noted, and the next call hears of it.
            with suppress(SegmentLogError, OSError):
                self.tick()
        elif self._dispatcher.waiting_bytes > _BACKLOG_BYTES:
            with suppress(SegmentLogError, OSError):
                self._upkeep.dispatch()
        elif self._services is not None:
            self._services.wake()

    # -- flushing and dispatching

    def flush(self) -> None:
        """Come back when all that was appended is on the device.

        Raises
        ------
        StoreFailedError
            If that failed, now or before.
        """
        self._check()
        self._upkeep.flusher.wait(self._appender.end)

    def wait_dispatched(self) -> None:
        """Come back when all that was appended can be read; with ``Flush.SYNC`` it is flushed for that."""
        self._check()
        if self.config.flush is Flush.SYNC:
            self.flush()
        self._upkeep.dispatch(at_once=True)

    def tick(self) -> None:
        """Do what has its time: dispatch, flush, make the next segment. For ``Services.ON_CALL``."""
        self._check()
        self._upkeep.dispatch(at_once=True)
        self._upkeep.keep()
        self._publish_waiting()

    # -- reading

    @property
    def end_offset(self) -> int:
        """Physical offset behind the last record."""
        return self._appender.end

    @property
    def flushed_offset(self) -> int:
        """Physical offset up to which the log is on the device."""
        return self._upkeep.flusher.flushed

    def bounds(self, key: QueueKey) -> QueueBounds:
        """The queue offsets of a queue's messages, as a reader sees them now; see `StoreReader.bounds`."""
        return self.reader().bounds(key)

    def reader(self) -> StoreReader:
        """A reader of what is visible now; it needs no closing."""
        self._check()
        return StoreReader.open(self.path, fs=self._fs)

    def query(self, topic: str, key: str, max_num: int = BATCH_MAX) -> list[int]:
        """Find the records that may carry a key, as physical offsets; see `Index.query`."""
        self._check()
        self._upkeep.write_slots()
        geometry = Geometry(self.config.index_slots, self.config.index_entries)
        index = Index(self._paths.index, geometry, self._fs)
        return index.query(topic, key, max_num)

    # -- closing

    def close(self) -> None:
        """Flush everything, dispatch everything, and leave the store as a broker that was shut down does.

        After a failure, or when a Ctrl-C ends it, everything is closed and nothing more is written: the store is left
        as a crash leaves it. Of several threads that call it one does the work, and the others wait for it. Closing a
        store that is closed does nothing.
        """
        with self._closing:
            if self._closed:
                self._teardown.run()  # what a second Ctrl-C kept the first call from
                return
            self._lock.check()  # a child that was forked off takes no file away from its parent
            try:
                with self._put_path.turn:  # a batch that is being committed is finished first
                    self._closed = True
                    self._appender.stop()
                self._finish()
            finally:
                self._closed = True
                self._teardown.run()

    def _finish(self) -> None:
        """Write what a store that is shut down has."""
        if self._services is not None:
            self._services.stop()
        self._failure.check()
        self._upkeep.flusher.wait(self._appender.end)
        self._upkeep.dispatch(at_once=True)
        self._publish_waiting()
        self._upkeep.flush_queues()
        self._own()
        self._appender.close()
        self._fs.sync_dir(self._paths.commit_log)
        self._durability.note_closed()

    def __del__(self) -> None:
        """End what a store that was dropped without `close` left running; the disk is left as a crash leaves it."""
        if not hasattr(self, "_services"):
            return  # its making failed, and who made it has ended it
        if self._services is None:
            with suppress(SegmentLogError, OSError):
                self._teardown.run()
        else:
            self._teardown.leave()

    def _check(self) -> None:
        self._lock.check()
        if self._closed:
            raise StoreClosedError("this store was closed", path=self.path, fix="Open it")
        self._failure.check()
        if self._upkeep.is_starved and self._appender.end - self._dispatcher.dispatched > _BACKLOG_BYTES:
            self._upkeep.dispatch()  # no room for the queues: the log must not run away from them

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except SegmentLogError:
            if error is None:
                raise
            _log.warning("closing %s failed as well", self.path, exc_info=True)


def _check_is_store(fs: WritableFileSystem, path: str) -> None:
    """Make sure that a directory holds a store that can be written, or nothing else."""
    names = {listed.name for listed in fs.list_dir(path)}
    if names & {COMMIT_LOG, CONSUME_QUEUE}:
        StoreReader.open(path, fs=fs)
    elif others := sorted(names - _OWN_NAMES):
        raise NotAStoreError(
            f"this directory holds no store, and other things, like {others[0]!r}",
            path=path,
            fix="Name the store's directory, or an empty one to make a store there",
        )


def _own(lock: Lock, failure: Failure) -> None:
    """Make sure that a store is still locked; nothing is written or acknowledged any more if it is not."""
    with failure.fatal_unless_full():
        lock.keep()
    failure.check()


def _one_by_one(*steps: Callable[[], None]) -> None:
    for step in steps:
        step()


def _now() -> int:
    return time.time_ns() // 1_000_000
