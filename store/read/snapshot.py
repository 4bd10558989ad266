"""Snapshot: a store as of one moment: questions to it, and scans of it, without writing to it.

::

    path/commitlog/          ──► CommitLog ────────────────┐
    path/consumequeue/       ──► ConsumeQueue per queue ───┼──► topics, queues, bounds, offset_at ──► plan ──► scan
    path/abort, lock         ──► Chosen ───────────────────┘
    archive/…                ──► JoinedFileSystem: log and queues continue in the archive

A snapshot takes no lock and writes nothing. It works on the directory of a live broker, on a replica, on a copy, and on
the rest of a damaged one. Liveness only decides how the end is read. A message of a live store exists once its
ConsumeQueue entry does. After a crash the log may hold more than the queues, and its last record may be torn.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from ..directory.layout import (
    StoreLocation,
    archive_place,
    check_has_log,
    check_is_store,
    is_remote,
    log_directories,
    place_of,
    require_directory,
    warn_of_batch_queues,
)
from ..dispatch.derive import derive_queue
from ..entries.choose import Chosen, DirectorySources, Look, join, sources_of
from ..entries.queue_entries import QueueEntries
from ..entries.tasks import ScanTask, TaskLimits, TaskPlace
from ..entries.walk_span import TimeWindow
from ..errors import CorruptRecordError, OffsetOutOfRangeError, UnknownQueueError
from ..files.fs import FileSystem, absolute
from ..format.message import SYS_COMPRESSED, Ints, Problem
from ..format.message_decode import host_text, inflate
from ..format.message_id import encode_offset_id
from ..format.properties import KEYS, TAGS, UNIQ_KEY, parse_properties
from ..format.store_paths import COMMIT_LOG, CONSUME_QUEUE, OURS, DLedgerPaths
from ..log.batch_state import Visibility
from ..log.commit_log import CommitLog, FoundRecord
from ..objects.access import RemoteAccess
from ..queues.consume_queue import ConsumeQueue
from ..types import Boundary, QueueBounds, QueueKey, QueueRange, QueueSource, ReadFrom
from .entry_batches import report_loss
from .plan import plan_tasks
from .scan import scan
from .spec import MAX_BODY_BYTES, ScanSpec
from .time_search import TimeSearch

if TYPE_CHECKING:
    from ..directory.archived_store import HeldSegment

NO_OPTIONS: Final = RemoteAccess()
_LOOKED_S: Final = 1.0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MILLIS: Final = int(datetime.min.replace(tzinfo=UTC).timestamp()) * 1000
_STOP_MILLIS: Final = (int(datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp()) + 1) * 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A message as stored, its body inflated. Times are in UTC and of millisecond precision."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    body: bytes
    tags: str | None
    keys: str | None
    uniq_key: str | None
    properties: dict[str, str]
    born_timestamp: datetime
    store_timestamp: datetime
    born_host: str
    store_host: str
    flag: int
    sys_flag: int
    body_crc: int
    reconsume_times: int
    prepared_transaction_offset: int
    message_id: str


def read_message(log: CommitLog, found: FoundRecord) -> Message:
    """Make an object of one whole record.

    Raises `CorruptRecordError` if its body contradicts its CRC, or cannot be inflated to at most `MAX_BODY_BYTES`. Also
    if one of its times is in no calendar year from 1 to 9999.
    """
    record, path = found.record, found.segment.path
    problem, body = log.check_crc(found), bytes(record.body)
    if problem is Problem.OK and body and record.sys_flag & SYS_COMPRESSED:
        inflated = inflate(body, record.sys_flag, MAX_BODY_BYTES)
        problem, body = (Problem.INFLATE, b"") if inflated is None else (Problem.OK, inflated)
    if problem is not Problem.OK:
        raise CorruptRecordError(problem.text, path=path, offset=record.physical_offset)
    for name in ("born_timestamp", "store_timestamp"):
        millis = getattr(record, name)
        if not _FIRST_MILLIS <= millis < _STOP_MILLIS:
            raise CorruptRecordError(
                f"its {name} of {millis} ms since 1970 is in no year from 1 to 9999",
                path=path,
                offset=record.physical_offset,
                fix="A scan can read this message, with the time as Arrow has it",
            )
    properties = parse_properties(bytes(record.properties))
    return Message(
        topic=bytes(record.topic).decode("utf-8", "replace"),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        store_size=record.total_size,
        body=body,
        tags=properties.get(TAGS),
        keys=properties.get(KEYS),
        uniq_key=properties.get(UNIQ_KEY),
        properties=properties,
        born_timestamp=_EPOCH + timedelta(milliseconds=record.born_timestamp),
        store_timestamp=_EPOCH + timedelta(milliseconds=record.store_timestamp),
        born_host=host_text(record.born_host),
        store_host=host_text(record.store_host),
        flag=record.flag,
        sys_flag=record.sys_flag,
        body_crc=record.body_crc,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        message_id=encode_offset_id(record.store_host, record.physical_offset),
    )


def _located(path: str, access: RemoteAccess, fs: FileSystem | None) -> StoreLocation:
    """Locate a store by a path, or a URL unless a file system is given."""
    if fs is not None:
        return StoreLocation.of(path, fs)
    return StoreLocation.at_place(place_of(path) if is_remote(path) else absolute(path), access)


def _checked(location: StoreLocation, commit_logs: Sequence[str]) -> Sequence[str]:
    """Return the directories of the log; raise an error that says why, if a location holds no store that is read."""
    names = {entry.name: entry for entry in location.fs.list_dir(location.root)}
    for name in (COMMIT_LOG, CONSUME_QUEUE, OURS):
        if name in names:
            require_directory(names[name], os.path.join(location.root, name))
    check_is_store(location, names, commit_logs)
    directories = commit_logs or log_directories(location.root, names)
    check_has_log(location, directories, named=bool(commit_logs))
    warn_of_batch_queues(location.fs, location.root, names)
    return directories


def _scan_at(place: TaskPlace, task: ScanTask, spec: ScanSpec, broker_name: str) -> Iterator[pa.RecordBatch]:
    from ..entries.archived_task import TaskView  # noqa: PLC0415 - readers of a directory need not wait for it

    task = task.at(place)
    return scan(TaskView(place, task, broker_name), task, spec)


class _Known(NamedTuple):
    """State of the queues as far as a snapshot has looked at them."""

    seen: Chosen | None = None
    in_doubt: bool = False  # whether queues lack files
    bounds: Mapping[QueueKey, QueueBounds] = MappingProxyType({})


class Snapshot:
    """A store directory, read as of one moment. Not thread-safe; open one for each thread. Use `open`.

    An answer stays as it was first given: the end of a queue is that of the first time it was asked for. `newer`
    returns a snapshot of the store as it is now.

    Parameters
    ----------
    sources
        What is seen of the store, and what its queues can be read from.
    broker_name, read_from
        See `open`.
    window
        See `within`.
    known
        What an earlier snapshot has found that still holds.
    """

    def __init__(
        self,
        sources: DirectorySources,
        *,
        broker_name: str,
        read_from: ReadFrom,
        window: TimeWindow | None = None,
        known: _Known | None = None,
    ) -> None:
        self.sources = sources
        self.location, self._visibility, self.log, _ = sources.look
        self.path = self.location.root
        self.broker_name = broker_name
        self.read_from = read_from
        self._window = window
        self._seen, self._in_doubt, bounds = known or _Known()
        self._bounds = dict(bounds)
        self._search: tuple[QueueEntries, TimeSearch] | None = None

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | StoreLocation,
        *,
        commit_log_paths: Sequence[str | os.PathLike[str]] = (),
        broker_name: str | None = None,
        queue_source: QueueSource = QueueSource.AUTO,
        archive: str | os.PathLike[str] | None = None,
        read_from: ReadFrom = ReadFrom.APPENDED,
        queue_cache: str | os.PathLike[str] | None = None,
        access: RemoteAccess = NO_OPTIONS,
        fs: FileSystem | None = None,
    ) -> "Snapshot":
        """Open a store, the broker's ``storePathRootDir``, for reading.

        Parameters
        ----------
        commit_log_paths
            Directories of the segments, if they are not in ``path/commitlog`` alone.
        broker_name
            Value of the column ``brokerName``; by default the last part of ``path``.
        queue_source
            Source of entries.
        archive
            Archive of retention: both are read as one store.
        read_from
            CONFIRMED hides messages that a failover could undo, see docs/replication.md.
        queue_cache
            Directory for queues derived from the CommitLog, of all stores; None keeps them in memory.
        access
            Options of an object store, for a path or an archive that is a URL.
        fs
            The file system, for tests.

        Raises
        ------
        NotAStoreError, UnsupportedStoreError
            If the directory does not look like a store, or has the logs of several DLedger brokers.
        UnsafeFileError
            If its directories are symbolic links.
        ConfigError
            If ``archive`` does not exist, or is not the archive of this store.
        UnconfirmedError
            If ``read_from`` is CONFIRMED, and no master publishes what is confirmed.
        """
        location = path if isinstance(path, StoreLocation) else _located(os.fspath(path), access, fs)
        given = [location.beside(each) for each in commit_log_paths]
        directories = _checked(location, given)
        if archive is not None:
            location = join(location, archive, directories, access)
        # Before the segments are listed. Of a DLedger log, only records are read that its group has agreed on.
        seen_from = ReadFrom.APPENDED if any(map(DLedgerPaths.of_data, directories)) else read_from
        visibility = Visibility(location.fs, location.root, seen_from)
        look = Look.of(location, visibility, directories)
        cache = None if queue_cache is None else os.path.abspath(queue_cache)
        sources = sources_of(look, queue_source, cache)
        return cls(sources, broker_name=broker_name or os.path.basename(location.root), read_from=read_from)

    @property
    def awaits_others(self) -> bool:
        """True if stored messages wait until replicas confirm them, or a DLedger group agrees on them."""
        return self.read_from is ReadFrom.CONFIRMED or self.log.is_agreed

    @property
    def holds_back(self) -> bool:
        """True if stored messages may wait to be seen: for others, or for the owner of the store to dispatch them."""
        return self.awaits_others or self.is_live

    def held_end(self, key: QueueKey) -> int:
        """One past the last message that a queue holds now, whether it is confirmed, agreed on and dispatched, or not.

        A confirmed offset may be lower than before for a while: after a crash of its master, or a failover. So may the
        committed end of a DLedger log: a broker that has lost its checkpoint states it again when its group agrees.
        While a crash is recovered from, messages that were read from the log are not dispatched again yet.
        """
        visibility = Visibility(self.location.fs, self.path)
        look = Look.of(self.location, visibility, self.log.directories, with_unagreed=True)
        held = Snapshot(self.sources.newer(look), broker_name=self.broker_name, read_from=ReadFrom.APPENDED)
        end = held.bounds(key).max_offset
        last = held.entries.place_of(key, end - 1) if end and held.is_live and not self.log.is_agreed else None
        if last is None:
            return end
        after = derive_queue(look.log, key, last, look.log.data_stop()).queue_offset
        return max(end, int(after.max(initial=-1)) + 1)

    def within(self, window: TimeWindow) -> "Snapshot":
        """The store as of the same moment; answers may lack queues and messages of other store times: see `is_part`."""
        return self._as_of(self.sources, window)

    @property
    def is_part(self) -> bool:
        """True if answers lack queues and messages, whose store times are not those that it is read `within`."""
        return self._seen is not None and self._seen.is_part

    def look(self) -> Look:
        """What is seen of the store now, for `newer`: the same objects where nothing changed."""
        return self.sources.look.newer()

    def newer(self, look: Look | None = None, moved: Collection[QueueKey] = ()) -> "Snapshot":
        """The store as it is now: segments, topics, queues and messages that were added since are seen.

        Parameters
        ----------
        look, moved
            For a caller that watches queues, so that not all of them are listed: a `look`, and the queues that were
            found after it to have changed, or to be new. All else that is known of queues stays. Without a change
            this snapshot is returned.
        """
        if look is None:
            return self._anew(self.location.newer())
        if not moved and look.log is self.log and look.visibility is self._visibility:
            return self
        sources = self.sources.newer(look, moved)
        seen = None if self._seen is None else self._seen.newer(sources)
        same = look.log.min_offset == self.log.min_offset  # or else queues begin later
        bounds = {key: each for key, each in self._bounds.items() if key not in moved} if same else {}
        return self._as_of(sources, self._window, _Known(seen, self._in_doubt, bounds))

    def newer_for(self, queues: Collection[QueueKey]) -> "Snapshot":
        """The store as it is now for these queues, and for all that was not asked yet; others as they were known.

        An archive that was looked at less than a second ago is not looked at again: each look has its price.
        """
        location = self.location.newer(known_for_s=_LOOKED_S)
        return self.newer(self.look(), queues) if location is self.location else self._anew(location)

    def _anew(self, location: StoreLocation) -> "Snapshot":
        look = Look.of(location, self._visibility.newer(), self.sources.log_directories(location))
        return self._as_of(self.sources.newer(look))

    def _as_of(
        self, sources: DirectorySources, window: TimeWindow | None = None, known: _Known | None = None
    ) -> "Snapshot":
        name, read_from = self.broker_name, self.read_from
        return Snapshot(sources, broker_name=name, read_from=read_from, window=window, known=known)

    def drop_maps(self) -> None:
        """Unmap what nothing else uses: a map holds the space of its file after retention has deleted it."""
        self.log.drop_maps()

    @property
    def is_live(self) -> bool:
        """True if a process holds the store's lock, as of its first look at queues; as of now before that.

        Locks of other hosts, and of brokers in other containers, are not visible.
        """
        return self.location.is_owned() if self._seen is None else self._seen.is_live

    def held_segments(self) -> "Mapping[int, HeldSegment] | None":
        """What an archive in object storage states of its segments, by base offset; None for other stores."""
        return self.sources.held_segments()

    # Topics and queues

    def topics(self) -> list[str]:
        """Names of all topics, sorted, RocketMQ's own included."""
        return sorted(self.entries.ids)

    def queues(self, topic: str) -> list[QueueBounds]:
        """Bounds of the queues of a topic, by queue id.

        Raises
        ------
        UnknownQueueError
            If there is no such topic.
        """
        ids = self.entries.ids.get(topic)
        if ids is None:
            raise UnknownQueueError(
                f"topic {topic} is not in this store", path=self.path, fix="topics() lists the topics"
            )
        return self.bounds_of([QueueKey(topic, queue_id) for queue_id in ids])

    def bounds_of(self, keys: Sequence[QueueKey]) -> list[QueueBounds]:
        """The offsets that each of many queues holds, as `bounds` of each; short queues are looked at together."""
        entries = self.entries  # its first look comes before the queues are listed
        unknown = [key for key in keys if key not in self._bounds]
        if unknown:
            found = entries.bounds(unknown)
            if not self._in_doubt and self._seen is not None and self.sources.lacks_files(self._seen, unknown):
                self._in_doubt, self._seen = True, None
                self._bounds.clear()
                found = self.entries.bounds(unknown)
            self._bounds.update(zip(unknown, found, strict=True))
        return [self._bounds[key] for key in keys]

    def bounds(self, key: QueueKey) -> QueueBounds:
        """The offsets that one queue holds, half-open; both 0 for a queue that does not exist."""
        known = self._bounds.get(key)
        return self.bounds_of([key])[0] if known is None else known

    def queue(self, key: QueueKey) -> ConsumeQueue:
        """The ConsumeQueue of a queue; one without files where there is none.

        Raises
        ------
        UnknownQueueError
            If no topic can have this name.
        """
        return self.sources.queues.queue(key)

    def offset_at(self, key: QueueKey, time_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
        """Queue offset of a store time; see `time_search`.

        Parameters
        ----------
        key
            The queue.
        time_ms
            Milliseconds since 1970, the broker's clock.
        boundary
            LOWER or UPPER.
        """
        return self._time_search.offset(self.bounds(key), time_ms, boundary)

    def end_at(self, key: QueueKey, time_ms: int) -> int:
        """One past the last message of a queue that was stored before a time; see `time_search`."""
        return self._time_search.end(self.bounds(key), time_ms)

    def offsets_at(self, key: QueueKey, times_ms: Ints, boundary: Boundary = Boundary.LOWER) -> Ints:
        """Queue offsets of (n,) distinct ascending store times: `offset_at` of each, (n,) int64."""
        return self._time_search.offsets(self.bounds(key), times_ms, boundary)

    @property
    def times_fall(self) -> bool:
        """True if store times are known to fall: ranges of `offset_at` and `end_at` have messages of other times, too.

        As far as the questions so far have shown.
        """
        return self._time_search.falls

    @property
    def _time_search(self) -> TimeSearch:
        entries = self.entries
        if self._search is None or self._search[0] is not entries:
            self._search = entries, TimeSearch(self.log, entries)
        return self._search[1]

    def stored_bytes(self, wanted: QueueRange) -> int:
        """Bytes of all records of a range within its queue's bounds. Reads 20 bytes per message."""
        return self.entries.total(wanted)

    # Messages

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
            The scan that will run; by default it reads whole messages.
        max_bytes, max_records, min_tasks, parallelism
            Limits of a task; see `TaskLimits`.

        Raises
        ------
        OffsetOutOfRangeError
            If a range leaves its queue.
        DataLossError
            If an archive lacks messages of a range, and ``spec`` does not skip them.
        """
        limits = TaskLimits(
            max_bytes=max_bytes,
            max_records=max_records,
            min_tasks=min_tasks or 1,
            parallelism=parallelism,
            entries_only=spec is not None and spec.entries_only,
        )
        entries = self.entries
        for wanted, bounds in zip(ranges, self.bounds_of([each.key for each in ranges]), strict=True):
            if not bounds.min_offset <= wanted.start <= wanted.stop <= bounds.max_offset:
                raise OffsetOutOfRangeError(
                    f"asked for {wanted}, the queue holds [{bounds.min_offset}, {bounds.max_offset})", path=self.path
                )
        if spec is not None and (deleted := self._report_deleted(ranges, spec)):
            ranges = _without(ranges, deleted)  # a scan would take the places of deleted messages for damage
        tasks, rest = entries.tasks(ranges, limits)
        planned = [piece for wanted in rest for piece in entries.planned(wanted)]
        cut = plan_tasks(planned, limits, entries.extents)
        self.sources.queues.drop_fronts()
        if any(piece.walk is not None for piece in planned):
            cut = [ScanTask(tuple(map(entries.narrowed, task.ranges)), task.rows, task.bytes) for task in cut]
        return [*tasks, *cut]

    def count(self, ranges: Sequence[QueueRange], spec: ScanSpec) -> int | None:
        """As `QueueEntries.count`; messages that are gone are reported as by `plan`."""
        known = self.entries.count(ranges)
        if known is not None:
            self._report_deleted(ranges, spec)
        return known

    def _report_deleted(self, ranges: Sequence[QueueRange], spec: ScanSpec) -> list[QueueRange]:
        deleted = self.entries.deleted(ranges)
        for gone in deleted:
            offsets = f"{len(gone)} messages of {gone.key}, offsets {gone.start} to {gone.stop - 1}"
            report_loss(
                self,
                spec,
                f"{offsets}, are not in the archive: retention deleted them before they were pushed",
                "Read other offsets, and push more often than retention deletes",
            )
        return deleted

    def scan(self, task: ScanTask, spec: ScanSpec) -> Iterator[pa.RecordBatch]:
        """Read the messages of a task; see `scan.scan`."""
        place = self.sources.prepare(task)
        return scan(self, task, spec) if place is None else _scan_at(place, task, spec, self.broker_name)

    @staticmethod
    def scan_alone(
        task: ScanTask, spec: ScanSpec, *, path: str, broker_name: str | None, access: RemoteAccess
    ) -> Iterator[pa.RecordBatch] | None:
        """Read the messages of a task without a look at its store; None unless the task says where they are."""
        if not task.is_self_contained:
            return None
        objects, cache, root = archive_place(path, access)
        return _scan_at(TaskPlace(objects, root, cache), task, spec, broker_name or os.path.basename(root))

    def message_at(self, physical_offset: int) -> Message | None:
        """The message whose record begins at a physical offset, or None if no whole record does.

        Raises
        ------
        CorruptRecordError
            If its body contradicts its CRC, or is compressed and cannot be inflated.
        """
        found = self.log.record_at(physical_offset)
        if found is None or self._visibility.cut(physical_offset + 1) <= physical_offset:
            return None
        if self.log.is_agreed and physical_offset >= self.log.data_stop():
            return None
        return read_message(self.log, found)

    def hidden_from(self) -> int | None:
        """Physical offset from which on records that were read before this call are hidden; None for none.

        It costs a few small files, whereas `readable_stop` looks for the end of the log, too.
        """
        return self._visibility.hidden_from()

    def readable_stop(self) -> int:
        """Physical offset where the records end that may be read now: no batch in flight, nothing that a crash tore."""
        return self.sources.readable_stop(lambda: self.is_live)

    # The store as it was last looked at

    @property
    def entries(self) -> QueueEntries:
        """The queues, as of a look that is taken when it is first needed: a task that only scans needs none."""
        if self._seen is None:
            self._seen = self.sources.choose(self._window, in_doubt=self._in_doubt)
        return self._seen.entries


def _without(ranges: Sequence[QueueRange], parts: Sequence[QueueRange]) -> Sequence[QueueRange]:
    """Return ranges without parts of them; those of one queue ascend."""
    of_queue: dict[QueueKey, list[QueueRange]] = {}
    for part in parts:
        of_queue.setdefault(part.key, []).append(part)
    left = []
    for wanted in ranges:
        start = wanted.start
        for part in of_queue.get(wanted.key, ()):
            if start <= part.start and part.stop <= wanted.stop:
                left.append(QueueRange(wanted.key, start, part.start))
                start = part.stop
        left.append(QueueRange(wanted.key, start, wanted.stop))
    return left
