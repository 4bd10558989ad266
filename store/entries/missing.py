"""Records without a queue entry: undispatched ones after a crash, and those of missing or short ConsumeQueues.

The undispatched tail are the records at the end of a crashed store that no queue names yet; the last may be torn::

    CommitLog     … [A7][B3][A8][B4][A9][##        0000…
                     ▲       ▲       ▲   ▲
        durable point│       │       │   └ log_end: the bytes after it are not a whole record
                     │       └───────┴ lost by queue A: its entry never got onto the device
                     └ before it all entries are on the device

    queue A       … [7][ ][9]     ends[A] = 10, queues[A] = records of 8 and 9, from the log

A broker that starts again dispatches such records again and truncates the torn one (``CommitLog.recoverAbnormally``). A
reader of the directory must show no less. A power cut takes entries in any order, so the newest entry says nothing of
the entries before it. In a store of ours that no other process wrote since, the search begins at the durable point.
Elsewhere it begins where a broker's recovery does: by the checkpoint, or one segment before the last record that has an
entry. It goes back further as long as records without an entry turn up. Damage with whole records after it is not torn:
it is damage, and stays visible.

A queue is short if the log has messages of it, and ``consumequeue/`` has no directory or too few entries::

    CommitLog      [A0][B0][C0] …  [A7][B7] …  [A9][B9][C9]00000000
                    └ some looks, only if a    └ tail: a few pages
                      queue id is absent            │   ▲ the last record: its queue has an entry for it?
                                                    └───┴ every queue of the tail: it has a directory?

    consumequeue/  A/0   B/0   (C/0 is absent)       in doubt ──► the whole log is walked, C/0 is derived from it

A sound store costs the reads of one tail and one queue. So a queue whose messages are all far before the tail can stay
unseen; docs/reader.md lists the limits. The records of a closed store all have entries. The owner of a live one may not
have dispatched its last records, whatever their store times are: a replica that catches up gets old ones. So there only
a queue without a directory can be short, of records that are older than a minute and than one that has an entry. Else a
message could be read, and then disappear until its entry is written.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np

from ..directory.layout import ListedQueues, StoreLocation
from ..directory.own_state import OwnState
from ..directory.topics import topic_table
from ..dispatch.derive import NO_ENTRIES, DerivedQueue, derive_queues, joined
from ..dispatch.rules import is_queued, queues_of
from ..errors import FileTooLargeError, FormatError
from ..files.notices import warn_once
from ..format.consume_queue import Entries, is_pad, is_plausible
from ..format.message import BURNT_OFFSETS_MAX, Ints, Mask
from ..format.naming import LMQ_PREFIX, is_broker_topic, is_dispatched_topic, is_system_topic
from ..format.store_paths import CONFIG
from ..log.commit_log import CommitLog
from ..log.log_end import examine_log
from ..queues.consume_queue import ConsumeQueue
from ..queues.consume_queues import ConsumeQueues
from ..types import QueueKey
from .queue_entries import keys_of
from .walked import KeptQueues

_log = logging.getLogger(__name__)

_LAST_ENTRIES = 4096
_TAIL_BYTES: Final = (1 << 16, 1 << 20, 1 << 23)
"""Bytes before the end of the log to look at, until a record is among them; most have at most 4 MiB."""
_LOOKS: Final = 16
_LOOK_BYTES: Final = 1 << 14
_TABLE_BYTES_MAX: Final = 1 << 16
"""A larger ``topics.json`` is only read in doubt: 10,000 topics would cost some 20 ms at each open."""
_DISPATCHED_MS: Final = 60_000
_NAMED_MAX: Final = 5
_WINDOW_ENTRIES: Final = 1 << 16
T = TypeVar("T")


class UndispatchedTail(NamedTuple):
    """Records that a crash left after the end of the queues."""

    log_end: int  # physical offset where the last record ends
    # of queues that lack entries: all records from the first one without an entry on
    queues: dict[QueueKey, DerivedQueue]
    ends: dict[QueueKey, int]  # one past the last message of each queue
    is_exact: bool  # False if a queue may end in implausible entries: damage, or torn ones


class _LogEnd(NamedTuple):
    """End of the log, and whether the examined part is undamaged."""

    at: int
    is_whole: bool


def log_end_after_crash(log: CommitLog, own: OwnState, data_stop: int) -> int:
    """Physical offset of the end of the last record before ``data_stop``, in a store that a crash left."""
    begin = _begin_of_ours(log, own)
    if begin is None:  # older pages were written back long ago
        begin = log.segments[-2:][0].base if log.segments else 0
    return _log_end(log, own, begin, data_stop).at


def find_undispatched_tail(
    log: CommitLog,
    ends: Mapping[ConsumeQueue, int],
    own: OwnState,
    *,
    data_stop: int,
    hidden_from: int | None,
) -> UndispatchedTail:
    """Examine the end of the log of a store that no process owns and that was not closed.

    ``ends`` has one past the last non-zero entry of every queue, read after ``own``. Records from ``data_stop`` or
    ``hidden_from`` on, where an unfinished batch begins, do not count.
    """
    begin = _begin_of_ours(log, own)
    if begin is None:
        begin = _begin_by_entries(log, ends, own)
    end = _log_end(log, own, begin, data_stop)
    log_end = end.at if hidden_from is None else min(end.at, hidden_from)
    derived_queues = derive_queues(log, begin, log_end)
    extra: dict[QueueKey, DerivedQueue] = {}
    true_ends: dict[QueueKey, int] = {}
    for queue, data_end in ends.items():
        derived = derived_queues.pop(queue.key, NO_ENTRIES)
        # an offset that is damaged must not stretch the queue
        possible = derived.queue_offset <= data_end + log.records_max + BURNT_OFFSETS_MAX
        derived = derived.take(possible)
        kept = _end_below(queue, min(begin, log_end), data_end, None if own.crash_point is None else log)
        is_told = end.is_whole and not queue.key.topic.startswith(LMQ_PREFIX)
        missing, named = _compare(queue, kept, data_end, derived, None if is_told else log_end)
        true_ends[queue.key] = named
        if missing.any():
            extra[queue.key] = derived.take(np.arange(missing.size) >= missing.argmax())
            true_ends[queue.key] = max(named, int(derived.queue_offset[-1]) + 1)
    for key, derived in derived_queues.items():  # of queues without a directory
        extra[key] = derived
        true_ends[key] = int(derived.queue_offset[-1]) + 1
    if extra:
        warn_once(
            _log,
            log.directories[0],
            "%s: a crash left %d queues without all of their entries: their last %d messages are read from the log",
            log.directories[0],
            len(extra),
            sum(derived.size.size for derived in extra.values()),
        )
    return UndispatchedTail(log_end, extra, true_ends, end.is_whole)


def _compare(
    queue: ConsumeQueue, kept: int, data_end: int, derived: DerivedQueue, log_end: int | None
) -> tuple[Mask, int]:
    """Return which derived records lack an entry, and one past the last entry that counts, of those from ``kept`` on.

    Without ``log_end``, the queue has one entry per record. With it, all entries before that physical offset count.
    """
    if log_end is None:
        # One entry for each record, in their order: a torn one may name another record of the queue.
        entries = queue.entries(kept, kept + derived.size.size)
        # By size as well: zeros point to the first record of a log.
        missing = (entries["physical_offset"] != derived.physical_offset) | (entries["size"] != derived.size)
        return missing, kept + derived.size.size
    entries = queue.entries(kept, data_end)
    # Implausible entries count: the scan decides about them.
    counts = np.flatnonzero(~is_plausible(entries) | (entries["physical_offset"] < log_end))
    end = kept + int(counts[-1]) + 1 if counts.size else kept
    return ~np.isin(derived.physical_offset, entries["physical_offset"][is_plausible(entries)]), end


def _begin_of_ours(log: CommitLog, own: OwnState) -> int | None:
    """Physical offset before which all records have their entries on the device; None if that is unknown."""
    return None if own.crash_point is None else max(own.crash_point.queues, log.min_offset)


def _begin_by_entries(log: CommitLog, ends: Mapping[ConsumeQueue, int], own: OwnState) -> int:
    """The segment from which on records may lack an entry, of a store without a durable point that can be trusted."""
    named = log.min_offset
    for queue, end in ends.items():
        entries = queue.entries(max(queue.first, end - _LAST_ENTRIES), end)
        entries = entries[is_plausible(entries)]
        inside = entries[entries["physical_offset"] + entries["size"] <= log.stop]
        if inside.size:
            named = max(named, int((inside["physical_offset"] + inside["size"]).max()))
    holder = max(int(log.locate(np.array([max(named - 1, 0)]))[0]), 0)
    at = max(holder - 1, 0)
    synced_ms = own.checkpoint.min_timestamp  # 0 in the first minute of a broker: nothing is known to be on the device
    while at > 0 and (not synced_ms or (log.store_time_at(log.segments[at].first) or synced_ms + 1) > synced_ms):
        at -= 1
    while at > 0 and not _all_have_entries(log, at, ends):
        at -= 1
    return log.segments[at].base if log.segments else 0


def _all_have_entries(log: CommitLog, at: int, ends: Mapping[ConsumeQueue, int]) -> bool:
    """Return whether the queues name all records of one segment."""
    segment = log.segments[at]
    queues = {queue.key: queue for queue in ends}
    for key, derived in derive_queues(log, segment.base, segment.stop).items():
        queue = queues.get(key)
        if queue is None:
            return False
        first = queue.end_before(segment.base, ends[queue])
        entries = queue.entries(first, min(first + derived.size.size, ends[queue]))
        if not np.isin(derived.physical_offset, entries["physical_offset"][is_plausible(entries)]).all():
            return False
    return True


def _log_end(log: CommitLog, own: OwnState, begin: int, data_stop: int) -> _LogEnd:
    """Follow the log to its end; as recovery would decide, except that damage is left for the scan."""
    if log.is_agreed:  # whole records that the group has not agreed on may be before ``begin``, and have entries
        begin = min(begin, data_stop)
    state = examine_log(log, begin, own.sealed_from, data_stop)
    point = own.crash_point
    if point is None:
        return _LogEnd(state.last if state.beyond else state.end, not state.beyond)
    if state.end >= point.log:  # after it a crash may have left anything
        return _LogEnd(state.end, is_whole=True)
    return _LogEnd(max(state.last, point.log), is_whole=False)


def _end_below(queue: ConsumeQueue, bound: int, end: int, log: CommitLog | None) -> int:
    """One past the last entry below ``end`` that names a record before a physical offset.

    A torn entry may hold half of its zeros, and look like one of an earlier record: physical offsets have to rise. With
    ``log``, a whole record has to state the place of the entry: 5.0 to 5.1.0 wrote other entries.
    """
    if queue.key.topic.startswith(LMQ_PREFIX):  # a second queue for records of another one
        log = None
    while end > queue.first:
        start = max(queue.first, end - _LAST_ENTRIES)
        entries = queue.entries(start, end)
        is_blank = is_pad(entries)
        is_below = is_plausible(entries) & (entries["physical_offset"] + entries["size"] <= bound) & ~is_blank
        physical = np.where(is_below, entries["physical_offset"], -1)
        rises = physical > np.maximum.accumulate(np.concatenate([[-1], physical]))[:-1]
        for row in np.flatnonzero(rises)[::-1]:  # the last one, but for torn entries
            found = log.record_at(int(physical[row])) if log is not None else None
            place = (queue.key.queue_id, start + int(row))
            if found is None or (found.record.queue_id, found.record.queue_offset) == place:
                return place[1] + 1
        pads = np.flatnonzero(is_blank)
        if pads.size:
            return start + int(pads[-1]) + 1
        end = start
    return queue.first


def _before(short: DerivedQueue, undispatched: DerivedQueue | None) -> DerivedQueue:
    """Return the messages of a short queue before its ``undispatched`` ones, and these."""
    # A crash may leave a sound entry after lost ones: messages before it lack entries, too.
    if undispatched is None:
        return short
    return joined([short.take(short.queue_offset < undispatched.queue_offset[0]), undispatched])


class _Seen(NamedTuple):
    """Physical offsets of the first and the last record of a queue in a span of the log."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class QueueSearch:
    """Search of one store for its short queues."""

    location: StoreLocation
    log: CommitLog
    queues: ConsumeQueues
    kept: KeptQueues
    listed: ListedQueues  # listed after ``log``
    stop: int  # physical offset at the end of the readable records, or shortly after it
    is_live: bool  # whether a writer may be at work
    in_doubt: bool = False  # whether files of queues are missing, or shorter than others

    def find(self, exact_stop: Callable[[], int]) -> dict[QueueKey, DerivedQueue]:
        """Return the messages without an entry in a store that is live or was closed, of each short queue.

        Only a doubt calls ``exact_stop``, which finds where the readable records end.
        """
        if not (self.in_doubt or self.listed.in_the_way or self._tail_is_short() or self._has_lost_queue()):
            return {}
        return self._reported(self._without_entry(self._not_deleted(self._short(exact_stop()))))

    def find_after_crash(self, undispatched: Mapping[QueueKey, DerivedQueue]) -> dict[QueueKey, DerivedQueue]:
        """Return all messages of queues without a directory, of a store that a crash left.

        Of the queues whose ``undispatched`` records are known, one that was new at the crash begins there with its
        first message; any other existed before.
        """
        lost = {
            key: derived
            for key, derived in undispatched.items()
            if derived.queue_offset[0] > 0 and self._is_absent(key)
        }
        if not (self.in_doubt or self.listed.in_the_way or self._not_deleted(lost) or self._has_lost_queue()):
            return {}
        short = self._short(self.stop)
        if not self.in_doubt:
            short = {key: each for key, each in short.items() if self._is_absent(key)}
        found = self._reported(self._without_entry(self._not_deleted(short)))
        return {key: _before(each, undispatched.get(key)) for key, each in found.items()}

    def _short(self, stop: int) -> dict[QueueKey, DerivedQueue]:
        """Return the messages of each queue that the log has after the last sound entry of the queue."""
        short = {}
        stop = min(stop, self._dispatched()) if self.is_live else stop
        for key, derived in self.kept.queues(stop).items():
            is_absent = self._is_absent(key)
            if self.is_live and not is_absent:
                continue
            missing = derived if is_absent else self._after_entries(self.queues.queue(key), derived)
            if missing.size.size:
                short[key] = missing
        return short

    def _is_absent(self, key: QueueKey) -> bool:
        return key.queue_id not in self.listed.ids.get(key.topic, ())

    def _tail_is_short(self) -> bool:
        """Return whether a queue of the last records has no directory, or the last record of all has no entry."""
        for back in _TAIL_BYTES:
            start = max(self.log.min_offset, self.stop - back)
            found = self._seen([(start, self.stop)])
            if found:
                break
            if start == self.log.min_offset:
                return False
        else:
            return False
        if self._lacks_directories(found):
            return True
        if self.is_live:
            return False
        physical, last = max((seen.last, key) for key, seen in found.items())
        if self._is_absent(last):
            return False  # of a topic that was deleted
        queue = self.queues.queue(last)
        end = self._end(queue)
        entry = queue.entries(end - 1, end) if end > queue.first else None
        # An implausible last entry is left to `files`, which asks the log about this queue alone.
        return entry is None or bool(is_plausible(entry)[0] and entry["physical_offset"][0] < physical)

    def _has_lost_queue(self) -> bool:
        """Return whether a few looks into the log find a queue without a directory, if a queue id is absent at all."""
        if not (_has_gaps(self.listed.ids) or self._table_names_more()):
            return False
        start = self.log.min_offset
        step = max((self.stop - start) // _LOOKS, _LOOK_BYTES)
        looks = [(at, min(at + _LOOK_BYTES, self.stop)) for at in range(start, self.stop, step)]
        return self._lacks_directories(self._seen(looks))

    def _seen(self, spans: Sequence[tuple[int, int]]) -> "dict[QueueKey, _Seen]":
        """Return the queues of the records in short spans of the log."""
        records, physical = self.log.glance(spans)
        rows = np.flatnonzero(is_queued(records))
        queues, queue_of = queues_of(records, rows)
        physical = physical[rows]
        first, last = np.zeros((2, queues.queue_id.size), np.int64)
        first[queue_of[::-1]], last[queue_of] = physical[::-1], physical  # of equal indices the last one stays
        found = zip(queues.as_keys(), map(_Seen, first.tolist(), last.tolist()), strict=True)
        return {key: seen for key, seen in found if is_dispatched_topic(key.topic)}

    def _lacks_directories(self, found: "Mapping[QueueKey, _Seen]") -> bool:
        absent = self._not_deleted({key: seen for key, seen in found.items() if self._is_absent(key)})
        if not (absent and self.is_live):
            return bool(absent)
        stop = self._dispatched()
        return any(seen.first < stop and self._is_old(seen.first) for seen in absent.values())

    def _is_old(self, physical_offset: int) -> bool:
        stored_ms = self.log.store_time_at(physical_offset)
        return stored_ms is not None and stored_ms < time.time() * 1000 - _DISPATCHED_MS

    def _dispatched(self) -> int:
        """Physical offset that the last entry of all queues names: all records before it are dispatched."""
        queues = map(self.queues.queue, keys_of(self.listed.ids))
        last = [queue.entries(end - 1, end) for queue in queues if (end := queue.data_end()) > queue.first]
        return max((int(each["physical_offset"][0]) for each in last if is_plausible(each)[0]), default=0)

    def _after_entries(self, queue: ConsumeQueue, derived: DerivedQueue) -> DerivedQueue:
        """Return the records of a queue after the one that its last sound entry names."""
        end = queue.last_sound(self.log, self._end(queue))
        named = int(queue.entries(end - 1, end)["physical_offset"][0]) if end > queue.first else -1
        return derived.take(derived.physical_offset > named)

    def _end(self, queue: ConsumeQueue) -> int:
        """One past the last entry of a queue; in a DLedger store, past its last entry that names an agreed record."""
        # RocketMQ 5 dispatches all entries when it recovers from a crash; the group may then replace the last ones.
        end = queue.data_end()
        return queue.end_before(self.stop, end) if self.log.is_agreed else end

    def _without_entry(self, short: dict[QueueKey, DerivedQueue]) -> dict[QueueKey, DerivedQueue]:
        """Leave out records that have an entry in any queue: their own queue id or queue offset is damaged."""
        if not short:
            return short
        every = joined([*short.values()])
        order: Ints = np.argsort(every.physical_offset)
        ascending = every.take(order)
        named = np.zeros(order.size, np.bool_)
        for key in keys_of(self.listed.ids):
            if key.topic.startswith(LMQ_PREFIX):  # a second queue for records of another one
                continue
            queue = self.queues.queue(key)
            end = queue.data_end()
            for start in range(queue.first, end, _WINDOW_ENTRIES):
                _mark_named(named, ascending, queue.entries(start, min(start + _WINDOW_ENTRIES, end)))
        kept = np.empty(order.size, np.bool_)
        kept[order] = ~named
        stops = np.cumsum([derived.size.size for derived in short.values()])
        left = zip(short.items(), np.split(kept, stops[:-1]), strict=True)
        return {key: derived.take(rows) for (key, derived), rows in left if rows.any()}

    def _table_names_more(self) -> bool:
        """Return whether ``topics.json`` names a queue of a producer's topic that has no directory."""
        size = self.location.fs.size(self.location.paths.topics) if self._has_config() else None
        if size is None or size > _TABLE_BYTES_MAX:
            return False
        # A broker announces retry topics and its own before there is a message, so their absence says nothing.
        counts = {topic: count for topic, count in self._table().items() if not is_system_topic(topic)}
        return any(
            sum(queue_id < count for queue_id in self.listed.ids.get(topic, ())) < count
            for topic, count in counts.items()
        )

    def _has_config(self) -> bool:
        """Return whether ``config/`` is a directory; a link may lead out of the store."""
        found = self.location.fs.list_dir(self.location.root)
        return any(each.name == CONFIG and each.is_dir and not each.is_link for each in found)

    def _table(self) -> dict[str, int]:
        if not self._has_config():
            return {}
        try:
            return topic_table(self.location)
        except (FormatError, FileTooLargeError) as error:
            _log.warning("topics.json is not used to look for missing queues: %s", error)
            return {}

    def _not_deleted(self, found: Mapping[QueueKey, T]) -> dict[QueueKey, T]:
        """Leave out absent queues that ``topics.json`` does not name.

        Records of a topic that its broker deleted stay in the log. A record whose queue id is damaged has no queue.
        """
        if not any(map(self._is_absent, found)):
            return dict(found)
        table = self._table()
        return {
            key: derived
            for key, derived in found.items()
            if not table
            or key.queue_id < table.get(key.topic, 0)
            or is_broker_topic(key.topic)
            or not self._is_absent(key)
        }

    def _reported(self, short: dict[QueueKey, DerivedQueue]) -> dict[QueueKey, DerivedQueue]:
        if short:
            names = [*map(str, sorted(short)[:_NAMED_MAX]), *(["…"] if len(short) > _NAMED_MAX else [])]
            warn_once(
                _log,
                self.location.root,
                "%s: %d ConsumeQueues are missing or too short (%s): %d messages are read from %d bytes of CommitLog; "
                "`segmentlog verify` lists missing entries; without consumequeue/, `segmentlog rebuild` writes all",
                self.location.root,
                len(short),
                ", ".join(names),
                sum(derived.size.size for derived in short.values()),
                self.stop - self.log.min_offset,
            )
        return short


def _mark_named(named: Mask, ascending: DerivedQueue, entries: Entries) -> None:
    """Mark the records, ascending by physical offset, that an entry names by physical offset and size."""
    entries = entries[is_plausible(entries)]
    at = np.minimum(np.searchsorted(ascending.physical_offset, entries["physical_offset"]), named.size - 1)
    same = ascending.physical_offset[at] == entries["physical_offset"]
    named[at[same & (ascending.size[at] == entries["size"])]] = True


def _has_gaps(ids: Mapping[str, set[int]]) -> bool:
    """Return whether a topic lacks a queue id below its greatest one."""
    return any(max(each) + 1 != len(each) for each in ids.values())
