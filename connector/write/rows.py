"""Rows of a frame to rows of the store: one Arrow batch in, one out.

::

    batch as Spark hands it over            batch as ``Staging.add`` takes it
    columns by the user's names     ──►     topic, body, queueId, tags, keys, uniqKey, properties, bornTimestamp, …
    any of Arrow's widths                   no null where a message must have something

Whole columns at a time. Errors count the rows of a Spark partition from 0, whatever batches they came in.

``uniqKey``, where a row has none, is 32 hexadecimal digits as RocketMQ's clients make them. 22 follow from the writer
(application, batch, Spark partition), 10 number the row. The same rows get the same keys again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.query.selection import UnknownTopicError
from segmentlog.query.utf8 import are_utf8
from segmentlog.store import WRITTEN_COLUMNS, IllegalMessageError, is_system_topic
from segmentlog.store.sink import has_text, java_hash_array, shared_names, values_by_name

from ..options.write_options import SYSTEM_TOPIC_FIX, WriteOptions
from ..options.write_table import OnNull, Selector
from .schema import SinkColumns

# Properties, pair by pair

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

MAP: Final = pa.map_(pa.string(), pa.string())
SHARDING_KEY: Final = "__SHARDINGKEY"
UNIQ_KEY: Final = "UNIQ_KEY"
_AS_THEY_COME: Final = tuple(
    column.name for column in WRITTEN_COLUMNS if column.field is not None and column.name != "queueId"
)
_BATCH_BYTES_MAX: Final = 256 << 20  # offsets of Arrow's narrow types end at 2 GiB; beside them, what it costs
_PREFIX_BYTES: Final = 11
_KEY_CHARS, _ROW_DIGITS = 32, 10


class Pairs(NamedTuple):
    """Properties of some rows, of columns of maps or of Kafka's headers: (m,) columns, ``rows`` ascending.

    ::

        rows     0    0    2                 one entry a pair, rows ascending; row 1 has none
        names    user TAGS user
        values   amy  paid bob
    """

    rows: Ints
    names: pa.StringArray
    values: pa.StringArray

    def where(self, kept: Mask) -> "Pairs":
        if kept.all():
            return self
        chosen = pa.array(kept)
        return Pairs(self.rows[kept], self.names.filter(chosen), self.values.filter(chosen))

    def named(self, name: str) -> Mask:
        return _bools(pc.equal(self.names, name))


def pairs_of_maps(maps: pa.MapArray) -> Pairs:
    """Split a column of maps of texts, large ones too, into pairs."""
    rows, first, last = _rows(maps)
    pairs = Pairs(rows, maps.keys[first:last].cast(pa.string()), maps.items[first:last].cast(pa.string()))
    return pairs.where(_of_rows(maps, rows))


def pairs_of_headers(headers: pa.ListArray) -> tuple[Ints, pa.Array, pa.Array]:
    """Split a column of Kafka's headers into rows, keys and values of the entries that are not null."""
    rows, first, last = _rows(headers)
    keys, values = headers.values[first:last].flatten()
    kept = _of_rows(headers, rows) & (~_is_null(keys) | ~_is_null(values))
    if not kept.all():
        chosen = pa.array(kept)
        rows, keys, values = rows[kept], keys.filter(chosen), values.filter(chosen)
    return rows, keys, values


