"""Short queues: queues of which the log has messages, and ``consumequeue/`` has no directory or too few entries.

::

    CommitLog      [A0][B0][C0] …  [A7][B7] …  [A9][B9][C9]00000000
                    └ some looks, only if a    └ tail: a few pages
                      queue id is absent            │   ▲ the last record: its queue has an entry for it?
                                                    └───┴ every queue of the tail: it has a directory?

    consumequeue/  A/0   B/0   (C/0 is absent)       in doubt ──► the whole log is walked, C/0 is derived from it

A sound store costs the reads of one tail and one queue. So a queue whose messages are all far before the tail can stay
unseen; docs/reader.md lists the limits. The records of a closed store all have entries. Those of a live one count after
a minute: its owner may not have dispatched newer ones.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np

from ..directory.layout import ListedQueues, StoreLocation
from ..directory.topics import topic_table
from ..dispatch.derive import DerivedQueue, derive_queues
from ..dispatch.rules import is_named, is_queued, queues_of
from ..errors import FileTooLargeError, FormatError
from ..format.consume_queue import LMQ_PREFIX, Entries, is_plausible
from ..format.naming import is_broker_topic, is_system_topic
from ..format.store_paths import CONFIG
from ..log.commit_log import CommitLog
from ..queues.consume_queue import ConsumeQueue
from ..types import QueueKey

_log = logging.getLogger(__name__)

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


class _Seen(NamedTuple):
    """Physical offsets of the first and the last record of a queue in a span of the log."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class QueueSearch:
    """Search of one store for its short queues."""

    location: StoreLocation
    log: CommitLog
    listed: ListedQueues  # listed after ``log``
    stop: int  # physical offset near which the readable records end, and not before their end
    is_live: bool  # whether a writer may be at work

    def find(
        self, queue: Callable[[QueueKey], ConsumeQueue], exact_stop: Callable[[], int]
    ) -> dict[QueueKey, DerivedQueue]:
        """Return the messages without an entry in a store that is live or was closed, of each short queue.

        Only a doubt calls ``exact_stop``, which finds where the readable records end.
        """
        if not (self.listed.in_the_way or self._tail_is_short(queue) or self._has_lost_queue()):
            return {}
        short = {}
        for key, derived in derive_queues(self.log, self.log.min_offset, exact_stop()).items():
            missing = derived if self._is_absent(key) else self._after_entries(queue(key), derived)
            if missing.size.size:
                short[key] = missing
        return self._reported(self._without_entry(self._not_deleted(short), queue))

    def find_after_crash(
        self, undispatched: Mapping[QueueKey, DerivedQueue], queue: Callable[[QueueKey], ConsumeQueue]
    ) -> dict[QueueKey, DerivedQueue]:
        """Return all messages of queues without a directory, of a store that a crash left.

        Of the queues whose ``undispatched`` records are known, one that was new at the crash begins there with its
        first message; any other existed before.
        """
        lost = {
            key: derived
            for key, derived in undispatched.items()
            if derived.queue_offset[0] > 0 and self._is_absent(key)
        }
        if not (self.listed.in_the_way or self._not_deleted(lost) or self._has_lost_queue()):
            return {}
        found = derive_queues(self.log, self.log.min_offset, self.stop)
        absent = self._not_deleted({key: each for key, each in found.items() if self._is_absent(key)})
        return self._reported(self._without_entry(absent, queue))

    def _is_absent(self, key: QueueKey) -> bool:
        return key.queue_id not in self.listed.ids.get(key.topic, ())

    def _tail_is_short(self, opened: Callable[[QueueKey], ConsumeQueue]) -> bool:
        """Return whether a queue of the last records has no directory, or the very last record has no entry."""
        for back in _TAIL_BYTES:
            start = max(self.log.min_offset, self.stop - back)
            found = self._seen(start, self.stop)
            if found:
                break
            if start == self.log.min_offset:
                return False
        else:
            return False
        if self._lacks_directories(found):
            return True
        physical, last = max((seen.last, key) for key, seen in found.items())
        if self._is_absent(last):
            return False  # of a topic that was deleted
        queue = opened(last)
        end = queue.data_end()
        entry = queue.entries(end - 1, end) if end > queue.first else None
        # A last entry that makes no sense is left to `queue_view`: it asks the log about this queue alone.
        short = entry is None or bool(is_plausible(entry)[0] and entry["physical_offset"][0] < physical)
        return short and self._should_have_entry(physical)

    def _has_lost_queue(self) -> bool:
        """Return whether a few looks into the log find a queue without a directory, if a queue id is absent at all."""
        if not (_has_gaps(self.listed.ids) or self._table_names_more()):
            return False
        start = self.log.min_offset
        step = max((self.stop - start) // _LOOKS, _LOOK_BYTES)
        looks = ((at, min(at + _LOOK_BYTES, self.stop)) for at in range(start, self.stop, step))
        return any(self._lacks_directories(self._seen(*look)) for look in looks)

    def _seen(self, start: int, stop: int) -> "dict[QueueKey, _Seen]":
        """Return the queues of the records in a short span of the log."""
        seen: dict[QueueKey, _Seen] = {}
        for found in self.log.walk_read(start, stop):
            rows = np.flatnonzero(is_queued(found.records))
            queues, queue_of = queues_of(found.records, rows)
            physical = found.segment.base + found.records.positions[rows]
            first, last = np.zeros((2, queues.queue_id.size), np.int64)
            first[queue_of[::-1]], last[queue_of] = physical[::-1], physical  # of equal indices the last one stays
            for key, begin, end in zip(queues.as_keys(), first.tolist(), last.tolist(), strict=True):
                if is_named(key.topic):
                    seen[key] = _Seen(seen[key].first if key in seen else begin, end)
        return seen

    def _lacks_directories(self, found: "Mapping[QueueKey, _Seen]") -> bool:
        absent = self._not_deleted({key: seen for key, seen in found.items() if self._is_absent(key)})
        return any(self._should_have_entry(seen.first) for seen in absent.values())

    def _should_have_entry(self, physical_offset: int) -> bool:
        if not self.is_live:
            return True
        stored_ms = self.log.store_time_at(physical_offset)
        return stored_ms is not None and stored_ms < time.time() * 1000 - _DISPATCHED_MS

    def _after_entries(self, queue: ConsumeQueue, derived: DerivedQueue) -> DerivedQueue:
        """Return the records of a queue after the one that its last sound entry names."""
        end = queue.last_sound(self.log, queue.data_end())
        named = int(queue.entries(end - 1, end)["physical_offset"][0]) if end > queue.first else -1
        return DerivedQueue(*(column[derived.physical_offset > named] for column in derived))

    def _without_entry(
        self, short: dict[QueueKey, DerivedQueue], opened: Callable[[QueueKey], ConsumeQueue]
    ) -> dict[QueueKey, DerivedQueue]:
        """Leave out records that have an entry in any queue: their own queue id or queue offset is damaged."""
        for topic, ids in self.listed.ids.items() if short else ():
            if topic.startswith(LMQ_PREFIX):  # a second queue for records of another one
                continue
            for queue_id in ids:
                queue = opened(QueueKey(topic, queue_id))
                end = queue.data_end()
                for start in range(queue.first, end, _WINDOW_ENTRIES):
                    entries = queue.entries(start, min(start + _WINDOW_ENTRIES, end))
                    named = entries[is_plausible(entries)]
                    left = ((key, _not_named(derived, named)) for key, derived in short.items())
                    short = {key: derived for key, derived in left if derived.size.size}
        return short

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
            _log.warning(
                "%s: %d ConsumeQueues are missing or too short (%s): %d messages are read from %d bytes of CommitLog; "
                "`segmentlog verify` lists missing entries; without consumequeue/, `segmentlog rebuild` writes all",
                self.location.root,
                len(short),
                ", ".join(names),
                sum(derived.size.size for derived in short.values()),
                self.stop - self.log.min_offset,
            )
        return short


def _not_named(derived: DerivedQueue, entries: Entries) -> DerivedQueue:
    """Return the records that no entry names by physical offset and size."""
    at = np.minimum(np.searchsorted(derived.physical_offset, entries["physical_offset"]), derived.size.size - 1)
    same = (derived.physical_offset[at] == entries["physical_offset"]) & (derived.size[at] == entries["size"])
    if not same.any():
        return derived
    kept = np.ones(derived.size.size, bool)
    kept[at[same]] = False
    return DerivedQueue(*(column[kept] for column in derived))


def _has_gaps(ids: Mapping[str, Sequence[int]]) -> bool:
    """Return whether a topic lacks a queue id below its greatest one."""
    return any(max(each) + 1 != len(each) for each in ids.values())
