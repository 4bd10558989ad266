r"""Message traces as rows: one per entry of the messages of RMQ_SYS_TRACE_TOPIC.

::

    body    Pub \1 1700000000000 \1 region \1 group \1 topic \1 … \2 SubBefore \1 … \2        all as text, UTF-8
                                                                │
            entry 0: Pub                                        └─► entry 1: SubBefore

    Pub             1 time  2 region  3 group  4 topic  5 msgId  6 tags  7 keys  8 storeHost  9 bodyLength  10 cost
                    11 message type  [12 offsetMsgId]  12 or 13 success  [14 clientHost]
    SubBefore       1 time  2 region  3 group  4 requestId  5 msgId  6 retryTimes  7 keys  [8 clientHost]
    SubAfter        1 requestId  2 msgId  3 cost  4 success  5 keys  [6 contextCode]  [7 time]  [8 group]
    EndTransaction  1 time  2 region  3 group  4 topic  5 msgId  6 tags  7 keys  8 storeHost  9 message type
                    10 transactionId  11 state  12 from a check
    Recall          1 time  2 region  3 group  4 topic  5 msgId  6 success

An entry that is not of this form is a row, too: ``error`` says why, and fields that can be read have their values.
RocketMQ: ``TraceDataEncoder``, of 4.9 to 5.5. It writes ``null`` for a field without value.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.store import StoreReader

from .metadata import SCHEMAS
from .system_topics import Ints, Mask, SystemWindow, batch_of, ids_of, instants, messages_of, whole_numbers

_TRACES: Final = "RMQ_SYS_TRACE_TOPIC"
_RECORD: Final = ("brokerName", "storeTimestamp", "queueId", "queueOffset", "physicalOffset")
_ENTRY_END: Final = b"\x02"
_FIELD_END: Final = b"\x01"
_MESSAGE_TYPES: Final = ("Normal", "Trans", "TransCommit", "Delay", "Order")
"""By their number; RocketMQ: ``MessageType``."""

_END: Final = {"timestamp": 1, "regionId": 2, "group": 3, "topic": 4, "traceMsgId": 5}
_FIELDS: Final[dict[str, dict[str, int]]] = {
    "Pub": _END
    | {"tags": 6, "keys": 7, "storeHost": 8, "bodyLength": 9, "costMs": 10, "messageType": 11}
    | {"offsetMsgId": 12, "isSuccess": 13, "clientHost": 14},
    "SubBefore": {"timestamp": 1, "regionId": 2, "group": 3, "requestId": 4, "traceMsgId": 5}
    | {"retryTimes": 6, "keys": 7, "clientHost": 8},
    "SubAfter": {"requestId": 1, "traceMsgId": 2, "costMs": 3, "isSuccess": 4, "keys": 5}
    | {"contextCode": 6, "timestamp": 7, "group": 8},
    "EndTransaction": _END
    | {"tags": 6, "keys": 7, "storeHost": 8, "messageType": 9}
    | {"transactionId": 10, "transactionState": 11, "isFromCheck": 12},
    "Recall": _END | {"isSuccess": 6},
}
_LEAST: Final = {"Pub": 13, "SubBefore": 8, "SubAfter": 6, "EndTransaction": 13, "Recall": 7}
"""Fields that an entry has at least, its type included."""
_OLD_PUB: Final = 13
"""Fields of an entry `Pub` without offset message id, by old clients: field 12 is the success."""
_INTS: Final = ("bodyLength", "costMs", "retryTimes", "contextCode")
_FLAGS: Final = ("isSuccess", "isFromCheck")
_NONE: Final = pa.scalar(None, pa.string())


def trace_batches(store: StoreReader, window: SystemWindow) -> Iterator[pa.RecordBatch]:
    """Yield the entries of a store's traces, by queue and queue offset."""
    for batch in messages_of(store, _TRACES, window, columns=(*_RECORD, "body")):
        rows, entry, columns = parse_traces(batch["body"])
        if not len(entry):
            continue
        taken = batch.select(list(_RECORD)).take(pa.array(rows))
        columns |= {name: taken[name] for name in _RECORD} | {"entry": entry}
        kept = batch_of(SCHEMAS["trace"], columns, window.keeps(columns["topic"]))
        if kept.num_rows:
            yield kept


