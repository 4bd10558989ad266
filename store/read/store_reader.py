"""StoreReader: everything that can be asked of a store directory without writing to it.

::

    path/commitlog/        ──► CommitLog ─────────────┐
    path/consumequeue/     ──► ConsumeQueue a queue ──┼──► topics, queues, bounds, offset_at ──► plan ──► scan
    path/abort, lock       ──► is it live, did it crash?

It takes no lock and writes nothing, so it works on the directory of a live broker, on a replica, on a copy, and on
what is left of one. Who owns the store is only asked to know how to read its end: a live owner's messages are there
once their ConsumeQueue entry is; after a crash the log may hold more than the queues, and its last record may be
torn.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from ..directory.layout import check_is_store, list_queues, require_directory
from ..directory.own_state import OwnState
from ..dispatch.derive import DerivedQueue, derive_queues
from ..errors import (
    OffsetOutOfRangeError,
    UnknownQueueError,
)
from ..files.fs import FileSystem, LocalFileSystem
from ..files.store_lock import is_signed
from ..format.consume_queue import is_plausible
from ..format.message import Ints
from ..format.naming import is_readable_topic
from ..format.store_paths import COMMIT_LOG, CONSUME_QUEUE, OURS, StorePaths
from ..log.batch_state import Visibility
from ..log.commit_log import CommitLog
from ..queues.consume_queue import ConsumeQueue
from ..queues.time_search import offset_at
from ..types import Boundary, QueueBounds, QueueKey, QueueRange
from .message import Message, read_message
from .plan import PlannedRange, ScanTask, TaskLimits, plan_tasks
from .queue_end import queue_end
from .scan import scan
from .spec import QueueSource, ScanSpec
from .undispatched_tail import CrashTail, find_crash_tail, log_end_after_crash

_log = logging.getLogger(__name__)


class StoreReader:
    """Read access to one store directory. Not thread-safe; open one for each thread.

    What a reader knows of a queue's end is what was there when it was first asked; `refresh` asks again.
    """

    def __init__(
        self, fs: FileSystem, path: str, log: CommitLog, *, broker_name: str, queue_source: QueueSource
    ) -> None:
        self._fs = fs
        self.path = path
        self._paths = StorePaths(path)
        self.log = log
        self.broker_name = broker_name
        self.queue_source = queue_source
        self._queues: dict[QueueKey, ConsumeQueue] = {}
        self._bounds: dict[QueueKey, QueueBounds] = {}

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        commit_log_paths: Sequence[str | os.PathLike[str]] = (),
        broker_name: str | None = None,
        queue_source: QueueSource = QueueSource.AUTO,
        fs: FileSystem | None = None,
    ) -> "StoreReader":
        """Open a store for reading.

        Parameters
        ----------
        path
            The broker's ``storePathRootDir``.
        commit_log_paths
            Where its segments are, if not in ``path/commitlog`` alone: a broker may have several directories, and 4.x
            does not derive the directory from the root.
        broker_name
            What rows carry as ``brokerName``; the last part of ``path`` by default, since a store does not know it.
        queue_source
            Where queues are read from.
        fs
            The file system, for tests.

        Raises
        ------
        NotAStoreError
            If nothing there looks like a store.
        UnsupportedStoreError
            If it is one of a kind that is not read: RocksDB queues, DLedger.
        UnsafeFileError
            If its directories are symbolic links.
        """
        fs = fs or LocalFileSystem()
        root = os.path.abspath(os.fspath(path))
        names = {entry.name: entry for entry in fs.list_dir(root)}
        for name in (COMMIT_LOG, CONSUME_QUEUE, OURS):
            if name in names:
                require_directory(names[name], os.path.join(root, name))
        directories = [os.path.abspath(os.fspath(p)) for p in commit_log_paths]
        check_is_store(fs, root, names, directories)
        visibility = Visibility(fs, root)  # before the segments are listed, see `refresh`
        log = CommitLog(fs, directories or [StorePaths(root).commit_log])
        reader = cls(fs, root, log, broker_name=broker_name or os.path.basename(root), queue_source=queue_source)
        reader._visibility = visibility
        return reader

    def refresh(self) -> None:
        """Forget what is known of segments and queues, so that what was added since is seen."""
        # What may be seen comes first: a queue ends where the segments do that are known, and so would a batch that
        # was committed since they were listed, in its middle.
        self.look_again()
        self.log.refresh()
        self._queues.clear()
        self._bounds.clear()
        for name in ("_derived", "_crash_tail", "_listed", "_queue_ids"):
            self.__dict__.pop(name, None)

    def look_again(self) -> None:
        """Begin anew with what may be seen, and whether the store is live; queues stay as they are known.

        What is asked from now on shows batches that were committed by now, and none that comes later; if segments were
        added, list them after this.
        """
        for name in ("is_live", "_visibility"):
            self.__dict__.pop(name, None)
        self._visibility  # noqa: B018 - the first look is now, before whoever called looks at any queue

    def forget(self, key: QueueKey) -> None:
        """Forget what is known of one queue."""
        self._queues.pop(key, None)
        self._bounds.pop(key, None)

    @property
    def goes_by_queues(self) -> bool:
        """Whether the ends of queues are what their ConsumeQueues say, and nothing is derived from the log."""
        return self._derived is None and self._crash_tail is None

    # What is there

    def topics(self) -> list[str]:
        """Names of all topics, sorted, RocketMQ's own included."""
        return sorted(self._queue_ids)

    def queues(self, topic: str) -> list[QueueBounds]:
        """The queues of a topic, by id, with the offsets that they hold.

        Raises
        ------
        UnknownQueueError
            If there is no such topic.
        """
        ids = self._queue_ids.get(topic)
        if ids is None:
            raise UnknownQueueError(
                f"topic {topic} is not in this store", path=self.path, fix="topics() lists what is there"
            )
        return [self.bounds(QueueKey(topic, queue_id)) for queue_id in sorted(ids)]

    def bounds(self, key: QueueKey) -> QueueBounds:
        """The offsets that one queue holds, half-open; both 0 for a queue that is not there.

        Notes
        -----
        The first is that of the first message whose segment is still there; 4.x may say 0 where retention or pads have
        taken the front.
        """
        known = self._bounds.get(key)
        if known is None:
            known = self._bounds[key] = self._find_bounds(key)
        return known

    def offset_at(self, key: QueueKey, time_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
        """Queue offset that a store time stands for; see `time_search.offset_at`.

        Parameters
        ----------
        key
            Which queue.
        time_ms
            Milliseconds since 1970, the broker's clock.
        boundary
            LOWER or UPPER.
        """
        bounds = self.bounds(key)
        derived = self._extra(key)

        def store_time(queue_offset: int) -> int | None:
            if derived is not None:
                at = int(np.searchsorted(derived.queue_offset, queue_offset))
                if at < derived.queue_offset.size and int(derived.queue_offset[at]) == queue_offset:
                    return self.log.store_time_at(int(derived.physical_offset[at]))
            entry = self.queue(key).entries(queue_offset, queue_offset + 1)
            return self.log.store_time_at(int(entry["physical_offset"][0])) if is_plausible(entry)[0] else None

        return offset_at(time_ms, bounds.min_offset, bounds.max_offset, store_time, boundary)

    def queue(self, key: QueueKey) -> ConsumeQueue:
        """The ConsumeQueue of a queue; one without files where there is none."""
        found = self._queues.get(key)
        if found is None:
            if not is_readable_topic(key.topic):  # it is about to become part of a path
                raise UnknownQueueError(
                    f"no topic can be named {key.topic[:80]!r}", path=self.path, fix="topics() lists what is there"
                )
            directory = self._paths.consume_queue(key)
            found = self._queues[key] = ConsumeQueue(self._fs, directory, key, missing_max=self.log.records_max)
        return found

    # Reading

    def plan(
        self,
        ranges: Sequence[QueueRange],
        *,
        max_bytes: int,
        max_records: int | None = None,
        min_tasks: int | None = None,
        parallelism: int = 1,
        spec: ScanSpec | None = None,
    ) -> list[ScanTask]:
        """Cut queue ranges into tasks.

        Parameters
        ----------
        ranges
            Each within the bounds of its queue.
        spec
            What will be read of each message; all of it, if not given.
        max_bytes, max_records, min_tasks, parallelism
            How large a task may be; see `plan.TaskLimits`.

        Raises
        ------
        OffsetOutOfRangeError
            If a range leaves its queue.
        """
        limits = TaskLimits(
            max_bytes=max_bytes,
            max_records=max_records,
            min_tasks=min_tasks or 1,
            parallelism=parallelism,
            entries_only=spec is not None and spec.entries_only,
        )
        planned: list[PlannedRange] = []
        for wanted in ranges:
            bounds = self.bounds(wanted.key)
            if not bounds.min_offset <= wanted.start <= wanted.stop <= bounds.max_offset:
                raise OffsetOutOfRangeError(
                    f"asked for {wanted}, the queue holds [{bounds.min_offset}, {bounds.max_offset})", path=self.path
                )
            planned += self._split_by_source(wanted)
        tasks = plan_tasks(planned, limits, self._extents)
        return [ScanTask(tuple(self._tight(piece) for piece in task.ranges), task.rows, task.bytes) for task in tasks]

    def scan(self, task: ScanTask, spec: ScanSpec) -> Iterator[pa.RecordBatch]:
        """Read the messages of a task; see `scan.scan`."""
        return scan(self, task, spec)

    def message_at(self, physical_offset: int) -> Message | None:
        """The message whose record begins at a physical offset, or None if none that is whole does.

        Raises
        ------
        CorruptRecordError
            If its body is not what its CRC says, or is compressed and cannot be inflated.
        """
        found = self.log.record_at(physical_offset)
        hidden_from = self._visibility.hidden_from()
        if hidden_from is not None and physical_offset >= hidden_from:
            return None
        return None if found is None else read_message(self.log, found)

    # How queues are found

    @cached_property
    def is_live(self) -> bool:
        """Whether some process holds the store's lock, as far as this machine can see."""
        return self._fs.lock_owner(self._paths.lock) is not None

    @cached_property
    def _visibility(self) -> Visibility:
        """What of a batch that is being appended, or came since the first look, is not to be seen."""
        return Visibility(self._fs, self.path)

    def _visible_stop(self, stop: int) -> int:
        """As much of the log below a physical offset as may be seen, of what was read before."""
        hidden_from = self._visibility.hidden_from()
        return stop if hidden_from is None else min(stop, hidden_from)

    @cached_property
    def _listed(self) -> dict[str, list[int]]:
        """Topics and queue ids that consumequeue/ has directories for."""
        return list_queues(self._fs, self.path)

    @cached_property
    def _derived(self) -> dict[QueueKey, DerivedQueue] | None:
        """All queues from the log, where the ConsumeQueue is not to be used or not there."""
        if self.queue_source is QueueSource.AUTO:
            if self._listed or self.is_live or not self.log.segments:
                return None  # a live store without queues has just begun: its owner will make them
            _log.warning(
                "%s has no ConsumeQueue: its queues are derived by a walk over %d bytes of CommitLog, each time anew;"
                " `python -m segmentlog.jobs.rebuild` writes them down once",
                self.path,
                self.log.stop - self.log.min_offset,
            )
        crashed = self._crashed()
        stop = self._visible_stop(self.log.data_stop())
        if crashed is not None:
            stop = min(stop, log_end_after_crash(self.log, crashed))
        return derive_queues(self.log, self.log.min_offset, stop)

    def _crashed(self) -> OwnState | None:
        """What the store says of itself, if it was left by a crash; None if it was closed, or is live."""
        if self.is_live or self._fs.size(self._paths.abort) is None:
            return None
        return OwnState.read(self._fs, self.path, is_signed=is_signed(self._paths.lock))

    @cached_property
    def _crash_tail(self) -> CrashTail | None:
        """What lies behind the end of the queues, if the store was left by a crash."""
        crashed = self._crashed() if self._derived is None else None
        if crashed is None:
            return None
        ends = {
            key: self.queue(key).data_end()
            for topic, ids in self._listed.items()
            for key in (QueueKey(topic, queue_id) for queue_id in ids)
        }
        # The end of the bytes, then the mark, and the walk no further: somebody may open the store meanwhile.
        stop = self._visible_stop(self.log.data_stop())
        return find_crash_tail(self.log, {self.queue(key): end for key, end in ends.items()}, stop, crashed)

    @cached_property
    def _queue_ids(self) -> dict[str, set[int]]:
        """All queues, be they of directories or of the log."""
        found = {topic: set(ids) for topic, ids in self._listed.items()} if self._derived is None else {}
        more = self._derived or (self._crash_tail.queues if self._crash_tail else {})
        for key in more:
            found.setdefault(key.topic, set()).add(key.queue_id)
        return found

    def _extra(self, key: QueueKey) -> DerivedQueue | None:
        """Entries of a queue that only the log knows."""
        if self._derived is not None:
            return self._derived.get(key)
        return self._crash_tail.queues.get(key) if self._crash_tail else None

    def _find_bounds(self, key: QueueKey) -> QueueBounds:
        extra = self._extra(key)
        if self._derived is not None:
            if extra is None:
                return QueueBounds(key, 0, 0)
            return QueueBounds(key, int(extra.queue_offset[0]), int(extra.queue_offset[-1]) + 1)
        queue = self.queue(key)
        end = self._visible_end(queue)
        start = queue.first_alive(self.log.min_offset, end)
        if extra is not None:
            first = int(extra.queue_offset[0])
            # Of a queue whose first file never got onto the device the entries that are there begin too late. Without
            # any entry only the log tells where the queue begins.
            start = min(start, first) if queue.data_end() > queue.first else first
            end = int(extra.queue_offset[-1]) + 1
        return QueueBounds(key, start, end)

    def _visible_end(self, queue: ConsumeQueue) -> int:
        """One past the last message that the ConsumeQueue names and that may be seen."""
        visibility, tail = self._visibility, self._crash_tail  # it has its first look before the queue
        end = queue.data_end()
        hidden_from = visibility.hidden_from()
        if tail is not None and queue.key in tail.ends:
            end = tail.ends[queue.key]
            if tail.is_exact:
                return end  # behind it may be holes, and entries of a batch that was not finished
        end = queue_end(self.log, queue, end, is_live=self.is_live)
        return end if hidden_from is None else queue.end_before(hidden_from, end)

    def _split_by_source(self, wanted: QueueRange) -> list[PlannedRange]:
        """The part that the ConsumeQueue names, and the part that only the log knows."""
        extra = self._extra(wanted.key)
        if extra is None:
            return [PlannedRange(wanted.key, wanted.start, wanted.stop, len(wanted))]
        parts: list[PlannedRange] = []
        first_extra = int(extra.queue_offset[0])
        if self._derived is None and wanted.start < first_extra:
            stop = min(wanted.stop, first_extra)
            parts.append(PlannedRange(wanted.key, wanted.start, stop, stop - wanted.start))
        start = max(wanted.start, first_extra)
        if start < wanted.stop:
            rows = int(np.diff(np.searchsorted(extra.queue_offset, [start, wanted.stop]))[0])
            parts.append(PlannedRange(wanted.key, start, wanted.stop, rows, (self.log.min_offset, self.log.stop)))
        return parts

    def _extents(self, planned: PlannedRange, start: int, stop: int) -> tuple[Ints, Ints]:
        if planned.walk is None:
            entries = self.queue(planned.key).entries(start, stop)
            return entries["physical_offset"], np.where(is_plausible(entries), entries["size"], 0)
        physical, sizes = np.zeros((2, stop - start), np.int64)
        extra = self._extra(planned.key)
        if extra is not None:
            lo, hi = np.searchsorted(extra.queue_offset, [start, stop])
            physical[extra.queue_offset[lo:hi] - start] = extra.physical_offset[lo:hi]
            sizes[extra.queue_offset[lo:hi] - start] = extra.size[lo:hi]
        return physical, sizes

    def _tight(self, piece: PlannedRange) -> PlannedRange:
        """A range that is derived in its task, with no more of the log to walk than it needs."""
        extra = self._extra(piece.key) if piece.walk is not None else None
        if extra is None:
            return piece
        lo, hi = np.searchsorted(extra.queue_offset, [piece.start, piece.stop])
        # From the end of the message before to the next one: what is missing at an edge was in between.
        ends = extra.physical_offset + extra.size
        start = int(ends[lo - 1]) if lo else int(extra.physical_offset[lo])
        stop = int(extra.physical_offset[hi]) if hi < ends.size else int(ends[hi - 1])
        return PlannedRange(piece.key, piece.start, piece.stop, piece.rows, (start, stop))
