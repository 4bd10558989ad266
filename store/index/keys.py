"""Index keys of records: the hashes that an index holds for them, and their way into it.

::

    record   topic orders, UNIQ_KEY u1, KEYS "k1 k2"   ──►  hashes of  orders#u1  orders#k1  orders#k2
             rolled back                               ──►  none

RocketMQ: ``IndexService.buildIndex``, ``IndexService.buildKey``.
"""

from ..format.hashing import key_hashes
from ..format.message import SYS_ROLLBACK, SYS_TRANSACTION, Ints, Records
from ..format.properties import KEYS, UNIQ_KEY, Properties
from ..format.slices import slices, text
from .writer import IndexWriter


def put_keys(index: IndexWriter, records: Records, physical: Ints) -> int:
    """Index the keys of records, without those that are indexed already.

    Parameters
    ----------
    index
        The index to write.
    records
        n records.
    physical
        (n,) physical offset of each record.

    Returns
    -------
    int
        Number of keys that were added.
    """
    hashes, rows = indexed_keys(records, Properties(records))
    return put_hashes(index, hashes, physical[rows], records.field("store_timestamp")[rows])


def indexed_keys(records: Records, properties: Properties) -> tuple[Ints, Ints]:
    """Hash the keys of records that the index holds: of all but those rolled back.

    Returns
    -------
    (k,) int64, (k,) int64
        Hashes as index entries hold them, and the row of each, ascending.
    """
    topics = text(slices(records.buffer, records.topic_start, records.topic_length))
    hashes, rows = key_hashes(topics.dictionary_encode(), properties.column(UNIQ_KEY), properties.column(KEYS))
    kept = (records.field("sys_flag") & SYS_TRANSACTION != SYS_ROLLBACK)[rows]
    return hashes[kept], rows[kept]


def put_hashes(index: IndexWriter, hashes: Ints, physical: Ints, store_timestamps: Ints) -> int:
    """Index hashes of keys, without those of records that are indexed already.

    Parameters
    ----------
    index
        The index to write.
    hashes, physical, store_timestamps
        (k,) int64: hash of a key, physical offset and store time in ms of its record.

    Returns
    -------
    int
        Number of keys that were added.
    """
    # RocketMQ indexes the record at the end offset again, too: the index does not tell how many of its keys it has.
    wanted = physical >= index.end_offset
    if not wanted.all():
        hashes, physical, store_timestamps = hashes[wanted], physical[wanted], store_timestamps[wanted]
    if hashes.size:
        index.put(hashes, physical, store_timestamps)
    return int(hashes.size)
