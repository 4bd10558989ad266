"""Batch of messages on its way into a store: the checks and encoding of ``encode_message``, column by column.

::

    RecordBatch ──► check ──► delay? ──► deflate? ──► properties ──► encode ──► EncodedRows: records side by side

    BatchColumns  topic  dictionary<string>  ──► string            body   large_binary    ──► binary
                  queueId  int16             ──► int64             bornTimestamp  timestamp[us] ──► int64, ms
                  bornHost  string           ──► 4 or 16 bytes of address, 4 of port
                  anything else              ──► ConfigError, which names the column and the type that it can have

All rows are checked before any is put. RocketMQ: ``DefaultMessageStore.putMessages``, ``SendMessageProcessor``.
"""

import time
import zlib
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..config import BatchPlacement, StoreConfig
from ..errors import ConfigError, IllegalMessageError
from ..format.buffers import booleans, has_text, numbers, only_chunk, value_bytes, value_lengths
from ..format.checksums import RecordCrc
from ..format.encoded_batch import EncodedBatch
from ..format.hashing import java_hash_array, key_hashes
from ..format.message import (
    RECORD_CRC_BYTES,
    SYS_COMMIT,
    SYS_COMPRESSED,
    SYS_INNER_BATCH,
    SYS_TRANSACTION,
    Ints,
    Mask,
)
from ..format.message_decode import ARROW_TYPES
from ..format.message_encode import PROPERTIES_BYTES_MAX, RecordColumns, encode
from ..format.message_table import COLUMN_PROPERTIES, NATIVE_COLUMNS, Giver
from ..format.naming import SCHEDULE_TOPIC
from ..format.properties import KEYS, LIGHT_QUEUES, TAGS, UNIQ_KEY
from ..format.property_encode import encode_properties, shared_names, values_by_name
from ..queues.keys import Queues, different_queues
from .message import (
    DEFLATE_LEVEL,
    DELAY,
    DELAY_LEVELS,
    MESSAGE_ILLEGAL,
    PROPERTIES_SIZE_EXCEEDED,
    QUEUES_MAX,
    REAL_QUEUE,
    REAL_TOPIC,
    check_body,
    check_record,
    check_topic,
    delay_level,
    light_queues_refused,
    packed_host,
    record_crc,
)

T = TypeVar("T")

_GIVEN: Final = tuple(column for column in NATIVE_COLUMNS if column.giver is not Giver.STORE)
_ACCEPTED: Final = {"int32": (pa.int32(), pa.int64()), "timestamp": (pa.int64(),)}
COLUMN_TYPES: Final[dict[str, tuple[pa.DataType, ...]]] = {
    column.name: _ACCEPTED.get(column.type) or (ARROW_TYPES[column.type],) for column in _GIVEN
}
"""Columns of a batch, and their accepted types; values of any other type are cast to the first type."""
_PIECE_BYTES: Final = 8 << 20
"""Threads of a commit wait for Python's lock between steps: small rows in pieces of 3 MiB take 1.3 times as long."""
LARGE_BATCH_BYTES: Final = 3 << 20  # of bodies; less than that is sooner copied, and still in the cache when written
_APART_PER_BYTE: Final = 16  # bytes of bodies that are not copied count as one
_FEW_TOPICS: Final = 64
_FIXED_BYTES: Final = 128  # of a record beside body and properties, about


