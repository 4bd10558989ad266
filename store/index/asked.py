"""Keys asked for: distinct pairs of topic and key, and their comparison with the keys of records.

::

    records   row 0  Orders  UNIQ_KEY 0A00…  KEYS "order-7 vip"       asked   Orders  order-7   hash 1203…
                │                                                             Orders  vip       hash 0877…
                └─► (row 0, 0A00…) (row 0, order-7) (row 0, vip)
                              hash ──► equal hash ──► equal topic and equal text ──► (row 0, asked 0) (row 0, asked 1)

The hash narrows down, the text decides: two keys of one hash, or one key in two topics, are told apart here. RocketMQ
leaves that to its clients (``MQAdminImpl.queryMessage``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ConfigError
from ..format.buffers import (
    booleans,
    integers,
    numbers,
    only_chunk,
    repeated,
    topics_of,
    truths,
    value_lengths,
)
from ..format.hashing import hash_keys, key_texts
from ..format.message import (
    SYS_ROLLBACK,
    SYS_TRANSACTION,
    Ints,
    Mask,
    Records,
)
from ..format.properties import KEYS, UNIQ_KEY, Properties
from ..log.commit_log import CommitLog, records_at
from ..types import ALWAYS, KeyField, Window
from .table import places_among, sorted_rows

ROWS_AT_ONCE: Final = 1 << 13  # their columns stay in the processor's cache
_FEW: Final = 1 << 10
_ASKED_BITS: Final = 40
_ASKED_MASK: Final = (1 << _ASKED_BITS) - 1
_HASH_BITS: Final = 31


@dataclass(frozen=True, eq=False, slots=True)
class Asked:
    """Distinct pairs of topic and key, in the order of their hashes."""

    # `topics`: (k,) dictionary of strings; `keys`: (k,) strings; `hashes`: (k,) int64 of `hashing.hash_keys`,
    # ascending, not distinct. `field` is the property that has to hold the key. `window` bounds the record's own store
    # time: an index entry has whole seconds and, in the first entry of a file, wrong ones.

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


def ask(topics: pa.Array, keys: pa.Array, field: KeyField, window: Window) -> Asked:
    """Prepare (n,) topics and (n,) keys; equal pairs count once, and a null is a `ConfigError`."""
    # A key that no record can have (an empty one, or for KEYS one with a blank) is allowed, and finds nothing.
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
    """Pair every topic with every key: (t·k,) dictionary of strings, (t·k,) strings."""
    texts = only_chunk(keys) if isinstance(keys, pa.ChunkedArray) else keys
    if not isinstance(texts, pa.Array):
        try:
            texts = _few(texts) if len(texts) <= _FEW else pa.array(texts, pa.string())
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"{error.object!r} is not a text that UTF-8 can encode", fix="Pass it as it was sent"
            ) from None
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


NOTHING: Final = ask(pa.nulls(0, pa.string()), pa.nulls(0, pa.string()), KeyField.EITHER, ALWAYS)


class Matches(NamedTuple):
    """Records that carry asked keys, and all keys that they carry."""

    # `row`, `asked`: (m,), a record may carry several. `key_row`, `key_hash`: (k,), the hash of each key of each
    # record, as the index of the store has to hold it.

    row: Ints
    asked: Ints
    key_row: Ints
    key_hash: Ints


def match(records: Records, asked: Asked) -> Matches:
    """Compare the keys of records with the asked keys, exactly."""
    # Damaged records match nothing, nor do rolled back ones, which an index does not hold either.
    topics = topics_of(records)
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
    return _with_all(asked, keys, hashes[keys], first)


def _with_all(asked: Asked, row: Ints, hashes: Ints, first: Ints) -> tuple[Ints, Ints]:
    """Pair (n,) rows with all asked keys of their hashes, the first of which are known."""
    count = np.searchsorted(asked.hashes, hashes, side="right") - first
    pair = np.repeat(row, count)
    within = np.arange(pair.size) - np.repeat(np.cumsum(count) - count, count)
    return pair, np.repeat(first, count) + within


def _equal_texts(  # noqa: PLR0917 - the columns of both sides
    topics: pa.DictionaryArray, row: Ints, keys: pa.StringArray, asked: Asked, pair: Ints, wanted: Ints
) -> tuple[Ints, Ints]:
    """Pairs whose topics and texts are equal."""
    places = {topic: place for place, topic in enumerate(asked.topics.dictionary.to_pylist())}
    place_of = np.array([places.get(topic, -1) for topic in topics.dictionary.to_pylist()], np.int64)
    same = place_of[integers(topics.indices)[row[pair]]] == integers(asked.topics.indices)[wanted]
    equal = pc.equal(keys.take(numbers(pair)), asked.keys.take(numbers(wanted)))
    same &= truths(equal)
    return pair[same], wanted[same]


class Confirmed(NamedTuple):
    """Result for n candidates."""

    # `row`, `asked`: (m,), which candidate's record carries which pair of `Asked`; a hit may occur twice. `denied`:
    # (k,), ascending, candidates whose record is damaged, or has no key of their hash.

    row: Ints
    asked: Ints
    denied: Ints


def confirm(records: Records, hashes: Ints, asked: Asked) -> Confirmed:
    """Compare n records with the (n,) hashes of the index entries that name them; a record may occur several times.

    ::

        entry   hash 1203…  offset 4096 ──► record at 4096   UNIQ_KEY 0A00…  KEYS "order-7"
                asked: Orders order-7                            └──► equal topic, equal text: a hit
                                                                 └──► neither: all keys of the record are hashed

    Nearly every candidate is the record of its key. So a key is first compared with the record that its own entry
    names, as one Arrow comparison of columns. `match` decides the rest: collisions, a key among several, the property
    that was not asked for, and damage.
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


def confirm_at(log: CommitLog, offsets: Ints, hashes: Ints, asked: Asked) -> Iterator[tuple[Ints, Confirmed]]:
    """Compare the records at (n,) ascending offsets as `confirm` does, some thousand at a time, with their rows."""
    for start in range(0, offsets.size, ROWS_AT_ONCE):
        some = slice(start, start + ROWS_AT_ONCE)
        # A segment that retention deleted just now has no records, and denies nothing.
        for _, rows, records in records_at(log, offsets[some]):
            yield start + rows, confirm(records, hashes[some][rows], asked)


def _pairs(hashes: Ints, asked: Asked) -> tuple[Ints | slice, Ints]:
    """Pair each candidate with all keys of its hash: (m,) candidates, (m,) keys; a slice for one key per candidate."""
    first = np.searchsorted(asked.hashes, hashes)
    bounded = np.append(asked.hashes, [-1, -1])
    if ((bounded[first] == hashes) & (bounded[first + 1] != hashes)).all():
        return slice(None), first
    return _with_all(asked, np.arange(hashes.size), hashes, first)


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
