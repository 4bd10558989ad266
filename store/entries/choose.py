"""Choice of the source of queue entries: the only module that asks of which kind a store is.

::

    1  Visibility      first look at the in-flight marker        from here on: no batch that lands later
    2  CommitLog       segments are listed                       (the reader's own)
    3  consumequeue/   topics and queue ids are listed
    4  lock            live?
    5  abort           crashed?
    6  the log's end   with the records that no queue names, unless a process holds the lock
    7  lock            free still? else again from 3: the records may be those of an owner that came meanwhile

    archive in object storage                                    packs
    queueSource=commitlog, or no queues and no writer            walked
    queues in RocksDB                                            database, or walked where it cannot be used
    crashed, or queues that are absent or too short              joined
    otherwise                                                    files

Visibility comes first. A queue ends where the known segments end. Otherwise a batch that was committed after the
listing would show in part: its first records are in known segments, the others are not.
"""

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..directory.archive import join_archive
from ..directory.file_sizes import known_sizes
from ..directory.layout import (
    ListedQueues,
    StoreLocation,
    log_directories,
    look_at_queues,
    place_of,
    refuse_dledger,
    rocksdb_queues,
)
from ..directory.own_state import OwnState, read_durable_point
from ..dispatch.derive import DerivedQueue
from ..errors import MissingExtraError, SegmentLogError
from ..files.fs import DirectoryStamp
from ..files.notices import warn_once
from ..files.store_lock import is_signed
from ..format.consume_queue import ENTRY_BYTES
from ..format.index_file import IndexProof
from ..log.batch_state import Visibility
from ..log.commit_log import CommitLog
from ..log.log_end import KnownEnd
from ..objects.access import RemoteAccess
from ..queues.consume_queues import ConsumeQueues
from ..types import QueueKey, QueueSource
from .files import FileEntries
from .joined import JoinedEntries
from .missing import QueueSearch, UndispatchedTail, find_undispatched_tail, log_end_after_crash
from .queue_entries import QueueEntries, ids_of, keys_of
from .tasks import PlannedRange, ScanTask, TaskPlace
from .walk_cache import KeptEntries, WalkCache
from .walk_span import TimeWindow, WalkSpan
from .walked import WORTH_BYTES, KeptQueues, LogQueues

if TYPE_CHECKING:
    from ..directory.archived_store import HeldSegment
    from .packs import PackedQueues
    from .rocksdb_tables import RocksQueues

_log = logging.getLogger(__name__)


class Look(NamedTuple):
    """State of a store before its queues are looked at."""

    location: StoreLocation
    visibility: Visibility
    log: CommitLog  # listed after the first look of ``visibility``
    stamps: Sequence[DirectoryStamp]  # of its directories, taken before they were listed

    @classmethod
    def of(
        cls,
        location: StoreLocation,
        visibility: Visibility,
        log_directories: Sequence[str],
        *,
        with_unagreed: bool = False,
    ) -> "Look":
        """List the log of a store; ``visibility`` has looked already."""
        stamps = [DirectoryStamp.of(location.fs, each) for each in log_directories]
        with_unagreed |= location.archived is not None  # an archive ends with what its group has agreed on
        log = CommitLog(location.fs, log_directories, with_unagreed=with_unagreed)
        while (newest := location.after_listing()) is not location:
            location, log = newest, CommitLog(newest.fs, log_directories, with_unagreed=with_unagreed)
        return cls(location, visibility, log, stamps)

    def newer(self) -> "Look":
        """Look again; the log is listed again if one of its directories changed."""
        location, visibility = self.location, self.visibility.newer()
        # A file of 0 bytes may become a segment, and no directory changes then.
        if self.log.is_incomplete or any(each.has_changed(location.fs) for each in self.stamps):
            return self.of(location, visibility, self.log.directories)
        return self._replace(visibility=visibility)


