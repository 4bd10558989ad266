"""Keys asked for: distinct pairs of topic and key, and their comparison with the keys of records.

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
import numpy.typing as npt
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
    value_bounds,
    value_lengths,
)
from ..format.hashing import hash_keys, index_key_hash, key_texts
from ..format.message import (
    HOST_V4_BYTES,
    MAGIC_V1,
    SYS_ROLLBACK,
    SYS_TRANSACTION,
    Bytes,
    Ints,
    Mask,
    RecordLayout,
    Records,
    gather,
    read_record,
)
from ..format.message_table import Record
from ..format.properties import KEYS, NAME_END, PAIR_END, UNIQ_KEY, Properties, parse_properties
from ..types import ALWAYS, KeyField, Window
from .table import places_among, sorted_rows

_FEW: Final = 1 << 10
_ASKED_BITS: Final = 40
_ASKED_MASK: Final = (1 << _ASKED_BITS) - 1
_HASH_BITS: Final = 31
_MODELS_MAX: Final = 8
_ALIKE_MIN: Final = 64
_PAIR_MIN: Final = 3
_WORD: Final = 8
_PAIR_ENDS: Final = np.uint64(0x0101010101010101 * PAIR_END)
_ONES: Final = np.uint64(0x0101010101010101)
_HIGHS: Final = np.uint64(0x8080808080808080)  # bits of a word by which a zero byte is found: `(x - ONES) & ~x & HIGHS`


class SingleKey(NamedTuple):
    """A key of a topic and the criteria of a hit, compared with single records without arrays.

    ::

        record   topic  UNIQ_KEY 0A00…  KEYS "order-7 vip"
                   │        └──────┬─────────┘
                 equal     one of them is equal ──► True      equal, in the other property or topic ──► False
                           none has even the hash ──► None    the index entry that named the record is damaged

    `match` and `confirm` pay dozens of array operations for one record; see `find.search.SingleSearch` for figures.
    """

    topic: str
    key: str
    field: KeyField = KeyField.KEYS
    window: Window = ALWAYS

    @property
    def is_plain(self) -> bool:
        """True if it can be compared byte by byte with the keys of records."""
        return bool(self.topic and self.key) and self.topic.isascii() and self.key.isascii()

    @property
    def key_hash(self) -> int:
        """Hash under which an index knows it."""
        return index_key_hash(self.topic, self.key)

    def is_of(self, record: Record) -> bool | None:
        """Return whether a record carries the key; None if none of its keys has even the same hash."""
        if record.sys_flag & SYS_TRANSACTION == SYS_ROLLBACK:
            return None
        properties = parse_properties(bytes(record.properties))
        unique = properties.get(UNIQ_KEY, "")
        pieces = properties.get(KEYS, "").split(" ")
        if bytes(record.topic) == self.topic.encode():
            by_unique = self.field is not KeyField.KEYS and unique == self.key
            if by_unique or (self.field is not KeyField.UNIQUE and self.key in pieces):
                start_ms, stop_ms = self.window
                stored = record.store_timestamp
                return (start_ms is None or stored >= start_ms) and (stop_ms is None or stored < stop_ms)
            if unique == self.key or self.key in pieces:
                return False  # by the property that was not asked for
        topic = bytes(record.topic).decode("utf-8", "replace")
        hashes = (index_key_hash(topic, each) for each in (unique, *pieces) if each)
        return False if self.key_hash in hashes else None


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

    @property
    def is_alone(self) -> Mask:
        """(k,) bool, True for a key whose hash no other key has."""
        return self.is_first & np.append(self.is_first[1:], np.True_)[: len(self)]


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
    count = np.searchsorted(asked.hashes, hashes[keys], side="right") - first
    pair = np.repeat(keys, count)
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


class Carriers:
    """Records that carry asked keys, found by comparing bytes with model records. Not thread-safe.

    ::

        model    header │ body │ 5 Topic │ 43 UNIQ_KEY 01 0A00…F1 02 __CRC32# 01 0123456789
        fixed    magic, flag     ========================         ==============              equal in all of them
        free                                                                    ..........    without 02
        key                                              ^^^^^^^^                             the asked key
        other    the own offset, a body of any length, and the same length of all after it

    Messages of one producer have the same properties, in the same order and mostly of the same lengths. A record that
    equals a model in all bytes but the values of its properties parses as the model does. Its key is then at the same
    place. Comparing takes a tenth of a microsecond per record, a fifth of its parsing. A record that differs, or an
    asked key that is in none of the models, is left to `confirm`.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._keys = np.frombuffer(asked.keys.buffers()[2] or b"", np.uint8) if len(asked) else np.zeros(0, np.uint8)
        self._starts, stops = value_bounds(asked.keys)
        self._lengths = stops - self._starts
        used = self._keys[self._starts[0] : stops[-1]].tobytes() if len(asked) else b""
        is_one_key = bytes([PAIR_END]) not in used and (asked.field is KeyField.UNIQUE or b" " not in used)
        self._models_left = _MODELS_MAX if is_one_key and asked.window == ALWAYS else 0
        self._models: list[_Model] = []

    def find(self, buffer: Bytes, base: int, positions: Ints, wanted: Ints) -> Mask:
        """Compare candidates with one asked key each; True: the record is whole and has it; False decides nothing."""
        # `buffer` is a segment that begins at the physical offset `base`, `positions` (n,) any numbers, `wanted` (n,)
        # indices into the asked keys.
        found = np.zeros(positions.size, np.bool_)
        rest = np.flatnonzero((positions >= 0) & (positions < buffer.size))
        tried = 0
        while rest.size >= _ALIKE_MIN:
            if tried == len(self._models):
                if not self._models_left:
                    break
                self._models_left -= 1
                first = int(rest[0])
                model = self._model(buffer, base, int(positions[first]), int(wanted[first]))
                rest = rest if model else rest[1:]
                self._models += [model] if model else []
                continue
            is_whole = rest.size == positions.size
            rows = (positions, wanted) if is_whole else (positions[rest], wanted[rest])
            same = self._compared(self._models[tried], buffer, base, *rows)
            found[rest[same]] = True
            rest = rest[~same]
            tried += 1
        return found

    def _compared(self, model: "_Model", buffer: Bytes, base: int, positions: Ints, wanted: Ints) -> Mask:
        """Return which of (n,) records are like a model, and carry the key that they are compared with."""
        same: Mask = self._lengths[wanted] == model.key.stop - model.key.start
        if len(self._asked.topics.dictionary) > 1:
            same &= integers(self._asked.topics.indices)[wanted] == model.topic
        stops, is_whole = model.stops(buffer, base, positions)
        same &= is_whole
        rows = np.flatnonzero(same)
        if not rows.size:
            return same
        if rows.size < same.size:
            stops, wanted = stops[rows], wanted[rows]
        width, key = len(model.tail), model.key
        tails = gather(buffer, stops - width, np.dtype(f"V{width}"))
        keys = gather(self._keys, self._starts[wanted], np.dtype(f"V{key.stop - key.start}"))
        same[rows] = model.is_like(tails.view(np.uint8).reshape(-1, width)) & _equal_bytes(tails, key.start, keys)
        return same

    def _model(self, buffer: Bytes, base: int, position: int, wanted: int) -> "_Model | None":
        """Return a record as a model; None if it does not surely carry the key, once."""
        record = read_record(buffer.data, position)
        if record is None or record.physical_offset != base + position:
            return None
        topic = int(integers(self._asked.topics.indices)[wanted])
        if bytes(record.topic) != self._asked.topics.dictionary[topic].as_py().encode():
            return None
        if record.sys_flag & SYS_TRANSACTION == SYS_ROLLBACK:
            return None
        key = self._keys[self._starts[wanted] :][: self._lengths[wanted]].tobytes()
        names = {KeyField.KEYS: [KEYS], KeyField.UNIQUE: [UNIQ_KEY]}.get(self._asked.field, [UNIQ_KEY, KEYS])
        return _model_of(record, topic, key, [name.encode() for name in names])