class BatchColumns:
    """Columns of one batch by name. Each is returned as one array of a type of `COLUMN_TYPES`."""

    def __init__(self, batch: pa.RecordBatch | pa.Table) -> None:
        names = batch.schema.names
        self.names = set(names)
        if len(self.names) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"column {twice!r} is there twice", fix="Rename or drop one of them")
        self.rows = len(batch)
        self._batch = batch
        unknown = sorted(self.names - COLUMN_TYPES.keys())
        missing = sorted({"topic", "body"} - self.names)
        if unknown or missing:
            problem = (
                f"column {missing[0]!r} is missing" if missing else f"column {unknown[0]!r} is not a column of messages"
            )
            raise ConfigError(problem, fix=f"The columns can be {', '.join(COLUMN_TYPES)}")

    def get(self, name: str) -> Any:
        values = self._batch.column(name)
        if isinstance(values, pa.ChunkedArray):
            values = only_chunk(values)
        kind, wanted = values.type, COLUMN_TYPES[name][0]
        if kind in COLUMN_TYPES[name]:
            return values
        is_time = name == "bornTimestamp" and pa.types.is_timestamp(kind)
        fix = f"Give it as {wanted}"
        if not is_time and not _may_cast(kind, wanted):
            raise ConfigError(f"column {name!r} is of type {kind}", fix=fix)
        try:
            if is_time:  # seconds may be too many for milliseconds; finer ones are cut
                values = values.cast(pa.timestamp("ms", kind.tz), safe=kind.unit == "s")
            elif pa.types.is_dictionary(kind):  # Drop when Arrow casts dictionaries of views.
                return values.dictionary.cast(wanted).take(values.indices)
            return values.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # its text may quote a value
            raise ConfigError(f"column {name!r} is of type {kind}, and does not convert", fix=fix) from None

    def integers(self, name: str) -> Ints:
        """Return (n,) int64; 0 where the column is missing or null."""
        values = self.integers_or(name, 0)
        return values if isinstance(values, np.ndarray) else np.full(self.rows, values, np.int64)

    def integers_or(self, name: str, otherwise: int) -> Ints | int:
        """Return (n,) int64 with ``otherwise`` for nulls, or only that where the column is missing."""
        if name not in self.names:
            return otherwise
        values = self.get(name)
        if values.null_count:
            values = pc.fill_null(values, otherwise)
        return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)

    def hosts(self, name: str) -> pa.BinaryArray | bytes:
        """Return packed hosts, or one for all rows where the column is missing; nulls become the local host."""
        if name not in self.names:
            return packed_host("127.0.0.1:0")
        values = pc.fill_null(self.get(name), "127.0.0.1:0").dictionary_encode()
        packed = _each_text(values, lambda host: packed_host(host, name))
        return pa.array(packed, pa.binary()).take(values.indices)


def _each_text(texts: pa.DictionaryArray, read: Callable[[str], T]) -> list[T]:
    """Read each text of a dictionary; `IllegalMessageError` names the first row with a text that cannot be read."""
    found = []
    for code, text in enumerate(texts.dictionary.to_pylist()):
        try:
            found.append(read(text))
        except (ConfigError, IllegalMessageError) as error:
            row = pc.index(texts.indices, code).as_py()
            problem = f"{MESSAGE_ILLEGAL}: row {row}: {error.problem.removeprefix(f'{MESSAGE_ILLEGAL}: ')}"
            raise IllegalMessageError(problem, fix=error.fix) from None
    return found


def _may_cast(kind: pa.DataType, wanted: pa.DataType) -> bool:
    is_ = pa.types
    if is_.is_null(kind):
        return True
    if is_.is_integer(wanted):
        return bool(is_.is_integer(kind))
    if is_.is_map(wanted):
        return bool(is_.is_map(kind))
    if is_.is_dictionary(kind):
        kind = kind.value_type
    stringlike = is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind)
    if not is_.is_binary(wanted):
        return bool(stringlike)
    sized = is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind)
    return bool(stringlike or sized or is_.is_binary(kind) or is_.is_binary_view(kind))


class Lookups(NamedTuple):
    """Values of queues and index for rows, except offsets, computed from the columns."""

    tags_codes: Ints  # (n,) int64
    hashes: Ints  # (k,) int64: hashes of all keys, and the row of each, ascending
    hash_rows: Ints


class EncodedRows(NamedTuple):
    """Records side by side that only lack their places and time."""

    records: EncodedBatch
    queues: Queues  # the distinct queues of the rows
    queue_of: Ints  # (n,) int64, index into ``queues`` per row
    counts: Mask  # (n,) bool, see `Encoded`
    # None where tags and keys have to be read from the records: delayed messages, transactions
    lookups: Lookups | None = None


