"""Records alike: candidates compared with asked keys as bytes, since one of them shows where their keys are.

::

    model    header │ body │ 5 Topic │ 43 UNIQ_KEY 01 0A00…F1 02 __CRC32# 01 0123456789
    fixed    magic, flag     ========================         ==============              equal in all of them
    free                                                                    ..........    without 02
    key                                              ^^^^^^^^                             the asked key
    others   their own offset, a body of any length, and the same length of all after it

Messages of one producer have the same properties, in the same order and mostly of the same lengths. A record that
equals a model in all bytes but the values of its properties parses as the model does. Its key is then where the model's
is. That takes a tenth of a microsecond per record, a fifth of the time that its parsing takes. A record that differs,
or an asked key that occurs in none of the models, is left to `confirm`.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..format.arrow_buffers import integers, value_bounds
from ..format.message import MAGIC_V1, SYS_ROLLBACK, SYS_TRANSACTION, Bytes, Ints, Mask, gather
from ..format.message_decode_one import HOST_V4_BYTES, Record, read_record
from ..format.properties import KEYS, NAME_END, PAIR_END, UNIQ_KEY
from ..format.record_layout import Layout
from .asked import Asked
from .criteria import ALWAYS, KeyField

_MODELS_MAX: Final = 8
_FEW: Final = 64
_PAIR_MIN: Final = 3
_WORD: Final = 8
_PAIR_ENDS: Final = np.uint64(0x0101010101010101 * PAIR_END)
_ONES: Final = np.uint64(0x0101010101010101)
_HIGHS: Final = np.uint64(0x8080808080808080)
"""Bits of a word by which a zero byte is found: ``(x - ONES) & ~x & HIGHS``."""


class Carriers:
    """Records that carry keys asked for, found by comparing bytes. Not thread-safe.

    Parameters
    ----------
    asked
        The keys.
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
        """Compare candidates with one asked key each.

        Parameters
        ----------
        buffer
            (size,) uint8, a segment.
        base
            Its physical offset.
        positions
            (n,) int64 in the buffer, where candidates begin; any numbers.
        wanted
            (n,) int64, which of the asked keys each is compared with.

        Returns
        -------
        (n,) bool
            True if the record is whole and carries the key. False decides nothing.
        """
        found = np.zeros(positions.size, np.bool_)
        rest = np.flatnonzero((positions >= 0) & (positions < buffer.size))
        tried = 0
        while rest.size >= _FEW:
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
        same[rows] = model.is_like(tails.view(np.uint8).reshape(-1, width)) & _equal(tails, key.start, keys)
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
    """A record that others are like.

    Attributes
    ----------
    layout
        Of its header.
    magic, sys_flag, topic
        The fields, and the topic as an index among those asked for.
    tail
        Bytes after the body.
    key
        Place of the key in the tail.
    words
        Per eight bytes of the tail: their place, their value, a mask of the fixed bytes, and one of the free bytes.
    """

    layout: Layout
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
    layout = Layout(1 if record.magic == MAGIC_V1 else 2, *is_v6)
    before = layout.topic_size.itemsize + len(record.topic) + 2
    size = record.topic.nbytes.to_bytes(layout.topic_size.itemsize, "big")
    tail = size + bytes(record.topic) + len(text).to_bytes(2, "big") + text
    key_at = slice(before + place.start, before + place.stop)
    return _Model(layout, record.magic, record.sys_flag, topic, tail, key_at, _masks(tail, before, free, key_at))


def _masks(tail: bytes, before: int, free: Bytes, key: slice) -> list[tuple[int, np.uint64, np.uint64, np.uint64]]:
    """Cut a tail into words of eight bytes, the last of which may overlap the one before."""
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


def _equal(tails: npt.NDArray[np.void], at: int, keys: npt.NDArray[np.void]) -> Mask:
    """Compare n keys of one length with the bytes at a place of n tails, several bytes at a time."""
    length = keys.dtype.itemsize
    width = next(each for each in (8, 4, 2, 1) if each <= length)
    kind = np.dtype(f"u{width}")
    differ = np.zeros(len(keys), kind)
    for place in {*range(0, length - width, width), length - width}:
        differ |= _words(tails, at + place, kind) ^ _words(keys, place, kind)
    same: Mask = differ == 0
    return same
