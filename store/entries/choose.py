"""Store snapshot: liveness, queues and visibility of a store directory, taken together and never changed.

::

    1  Visibility      first look at the in-flight marker        from here on: no batch that lands later
    2  CommitLog       segments are listed                       (the reader's own)
    3  consumequeue/   topics and queue ids are listed
    4  lock            live?
    5  abort           crashed?   ─ yes ──► OwnState, ends of all queues ──► undispatched tail
                                  ├ no queues, no writer ──────────────────► all queues derived from the log
                                  └ tail of the log, topics.json ──────────► queues that are absent or too short

Visibility comes first. A queue ends where the known segments end. Otherwise a batch that was committed after the
listing would show in part: its first records are in known segments, the others are not.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..directory.layout import ListedQueues, StoreLocation, look_at_queues
from ..directory.own_state import OwnState
from ..dispatch.derive import DerivedQueue
from ..files.notices import warn_once
from ..files.store_lock import is_signed
from ..log.batch_state import Visibility
from ..log.commit_log import CommitLog
from ..log.log_end import KnownEnd
from ..queues.consume_queue import ConsumeQueue
from ..types import QueueKey, QueueSource
from .missing import QueueSearch, UndispatchedTail, find_undispatched_tail, log_end_after_crash
from .walk_span import TimeWindow, WalkSpan
from .walked import WORTH_BYTES, AllQueues, KeptQueues

if TYPE_CHECKING:
    from .packs import PackedQueues
    from .rocksdb_tables import RocksQueues

_log = logging.getLogger(__name__)


class StoreSnapshot(NamedTuple):
    """Facts about one store that were found together; immutable. A reader replaces it as a whole."""

    visibility: Visibility
    is_live: bool  # whether a process held the store's lock
    queue_ids: Mapping[str, tuple[int, ...]]  # ascending, by topic, from directories and from the log
    derived: AllQueues | None  # all queues by the log alone; None where ConsumeQueues are read
    # Records without entries: a crash left them, or queues are absent or too short. None if there are none,
    # or all queues are derived.
    tail: UndispatchedTail | None
    is_part: bool = False  # whether `derived` has the records of a time window only

    @classmethod
    def take(  # noqa: PLR0917 - the parts of one reader
        cls,
        location: StoreLocation,
        log: CommitLog,
        kept: "KeptQueues | PackedQueues",
        source: QueueSource,
        visibility: Visibility,
        queue: Callable[[QueueKey], ConsumeQueue],
        end: KnownEnd,
        database: "Callable[[], RocksQueues | None]",
        window: TimeWindow | None = None,
    ) -> "StoreSnapshot":
        """Take a snapshot; ``log`` was listed after the first look of ``visibility``, and ``end`` is its end.

        ``database`` opens the queues in RocksDB; None if that is not possible. Of queues that are derived from the log,
        only those with messages in a ``window`` are needed.
        """
        if not isinstance(kept, KeptQueues):  # an archive: its manifest has all queues, and nothing appends to it
            return cls(visibility, False, _ids(kept), kept, None)  # noqa: FBT003 - as the other ones
        fs, paths = location.fs, location.paths
        listed = ListedQueues({}, []) if source is QueueSource.COMMIT_LOG else look_at_queues(fs, location.root)
        is_live = fs.lock_owner(paths.lock) is not None
        crashed = _crashed(location, lambda: is_live)
        # With RocksDB, files may end too early, and topics lack them: only the log has all queues.
        by_log = source is QueueSource.COMMIT_LOG or listed.in_rocksdb
        if by_log or not (listed.ids or is_live or not log.segments):
            # A live store without queues has just begun: its owner will create them.
            if not by_log:
                warn_once(
                    _log,
                    location.root,
                    "%s has no ConsumeQueue: its queues are derived from %d bytes of CommitLog; "
                    "`segmentlog rebuild` writes them once",
                    location.root,
                    log.stop - log.min_offset,
                )
            stop = _readable_stop(log, visibility, crashed)
            derived = _from_database(log, kept, database, queue, stop) if listed.in_rocksdb else None
            is_part = False
            if derived is None:
                derived, is_part = _from_log(log, kept, stop, window)
            return cls(visibility, is_live, _ids(derived), derived, None, is_part)
        if listed.ids and not (log.segments or is_live):
            warn_once(_log, location.root, "%s has no CommitLog segments: its queues read as empty", location.root)
        keys = _keys(listed.ids)
        if crashed is None:
            search = QueueSearch(location, log, kept, listed, visibility.cut(end.nearby()), is_live)
            short = search.find(queue, lambda: visibility.cut(log.data_stop()))
            tail = UndispatchedTail(log.stop, short, {}, is_exact=False) if short else None
            return cls(visibility, is_live, _ids([*keys, *short]), None, tail)
        ends = {each: each.data_end() for each in map(queue, keys)}
        # First the end of the bytes, then the marker, and no record beyond: the store may be opened meanwhile.
        data_stop, hidden_from = log.data_stop(), visibility.hidden_from()
        tail = find_undispatched_tail(log, ends, crashed, data_stop=data_stop, hidden_from=hidden_from)
        lost = QueueSearch(location, log, kept, listed, tail.log_end, is_live).find_after_crash(tail.queues, queue)
        tail = tail._replace(queues={**tail.queues, **lost})
        return cls(visibility, is_live, _ids([*keys, *tail.queues]), None, tail)

    @property
    def goes_by_queues(self) -> bool:
        """True if ConsumeQueues alone tell where queues end."""
        return self.derived is None and self.tail is None

    def from_log(self, key: QueueKey) -> DerivedQueue | None:
        """Entries of a queue that only the log has; never empty."""
        if self.derived is not None:
            return self.derived.get(key)
        return None if self.tail is None else self.tail.queues.get(key)


def _from_database(
    log: CommitLog,
    kept: KeptQueues,
    database: "Callable[[], RocksQueues | None]",
    queue: Callable[[QueueKey], ConsumeQueue],
    stop: int,
) -> AllQueues | None:
    """Return all queues of a store by its RocksDB; None if the log has to tell, or as much is kept of it anyway."""
    if stop - kept.reach(log.min_offset, stop) < WORTH_BYTES:
        return None
    stamps = kept.stamps()
    opened = database()
    dispatched = None if opened is None else opened.dispatched_up_to()
    if opened is None or dispatched is None:
        return None
    dispatched = min(dispatched, stop)
    from .rocksdb import DatabaseQueues  # noqa: PLC0415 - few stores have a database

    tail = kept.queues(stop, max(dispatched, log.min_offset))
    return DatabaseQueues(
        opened,
        log,
        queue,
        tail,
        dispatched,
        lambda: kept.queues(stop),
        lambda queues: kept.keep(queues, stamps, stop),
    )


def _from_log(log: CommitLog, kept: KeptQueues, stop: int, window: TimeWindow | None) -> tuple[AllQueues, bool]:
    """Return all queues by the log, or those with messages in a window; True if records are left out."""
    part = None if window is None else WalkSpan.of(log, window, stop)
    if part is not None:
        found = kept.queues(part.stop, part.start, part.newest)
        if found.is_clean:
            return found, True
    return kept.queues(stop), False


def readable_stop(
    location: StoreLocation, log: CommitLog, end: KnownEnd, visibility: Visibility, is_live: Callable[[], bool]
) -> int:
    """Physical offset where the records end that may be read now: no batch in flight, nothing that a crash tore."""
    crashed = _crashed(location, is_live)
    return visibility.cut(end.now()) if crashed is None else _stop_after_crash(log, visibility, crashed)


def _readable_stop(log: CommitLog, visibility: Visibility, crashed: OwnState | None) -> int:
    return visibility.cut(log.data_stop()) if crashed is None else _stop_after_crash(log, visibility, crashed)


def _stop_after_crash(log: CommitLog, visibility: Visibility, crashed: OwnState) -> int:
    data_stop, hidden_from = log.data_stop(), visibility.hidden_from()  # in this order: see `StoreSnapshot.take`
    end = log_end_after_crash(log, crashed, data_stop)
    return end if hidden_from is None else min(end, hidden_from)


def _crashed(location: StoreLocation, is_live: Callable[[], bool]) -> OwnState | None:
    """State that a crashed store left; None where it is live, or was closed."""
    # The lock is looked for last: the kernel may take 10 ms to answer. The owner may close the store meanwhile.
    fs, abort = location.fs, location.paths.abort
    if fs.size(abort) is None or is_live() or fs.size(abort) is None:
        return None
    return OwnState.read(fs, location.root, is_signed=is_signed(location.paths.lock))


def _keys(listed: Mapping[str, set[int]]) -> list[QueueKey]:
    return [QueueKey(topic, queue_id) for topic, ids in listed.items() for queue_id in ids]


def _ids(keys: "Mapping[QueueKey, object] | list[QueueKey]") -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = {}
    for key in keys:
        found.setdefault(key.topic, set()).add(key.queue_id)
    return {topic: tuple(sorted(ids)) for topic, ids in found.items()}
