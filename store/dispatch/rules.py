"""Dispatch rules: what a record of the CommitLog adds to ConsumeQueues and to the index.

::

    record      plain   prepared   committed   rolled back   inner batch
    entry         x                    x                                     is_queued
    keys          x         x          x                          x          index.keys
    tags code   Java's hash of TAGS; in SCHEDULE_TOPIC_XXXX the time of delivery

    records that were read       ──► DispatchedRecords.of_records ──┐
    columns that were encoded    ──► DispatchedRecords.of_columns ──┴─► the same entries and keys

The dispatcher of a writer, recovery and readers of a log all ask here. RocketMQ: ``DispatchRequest``,
``CommitLogDispatcherBuildConsumeQueue``, ``CommitLogDispatcherBuildIndex``.
"""

import logging
from typing import Final, NamedTuple, Self

import numpy as np

from ..format.buffers import slices, text
from ..format.consume_queue import ENTRY, Entries, from_columns
from ..format.hashing import java_hash_array
from ..format.message import SYS_COMMIT, SYS_INNER_BATCH, SYS_TRANSACTION, Ints, Mask, Records
from ..format.naming import SCHEDULE_TOPIC, is_readable_topic
from ..format.properties import TAGS, Properties, java_int
from ..index.writer import indexed_keys
from ..queues.keys import QueueNumbers, Queues, different_queues

_log = logging.getLogger(__name__)

_NONE: Final = np.zeros(0, np.int64)
# 1s 5s 10s 30s 1m … 10m 20m 30m 1h 2h; level 0 is no delay
_DELAYS_MS: Final = (
    np.array([0, 1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200], np.int64)
    * 1000
)


class DispatchedRecords(NamedTuple):
    """Entries and keys of some records: n of them have a ConsumeQueue entry, k hashes go into the index.

    Attributes
    ----------
    queues
        (q,) int64, numbers of the distinct queues.
    queue_of
        (n,) int64, index into ``queues`` per entry.
    queue_offset
        (n,) int64.
    entries
        (n,) array of ``format.consume_queue.ENTRY``.
    hashes, hash_physical, hash_timestamp
        (k,) int64: hash of a key, physical offset and store time in ms of its record.
    newest
        Store time of the last record, ms since the epoch.
    """

    queues: Ints
    queue_of: Ints
    queue_offset: Ints
    entries: Entries
    hashes: Ints
    hash_physical: Ints
    hash_timestamp: Ints
    newest: int

    @classmethod
    def none(cls, newest: int) -> Self:
        """Return what no record adds, after one with a store time of ``newest`` ms since the epoch."""
        return cls(_NONE, _NONE, _NONE, np.empty(0, ENTRY), _NONE, _NONE, _NONE, newest)

    @classmethod
    def of_records(cls, records: Records, properties: Properties, numbers: QueueNumbers, *, with_keys: bool) -> Self:
        """Return what records add, read from their bytes; a topic that cannot be a directory has no queues.

        Parameters
        ----------
        records
            At least one record, with its final offsets and store time.
        properties
            Of the same records.
        numbers
            Numbers of the queues; gets those that are new.
        with_keys
            Whether the keys are wanted; without an index they are not.
        """
        physical, timestamps = records.field("physical_offset"), records.field("store_timestamp")
        rows = np.flatnonzero(is_queued(records))
        queues, queue_of = queues_of(records, rows)
        if not all(map(is_named, queues.topics)):
            rows = rows[_are_named(queues, queue_of)]
            queues, queue_of = queues_of(records, rows)
        entries = from_columns(
            ENTRY, physical[rows], records.field("total_size")[rows], tags_codes(records, "", properties)[rows]
        )
        if SCHEDULE_TOPIC in queues.topics:
            later = queues.topic_of[queue_of] == queues.topics.index(SCHEDULE_TOPIC)
            entries["tags_code"][later] = tags_codes(records.take(rows[later]), SCHEDULE_TOPIC)
        hashes, of = indexed_keys(records, properties) if with_keys else (_NONE, _NONE)
        offsets = records.field("queue_offset")[rows]
        places = physical[of], timestamps[of]
        return cls(numbers.of(queues), queue_of, offsets, entries, hashes, *places, int(timestamps[-1]))

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
        """Return what plain records add, from the columns that they were encoded from.

        Parameters
        ----------
        queues, queue_of, queue_offset
            See the attributes; every record has an entry.
        physical, sizes, tags_codes
            (n,) int64: physical offset, bytes and tags code per record.
        hashes, hash_rows
            (k,) int64: hash of each key, and the row of its record, ascending.
        store_timestamp
            Store time of all of them, ms since the epoch.
        """
        entries = from_columns(ENTRY, physical, sizes, tags_codes)
        times = np.full(hashes.size, store_timestamp, np.int64)
        return cls(queues, queue_of, queue_offset, entries, hashes, physical[hash_rows], times, store_timestamp)


