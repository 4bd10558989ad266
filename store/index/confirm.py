"""Confirmation of candidates: the records that entries of an index name, compared with the keys of these entries.

::

    entry   hash 1203…  offset 4096 ──► record at 4096   UNIQ_KEY 0A00…  KEYS "order-7"
            asked: Orders order-7                            └──► equal topic, equal text: a hit
                                                             └──► neither: all keys of the record are hashed

Nearly every candidate is the record of its key. So a key is first compared with the record that its own entry names,
as one Arrow comparison of columns. What is left over is decided by `asked.match`: collisions, a key among
several, the property that was not asked for, and damage.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..format.arrow_buffers import integers, numbers, truths, value_lengths
from ..format.message import SYS_ROLLBACK, SYS_TRANSACTION, Ints, Mask, Records
from ..format.properties import KEYS, UNIQ_KEY, Properties
from .asked import Asked, match
from .bulk import places_among
from .criteria import ALWAYS, KeyField

_HASH_BITS: Final = 31


class Confirmed(NamedTuple):
    """Result for n candidates.

    Attributes
    ----------
    row, asked
        (m,) int64: which candidate's record carries which pair of `Asked`. A hit may occur twice.
    denied
        (k,) int64, ascending: candidates whose record is damaged, or has no key of their hash.
    """

    row: Ints
    asked: Ints
    denied: Ints


def confirm(records: Records, hashes: Ints, asked: Asked) -> Confirmed:
    """Compare the records that candidates name with what was asked for.

    Parameters
    ----------
    records
        n records, one per candidate; the same record may occur several times.
    hashes
        (n,) int64, the hash that the entry of each candidate holds.
    asked
        The keys.
    """
    row, wanted = _pairs(hashes, asked)
    carries = _carry(records, asked, row, wanted)
    row, wanted = np.flatnonzero(carries) if isinstance(row, slice) else row[carries], wanted[carries]
    rest = np.ones(len(records), np.bool_)
    rest[row] = False
    if asked.window != ALWAYS:
        inside = asked.window.holds(records.field("store_timestamp")[row])
        row, wanted = row[inside], wanted[inside]
    left = np.flatnonzero(rest)
    if not left.size:
        return Confirmed(row, wanted, left)
    matches = match(records.take(left), asked)
    held = np.sort(matches.key_row << _HASH_BITS | matches.key_hash)
    names = np.zeros(left.size, np.bool_)
    names[places_among(held, np.arange(left.size) << _HASH_BITS | hashes[left])[0]] = True
    row, wanted = np.concatenate([row, left[matches.row]]), np.concatenate([wanted, matches.asked])
    return Confirmed(row, wanted, left[~names])


def _pairs(hashes: Ints, asked: Asked) -> tuple[Ints | slice, Ints]:
    """Pair each candidate with all keys of its hash: (m,) candidates, (m,) keys; a slice for one key per candidate."""
    first = np.searchsorted(asked.hashes, hashes)
    bounded = np.append(asked.hashes, [-1, -1])
    if ((bounded[first] == hashes) & (bounded[first + 1] != hashes)).all():
        return slice(None), first
    count = np.searchsorted(asked.hashes, hashes, side="right") - first
    row = np.repeat(np.arange(hashes.size), count)
    within = np.arange(row.size) - np.repeat(np.cumsum(count) - count, count)
    return row, np.repeat(first, count) + within


def _carry(records: Records, asked: Asked, row: Ints | slice, wanted: Ints) -> Mask:
    """Return which pairs surely hold: (m,) bool, False also where it takes a closer look."""
    if not wanted.size:
        return np.zeros(0, np.bool_)
    same = _same_topics(records, asked, row, wanted)
    same &= (records.field("sys_flag") & SYS_TRANSACTION != SYS_ROLLBACK)[row]
    texts = asked.keys.take(numbers(wanted))
    properties = Properties(records)
    equal = np.zeros(wanted.size, np.bool_)
    if asked.field is not KeyField.KEYS:
        equal |= _equal(properties.column(UNIQ_KEY), row, texts)
    if asked.field is not KeyField.UNIQUE:
        # A text with a blank is several keys.
        equal |= _equal(properties.column(KEYS), row, texts) & ~_has_blank(texts)
    return same & equal & (value_lengths(texts) > 0)


def _same_topics(records: Records, asked: Asked, row: Ints | slice, wanted: Ints) -> Mask:
    names = asked.topics.dictionary.to_pylist()
    if len(names) == 1:
        return records.has_topic(names[0].encode(), slice(None))[row]
    at = np.arange(len(records))[row]
    of = integers(asked.topics.indices)[wanted]
    same = np.zeros(wanted.size, np.bool_)
    for topic in np.unique(of).tolist():
        some = np.flatnonzero(of == topic)
        same[some] = records.has_topic(names[topic].encode(), at[some])
    return same


def _equal(column: pa.StringArray, row: Ints | slice, texts: pa.StringArray) -> Mask:
    if column.null_count == len(column):
        return np.zeros(len(texts), np.bool_)
    values = column if isinstance(row, slice) else column.take(numbers(row))
    return truths(pc.equal(values, texts))


def _has_blank(texts: pa.StringArray) -> Mask:
    return truths(pc.match_substring(texts, " "))