class _Entries(NamedTuple):
    """Fields of n entries, one after the other, and where those of each entry begin and end."""

    fields: pa.Array
    starts: Ints
    counts: Ints

    def at(self, index: Ints) -> pa.Array:
        """Return field ``index`` of each entry as text, (n,); null where it has no such field, or index is -1."""
        missing: Mask = (index < 0) | (index >= self.counts)
        return _texts(self.fields.take(pa.array(self.starts + index, mask=missing)))


def parse_traces(bodies: pa.Array) -> tuple[Ints, pa.Array, dict[str, pa.Array]]:
    """Split (m,) bodies into n entries: the row of each, its number in the body, and its columns by name."""
    entries = pc.split_pattern(bodies, _ENTRY_END)
    rows, texts = pc.list_parent_indices(entries), pc.list_flatten(entries)
    numbers = np.arange(len(texts)) - entries.offsets.to_numpy()[rows.to_numpy()] + entries.offsets[0].as_py()
    present = pc.greater(pc.binary_length(texts), 0)  # the last entry ends with a separator
    rows, texts = rows.filter(present), texts.filter(present)
    entry = pa.array(numbers[present.to_numpy(zero_copy_only=False)], pa.int32())
    split = pc.split_pattern(texts, _FIELD_END)
    counts = pc.list_value_length(split).to_numpy().astype(np.int64)
    found = _Entries(pc.list_flatten(split), np.cumsum(counts) - counts, counts)
    return rows.to_numpy().astype(np.int64), entry, _columns(found)


def _columns(found: _Entries) -> dict[str, pa.Array]:
    kind = found.at(np.zeros(found.counts.size, np.int64))
    which = pc.fill_null(pc.index_in(kind, value_set=pa.array(list(_FIELDS))), -1).to_numpy().astype(np.int64)
    is_short = found.counts < np.array([*_LEAST.values(), 0])[which]
    raw = {}
    for field in dict.fromkeys(name for fields in _FIELDS.values() for name in fields):
        index = np.array([*(fields.get(field, -1) for fields in _FIELDS.values()), -1])[which]
        if field in {"offsetMsgId", "isSuccess"}:
            is_old = (which == 0) & (found.counts == _OLD_PUB)
            index = np.where(is_old, index - 1 if field == "isSuccess" else -1, index)
        raw[field] = found.at(index)
    columns = {name: _valued(texts) for name, texts in raw.items()}
    times = whole_numbers(columns["timestamp"])
    columns["timestamp"] = instants(times)
    for name in _INTS:
        columns[name] = ids_of(whole_numbers(columns[name]))
    for name in _FLAGS:
        columns[name] = _flags(columns[name])
    columns["messageType"] = _message_types(columns["messageType"])
    columns["type"] = kind
    bad = {name: _bad(raw[name], columns[name]) for name in ("timestamp", *_INTS, *_FLAGS, "messageType")}
    columns["error"] = _errors(which, is_short, bad)
    return columns


def _errors(which: Ints, is_short: Mask, bad: dict[str, Mask]) -> pa.Array:
    """Return the problem of each entry, null for none."""
    problems = np.full(which.size, None, object)
    for name, mask in bad.items():
        problems[mask] = f"{name} is malformed"
    problems[is_short] = "fields are missing"
    problems[which < 0] = "the type of the entry is unknown"
    return pa.array(problems, pa.string())


def _bad(texts: pa.Array, values: pa.Array) -> Mask:
    """Return which texts have no value, though they are neither missing nor ``null``."""
    bad: Mask = pc.and_(pc.is_valid(_valued(texts)), pc.is_null(values)).to_numpy(zero_copy_only=False)
    return bad


def _valued(texts: pa.Array) -> pa.Array:
    """Replace empty texts, and what Java writes for null, by null."""
    return pc.if_else(pc.is_in(texts, value_set=pa.array(["", "null"])), _NONE, texts)


def _flags(texts: pa.Array) -> pa.Array:
    """Read booleans; null for other texts."""
    known = pc.is_in(texts, value_set=pa.array(["true", "false"]))
    return pc.if_else(known, pc.equal(texts, "true"), pa.scalar(None, pa.bool_()))


def _message_types(texts: pa.Array) -> pa.Array:
    numbers = [str(number) for number in range(len(_MESSAGE_TYPES))]
    return pa.array(_MESSAGE_TYPES).take(pc.index_in(texts, value_set=pa.array(numbers)))


def _texts(values: pa.Array) -> pa.Array:
    """Decode UTF-8 as Java does: a byte that is not UTF-8 becomes U+FFFD."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        decoded = (None if each is None else each.decode("utf-8", "replace") for each in values.to_pylist())
        return pa.array(decoded, pa.string())