def _rows(lists: pa.Array) -> tuple[Ints, int, int]:
    """Rows of all entries of a column of lists, and the first and one past the last of them."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return np.repeat(np.arange(len(lists)), np.diff(offsets)), int(offsets[0]), int(offsets[-1])


def _of_rows(lists: pa.Array, rows: Ints) -> Mask:
    """Return which entries belong to rows that are not null: Arrow may keep any entries for a null."""
    return ~_is_null(lists)[rows]


def _is_null(values: pa.Array) -> Mask:
    return _bools(values.is_null())


def _bools(values: pa.BooleanArray) -> Mask:
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)


def with_property(pairs: Pairs | None, name: str, values: pa.StringArray) -> Pairs:
    """Add one property after the others, from (n,) values; a null adds none."""
    rows = np.flatnonzero(~_is_null(values))
    added = Pairs(rows, pa.repeat(name, rows.size), values.drop_null())
    if pairs is None:
        return added
    every = np.concatenate([pairs.rows, rows])
    order = np.argsort(every, kind="stable")
    chosen = pa.array(order)
    return Pairs(
        every[order],
        pa.concat_arrays([pairs.names, added.names]).take(chosen),
        pa.concat_arrays([pairs.values, added.values]).take(chosen),
    )


def maps_of_pairs(pairs: Pairs, rows: int) -> pa.MapArray:
    """Put pairs together: (rows,) maps, empty where a row has none."""
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(pairs.rows, minlength=rows), out=offsets[1:])
    return pa.MapArray.from_arrays(pa.array(offsets), pairs.names, pairs.values)


# The queue of each row

Queues: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueRules:
    """Rules that the driver decided for all tasks of a write. Sent to the workers."""

    selector: Selector  # never `AUTO`
    counts: Mapping[str, int]  # queues of the existing topics; of all, or of the only topic that is written
    default_queues: int  # queues of a new topic
    create_topic: bool  # whether new topics, and queues beyond those of a topic, are allowed
    system_topics: bool  # whether rows may go to topics of the broker and of consumer groups


class QueueChooser:
    """Chooses the queues of the rows of one task, batch after batch; ``made`` has the queues of new topics.

    ::

        queueId of the row          if it is not null
        shardingKey of the row      |hash| mod the topic's queues: equal keys, one queue, their order kept
        neither                     the topic's queues in turn, from (partition + batch) on

    The hash is Java's ``String.hashCode``, as in RocketMQ's own clients (``SelectMessageQueueByHash``), so both send a
    key to the same queue of as many. Turns begin elsewhere for each task and each batch of a stream, so that small
    batches spread. They depend on nothing else but the rows before: a repeated batch goes to the same queues.
    """

    # `start` is where each topic's turn begins: any number that is the same in the next attempt.

    def __init__(self, rules: QueueRules, partition: int, batch: int) -> None:
        self._rules = rules
        self._start = partition + batch
        self._where = f"of Spark partition {partition}"
        self._turns: dict[str, int] = {}
        self.made: dict[str, int] = {}

    def choose(
        self, topics: pa.DictionaryArray, queue_ids: pa.Array | None, sharding_keys: pa.StringArray | None, rows: Ints
    ) -> Queues:
        """Choose a queue for each of (n,) rows; ``rows`` are the numbers that errors name."""
        # Topics have no nulls, and a dictionary without repetitions.
        codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        names = topics.dictionary.to_pylist()
        counts = self._counts(names, codes, rows)[codes] if names else codes
        chosen = np.full(codes.size, -1, np.int64)
        if self._rules.selector is Selector.COLUMN and queue_ids is not None:
            given = _bools(queue_ids.is_valid())
            chosen[given] = queue_ids.drop_null().to_numpy(zero_copy_only=False)
            self._check_queue_ids(chosen, given, counts, rows)
        if self._rules.selector is not Selector.ROUND_ROBIN and sharding_keys is not None:
            keyed = _bools(sharding_keys.is_valid()) & (chosen < 0)
            chosen[keyed] = np.abs(java_hash_array(sharding_keys.filter(pa.array(keyed)))) % counts[keyed]
        rest = np.flatnonzero(chosen < 0)
        if rest.size:
            chosen[rest] = (self._start + self._ranks(codes[rest], names)) % counts[rest]
        return chosen.astype(np.int32)

    def _counts(self, names: list[str], codes: Ints, rows: Ints) -> Ints:
        """Queues of each topic by its code; new topics are noted."""
        rules = self._rules
        counts = np.empty(len(names), np.int64)
        for code, name in enumerate(names):
            if is_system_topic(name) and not rules.system_topics:
                row = int(rows[(codes == code).argmax()])
                problem = f"row {row} {self._where} is for the system topic `{name}`"
                raise IllegalMessageError(problem, fix=SYSTEM_TOPIC_FIX)
            known = rules.counts.get(name)
            if known is None:
                if not rules.create_topic:
                    row = int(rows[(codes == code).argmax()])
                    raise unknown_topic(name, f"row {row} {self._where} asks for")
                self.made[name] = known = rules.default_queues
            counts[code] = known
        return counts

    def _check_queue_ids(self, chosen: Ints, given: npt.NDArray[np.bool_], counts: Ints, rows: Ints) -> None:
        wrong = given & (chosen < 0)
        if wrong.any():
            at = int(wrong.argmax())
            raise IllegalMessageError(
                f"row {int(rows[at])} {self._where} has queue id {int(chosen[at])}, below zero",
                fix="Use 0 or more, or null for the queue whose turn it is",
            )
        wrong = given & (chosen >= counts)
        if not self._rules.create_topic and wrong.any():
            at = int(wrong.argmax())
            raise IllegalMessageError(
                f"row {int(rows[at])} {self._where} has queue id {int(chosen[at])}, and its topic has "
                f"{int(counts[at])} queues",
                fix="Use a lower one, or leave createTopic=false out: the topic then gets the queues it needs",
            )

    def _ranks(self, codes: Ints, names: list[str]) -> Ints:
        """Return how many rows of its topic had their turn before each row."""
        order = np.argsort(codes, kind="stable")
        many = np.bincount(codes, minlength=len(names))
        firsts = np.cumsum(many) - many
        before_each = np.array([self._turns.get(name, 0) for name in names], np.int64)
        ranks = np.empty(codes.size, np.int64)
        ranks[order] = np.arange(codes.size) - np.repeat(firsts - before_each, many)
        for name, before, more in zip(names, before_each.tolist(), many.tolist(), strict=True):
            self._turns[name] = before + more
        return ranks


def unknown_topic(name: str, asker: str) -> UnknownTopicError:
    """Error for a topic that does not exist and must not be created."""
    return UnknownTopicError(
        f"{asker} topic `{name}`, which the store does not have",
        fix="Leave createTopic=false out to make it, or make it with RocketMQ's own tools",
    )


# Rows to messages


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
        self._chooser = QueueChooser(rules, origin.partition, origin.version)
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
        if properties is None:
            properties = _properties(self._pairs(given, rows), sharding, rows.size)
        texts["uniqKey"] = self._uniq_keys(self._texts(columns, "uniqKey", rows), properties, rows)
        native = {"topic": topics.cast(pa.string()), "body": body, "queueId": pa.array(queues)}
        native |= {name: values for name, values in texts.items() if values is not None}
        if properties is not None:
            native["properties"] = properties
        native |= {name: columns[name] for name in _AS_THEY_COME if name in columns}
        return pa.RecordBatch.from_arrays(list(native.values()), names=list(native))

    # -- required columns

    def _kept(self, columns: dict[str, pa.Array], rows: Ints) -> tuple[dict[str, pa.Array], Ints]:
        """Apply the options ``onNullTopic`` and ``onNullBody``: leave out rows, or refuse them."""
        options = self._options
        kept = np.ones(rows.size, np.bool_)
        topic = columns.get("topic") if options.topic is None else None
        for name, values, on_null in (
            ("topic", topic, options.on_null_topic),
            ("body", columns["body"], options.on_null_body),
        ):
            if values is None or not values.null_count or on_null is OnNull.EMPTY:
                continue
            null = _is_null(values)
            if on_null is OnNull.FAIL:
                also = " give onNullBody=empty," if name == "body" else ""
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
            wrong = ~_bools(are_utf8(narrow))
        fix = "Decode them into text first; binary values, as with hex(…) or base64(…)"
        raise self._refusal(rows, wrong, f"has bytes in column `{name}` that are not UTF-8", fix)

    def _uniq_keys(self, given: pa.StringArray | None, properties: pa.MapArray | None, rows: Ints) -> pa.StringArray:
        """Make keys for the rows that have none, neither in the column nor among the properties."""
        if given is not None and (has_given := has_text(given)).all():
            return given
        made = number_keys(self._prefix, rows)
        named = {} if properties is None else values_by_name(properties, [UNIQ_KEY])
        if named:
            made = pc.if_else(pa.array(has_text(named[UNIQ_KEY])), pa.scalar(None, pa.string()), made)
        return made if given is None else pc.if_else(pa.array(has_given), given, made)

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
            null = _is_null(keys)
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
    digits = np.frombuffer(rows.astype(">i8").tobytes().hex().upper().encode(), np.uint8).reshape(rows.size, 16)
    keys = np.empty((rows.size, _KEY_CHARS), np.uint8)
    keys[:, :-_ROW_DIGITS] = np.frombuffer(prefix, np.uint8)
    keys[:, -_ROW_DIGITS:] = digits[:, -_ROW_DIGITS:]
    offsets = np.arange(0, _KEY_CHARS * rows.size + 1, _KEY_CHARS, dtype=np.int32)
    return pa.StringArray.from_buffers(rows.size, pa.py_buffer(offsets), pa.py_buffer(keys))


def _plain_maps(properties: pa.Array | None) -> pa.MapArray | None:
    """Return maps that all have the same names; None for any others."""
    # Most frames have such maps. Pair by pair they would cost twice as much as all other columns together.
    if properties is None or not pa.types.is_map(properties.type):
        return None
    maps = properties.cast(MAP)
    names = shared_names(maps)
    if names is None:
        return None
    try:
        names.cast(pa.binary()).cast(pa.string())
        values = maps.items.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return None  # the error names the row, for which pairs are needed
    return pa.MapArray.from_arrays(maps.offsets, maps.keys, values)


def _properties(found: Pairs | None, sharding: pa.StringArray | None, rows: int) -> pa.MapArray | None:
    """Return the properties as maps, with the sharding key of a column in place of one that a map brings along."""
    if sharding is not None:
        if found is not None:
            found = found.where(~(found.named(SHARDING_KEY) & has_text(sharding)[found.rows]))
        found = with_property(found, SHARDING_KEY, sharding)
    return None if found is None else maps_of_pairs(found, rows).cast(MAP)


def _joined(lists: pa.Array) -> pa.Array:
    """Join the texts of each list with blanks, leaving out nulls; null where the list is."""
    # Arrow joins nullable texts alone; Spark's `split` makes lists of texts that are never null.
    is_plain = lists.type.value_type == pa.string() and lists.type.value_field.nullable
    if lists.flatten().null_count or not is_plain:
        offsets = lists.offsets.to_numpy().astype(np.int64)
        values = lists.values[int(offsets[0]) : int(offsets[-1])]
        there = ~_is_null(values)
        ends = np.concatenate([[0], np.cumsum(there)])[offsets - offsets[0]].astype(np.int32)
        mask = lists.is_null() if lists.null_count else None
        lists = pa.ListArray.from_arrays(pa.array(ends), values.drop_null().cast(pa.string()), mask=mask)
    return pc.binary_join(lists, " ")