class _Model(NamedTuple):
    """A record as a template of similar ones."""

    # `tail` has the bytes after the body, `key` the place of the key in them. `topic` is an index among the asked
    # topics. `words` has, per eight bytes of the tail, place, value, and masks of the fixed and the free bytes.

    layout: RecordLayout
    magic: int
    sys_flag: int
    topic: int
    tail: bytes
    key: slice
    words: list[tuple[int, np.uint64, np.uint64, np.uint64]]

    def stops(self, buffer: Bytes, base: int, positions: Ints) -> tuple[Ints, Mask]:
        """Return the ends of (n,) records, and which of them are whole, have the model's header, and end as it does."""
        header_type = self.layout.header
        last = buffer.size - header_type.itemsize
        fits = positions <= last
        header = gather(buffer, positions if fits.all() else np.minimum(positions, last), header_type)
        total = header["total_size"].astype(np.int64)
        body = header["body_length"].astype(np.int64)
        stops = positions + total
        fits &= (total - body == header_type.itemsize + len(self.tail)) & (body >= 0) & (stops <= buffer.size)
        fits &= (header["magic"] == self.magic) & (header["sys_flag"] == self.sys_flag)
        fits &= header["physical_offset"].astype(np.int64) == positions + base
        return stops, fits

    def is_like(self, tails: Bytes) -> Mask:
        """Compare (n, length of the tail) bytes: the fixed ones are equal, no free one ends a pair."""
        differ = np.zeros(len(tails), np.uint64)
        for at, value, fixed, free in self.words:
            word = _words(tails, at, np.dtype(np.uint64))
            if fixed:
                differ |= (word ^ value) & fixed
            if free:
                ends = word ^ _PAIR_ENDS
                differ |= (ends - _ONES) & ~ends & (free & _HIGHS)
        same: Mask = differ == 0
        return same