class Chosen(NamedTuple):
    """Queues of a store as of one moment, and what else was seen then."""

    entries: QueueEntries
    is_live: bool  # whether a process held the store's lock
    is_part: bool = False  # whether only queues with messages in the asked time window are known

    def newer(self, sources: "DirectorySources") -> "Chosen":
        """The same queues of the same source; see `QueueEntries.newer`."""
        look = sources.look
        return self._replace(entries=self.entries.newer(look.log, sources.queues, look.visibility))


class StoreView(Protocol):
    """Parts of a store that a scan reads from."""

    @property
    def log(self) -> CommitLog:
        """Its CommitLog."""

    @property
    def broker_name(self) -> str:
        """The name that its rows carry."""

    @property
    def sources(self) -> "RangeSources":
        """The sources of its queue entries."""


class RangeSources(Protocol):
    """What the entries of planned ranges are read from."""

    @property
    def queues(self) -> ConsumeQueues:
        """Its ConsumeQueues."""

    @property
    def kept(self) -> KeptEntries | None:
        """Entries that are known without a walk over the log, if there are any."""

    def derived(self, planned: PlannedRange, walk: tuple[int, int], walks: WalkCache) -> DerivedQueue:
        """Entries of a planned range that no file has, in a task."""


class _Parts(NamedTuple):
    queues: ConsumeQueues
    end: KnownEnd
    walked: KeptQueues
    database: "RocksQueues | None" = None


