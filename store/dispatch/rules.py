"""Dispatch rules: the entries and keys that a record of the CommitLog adds to ConsumeQueues and index.

::

    record      plain   prepared   committed   rolled back   inner batch
    entry         x                    x                                     is_queued
    keys          x         x          x                          x          index.keys
    tags code   Java's hash of TAGS; in SCHEDULE_TOPIC_XXXX the time of delivery

    records that were read       ──► DispatchedRecords.of_records ──┐
    columns that were encoded    ──► DispatchedRecords.of_columns ──┴─► the same entries and keys

The dispatcher of a writer, recovery and readers of a log all ask here. RocketMQ: ``DispatchRequest``,
``CommitLogDispatcherBuildConsumeQueue``, ``CommitLogDispatcherBuildIndex``, ``checkMessageAndReturnSize``.
"""

import logging
from typing import Final, NamedTuple, Self

import numpy as np

from ..files.notices import warn_once
from ..format.buffers import topics_of
from ..format.consume_queue import ENTRY, Entries, from_columns
from ..format.hashing import java_hash_array
from ..format.message import SYS_COMMIT, SYS_INNER_BATCH, SYS_TRANSACTION, Ints, Mask, Records
from ..format.naming import SCHEDULE_TOPIC, is_dispatched_topic
from ..format.properties import DELAYS_MS, TAGS, Properties, java_int
from ..index.writer import indexed_keys
from ..queues.keys import QueueNumbers, Queues, different_queues
from .light_queues import light_entries

_log = logging.getLogger(__name__)

_NONE: Final = np.zeros(0, np.int64)
_DELAYS_MS: Final = np.array(DELAYS_MS, np.int64)


class DispatchedRecords(NamedTuple):
    """Entries and keys of some records: n of them have a ConsumeQueue entry, k hashes go into the index."""

    queues: Ints  # (q,) int64, numbers of the distinct queues
    queue_of: Ints  # (n,) int64, index into ``queues`` per entry
    queue_offset: Ints  # (n,) int64
    entries: Entries  # (n,) array of ``format.consume_queue.ENTRY``
    hashes: Ints  # (k,) int64: hash of a key, physical offset and store time in ms of its record
    hash_physical: Ints
    hash_timestamp: Ints
    newest: int  # store time of the last record, ms since the epoch

    @classmethod
    def none(cls, newest: int) -> Self:
        """Return no entries and keys; ``newest`` is the store time in ms of the last record."""
        return cls(_NONE, _NONE, _NONE, np.empty(0, ENTRY), _NONE, _NONE, _NONE, newest)

    @classmethod
    def of_records(cls, records: Records, properties: Properties, numbers: QueueNumbers, *, with_keys: bool) -> Self:
        """Return the entries and keys of one record or more, read from their bytes; ``numbers`` gets new queues."""
        # An impossible topic has no queues.
        physical, timestamps = records.field("physical_offset"), records.field("store_timestamp")
        rows = np.flatnonzero(is_queued(records))
        queues, queue_of = queues_of(records, rows)
        if not all(map(is_dispatched_topic, queues.topics)):
            rows = rows[_are_named(queues, queue_of, physical[rows])]
            queues, queue_of = queues_of(records, rows)
        entries = from_columns(
            ENTRY, physical[rows], records.field("total_size")[rows], tags_codes(records, "", properties)[rows]
        )
        if SCHEDULE_TOPIC in queues.topics:
            later = queues.topic_of[queue_of] == queues.topics.index(SCHEDULE_TOPIC)
            entries["tags_code"][later] = tags_codes(records.take(rows[later]), SCHEDULE_TOPIC)
        hashes, of = indexed_keys(records, properties) if with_keys else (_NONE, _NONE)
        offsets = records.field("queue_offset")[rows]
        every = numbers.of(queues)
        of_queued = entries
        for key, inside, stated in light_entries(records, properties):
            is_entry = np.isin(inside, rows)
            among = np.searchsorted(rows, inside[is_entry])
            queue_of = np.append(queue_of, np.full(among.size, every.size))
            every = np.append(every, numbers.of_one(key))
            offsets, entries = np.append(offsets, stated[is_entry]), np.append(entries, of_queued[among])
        places = physical[of], timestamps[of]
        return cls(every, queue_of, offsets, entries, hashes, *places, int(timestamps[-1]))

    @classmethod
    def of_columns(
        cls,
        queues: Ints,
        queue_of: Ints,
        queue_offset: Ints,
        *,
        physical: Ints,
        sizes: Ints,
        tags_codes: Ints,
        hashes: Ints,
        hash_rows: Ints,
        store_timestamp: int,
    ) -> Self:
        """Return the entries and keys of plain records, from the columns that they were encoded from."""
        entries = from_columns(ENTRY, physical, sizes, tags_codes)
        times = np.full(hashes.size, store_timestamp, np.int64)
        return cls(queues, queue_of, queue_offset, entries, hashes, physical[hash_rows], times, store_timestamp)


def is_queued(records: Records) -> Mask:
    """Tell which records get a ConsumeQueue entry: all but prepared ones, rolled back ones and inner batches."""
    sys_flag = records.field("sys_flag")
    transaction = sys_flag & SYS_TRANSACTION
    queued: Mask = ((transaction == 0) | (transaction == SYS_COMMIT)) & (sys_flag & SYS_INNER_BATCH == 0)
    return queued


def warn_unnamed(place: str, topic: str, first: int) -> None:
    """Warn once of records that are in the log alone; ``place`` is its directory, ``first`` a physical offset."""
    text = "%s: records are in no queue, since no topic can be named %r; the first is at physical offset %d"
    warn_once(_log, place, text, place, topic, first)


def _are_named(queues: Queues, queue_of: Ints, physical: Ints) -> Mask:
    """Tell which rows have a topic that can be a directory, and warn of all other rows."""
    topic_of = queues.topic_of[queue_of]
    kept = np.ones(queue_of.size, np.bool_)
    for number, topic in enumerate(queues.topics):
        if not is_dispatched_topic(topic):
            of_topic = topic_of == number
            first = int(physical[of_topic][0])
            _log.warning("records are in no queue, since no topic can be named %r; the first: offset %d", topic, first)
            kept &= ~of_topic
    return kept


def queues_of(records: Records, rows: Ints) -> tuple[Queues, Ints]:
    """Return the distinct queues of some records, and the queue of each: (n,) int64, an index into them."""
    if rows.size == len(records):
        return different_queues(topics_of(records), records.field("queue_id"))
    return different_queues(topics_of(records, rows), records.field("queue_id")[rows])


def tags_codes(records: Records, topic: str, properties: Properties | None = None) -> Ints:
    """Return the tags code of each record: Java's hash of TAGS, or the delivery time in the schedule topic."""
    properties = properties or Properties(records)
    codes = java_hash_array(properties.column(TAGS))
    if topic == SCHEDULE_TOPIC:
        delay = properties.column("DELAY").dictionary_encode()
        levels = np.array([*(java_int(text) or 0 for text in delay.dictionary.to_pylist()), 0])  # the last: no DELAY
        level = levels[delay.indices.fill_null(len(levels) - 1).to_numpy(zero_copy_only=False)]
        delay_ms = _DELAYS_MS[np.clip(level, 0, _DELAYS_MS.size - 1)]
        codes = np.where(level > 0, records.field("store_timestamp") + delay_ms, codes)
    return codes