def encode_batch(
    batch: pa.RecordBatch | pa.Table,
    config: StoreConfig,
    placement: BatchPlacement = BatchPlacement.RUN_ON,
    *,
    bodies_apart: bool = False,
) -> list[EncodedRows]:
    """Check and encode the rows of a batch; columns are named as in ``NATIVE_SCHEMA``.

    Returns pieces of some megabytes, whose memory the next batch reuses; one piece if all rows must be in one segment.
    All rows are checked first.

    ``topic`` and ``body`` are needed; the other columns of `COLUMN_TYPES` may be there. Properties of both kinds of
    columns are merged; a column of its own has precedence over ``properties``.

    With ``bodies_apart`` the bodies of a large batch may stay in its memory until they are written: it is not changed
    before that. Raises `IllegalMessageError`, which names the row, if RocketMQ would refuse one, and `ConfigError` if a
    column is missing, unknown or of another type.
    """
    columns = BatchColumns(batch)
    rows = _checked_rows(columns, config)
    fields = _fields(columns, rows, config)
    crc = record_crc(config)
    body_bytes = value_lengths(rows.body)
    apart = bodies_apart and rows.looked_up is not None and int(body_bytes.sum()) >= LARGE_BATCH_BYTES
    try:
        properties = encode_properties(rows.named, rows.pairs) if rows.named or rows.pairs is not None else b""
        held = _check_properties(properties, crc) + body_bytes
        given = RecordColumns(properties=properties, **fields)
        pieces = list(pairwise(_cuts(held, body_bytes if apart else None, config.segment_bytes, placement)))
        parts = [_part(given, start, stop) for start, stop in pieces]
        encoded = [encode(part, record_crc=crc, bodies_apart=apart) for part in parts]
    except ConfigError as error:
        raise IllegalMessageError(f"{MESSAGE_ILLEGAL}: {error.problem}", fix=error.fix) from None
    for records in encoded:
        check_record(int(records.sizes.max()), config)
        if placement is BatchPlacement.ONE_SEGMENT:
            check_record(int(records.sizes.sum()), config)
    return [
        _with_queues(records, part.topic, rows, slice(*piece), with_keys=config.index)
        for records, part, piece in zip(encoded, parts, pieces, strict=True)
    ]


class _Rows(NamedTuple):
    """Rows that were checked, and that are delayed and compressed as they will be stored."""

    topics: pa.DictionaryArray  # (n,) dictionary of strings and (n,) int64: delayed rows are in the schedule topic
    queue_id: Ints
    body: pa.BinaryArray  # (n,) binary, (n,) int64, and (n,) bool as in `EncodedRows`
    sys_flag: Ints
    counts: Mask
    # properties from columns, by name; and the map column, None without one
    named: dict[str, pa.StringArray]
    pairs: pa.MapArray | None
    looked_up: dict[str, pa.StringArray] | None  # tags and keys by name; None as in `EncodedRows.lookups`


def _checked_rows(columns: BatchColumns, config: StoreConfig) -> _Rows:
    """Check rows, then apply delay levels and compression."""
    topic, body = columns.get("topic"), columns.get("body")
    topics = _encode_dictionary(topic)
    _check_rows(topics, body, config)
    queue_id = columns.integers("queueId")
    wrong = (queue_id < 0) | (queue_id >= QUEUES_MAX)
    if wrong.any():
        row = int(wrong.argmax())
        raise IllegalMessageError(
            f"{MESSAGE_ILLEGAL}: row {row} has queue id {int(queue_id[row])}", fix=f"Give 0 to {QUEUES_MAX - 1}"
        )
    sys_flag = columns.integers("sysFlag")
    transaction = sys_flag & SYS_TRANSACTION
    counts: Mask = (transaction == 0) | (transaction == SYS_COMMIT)
    named = {name: columns.get(column) for column, name in COLUMN_PROPERTIES.items() if column in columns.names}
    pairs = columns.get("properties") if "properties" in columns.names else None
    names = _names(pairs)
    if names is not None and pc.any(pc.equal(names, LIGHT_QUEUES)).as_py():
        row = int(pc.index(pc.map_lookup(pairs, LIGHT_QUEUES, "last").is_valid(), True).as_py())
        raise light_queues_refused(f"row {row}")
    asked = _delay_levels(pairs, names, counts)
    is_delayed = bool((asked > 0).any())
    if is_delayed:
        topics, queue_id, delays = _delayed(topic, queue_id, asked)
        named |= delays
    if config.compress_over_bytes is not None:
        body, sys_flag = _deflated_rows(body, sys_flag, config.compress_over_bytes)
    is_plain = not is_delayed and not (sys_flag & (SYS_TRANSACTION | SYS_INNER_BATCH)).any()
    looked_up = _looked_up(named, pairs if names is not None else None) if is_plain else None
    return _Rows(topics, queue_id, body, sys_flag, counts, named, pairs, looked_up)


