"""Rows of a frame to rows of the store: one Arrow batch in, one out.

::

    batch as Spark hands it over            batch as ``Staging.add`` takes it
    columns by the user's names     ──►     topic, body, queueId, tags, keys, uniqKey, properties, bornTimestamp, …
    any of Arrow's widths                   no null where a message must have something

Whole columns at a time. Errors count the rows of a Spark partition from 0, whatever batches they came in.

``uniqKey``, where a row has none, is 32 hexadecimal digits as RocketMQ's clients make them. 22 follow from the writer
(application, batch, Spark partition), 10 number the row. The same rows get the same keys again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.store import IllegalMessageError
from segmentlog.store.sink import shared_names

from ..options.write_options import WriteOptions
from ..options.write_table import OnNull
from .properties import MAP, Pairs, maps_of_pairs, pairs_of_headers, pairs_of_maps, with_property, without
from .queue_selector import QueueChooser, QueueRules
from .schema import SinkColumns

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

SHARDING_KEY: Final = "__SHARDINGKEY"
UNIQ_KEY: Final = "UNIQ_KEY"
_COLUMN_PROPERTIES: Final = {"tags": "TAGS", "keys": "KEYS", "uniqKey": UNIQ_KEY}
_NAMED: Final = pa.array([name.encode() for name in (*_COLUMN_PROPERTIES.values(), SHARDING_KEY)])
_AS_THEY_COME: Final = ("bornTimestamp", "flag", "bornHost", "reconsumeTimes")
_BATCH_BYTES_MAX: Final = 256 << 20  # offsets of Arrow's narrow types end at 2 GiB; beside them, what it costs
_PREFIX_BYTES: Final = 11
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_HEX4: Final = np.stack([_HEX[np.arange(1 << 16) >> shift & 15] for shift in (12, 8, 4, 0)], axis=1)
"""The four digits of each number below 2**16."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Writer of rows; the same for each attempt of a task."""

    app: str  # name of the numbering of the batches: a query, a `txnAppId`, or a generated name
    version: int  # number of the batch
    partition: int


