"""Recovery on open: the steps that turn a store, as it was closed or as a crash left it, into one that can be written.

::

    check sizes ──► examine ──► decide ──► begin ──► sign ──► cut ──► redispatch ──► topics ──► durable point ──► mark
    └─ examine: nothing is changed, so a   │ └─ repair: a crash in it is decided  │   └─ publish: all is on the device
       refused store stays as it was found │    about in the same way             │

RocketMQ: ``DefaultMessageStore.load``, ``recover``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..config import OnDamage, StoreConfig
from ..directory.file_sizes import check_file_sizes
from ..directory.layout import StoreLocation, refuse_read_only
from ..directory.own_state import ensure_store_id
from ..directory.topics import TopicTable, refuse_batch_topics, warn_of_compacted_topics
from ..files.writable_fs import Lock, WritableFileSystem
from ..format.index_file import EMPTY_INDEX, Geometry
from ..format.store_paths import StorePaths
from ..index.writer import IndexWriter
from ..log.confirmed import settle_confirmation
from ..log.log_end import LogState
from ..queues.writer import QueueWriter
from ..types import QueueKey
from .apply import Repair
from .batch_marker import BatchMarker, CutBatches, UnfinishedBatch
from .decide import Recovery, check_flushed, decide
from .durability import Durability


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """Parts of a store that was recovered: log, queues, index and durable point agree and are on the device."""

    durability: Durability
    queues: QueueWriter
    index: IndexWriter | None  # None if the store is configured to have none
    topics: TopicTable
    marker: BatchMarker
    ends: dict[QueueKey, int]  # one past the last entry of each queue
    log_end: int  # physical offset
    newest_timestamp: int  # store time of the last record, ms since the epoch; 0 if there is none
    report: Recovery


def recover(
    fs: WritableFileSystem,
    path: str,
    config: StoreConfig,
    on_damage: OnDamage,
    *,
    lock: Lock,
    check_owned: Callable[[], None],
    undo: Callable[[Callable[[], None]], None],
) -> Opened:
    """Recover a store directory and open its queues, index and durable point, under its lock."""
    # `check_owned` raises if another process has the store. `undo` takes steps that close what was just opened; the
    # caller runs them if an error is raised, too. Nothing is changed on ConfigError, DamagedLogError and FormatError.
    # After NoSpaceError the next open recovers in the same way.
    opening = _Opening(fs, path, config, lock=lock, undo=undo)
    examined = opening.examine(on_damage)
    check_owned()  # reading all of a log may have taken long enough for the lock to be lost
    repaired = opening.repair(examined)
    return opening.publish(examined, repaired)


class _Examined(NamedTuple):
    """Findings of the first phase, and the physical offset at which the log ends from now on."""

    state: LogState
    unfinished: UnfinishedBatch
    cut_off: CutBatches
    end: int


class _Repaired(NamedTuple):
    """Results of the second phase: queue ends, and findings and repairs."""

    ends: dict[QueueKey, int]
    report: Recovery


class _Opening:
    """One recovery: the parts of a store that its phases share. ``undo`` gets a step per part that was opened."""

    def __init__(
        self,
        fs: WritableFileSystem,
        path: str,
        config: StoreConfig,
        *,
        lock: Lock,
        undo: Callable[[Callable[[], None]], None],
    ) -> None:
        location, what = StoreLocation(fs, path), "this store cannot be opened for writing"
        refuse_read_only(fs, path, what)
        refuse_batch_topics(location, what, "Send messages to its broker, or delete these topics there")
        warn_of_compacted_topics(location)
        self._fs = fs
        self._path = path
        self._paths = paths = StorePaths(path)
        self._lock = lock
        self._durability = Durability(fs, path, config, was_ours=lock.is_signed)
        undo(self._durability.close)
        # Sizes first: every offset below is a file name and a position, and with other sizes each would be a wrong one.
        listed = check_file_sizes(fs, path, config, self._durability.found)
        entries = config.queue_segment_entries
        self._queues = QueueWriter(fs, paths.consume_queues, paths.making_queue_file, entries, listed)
        undo(self._queues.close)
        self._index = None
        if config.index:
            geometry = Geometry(config.index_slots, config.index_entries)
            self._index = IndexWriter(fs, paths.index, paths.making_index_file, geometry)
            undo(self._index.close)
        self._repair = Repair(fs, path, config, durability=self._durability, queues=self._queues, index=self._index)

    def examine(self, on_damage: OnDamage) -> _Examined:
        """Look and decide; nothing is written: a refused store can still be salvaged, or opened by a broker."""
        durability = self._durability
        state = self._repair.examine()
        unfinished = UnfinishedBatch.find(self._fs, self._path, was_ours=durability.was_ours)
        end = decide(state, durability.found, on_damage, self._paths.commit_log, unfinished.undone_from)
        if durability.found is None and not self._lock.is_signed and on_damage is OnDamage.REFUSE:
            check_flushed(state, durability.checkpoint.physic_timestamp, self._paths.commit_log)
        cut_off = CutBatches.find(self._fs, self._path, end, unfinished.undone_from)
        return _Examined(state, unfinished, cut_off, cut_off.log_end)

    def repair(self, examined: _Examined) -> _Repaired:
        """Make log, queues and index agree, on the device; a crash in between is decided about in the same way."""
        state, unfinished, _, end = examined
        # The durable point is lowered to the end before the log is cut: records that are cut must not count as lost
        # when a crash comes in between. The file `abort` is there before anything changes: a crash must not look like
        # a close.
        self._durability.begin(end)
        # Before a record takes the place of one that was confirmed and is lost, and before the signature says that no
        # broker appended.
        settle_confirmation(self._fs, self._path, end, was_ours=self._lock.is_signed)
        ensure_store_id(self._fs, self._path)
        # Signed only now: the signature says that all since the durable point was written by us. Until `begin` lowered
        # the point and took its promise of checksums back, a broker may have written some of it.
        self._lock.sign()
        # The log before the queues: entries are derived from it, and must not name records that are about to be cut.
        cut_bytes = self._repair.cut(end)
        ends, corrected = self._repair.redispatch(state, end)
        report = Recovery(
            was_clean=self._durability.was_closed or not self._durability.was_aborted,
            adopted=self._durability.found is None,
            log_end=end,
            cut_records=state.beyond,
            undone_from=unfinished.undone_from,
            cut_bytes=cut_bytes,
            dispatched_from=state.start,
            corrected=corrected,
        )
        report.log(self._path)
        return _Repaired(ends, report)

    def publish(self, examined: _Examined, repaired: _Repaired) -> Opened:
        """Note what was repaired, so that the next recovery relies on it and readers see a kept batch."""
        durability, index, ends, end = self._durability, self._index, repaired.ends, examined.end
        # After the log was cut: records that no longer name a batch must not find rows of it, which would count as
        # messages then.
        examined.cut_off.forget(self._fs, self._path)
        # Topics before the durable point: queues below the point are not dispatched again, so their topics are not
        # noted again either.
        topics = TopicTable(self._fs, self._paths)
        topics.note(list(ends))
        # Raised last of all that the next recovery relies on: queues and index are on the device since `repair`.
        newest = self._repair.newest_timestamp(examined.state)
        index_end, full_ms = (index.end, index.full_timestamp) if index is not None else (EMPTY_INDEX, 0)
        durability.note_queues(end, sum(ends.values()), index_end, newest, full_ms)
        # Readers see a kept batch from here on: not before all of its entries are in the queues.
        mark, settled = examined.unfinished.mark, examined.unfinished.settled(end)
        marker = BatchMarker(self._fs, self._path, mark)
        if settled != mark:
            marker.write(settled)
        return Opened(
            durability=durability,
            queues=self._queues,
            index=index,
            topics=topics,
            marker=marker,
            ends=ends,
            log_end=end,
            newest_timestamp=newest,
            report=repaired.report,
        )
