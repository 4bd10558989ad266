"""Message store that is open for writing: the put path of a broker, without the broker.

::

    append, append_batch ──► check, encode ──► put lock: number, place, stamp, write ──► flush ──► acknowledged
                                                                                           └─► dispatch ──► visible

    store/
      lock                    held from open to close: brokers and other processes stay out
      abort                   exists while it is open, and after a crash
      commitlog/ consumequeue/ index/ checkpoint config/topics.json      RocketMQ's, byte for byte
      .segmentlog/durable     up to where it is all on the device        ours; RocketMQ ignores it
      .segmentlog/spare …     files that do not have their names yet

One process has it open at a time, any number of its threads append. Readers (`Snapshot`) never lock and see a
message once its ConsumeQueue entry is there. RocketMQ: ``DefaultMessageStore``.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from ..config import BatchPlacement, OnChangedReplay, OnDamage, StoreConfig
from ..directory.topics import DEFAULT_QUEUES
from ..encode.batch import encode_batch
from ..encode.message import Appended, Outgoing, encode_message
from ..errors import SegmentLogError, StoreClosedError
from ..files.fs import absolute
from ..files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from ..format.store_paths import StorePaths
from ..log.batch_state import end_following
from ..log.epochs import check_current
from ..read.snapshot import Snapshot
from ..retention.settings import RetentionSettings
from ..types import QueueBounds, QueueKey
from .assembly import StoreParts, Teardown, assemble, lock_and_recover, make_directory
from .attachments import NO_ATTACHMENTS, Attachments
from .batch_commit import BatchId, CommittedBatch
from .put_path import AppendedBatch
from .staging import Staged

_log = logging.getLogger(__name__)

_CURRENT_S: Final = 1.0
"""Seconds between two checks whether another master has replaced this store: a check is some system calls."""


class MessageStore:
    """One store directory, open for writing; a context manager. Thread-safe. Use `open`."""

    def __init__(self, parts: StoreParts) -> None:
        self._closing = threading.RLock()
        self._closed = False
        # Only puts check it: a replica that follows the new master has no puts of its own.
        self._current_until = float("-inf")
        self._parts = parts
        self._fs = parts.base.fs
        self._lock = parts.base.lock
        self._failure = parts.base.failure
        self._put_path = parts.log.put_path
        self._housekeeping = parts.housekeeping
        self._group_append = parts.group_append
        self._services = parts.services
        self.path = parts.base.path
        """Store directory, absolute."""
        self.config = parts.base.config
        """Configuration that it was opened with."""
        self.recovered = parts.base.opened.report
        """Findings and repairs of the open."""
        self.retention = parts.retention
        """Service that deletes expired files; None if the store was opened without one."""

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        config: StoreConfig | None = None,
        *,
        on_damage: OnDamage = OnDamage.REFUSE,
        fs: WritableFileSystem | None = None,
        clock: Callable[[], int] | None = None,
        attached: Attachments = NO_ATTACHMENTS,
        retention: RetentionSettings | None = None,
    ) -> Self:
        """Open a store directory, a broker's or ours, or create one; recover it if a crash left it open.

        Parameters
        ----------
        path
            Store directory; its parent exists.
        config
            How the store is written. File sizes must be those of the existing store.
        on_damage
            Whether a log that is damaged in its middle is refused or cut.
        fs, clock
            File system to write through, and to lock with; function that returns ms since the epoch.
        attached
            Replicas, listeners and metrics that take part in appends.
        retention
            Rules by which expired files are deleted while the store is open; None keeps all files.

        Raises
        ------
        StoreInUseError
            If it is open, in this process or another one, a broker's too.
        DamagedLogError
            If the log is damaged and ``on_damage`` is REFUSE; nothing was changed then.
        ConfigError
            If the sizes of the existing files differ from ``config``.
        NoSpaceError
            If the disk has no room for the files that opening writes.
        """
        path = absolute(path)
        fs = fs or LocalWritableFileSystem()
        make_directory(fs, path)
        teardown = Teardown()
        try:
            base = lock_and_recover(
                fs, path, config or StoreConfig(), on_damage=on_damage, clock=clock or _now, teardown=teardown
            )
            parts = assemble(base, attached, retention)
            store = cls(parts)
            parts.services.start()
        except BaseException:
            teardown.run()
            raise
        return store

    # -- appending

    def append(self, message: Outgoing) -> Appended:
        """Append one message.

        With ``Flush.SYNC`` it is on the device when this returns.

        Raises
        ------
        IllegalMessageError
            If RocketMQ would refuse it.
        StaleMasterError
            If the store knew, when it was opened, that another master has replaced it.
        NoSpaceError
            If the disk is full, or retention refuses puts since it nearly is; nothing was appended.
        StoreFailedError
            If the disk failed, or a Ctrl-C interrupted a write, now or before. Opening the store again tells whether it
            holds the message.
        StoreClosedError
            If the store is not open in this process.
        """
        with self._failure.fatal_if_interrupted:
            self._check_put()
            appended = self._group_append.append(encode_message(message, self.config))
            self._services.after_put()
            return appended

    def append_async(self, message: Outgoing) -> Future[Appended]:
        """Append one message without waiting: the future's result says where it is, once it is acknowledged.

        Messages are appended in the order of the calls. Callbacks run in the store's thread and must not wait. While
        some 64 MiB are under way, a call waits for its message. `close` waits for all. With ``Services.ON_CALL`` the
        message is appended before this returns. Raises what `append` does if that is known now; else the result does.
        """
        with self._failure.fatal_if_interrupted:
            self._check_put()
            return self._parts.async_append.submit(encode_message(message, self.config))

    def append_batch(
        self, batch: pa.RecordBatch | pa.Table, *, placement: BatchPlacement = BatchPlacement.RUN_ON
    ) -> AppendedBatch:
        """Append the rows of a batch, in their order; see `encode.batch.encode_batch` for its columns.

        All rows are checked before the first is written. With ``Flush.SYNC`` all are on the device when this returns; a
        crash before that may leave the first rows of the batch, each whole. Raises the errors of `append`.
        """
        with self._failure.fatal_if_interrupted:
            self._check_put()
            encoded = encode_batch(batch, self.config, placement, bodies_apart=True)
            appended = self._put_path.put_batch(encoded, placement)
            if appended.sizes.size:
                self._parts.commit.wait(int(appended.physical_offsets[-1] + appended.sizes[-1]))
            self._services.after_put()
            return appended

    def append_encoded(self, physical_offset: int, data: bytes | bytearray | memoryview) -> int:
        """Append bytes of another store's CommitLog; return the physical offset up to which this log holds them.

        Whole records are appended as they are, and dispatched. The bytes of a partial one are kept for the next call.
        Segments end at the same physical offsets as in the other store. Records take the queue offsets that they state;
        see `write.put_path.QueueOffsets.followed`.

        ``physical_offset`` is where the last call ended, or `end_offset` to begin again. An empty store begins at the
        start of any segment: the first segments of the other store may have expired. Raises the errors of `append`,
        `ConfigError` for another offset or missing checksums, `FormatError` for damaged bytes.
        """
        with self._failure.fatal_if_interrupted:
            self._check()
            end = self._parts.replica_append.append(physical_offset, data)
            self._parts.commit.wait(end)
            self._services.after_put()
            return end

    def commit_batch(
        self,
        batch_id: BatchId,
        staged: Sequence[Staged],
        *,
        topics: Mapping[str, int] | None = None,
        on_changed_replay: OnChangedReplay = OnChangedReplay.FAIL,
    ) -> CommittedBatch:
        """Append staged rows as a whole and once, in the order of ``staged``.

        When this returns, the batch is on the device, whatever ``flush`` is. Readers see all of it or nothing. No other
        thread puts messages meanwhile.

        Parameters
        ----------
        batch_id
            Identity by which a repeated batch is recognized.
        staged
            Results of `Staging.finish`. The files are deleted, beginning when the first row is put.
        topics
            Least number of queues per topic that brokers tell their clients about.
        on_changed_replay
            Whether a batch that was committed with another number of rows is refused.

        Raises
        ------
        FormatError
            If staged rows differ from the rows that their task wrote, or the ledger is damaged. If that is found in the
            middle of the batch, the store fails, and opening it again undoes the batch.
        BatchGapError
            If the batch before it was never committed.
        ChangedReplayError
            If the batch was committed before with another number of rows, and ``on_changed_replay`` is FAIL.
        NoSpaceError
            If the disk is full; nothing was appended. Once the batch is in the ledger this is not raised: readers see
            it as soon as there is room.
        StoreFailedError, StoreClosedError
            As `append`.
        """
        with self._failure.fatal_if_interrupted:
            self._check_put()
            return self._parts.committer.commit(batch_id, staged, topics or {}, on_changed_replay)

    def make_topics(self, topics: Iterable[str]) -> None:
        """Note topics in ``topics.json``, with at least as many queues as a broker gives to a topic that it creates.

        A failed write is logged: their messages are there, and topics with messages are noted with the next flush.
        """
        with self._failure.fatal_if_interrupted:
            self._check_put()
            try:
                self._parts.base.opened.topics.note(QueueKey(topic, DEFAULT_QUEUES - 1) for topic in topics)
            except (SegmentLogError, OSError) as error:
                _log.warning("%s: new topics have as many queues as messages need: %s", self.path, error)

    # -- flushing and dispatching

    def flush(self) -> None:
        """Return when everything that was appended is on the device; raises `StoreFailedError` if a flush failed."""
        with self._failure.fatal_if_interrupted:
            self._check()
            self._housekeeping.flusher.wait(self._put_path.end)

    def wait_dispatched(self) -> None:
        """Return when readers can see everything that was appended; with ``Flush.SYNC`` it is flushed for that."""
        with self._failure.fatal_if_interrupted:
            self._check()
            self._housekeeping.dispatch_flushed()

    def tick(self) -> None:
        """Run the work that is due: dispatch, flush, allocation of the next segment. For ``Services.ON_CALL``."""
        with self._failure.fatal_if_interrupted:
            self._check()
            self._parts.tick()

    # -- reading

    @property
    def end_offset(self) -> int:
        """Physical offset after the last record."""
        return self._put_path.end

    @property
    def settled_offset(self) -> int:
        """Physical offset before which no batch is in flight: no recovery undoes records below it."""
        end, marker = self._put_path.end, self._parts.base.opened.marker  # in this order: a batch begins with its mark
        return min(end, marker.mark.start) if marker.in_flight else end

    @property
    def flushed_offset(self) -> int:
        """Physical offset up to which the log is on the device."""
        return self._housekeeping.flusher.flushed

    def bounds(self, key: QueueKey) -> QueueBounds:
        """Return the queue offsets of a queue's messages, as a reader sees them now; see `Snapshot.bounds`."""
        return self.snapshot().bounds(key)

    def snapshot(self) -> Snapshot:
        """Return a reader of the messages that are visible now; it needs no closing."""
        self._check()
        return Snapshot.open(self.path, fs=self._fs)

    # -- closing

    def close(self) -> None:
        """Flush everything, dispatch everything, and leave the store as a broker that was shut down does.

        After a failure, or when a Ctrl-C ends it, everything is closed and nothing more is written. The store is left
        as a crash leaves it. If several threads call this, one thread closes the store, and the other threads wait.
        Closing a closed store does nothing, except after a Ctrl-C: then it closes what is still open.
        """
        with self._closing:
            try:
                if not self._closed:
                    self._lock.check()  # a forked child takes no file away from its parent
                    with self._failure.fatal_if_interrupted:
                        self._finish()
            finally:
                self._closed = True
                self._parts.base.teardown.run()

    def _finish(self) -> None:
        """Write the files that a closed store has."""
        parts, housekeeping = self._parts, self._housekeeping
        parts.async_append.stop()
        with self._put_path.turn:  # a batch that is being committed is finished first
            self._closed = True
            parts.log.appender.stop()
        parts.services.stop()
        self._failure.check()
        housekeeping.flusher.wait(parts.log.appender.end)
        housekeeping.dispatch(at_once=True)
        parts.publication.publish_waiting()
        housekeeping.flush_queues()
        parts.base.check_owned()
        parts.log.appender.close()
        for directory in StorePaths(self.path).log_directories:
            self._fs.sync_dir(directory)
        parts.base.opened.durability.note_closed()

    def __del__(self) -> None:
        """End the services of a store that was dropped without `close`; the disk is left as a crash leaves it."""
        parts: StoreParts | None = self.__dict__.get("_parts")
        if parts is None:
            return  # a Ctrl-C within the constructor: `open` runs the teardown
        if parts.services.is_threaded:
            parts.base.teardown.run_in_thread()
        else:
            with suppress(SegmentLogError, OSError):
                parts.base.teardown.run()

    def _check(self) -> None:
        self._lock.check()
        if self._closed:
            raise StoreClosedError("this store was closed", path=self.path, fix="Open it")
        self._failure.check()
        self._housekeeping.keep_up()

    def _check_put(self) -> None:
        self._check()
        now = time.monotonic()
        if now >= self._current_until:
            check_current(self._fs, self.path)
            with self._put_path.turn:
                end_following(self._fs, self.path, self._put_path.end)
            self._current_until = now + _CURRENT_S
        if self.retention is not None:
            self.retention.check_room()

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


def _now() -> int:
    return time.time_ns() // 1_000_000