class DirectorySources:
    """What the queues of a store directory can be read from, each opened when it is needed. Not thread-safe.

    Parameters
    ----------
    look
        What is seen of the store.
    source
        Which source to read.
    cache
        Directory for queues that are derived from the log; None for no files.
    parts
        The files of queues, the end of the log, and what is derived of it, if they are known.
    """

    def __init__(
        self,
        look: Look,
        source: QueueSource,
        cache: str | None,
        parts: _Parts | None = None,
    ) -> None:
        self.look = look
        location, visibility, log, _ = look
        self._location, self._visibility, self._log = location, visibility, log
        self._source = source
        self.cache = cache
        if parts is None:
            run = partial(location.fs.stamp, location.paths.abort)
            walked = KeptQueues(log, location.fs, cache, run, by_log_only=source is QueueSource.COMMIT_LOG)
            queues = ConsumeQueues(location.fs, location.root, log)
            parts = _Parts(queues, KnownEnd(location.fs, log), walked)
        self.queues, self._end, self._walked, self._database = parts
        self.kept: KeptEntries = self._walked

    def newer(self, look: Look, moved: Collection[QueueKey] | None = None) -> "DirectorySources":
        """The sources of the same store as of a later ``look``, if only the ``moved`` queues changed; None for all.

        What was derived from the log is kept, and compared with it.
        """
        location, _, log, _ = look
        queues = ConsumeQueues(location.fs, location.root, log) if moved is None else self.queues.newer(log, moved)
        is_same = log is self._log
        end, walked = (self._end, self._walked) if is_same else (self._end.newer(log), self._walked.newer(log))
        parts = _Parts(queues, end, walked, self._database)
        return DirectorySources(look, self._source, self.cache, parts)

    def choose(self, window: TimeWindow | None = None, *, in_doubt: bool = False) -> Chosen:
        """Choose the entries to read.

        Of queues that are derived from the log, only those with messages in a ``window`` are needed. If queues are
        ``in_doubt``, see `lacks_files`, all of them are compared with the log.
        """
        log, location = self._log, self._location
        by_log = self._source is QueueSource.COMMIT_LOG
        listed = ListedQueues({}, []) if by_log else look_at_queues(location.fs, location.root)
        is_live = location.is_owned()
        crashed = _crashed(location, lambda: is_live)
        # A live store without queues has just begun: its owner will create them.
        has_none = not (listed.ids or is_live or not log.segments)
        # With RocksDB, files may end too early, and topics may lack files: only the log has all queues.
        if by_log or listed.in_rocksdb or has_none:
            if has_none and not (by_log or listed.in_rocksdb):
                self._warn_of_walk()
            stop = self._visibility.cut(log.data_stop()) if crashed is None else self._stop_after_crash(crashed)
            found = self._by_database(stop) if listed.in_rocksdb else None
            return Chosen(found, is_live) if found is not None else self._by_walk(stop, window, is_live=is_live)
        if listed.ids and not (log.segments or is_live):
            warn_once(_log, location.root, "%s has no CommitLog segments: its queues read as empty", location.root)
        tail = self._tail(listed, crashed, is_live=is_live, in_doubt=in_doubt)
        if not is_live and location.is_owned():
            return self.choose(window, in_doubt=in_doubt)
        ids = ids_of([*keys_of(listed.ids), *(() if tail is None else tail.queues)])
        files = FileEntries(log, self.queues, ids, self._visibility, is_live=is_live)
        return Chosen(files if tail is None else JoinedEntries(log, self.queues, ids, files, tail), is_live)

    def lacks_files(self, chosen: Chosen, keys: Sequence[QueueKey]) -> bool:
        """Return whether queues that have directories lack files, or have files of different lengths.

        A copy that ended early, or left out a file, leaves them so. All files of a store's queues are equally long.
        """
        if chosen.is_live or not isinstance(chosen.entries, FileEntries | JoinedEntries):
            return False  # a writer may be creating a file
        ids = chosen.entries.ids
        there = [key for key in keys if key.queue_id in ids.get(key.topic, ())]
        sizes = [self.queues.file_sizes(key) for key in there]
        if not all(sizes):
            return True
        found = {size for each in sizes for size in each}
        if sum(map(len, sizes)) == 1:  # a single file is compared with another queue's, or with the stated size
            sibling = next((key for key in keys_of(ids) if key != there[0]), None)
            point = read_durable_point(self._location.fs, self._location.root) if sibling is None else None
            if sibling is not None:
                found.update(self.queues.file_sizes(sibling))
            elif point is not None and point.sizes.queue_segment_entries:
                found.add(point.sizes.queue_segment_entries * ENTRY_BYTES)
        return len(found) > 1

    def derived(self, planned: PlannedRange, walk: tuple[int, int], walks: WalkCache) -> DerivedQueue:
        """Entries of a planned range that no file has, in a task: by the database if it has all of them."""
        found = None if walks.is_kept(*walk) else self._in_database(planned, walk)
        return walks.queue(planned.key, *walk) if found is None else found

    def prepare(self, task: ScanTask) -> "TaskPlace | None":  # noqa: ARG002 - of an archive alone
        """Prepare the read of a task; return the place of the objects that it names, None if it names none."""
        return None

    def held_segments(self) -> "Mapping[int, HeldSegment] | None":
        """What an archive in object storage states of its segments, by base offset; None for other stores."""
        return None

    def log_directories(self, location: StoreLocation) -> Sequence[str]:  # noqa: ARG002 - of an archive alone
        """Directories of the log at a newer location of the same store."""
        return self._log.directories

    def index_proofs(self) -> Mapping[str, IndexProof]:
        """Proofs of the index files that a look-up need not read as a whole, by path."""
        return {}

    def readable_stop(self, is_live: Callable[[], bool]) -> int:
        """Physical offset where the records end that may be read now: no batch in flight, nothing that a crash tore."""
        crashed = _crashed(self._location, is_live)
        return self._visibility.cut(self._end.now()) if crashed is None else self._stop_after_crash(crashed)

    def _stop_after_crash(self, crashed: OwnState) -> int:
        # In this order: see `_tail`.
        data_stop, hidden_from = self._log.data_stop(), self._visibility.hidden_from()
        end = log_end_after_crash(self._log, crashed, data_stop)
        return end if hidden_from is None else min(end, hidden_from)

    def _tail(
        self,
        listed: ListedQueues,
        crashed: OwnState | None,
        *,
        is_live: bool,
        in_doubt: bool,
    ) -> UndispatchedTail | None:
        """Records without entries: a crash left them, or queues are absent or too short; None if there are none."""
        log, location, visibility = self._log, self._location, self._visibility
        if crashed is None:
            stop = visibility.cut(self._end.nearby())
            search = QueueSearch(location, log, self.queues, self._walked, listed, stop, is_live, in_doubt)
            short = search.find(lambda: visibility.cut(log.data_stop()))
            return UndispatchedTail(log.stop, short, {}, is_exact=False) if short else None
        ends = {each: each.data_end() for each in map(self.queues.queue, keys_of(listed.ids))}
        # First the end of the bytes, then the marker, and no record beyond: the store may be opened meanwhile.
        data_stop, hidden_from = log.data_stop(), visibility.hidden_from()
        tail = find_undispatched_tail(log, ends, crashed, data_stop=data_stop, hidden_from=hidden_from)
        search = QueueSearch(location, log, self.queues, self._walked, listed, tail.log_end, is_live, in_doubt)
        return tail._replace(queues={**tail.queues, **search.find_after_crash(tail.queues)})

    def _by_walk(self, stop: int, window: TimeWindow | None, *, is_live: bool) -> Chosen:
        part = None if window is None else WalkSpan.of(self._log, window, stop)
        if part is not None:
            found = self._walked.queues(part.stop, part.start, part.newest)
            if found.is_clean:
                return Chosen(found, is_live, is_part=True)
        return Chosen(self._walked.queues(stop), is_live)

    def _warn_of_walk(self) -> None:
        root, log = self._location.root, self._log
        warn_once(
            _log,
            root,
            "%s has no ConsumeQueue: its queues are derived from %d bytes of CommitLog; "
            "`segmentlog rebuild` writes them once",
            root,
            log.stop - log.min_offset,
        )

    # RocksDB

    def _by_database(self, stop: int) -> QueueEntries | None:
        """Return all queues by the database; None if it cannot be used, or nearly all entries are kept anyway."""
        log, kept = self._log, self._walked
        if stop - kept.reach(log.min_offset, stop) < WORTH_BYTES:
            return None
        stamps = kept.stamps()
        opened = self._open_database()
        dispatched = None if opened is None else opened.dispatched_up_to()
        if opened is None or dispatched is None:
            return None
        dispatched = min(dispatched, stop)
        from .rocksdb import DatabaseQueues  # noqa: PLC0415 - few stores have a database

        def all_by_log() -> LogQueues:
            return kept.queues(stop)

        def keep(queues: Mapping[QueueKey, DerivedQueue]) -> None:
            kept.keep(queues, stamps, stop)

        tail = kept.queues(stop, max(dispatched, log.min_offset))
        return DatabaseQueues(opened, log, self.queues.queue, tail, dispatched, all_by_log, keep)

    def _in_database(self, planned: PlannedRange, walk: tuple[int, int]) -> DerivedQueue | None:
        """Entries of a planned range by the database; None unless it has all of them."""
        database = None if self._source is QueueSource.COMMIT_LOG else self._open_database()
        if database is None:
            return None
        from .rocksdb import of_database  # noqa: PLC0415 - few stores have a database

        try:
            found = of_database(database, planned.key, planned.start, planned.stop)
        except SegmentLogError:  # the plan has logged it
            return None
        if found.size.size != planned.rows:
            return None
        start, stop = walk
        return found if ((found.physical_offset >= start) & (found.physical_offset < stop)).all() else None

    def _open_database(self) -> "RocksQueues | None":
        """Open the queues in RocksDB; None if there are none, or they cannot be read, which is logged once."""
        fs, root = self._location.fs, self._location.root
        if self._database is not None and not self._database.is_current(fs):
            self._database = None  # not closed: the snapshot may be read from it
        if self._database is None:
            directory = rocksdb_queues(fs, root)
            if directory is None:
                return None
            from .rocksdb_tables import RocksQueues  # noqa: PLC0415 - few stores have a database

            try:
                self._database = RocksQueues.open(fs, directory)
            except MissingExtraError as error:
                warn_once(_log, root, "%s. Meanwhile all queues are derived from the CommitLog", error)
            except SegmentLogError as error:
                warn_once(_log, root, "%s. All queues are derived from the CommitLog", error)
        return self._database


