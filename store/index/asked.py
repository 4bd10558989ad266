"""Keys asked for: distinct pairs of topic and key, and the join that compares them with the keys of records.

::

    records   row 0  Orders  UNIQ_KEY 0A00…  KEYS "order-7 vip"       asked   Orders  order-7   hash 1203…
                │                                                             Orders  vip       hash 0877…
                └─► (row 0, 0A00…) (row 0, order-7) (row 0, vip)
                              hash ──► equal hash ──► equal topic and equal text ──► (row 0, asked 0) (row 0, asked 1)

The hash narrows down, the text decides: two keys of one hash, or one key in two topics, are told apart here. RocketMQ
leaves that to its clients (``MQAdminImpl.queryMessage``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ConfigError
from ..format.arrow_buffers import booleans, integers, numbers, only_chunk, truths
from ..format.hashing import hash_keys, key_texts
from ..format.message import SYS_ROLLBACK, SYS_TRANSACTION, Ints, Mask, Records
from ..format.properties import KEYS, UNIQ_KEY, Properties
from ..format.slices import repeated, slices, text
from .bulk import places_among, sorted_rows
from .criteria import ALWAYS, KeyField, Window

_FEW: Final = 1 << 10
_ASKED_BITS: Final = 40
_ASKED_MASK: Final = (1 << _ASKED_BITS) - 1


@dataclass(frozen=True, eq=False, slots=True)
class Asked:
    """Distinct pairs of topic and key, in the order of their hashes.

    Attributes
    ----------
    topics
        (k,) dictionary of strings.
    keys
        (k,) strings.
    hashes
        (k,) int64, ascending, not distinct: `hashing.hash_keys`.
    field
        Which property has to hold the key.
    window
        When the record has to have been stored. The record's own time counts: that of an index entry is in whole
        seconds and, in the first entry of a file, wrong.
    """

    topics: pa.DictionaryArray
    keys: pa.StringArray
    hashes: Ints
    field: KeyField
    window: Window

    def __len__(self) -> int:
        return self.hashes.size

    @property
    def is_first(self) -> Mask:
        """(k,) bool, True for the first key of each hash."""
        new = np.ones(len(self), np.bool_)
        new[1:] = self.hashes[1:] != self.hashes[:-1]
        return new

    @property
    def is_alone(self) -> Mask:
        """(k,) bool, True for a key whose hash no other key has."""
        return self.is_first & np.append(self.is_first[1:], np.True_)[: len(self)]


def ask(topics: pa.Array, keys: pa.Array, field: KeyField, window: Window) -> Asked:
    """Prepare pairs of topic and key.

    Parameters
    ----------
    topics, keys
        (n,) strings; equal pairs count once. A key that no record can have (an empty one, or for ``KEYS`` one with a
        blank) is allowed, and finds nothing.

    Raises
    ------
    ConfigError
        If one of them is null.
    """
    is_null = topics.null_count or (isinstance(topics, pa.DictionaryArray) and topics.dictionary.null_count)
    if is_null or keys.null_count:
        which = "topics" if is_null else "keys"
        raise ConfigError(f"{which} holds nulls, and a look-up needs text", fix="Leave the nulls out")
    of, texts = _encoded(topics), keys.cast(pa.string())
    hashes = hash_keys(of, np.arange(len(texts)), texts)
    order, hashes = sorted_rows(hashes)
    kept = _distinct(of, texts, order, hashes)
    if not kept.all():
        order, hashes = order[kept], hashes[kept]
    of = of.slice(0, order.size) if len(of.dictionary) == 1 else of.take(numbers(order))
    return Asked(of, texts.take(numbers(order)), hashes, field, window)


def _encoded(topics: pa.Array) -> pa.DictionaryArray:
    """Return topics as indices into distinct names."""
    if not isinstance(topics, pa.DictionaryArray):
        return topics.cast(pa.string()).dictionary_encode()
    names = topics.dictionary.to_pylist()
    return topics if len(set(names)) == len(names) else topics.cast(pa.string()).dictionary_encode()


def _distinct(topics: pa.DictionaryArray, keys: pa.StringArray, order: Ints, hashes: Ints) -> Mask:
    """One of each equal pair, of rows in the order of their (n,) hashes; only pairs of one hash are compared."""
    kept = np.ones(order.size, np.bool_)
    same = np.zeros(order.size + 1, np.bool_)
    same[1:-1] = hashes[1:] == hashes[:-1]
    doubtful = np.flatnonzero(same[1:] | same[:-1])
    if doubtful.size:
        rows = numbers(order[doubtful])
        pairs = pa.table({"topic": topics.indices.take(rows), "key": keys.take(rows), "at": numbers(doubtful)})
        first = pairs.group_by(["topic", "key"], use_threads=False).aggregate([("at", "min")])
        kept[doubtful] = False
        kept[integers(only_chunk(first["at_min"]))] = True
    return kept


def each_in(topics: Sequence[str], keys: Sequence[str] | pa.Array) -> tuple[pa.Array, pa.Array]:
    """Pair every topic with every key.

    Returns
    -------
    (t·k,) dictionary of strings, (t·k,) strings
    """
    texts = only_chunk(keys) if isinstance(keys, pa.ChunkedArray) else keys
    if not isinstance(texts, pa.Array):
        texts = _few(texts) if len(texts) <= _FEW else pa.array(texts, pa.string())
    of = np.repeat(np.arange(len(topics), dtype=np.int32), len(texts))
    pairs = pa.DictionaryArray.from_arrays(numbers(of), _few(topics))
    if len(topics) == 1:
        return pairs, texts
    return pairs, texts.take(numbers(np.tile(np.arange(len(texts)), len(topics))))


def _few(texts: Sequence[str]) -> pa.StringArray:
    """Make an array of a few texts; ``pyarrow.array`` would load pandas, which takes longer than most look-ups."""
    if all(isinstance(each, str) for each in texts):
        return repeated(texts, 1)
    return pa.array(texts, pa.string())


class Matches(NamedTuple):
    """Records that carry keys asked for, and all keys that they carry.

    Attributes
    ----------
    row, asked
        (m,) int64: which record carries which pair of `Asked`. A record may carry several.
    key_row, key_hash
        (k,) int64: the hash of each key of each record, as the index of the store has to hold it.
    """

    row: Ints
    asked: Ints
    key_row: Ints
    key_hash: Ints


def match(records: Records, asked: Asked) -> Matches:
    """Compare the keys of records with those asked for, exactly.

    Parameters
    ----------
    records
        n records; damaged ones match nothing, nor do rolled back ones, which an index does not hold either.
    """
    topics = text(slices(records.buffer, records.topic_start, records.topic_length)).dictionary_encode()
    properties = Properties(records)
    row, keys, is_unique = key_texts(properties.column(UNIQ_KEY), properties.column(KEYS))
    kept = (records.field("sys_flag") & SYS_TRANSACTION != SYS_ROLLBACK)[row]
    if not kept.all():
        row, keys, is_unique = row[kept], keys.filter(booleans(kept)), is_unique[kept]
    hashes = hash_keys(topics, row, keys)
    pair, wanted = _equal_hashes(hashes, asked, is_unique)
    if pair.size:
        pair, wanted = _equal_texts(topics, row, keys, asked, pair, wanted)
    if asked.window != ALWAYS:
        inside = asked.window.holds(records.field("store_timestamp")[row[pair]])
        pair, wanted = pair[inside], wanted[inside]
    packed = np.sort(row[pair] << _ASKED_BITS | wanted)
    new = np.ones(packed.size, np.bool_)  # a record may have the same key twice
    new[1:] = packed[1:] != packed[:-1]
    return Matches(packed[new] >> _ASKED_BITS, packed[new] & _ASKED_MASK, row, hashes)


def _equal_hashes(hashes: Ints, asked: Asked, is_unique: Mask) -> tuple[Ints, Ints]:
    """Pairs of a record's key and an asked one that have the same hash."""
    keys, first = places_among(asked.hashes, hashes)
    if asked.field is not KeyField.EITHER:
        some = is_unique[keys] if asked.field is KeyField.UNIQUE else ~is_unique[keys]
        keys, first = keys[some], first[some]
    count = np.searchsorted(asked.hashes, hashes[keys], side="right") - first
    pair = np.repeat(keys, count)
    within = np.arange(pair.size) - np.repeat(np.cumsum(count) - count, count)
    return pair, np.repeat(first, count) + within


def _equal_texts(  # noqa: PLR0917 - the columns of both sides
    topics: pa.DictionaryArray, row: Ints, keys: pa.StringArray, asked: Asked, pair: Ints, wanted: Ints
) -> tuple[Ints, Ints]:
    """Leave those pairs whose topics and texts are the same."""
    places = {topic: place for place, topic in enumerate(asked.topics.dictionary.to_pylist())}
    place_of = np.array([places.get(topic, -1) for topic in topics.dictionary.to_pylist()], np.int64)
    same = place_of[integers(topics.indices)[row[pair]]] == integers(asked.topics.indices)[wanted]
    equal = pc.equal(keys.take(numbers(pair)), asked.keys.take(numbers(wanted)))
    same &= truths(equal)
    return pair[same], wanted[same]