def _model_of(record: Record, topic: int, key: bytes, names: list[bytes]) -> _Model | None:
    """Make a model of a record; None unless one of the names has the key, and occurs once."""
    text = bytes(record.properties)
    free = np.zeros(len(text), np.uint8)
    values: list[tuple[bytes, slice]] = []
    at = 0
    for pair in text.split(bytes([PAIR_END])):
        name, _, value = pair.partition(bytes([NAME_END]))
        if len(pair) >= _PAIR_MIN and name and value:
            place = slice(at + len(name) + 1, at + len(pair))
            values.append((name, place))
            free[place] = 0xFF
        at += len(pair) + 1
    of = [(name, place) for name, place in values if name in names and text[place] == key]
    if not of or sum(name == of[0][0] for name, _ in values) != 1:
        return None
    place = of[0][1]
    is_v6 = (len(host) > HOST_V4_BYTES for host in (record.born_host, record.store_host))
    layout = RecordLayout(1 if record.magic == MAGIC_V1 else 2, *is_v6)
    before = layout.topic_size.itemsize + len(record.topic) + 2
    size = record.topic.nbytes.to_bytes(layout.topic_size.itemsize, "big")
    tail = size + bytes(record.topic) + len(text).to_bytes(2, "big") + text
    key_at = slice(before + place.start, before + place.stop)
    return _Model(layout, record.magic, record.sys_flag, topic, tail, key_at, _masks(tail, before, free, key_at))


def _masks(tail: bytes, before: int, free: Bytes, key: slice) -> list[tuple[int, np.uint64, np.uint64, np.uint64]]:
    """Cut a tail into words of eight bytes, the last of which may overlap its predecessor."""
    open_bytes = np.concatenate([np.zeros(before, np.uint8), free])
    fixed = ~open_bytes
    open_bytes[key] = 0
    words = []
    for at in [*range(0, len(tail) - _WORD, _WORD), len(tail) - _WORD]:
        value, closed, opened = (
            np.frombuffer(bytes(part[at : at + _WORD]), np.uint64)[0] for part in (tail, fixed, open_bytes)
        )
        words.append((at, value, closed, opened))
    return words


def _words(
    rows: npt.NDArray[np.generic], at: int, kind: np.dtype[np.unsignedinteger]
) -> npt.NDArray[np.unsignedinteger]:
    """View an unsigned number at a place of each of n rows of bytes: shape (n,)."""
    return np.ndarray((len(rows),), kind, rows.data, at, (rows.strides[0],))


def _equal_bytes(tails: npt.NDArray[np.void], at: int, keys: npt.NDArray[np.void]) -> Mask:
    """Compare n keys of one length with the bytes at a place of n tails, several bytes at a time."""
    length = keys.dtype.itemsize
    width = next(each for each in (8, 4, 2, 1) if each <= length)
    kind = np.dtype(f"u{width}")
    differ = np.zeros(len(keys), kind)
    for place in {*range(0, length - width, width), length - width}:
        differ |= _words(tails, at + place, kind) ^ _words(keys, place, kind)
    same: Mask = differ == 0
    return same