class ArchiveSources(DirectorySources):
    """Sources of an archive in object storage: its manifest has all queues, and nothing appends to it."""

    def __init__(self, look: Look, source: QueueSource, cache: str | None, packed: "PackedQueues") -> None:
        super().__init__(look, source, cache)
        self.kept = self._packed = packed

    def newer(
        self,
        look: Look,
        moved: Collection[QueueKey] | None = None,  # noqa: ARG002 - the manifest tells
    ) -> "ArchiveSources":
        """As `DirectorySources.newer`."""
        assert look.location.archived is not None
        return ArchiveSources(look, self._source, self.cache, self._packed.of(look.location.archived))

    def choose(
        self,
        window: TimeWindow | None = None,  # noqa: ARG002 - the manifest tells
        *,
        in_doubt: bool = False,  # noqa: ARG002
    ) -> Chosen:
        """As `DirectorySources.choose`."""
        return Chosen(self._packed, is_live=False)

    def derived(self, planned: PlannedRange, walk: tuple[int, int], walks: WalkCache) -> DerivedQueue:  # noqa: ARG002
        """As `DirectorySources.derived`."""
        return self._packed.entries(planned.key, planned.start, planned.stop)

    def prepare(self, task: ScanTask) -> "TaskPlace | None":
        """As `DirectorySources.prepare`; the objects may be those of an earlier manifest."""
        if task.is_self_contained:
            archive = self._packed.archive
            return TaskPlace(archive.objects, archive.root, archive.cache)
        self._packed.expect((each.key, each.start, each.stop) for each in task.ranges)  # neighbours are read together
        return None

    def held_segments(self) -> "Mapping[int, HeldSegment]":
        """As `DirectorySources.held_segments`."""
        return self._packed.archive.segments()

    def log_directories(self, location: StoreLocation) -> Sequence[str]:
        """As `DirectorySources.log_directories`: there is a further one once the store was changed to DLedger."""
        return log_directories(location.root, [each.name for each in location.fs.list_dir(location.root)])

    def index_proofs(self) -> Mapping[str, IndexProof]:
        """As `DirectorySources.index_proofs`: those that a push has checked."""
        archive = self._packed.archive
        return {os.path.join(archive.root, path): proof for path, proof in archive.manifest.proofs.items()}

    def readable_stop(self, is_live: Callable[[], bool]) -> int:  # noqa: ARG002
        """As `DirectorySources.readable_stop`."""
        return self._packed.stop