class SinkRows:
    """Converts the batches of one task, in their order; counts ``rows`` that came, and those ``skipped``."""

    def __init__(self, columns: SinkColumns, options: WriteOptions, rules: QueueRules, origin: Origin) -> None:
        self._columns = columns
        self._options = options
        self._origin = origin
        self._prefix = key_prefix(origin)
        self._chooser = QueueChooser(rules, origin.partition + origin.version)
        self.rows = 0
        self.skipped = 0

    @property
    def made_topics(self) -> dict[str, int]:
        """Topics that the store did not have, with the number of queues that each is to have."""
        return self._chooser.made

    def convert(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Convert a batch of the frame; a huge batch is returned in pieces, a batch without rows not at all."""
        pieces = -(-batch.nbytes // _BATCH_BYTES_MAX)
        each = max(1, -(-batch.num_rows // max(1, pieces)))
        for start in range(0, batch.num_rows, each):
            part = batch.slice(start, each)
            if pieces > 1:
                part = part.take(pa.array(np.arange(part.num_rows)))  # a slice's offsets may still be beyond 2 GiB
            converted = self._convert(part)
            if converted.num_rows:
                yield converted

    def _convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = np.arange(self.rows, self.rows + batch.num_rows)
        self.rows += batch.num_rows
        columns, rows = self._kept({name: batch.column(at) for name, at in self._columns.positions.items()}, rows)
        body = self._body(columns["body"], rows)
        topics = self._topics(columns.get("topic"), rows)
        sharding = self._texts(columns, "shardingKey", rows)
        queues = self._chooser.choose(topics, columns.get("queueId"), sharding, rows)
        texts = {name: self._texts(columns, name, rows) for name in ("tags", "keys")}
        given = columns.get("properties")
        properties = None if sharding is not None else _plain_maps(given)
        found = self._pairs(given, rows) if properties is None else None
        texts["uniqKey"] = self._uniq_keys(self._texts(columns, "uniqKey", rows), found, rows)
        if properties is None:
            properties = _properties(texts, found, sharding, rows.size)
        native = {"topic": topics.cast(pa.string()), "body": body, "queueId": pa.array(queues)}
        native |= {name: values for name, values in texts.items() if values is not None}
        if properties is not None:
            native["properties"] = properties
        native |= {name: columns[name] for name in _AS_THEY_COME if name in columns}
        return pa.RecordBatch.from_arrays(list(native.values()), names=list(native))

    # -- required columns

    def _kept(self, columns: dict[str, pa.Array], rows: Ints) -> tuple[dict[str, pa.Array], Ints]:
        """Apply `onNullTopic` and `onNullBody`: leave out rows, or refuse them."""
        options = self._options
        kept = np.ones(rows.size, np.bool_)
        topic = columns.get("topic") if options.topic is None else None
        for name, values, on_null in (
            ("topic", topic, options.on_null_topic),
            ("body", columns["body"], options.on_null_body),
        ):
            if values is None or not values.null_count or on_null is OnNull.EMPTY:
                continue
            null = values.is_null().to_numpy(zero_copy_only=False)
            if on_null is OnNull.FAIL:
                also = ", give onNullBody=empty," if name == "body" else ""
                raise self._refusal(
                    rows,
                    null,
                    f"has no {name}",
                    f"Fill {name} in every row,{also} or leave such rows out with onNull{name.capitalize()}=skip",
                )
            kept &= ~null
        if kept.all():
            return columns, rows
        self.skipped += int(rows.size - kept.sum())
        chosen = pa.array(kept)
        return {name: values.filter(chosen) for name, values in columns.items()}, rows[kept]

    def _body(self, body: pa.Array, rows: Ints) -> pa.BinaryArray:
        values = body.cast(pa.large_binary() if pa.types.is_large_string(body.type) else pa.binary())
        values = values.cast(pa.binary())
        if values.null_count:
            values = values.fill_null(b"")
        most = self._options.config.max_body_bytes
        if len(values) and pc.max(pc.binary_length(values)).as_py() > most:
            sizes = pc.binary_length(values).to_numpy(zero_copy_only=False)
            size = int(sizes[(sizes > most).argmax()])
            fix = "Split it, or raise maxMessageSize here and at the brokers that are to read it"
            raise self._refusal(
                rows, sizes > most, f"has a body of {size} bytes, and at most {most} can be stored", fix
            )
        return values

    def _topics(self, topic: pa.Array | None, rows: Ints) -> pa.DictionaryArray:
        if self._options.topic is not None:
            everywhere = pa.array(np.zeros(rows.size, np.int32))
            return pa.DictionaryArray.from_arrays(everywhere, pa.array([self._options.topic]))
        return self._text(topic, "topic", rows).dictionary_encode()

    # -- texts

    def _texts(self, columns: dict[str, pa.Array], name: str, rows: Ints) -> pa.StringArray | None:
        values = columns.get(name)
        if values is None:
            return None
        if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
            values = _joined(values)
        return self._text(values, name, rows)

    def _text(self, values: pa.Array, name: str, rows: Ints) -> pa.StringArray:
        """Make a column narrow text, and make sure that it is UTF-8: Spark's may hold any bytes."""
        narrow = values.cast(pa.binary())
        try:
            return narrow.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = np.array([not _is_utf8(each) for each in narrow.to_pylist()])
        fix = "Decode them into text first; binary values, as with hex(…) or base64(…)"
        raise self._refusal(rows, wrong, f"has bytes in column `{name}` that are not UTF-8", fix)

    def _uniq_keys(self, given: pa.StringArray | None, pairs: Pairs | None, rows: Ints) -> pa.StringArray:
        made = number_keys(self._prefix, rows)
        if pairs is not None:
            named = pairs.where(pairs.named(UNIQ_KEY))
            has = np.zeros(rows.size, np.bool_)
            has[named.rows] = pc.greater(pc.binary_length(named.values), 0).to_numpy(zero_copy_only=False)
            if has.any():
                made = pc.if_else(pa.array(has), pa.scalar(None, pa.string()), made)
        return made if given is None else pc.if_else(pa.array(_has_text(given)), given, made)

    # -- properties

    def _pairs(self, properties: pa.Array | None, rows: Ints) -> Pairs | None:
        if properties is None:
            return None
        if pa.types.is_map(properties.type):
            pairs = pairs_of_maps(properties)
            return Pairs(
                pairs.rows,
                self._text(pairs.names, "properties", rows[pairs.rows]),
                self._text(pairs.values, "properties", rows[pairs.rows]),
            )
        at, keys, values = pairs_of_headers(properties)
        if keys.null_count:
            null = keys.is_null().to_numpy(zero_copy_only=False)
            raise self._refusal(
                rows[at], null, "has a header without a key", "Add a key to every header, or leave it out"
            )
        return Pairs(at, self._text(keys, "headers", rows[at]), self._text(values, "headers", rows[at]))

    def _refusal(self, rows: Ints, wrong: Mask, what: str, fix: str) -> IllegalMessageError:
        row = int(rows[wrong.argmax()])
        return IllegalMessageError(f"row {row} of Spark partition {self._origin.partition} {what}", fix=fix)


def key_prefix(origin: Origin) -> bytes:
    """Return the 22 digits that all keys of one task begin with."""
    said = f"{origin.app}\0{origin.version}\0{origin.partition}".encode()
    return blake2b(said, digest_size=_PREFIX_BYTES).hexdigest().upper().encode()


def number_keys(prefix: bytes, rows: Ints) -> pa.StringArray:
    """Make a unique key for each of (n,) rows, numbers below 2**40, from a prefix of 22 digits."""
    keys = np.empty((rows.size, 32), np.uint8)
    keys[:, :22] = np.frombuffer(prefix, np.uint8)
    keys[:, 22:24] = _HEX4[rows >> 32 & 0xFF, 2:]
    keys[:, 24:28] = _HEX4[rows >> 16 & 0xFFFF]
    keys[:, 28:] = _HEX4[rows & 0xFFFF]
    offsets = np.arange(0, 32 * rows.size + 1, 32, dtype=np.int32)
    return pa.StringArray.from_buffers(rows.size, pa.py_buffer(offsets), pa.py_buffer(keys))


def _plain_maps(properties: pa.Array | None) -> pa.MapArray | None:
    """Return maps that all have the same names, none of which has a column of its own; None for any others."""
    # Most frames have such maps. Pair by pair they would cost twice as much as all other columns together.
    if properties is None or not pa.types.is_map(properties.type):
        return None
    maps = properties.cast(MAP)
    names = shared_names(maps)
    if names is None or pc.any(pc.is_in(names.cast(pa.binary()), _NAMED)).as_py():
        return None
    try:
        names.cast(pa.binary()).cast(pa.string())
        values = maps.items.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return None  # the error names the row, for which pairs are needed
    return pa.MapArray.from_arrays(maps.offsets, maps.keys, values)


def _properties(
    texts: dict[str, pa.StringArray | None], found: Pairs | None, sharding: pa.StringArray | None, rows: int
) -> pa.MapArray | None:
    """Properties that have no column in the store's batches."""
    if found is not None:
        # A frame of our source has its tags and keys twice, in columns and in the map: once is enough.
        said = {_COLUMN_PROPERTIES[name]: _has_text(values) for name, values in texts.items() if values is not None}
        found = without(found, said if sharding is None else {**said, SHARDING_KEY: _has_text(sharding)})
    if sharding is not None:
        found = with_property(found, SHARDING_KEY, sharding)
    return None if found is None else maps_of_pairs(found, rows).cast(MAP)


def _has_text(values: pa.StringArray) -> Mask:
    """Mask of rows with a text that is not empty: RocketMQ stores no empty values."""
    some = pc.fill_null(pc.greater(pc.binary_length(values), 0), fill_value=False)
    return np.asarray(some.to_numpy(zero_copy_only=False), np.bool_)


def _joined(lists: pa.Array) -> pa.Array:
    """Join the texts of each list with blanks, leaving out nulls; null where the list is."""
    # Arrow joins nullable texts alone; Spark's `split` makes lists of texts that are never null.
    is_plain = lists.type.value_type == pa.string() and lists.type.value_field.nullable
    if lists.flatten().null_count or not is_plain:
        offsets = lists.offsets.to_numpy().astype(np.int64)
        values = lists.values[int(offsets[0]) : int(offsets[-1])]
        there = values.is_valid().to_numpy(zero_copy_only=False)
        ends = np.concatenate([[0], np.cumsum(there)])[offsets - offsets[0]].astype(np.int32)
        mask = lists.is_null() if lists.null_count else None
        lists = pa.ListArray.from_arrays(pa.array(ends), values.drop_null().cast(pa.string()), mask=mask)
    return pc.binary_join(lists, " ")


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True