def _delayed(
    topic: pa.StringArray, queue_id: Ints, asked: Ints
) -> tuple[pa.DictionaryArray, Ints, dict[str, pa.StringArray]]:
    """Topics, queue ids and further properties of rows, some of which have a delay level; higher levels are cut."""
    named = {}
    level = np.clip(asked, 0, DELAY_LEVELS)
    later, absent = pa.array(level > 0), pa.scalar(None, pa.string())
    if (asked > level).any():
        named[DELAY] = pc.if_else(pa.array(asked > level), str(DELAY_LEVELS), absent)
    named[REAL_TOPIC] = pc.if_else(later, topic, absent)
    named[REAL_QUEUE] = pc.if_else(later, pa.array(queue_id).cast(pa.string()), absent)
    topics = pc.if_else(later, SCHEDULE_TOPIC, topic).dictionary_encode()
    return topics, np.where(level > 0, level - 1, queue_id), named


def _fields(columns: BatchColumns, rows: _Rows, config: StoreConfig) -> dict[str, Any]:
    """Fields of `RecordColumns` but for the properties."""
    settled = {
        "body": rows.body,
        "topic": rows.topics,
        "queue_id": rows.queue_id,
        "sys_flag": rows.sys_flag,
        "store_host": packed_host(config.store_host, "store_host"),
    }
    for column in _GIVEN:
        if column.field is None or column.field in settled:
            continue
        if column.type == "string":
            settled[column.field] = columns.hosts(column.name)
        else:
            now_or_0 = time.time_ns() // 1_000_000 if column.type == "timestamp" else 0
            settled[column.field] = columns.integers_or(column.name, now_or_0)
    return settled


def _with_queues(
    records: EncodedBatch, topics: pa.DictionaryArray, rows: _Rows, piece: slice, *, with_keys: bool
) -> EncodedRows:
    """Add queues and lookups to the records of a piece of the rows; ``topics`` are the topics of the same piece."""
    queues, queue_of = different_queues(topics, rows.queue_id[piece])
    lookups = None
    if rows.looked_up is not None:
        lookups = _look_up(topics, {name: each[piece] for name, each in rows.looked_up.items()}, with_keys=with_keys)
    return EncodedRows(records, queues, queue_of, rows.counts[piece], lookups)


def _encode_dictionary(texts: pa.StringArray) -> pa.DictionaryArray:
    """Tell texts apart; most batches have one topic, and to see that takes a tenth of hashing every row."""
    lengths = value_lengths(texts)
    if len(texts) and not texts.null_count and lengths[0] and (lengths == lengths[0]).all():
        data = value_bytes(texts)
        if (data[lengths[0] :] == data[: -lengths[0]]).all():
            return pa.DictionaryArray.from_arrays(numbers(np.zeros(len(texts), np.int32)), texts[:1])
    return texts.dictionary_encode()


def _names(pairs: pa.MapArray | None) -> pa.StringArray | None:
    """Return the names of pairs, those of one row if all rows have the same; None without any pair."""
    if pairs is None:
        return None
    shared = shared_names(pairs)
    names = pairs.keys if shared is None else shared
    return names if len(names) else None


def _looked_up(named: dict[str, pa.StringArray], pairs: pa.MapArray | None) -> dict[str, pa.StringArray]:
    """Return tags and keys as the records have them: those of a column, or else those of the map."""
    if pairs is None:
        return named
    paired = values_by_name(pairs, (TAGS, KEYS, UNIQ_KEY))
    for name in named.keys() & paired.keys():
        paired[name] = pc.if_else(booleans(has_text(named[name])), named[name], paired[name])
    return named | paired


def _look_up(topics: pa.DictionaryArray, named: Mapping[str, pa.StringArray], *, with_keys: bool) -> Lookups:
    absent = pa.nulls(len(topics), pa.string())
    codes = java_hash_array(named.get(TAGS, absent))
    hashes = rows = np.zeros(0, np.int64)
    if with_keys:
        hashes, rows = key_hashes(topics, named.get(UNIQ_KEY, absent), named.get(KEYS, absent))
    return Lookups(codes, hashes, rows)