def is_queued(records: Records) -> Mask:
    """Tell which records get a ConsumeQueue entry: all but prepared ones, rolled back ones and inner batches.

    Returns
    -------
    (n,) bool
    """
    sys_flag = records.field("sys_flag")
    transaction = sys_flag & SYS_TRANSACTION
    queued: Mask = ((transaction == 0) | (transaction == SYS_COMMIT)) & (sys_flag & SYS_INNER_BATCH == 0)
    return queued


def is_named(topic: str) -> bool:
    """Tell whether a text of a record can be the directory of a topic; a replica's master may send any."""
    # The replacement character stands for bytes that were no text.
    return is_readable_topic(topic) and "\N{REPLACEMENT CHARACTER}" not in topic


def warn_unnamed(topic: str, count: int) -> None:
    """Log that records are in the log alone."""
    _log.warning("%d records are left out: no topic can be named %r", count, topic)


def _are_named(queues: Queues, queue_of: Ints) -> Mask:
    """Tell which rows have a topic that can be a directory, and log the others."""
    topic_of = queues.topic_of[queue_of]
    kept = np.ones(queue_of.size, np.bool_)
    for number, topic in enumerate(queues.topics):
        if not is_named(topic):
            of_topic = topic_of == number
            warn_unnamed(topic, int(of_topic.sum()))
            kept &= ~of_topic
    return kept


def queues_of(records: Records, rows: Ints) -> tuple[Queues, Ints]:
    """Return the distinct queues of some records.

    Parameters
    ----------
    rows
        (n,) int64, the records that are asked about.

    Returns
    -------
    Queues, (n,) int64
        The distinct queues, and which of them each row belongs to.
    """
    topics = text(slices(records.buffer, records.topic_start[rows], records.topic_length[rows]))
    return different_queues(topics.dictionary_encode(), records.field("queue_id")[rows].astype(np.int64))


def tags_codes(records: Records, topic: str, properties: Properties | None = None) -> Ints:
    """Return the tags code of each record: Java's hash of TAGS, or the delivery time in the schedule topic.

    Parameters
    ----------
    topic
        ``SCHEDULE_TOPIC`` if the records are in that topic; any other name otherwise.
    properties
        Properties of the records, where they are parsed already.

    Returns
    -------
    (n,) int64

    Notes
    -----
    ``CommitLog.checkMessageAndReturnSize``. The delays are RocketMQ's default ``messageDelayLevel``; a broker with
    other delays wrote other times.
    """
    properties = properties or Properties(records)
    codes = java_hash_array(properties.column(TAGS))
    if topic == SCHEDULE_TOPIC:
        delay = properties.column("DELAY").dictionary_encode()
        levels = np.array([*(java_int(text) or 0 for text in delay.dictionary.to_pylist()), 0])  # the last: no DELAY
        level = levels[delay.indices.fill_null(len(levels) - 1).to_numpy(zero_copy_only=False)]
        delay_ms = _DELAYS_MS[np.clip(level, 0, _DELAYS_MS.size - 1)]
        codes = np.where(level > 0, records.field("store_timestamp") + delay_ms, codes)
    return codes