def sources_of(look: Look, source: QueueSource, cache: str | None) -> DirectorySources:
    """Return the sources of queue entries of a store."""
    if look.location.archived is None:
        return DirectorySources(look, source, cache)
    from .packs import PackedQueues  # noqa: PLC0415 - readers of a directory need not wait for it

    return ArchiveSources(look, source, cache, PackedQueues(look.location.archived))


def join(
    location: StoreLocation, archive: str | os.PathLike[str], commit_logs: Sequence[str], access: RemoteAccess
) -> StoreLocation:
    """Return the location of a store that continues in its archive, a directory or a place in object storage."""
    joined = StoreLocation.at_place(place_of(archive), access)
    if joined.archived is None:
        refuse_dledger(location.fs, location.root, "archive: retention has made none of this store")
        return join_archive(location, archive, commit_logs[0])
    from ..config import StoreConfig  # noqa: PLC0415 - as below
    from .packs_as_files import join_packed  # noqa: PLC0415 - few stores continue in object storage

    entries = known_sizes(location.fs, location.root).queue_segment_entries
    return join_packed(location, joined, commit_logs, entries or StoreConfig().queue_segment_entries)


def _crashed(location: StoreLocation, is_live: Callable[[], bool]) -> OwnState | None:
    """State that a crashed store left; None where it is live, or was closed."""
    # The lock is looked for last: the kernel may take 10 ms to answer. The owner may close the store meanwhile.
    fs, abort = location.fs, location.paths.abort
    if fs.size(abort) is None or is_live() or fs.size(abort) is None:
        return None
    return OwnState.read(fs, location.root, is_signed=is_signed(location.paths.lock))