def _check_properties(properties: pa.BinaryArray | bytes, crc: RecordCrc) -> Ints | int:
    """Return the bytes of the properties per row; refuse properties that are too long."""
    if isinstance(properties, bytes):
        return 0
    lengths = value_lengths(properties) + (RECORD_CRC_BYTES if crc is RecordCrc.PROPERTY else 0)
    if lengths.size and int(lengths.max()) > PROPERTIES_BYTES_MAX:
        row = int(lengths.argmax())
        raise IllegalMessageError(
            f"{PROPERTIES_SIZE_EXCEEDED}: the properties of row {row} take {int(lengths[row])} bytes of "
            f"{PROPERTIES_BYTES_MAX} at most",
            fix="Shorten them or move them into the body",
        )
    return lengths


def _cuts(sizes: Ints, apart: Ints | None, segment_bytes: int, placement: BatchPlacement) -> list[int]:
    """Rows at which pieces begin, and one past the last row."""
    if placement is BatchPlacement.ONE_SEGMENT or not sizes.size:
        return [0, sizes.size] if sizes.size else []
    copied = sizes if apart is None else sizes - apart + apart // _APART_PER_BYTE
    number = np.cumsum(copied + _FIXED_BYTES) // _PIECE_BYTES
    if segment_bytes < _PIECE_BYTES * (1 if apart is None else _APART_PER_BYTE):  # a piece is dispatched after its put
        number += np.cumsum(sizes + _FIXED_BYTES) // segment_bytes
    return [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), sizes.size]


def _part(columns: RecordColumns, start: int, stop: int) -> RecordColumns:
    """Columns of a piece of the rows; if topics are many, without topics of other rows."""
    part = {name: getattr(columns, name) for name in columns.__slots__}
    part = {name: each[start:stop] if isinstance(each, pa.Array | np.ndarray) else each for name, each in part.items()}
    if len(part["topic"].dictionary) > _FEW_TOPICS:
        part["topic"] = part["topic"].dictionary_decode().dictionary_encode()
    return RecordColumns(**part)


def _check_rows(topics: pa.DictionaryArray, body: pa.BinaryArray, config: StoreConfig) -> None:
    if topics.null_count:
        row = int(pc.index(pc.is_null(topics), value=True).as_py())
        raise IllegalMessageError(f"{MESSAGE_ILLEGAL}: row {row} has no topic", fix="Set a topic in every row")
    if body.null_count:
        row = int(pc.index(pc.is_null(body), value=True).as_py())
        raise IllegalMessageError(
            f"{MESSAGE_ILLEGAL}: row {row} has no body", fix="Set a body in every row; it may be empty"
        )
    _each_text(topics, check_topic)
    if len(body):
        sizes = value_lengths(body)
        row = int(sizes.argmax())
        if sizes[row] > config.max_body_bytes:
            check_body(int(sizes[row]), config, f"row {row}")


def _delay_levels(pairs: pa.MapArray | None, names: pa.StringArray | None, counts: Mask) -> Ints:
    """Delay level per row; 0 without one, or where RocketMQ ignores it."""
    if names is None or not pc.any(pc.equal(names, DELAY)).as_py():
        return np.zeros(counts.size, np.int64)
    asked = pc.if_else(pa.array(counts), pc.map_lookup(pairs, DELAY, "last").fill_null(""), "").dictionary_encode()
    levels: Ints = np.array(_each_text(asked, delay_level), np.int64)
    which: Ints = asked.indices.to_numpy(zero_copy_only=False)
    return levels[which]


def _deflated_rows(body: pa.BinaryArray, sys_flag: Ints, over: int) -> tuple[pa.BinaryArray, Ints]:
    chosen = (pc.binary_length(body).to_numpy(zero_copy_only=False) >= over) & (sys_flag & SYS_COMPRESSED == 0)
    if not chosen.any():
        return body, sys_flag
    # The loop is zlib's work, some 20 µs a body; Python adds nothing measurable.
    small = [zlib.compress(value.as_buffer(), DEFLATE_LEVEL) for value in body.filter(pa.array(chosen))]
    replaced = pc.replace_with_mask(body, pa.array(chosen), pa.array(small, pa.binary()))
    return replaced, np.where(chosen, sys_flag | SYS_COMPRESSED, sys_flag)
