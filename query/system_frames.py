"""Messages that RocketMQ keeps in topics of its own, as rows: delayed messages, half messages, entries of traces."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.store import (
    OnCorrupt,
    OnLoss,
    Predicate,
    PropertyFilter,
    QueueRange,
    ScanSpec,
    Snapshot,
    Sql92Filter,
)
from segmentlog.store.find import Finder, Found, KeyField
from segmentlog.store.follow import DelayProgress, delay_progress

from .metadata import SCHEMAS
from .position import AtTime, Earliest, Fallback, Latest, Resolver, Rules, Words
from .selection import Selection
from .times import Instant

# Messages of system topics

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_TASK_BYTES: Final = 32 << 20
_DIGITS: Final = "^-?[0-9]{1,18}$"
_RULES: Final = Rules(unlisted=Fallback.EARLIEST, unmatched_time=Fallback.LATEST, on_loss=OnLoss.SKIP, is_lenient=True)
LEVELS: Final = "SCHEDULE_TOPIC_XXXX"
TIMERS: Final = "rmq_sys_wheel_timer"
_SHARED: Final = (
    "brokerName",
    "queueId",
    "queueOffset",
    "physicalOffset",
    "tags",
    "keys",
    "uniqKey",
    "msgId",
    "storeTimestamp",
)
_REAL: Final = ("REAL_TOPIC", "REAL_QID")
_OUT: Final = "TIMER_OUT_MS"
_DELETED: Final = "TIMER_DEL_UNIQKEY"
ROLLS: Final = ("TIMER_ROLL_TIMES", "TIMER_ROLL_LABEL")
"""Properties of a timer that was written again, of which one is set: by the wheel, or with ``timerRocksDBEnable``."""
_DISCARDED: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
_HALF_COLUMNS: Final = ("brokerName", "physicalOffset", "tags", "keys", "uniqKey", "msgId", "storeTimestamp")
_PROPERTIES: Final = ("REAL_TOPIC", "REAL_QID", "PGROUP", "TRANSACTION_CHECK_TIMES")
_COMMITTED: Final = ScanSpec(
    columns=("physicalOffset", "queueOffset", "sysFlag", "preparedTransactionOffset"),
    on_corrupt=OnCorrupt.SKIP,
    on_loss=OnLoss.SKIP,
)
_TYPE_MASK: Final = 0xC
_TYPE_COMMIT: Final = 0x8
_ANSWERED: Final = "TRANS_OFFSET"
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


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemWindow:
    """Limits of a frame of system topics.

    Attributes
    ----------
    topics
        Real topics of the rows; None for all, and for rows whose real topic is unknown.
    start_ms, stop_ms
        Store times of the records in the system topic, half-open.
    """

    topics: Selection | None = None
    start_ms: int | None = None
    stop_ms: int | None = None

    def keeps(self, topics: pa.Array) -> Mask:
        """Return which of n rows with these real topics are read, (n,) bool."""
        if self.topics is None:
            return np.ones(len(topics), np.bool_)
        wanted = [each for each in pc.unique(topics).to_pylist() if each is not None and self.topics.wants(each)]
        kept: Mask = pc.is_in(topics, value_set=pa.array(wanted, pa.string())).to_numpy(zero_copy_only=False)
        return kept


def messages_of(
    store: Snapshot,
    topic: str,
    window: SystemWindow,
    *,
    columns: tuple[str, ...],
    properties: tuple[str, ...] = (),
    only: PropertyFilter | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the messages of a system topic in a window of store times; nothing if the store does not have the topic.

    Messages that retention deletes meanwhile are skipped: a frame is of what the store holds.
    """
    if topic not in store.topics():
        return
    start = Earliest() if window.start_ms is None else AtTime(Instant(window.start_ms))
    stop = Latest() if window.stop_ms is None else AtTime(Instant(window.stop_ms))
    ranges: list[QueueRange] = Resolver(store, _RULES, Words()).plan(start, stop, store.queues(topic))
    spec = ScanSpec(
        columns=columns,
        property_columns=properties,
        predicate=Predicate(filter=only, store_time_start=window.start_ms, store_time_stop=window.stop_ms),
        on_loss=OnLoss.SKIP,
    )
    for task in store.plan(ranges, max_bytes=_TASK_BYTES, spec=spec):
        yield from store.scan(task, spec)


def is_true(values: pa.Array) -> Mask:
    """Return where (n,) booleans are true; null is not."""
    found: Mask = pc.coalesce(values, pa.scalar(value=False)).to_numpy(zero_copy_only=False)
    return found


def whole_numbers(texts: pa.Array) -> pa.Array:
    """Read (n,) texts as int64; null for what is not a decimal number."""
    good = pc.match_substring_regex(texts, _DIGITS)
    return pc.if_else(good, texts, pa.scalar(None, pa.string())).cast(pa.int64())


def ids_of(numbers: pa.Array) -> pa.Array:
    """Make (n,) int32 of int64; null where a number has no room in it."""
    fits = pc.and_(pc.greater_equal(numbers, -(1 << 31)), pc.less(numbers, 1 << 31))
    return pc.if_else(fits, numbers, pa.scalar(None, pa.int64())).cast(pa.int32())


def instants(millis: pa.Array) -> pa.Array:
    """Make (n,) timestamps in µs of milliseconds; null where a time has no room in it."""
    fits = pc.less(pc.abs(millis), (1 << 63) // 1000)
    return pc.multiply(pc.if_else(fits, millis, pa.scalar(None, pa.int64())), 1000).cast(pa.timestamp("us", "UTC"))


def find_unique(finder: Finder, topics: pa.Array, keys: pa.Array) -> Found | None:
    """Find the messages with (n,) unique keys in (n,) topics; pairs with a null find nothing. None if all have one."""
    both = pc.and_(pc.is_valid(topics), pc.is_valid(keys))
    topics, keys = topics.filter(both), keys.filter(both)
    return finder.by_pairs(topics, keys, KeyField.UNIQUE) if len(keys) else None


def last_places(finder: Finder, topics: pa.Array, keys: pa.Array) -> Ints:
    """Return the physical offset of the last record with each of (n,) unique keys in (n,) topics; -1 for none."""
    found = find_unique(finder, topics, keys)
    if found is None:
        return np.full(len(keys), -1, np.int64)
    last = np.full(found.asked.num_rows + 1, -1, np.int64)  # one more, for the pairs with a null
    np.maximum.at(last, found.asked_index, found.physical_offset)
    asked = pc.index_in(joined(topics, keys), value_set=joined(found.asked["topic"], found.asked["key"]))
    places: Ints = last[pc.fill_null(asked, found.asked.num_rows).to_numpy(zero_copy_only=False)]
    return places


def joined(topics: Any, keys: Any) -> pa.Array:
    """Join topics and keys; no topic has the separator."""
    joined = pc.binary_join_element_wise(topics.cast(pa.string()), keys, "\x01")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def batch_of(schema: pa.Schema, columns: dict[str, pa.Array], keep: Mask | None = None) -> pa.RecordBatch:
    """Make a batch of columns by name, each cast to its type in the schema."""
    arrays = [columns[field.name].cast(field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return batch if keep is None or keep.all() else batch.filter(pa.array(keep))


# Delayed messages


@dataclass(frozen=True, slots=True)
class _Asked:
    """Request and progress, which decide the states of all rows."""

    window: SystemWindow
    finder: Finder
    progress: DelayProgress
    now_ms: int


def store_and_progress(store: Snapshot) -> tuple[Snapshot, DelayProgress]:
    """Return the progress of a broker's delivery, and the store as it was after that.

    In this order: every message that the progress has passed is in the store, if it was delivered.
    """
    progress = delay_progress(store.location.fs, store.path)
    return store.newer(), progress


def passed_levels(progress: DelayProgress, queue_id: Ints, queue_offset: Ints) -> tuple[Mask, Mask]:
    """Return of (n,) messages of delay levels where the progress is known, and which of them it has passed."""
    queues, which = np.unique(queue_id, return_inverse=True)
    reached = [progress.levels.get(queue + 1) for queue in queues.tolist()]
    known = np.array([each is not None for each in reached], np.bool_)[which]
    return known, queue_offset < np.array([each or 0 for each in reached], np.int64)[which]


def passed_timers(progress: DelayProgress, due_ms: pa.Array) -> tuple[Mask, Mask]:
    """Return of (n,) timers where the progress is known, and which of them it has passed."""
    reached = progress.timer_ms
    return np.full(len(due_ms), reached is not None), is_true(pc.less(due_ms, reached or 0))


def delayed_batches(store: Snapshot, window: SystemWindow, *, now_ms: int | None = None) -> Iterator[pa.RecordBatch]:
    """Delayed messages as rows: both delay levels and timers, pending and delivered.

    ::

        SCHEDULE_TOPIC_XXXX/2   DELAY 3, REAL_TOPIC, REAL_QID; the tags code is the due time
        rmq_sys_wheel_timer/0   TIMER_OUT_MS, REAL_TOPIC, REAL_QID; with TIMER_DEL_UNIQKEY it deletes another one
                                   │
        due after now ─────────────┼──► pending
        before the saved progress ─┼──► delivered       delayOffset.json, timercheck: seconds older than the store
        a later record with its ───┘
        unique key, REAL_TOPIC     ───► delivered       else pending, null without progress

    A broker moves a timer beyond its wheel on by writing it again, with a higher TIMER_ROLL_TIMES: the record before is
    ``rolled``. With ``timerRocksDBEnable`` it writes timers again that are hours away, with TIMER_ROLL_LABEL.

    Deletions and rolled timers are kept in memory, some 100 bytes each.

    Yield the delayed messages of a store: levels, then timers; messages of one queue by queue offset.

    ``now_ms`` is the time at which pending messages are pending; this host's clock by default.
    """
    store, progress = store_and_progress(store)
    yield from delayed_rows(store, progress, window, int(time.time() * 1000) if now_ms is None else now_ms)


def delayed_rows(
    store: Snapshot, progress: DelayProgress, window: SystemWindow, now_ms: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `delayed_batches`; each batch has messages of one kind."""
    asked = _Asked(window, Finder(store), progress, now_ms)
    for batch in messages_of(store, LEVELS, window, columns=(*_SHARED, "tagsCode"), properties=_REAL):
        yield from _level_rows(batch, asked)
    if TIMERS in store.topics():
        fates = _TimerFates(store, window)
        for batch in messages_of(
            store, TIMERS, window, columns=_SHARED, properties=(*_REAL, _OUT, _DELETED, "TIMER_DELAY_LEVEL")
        ):
            yield from _timer_rows(batch, asked, fates)


def _level_rows(batch: pa.RecordBatch, asked: _Asked) -> Iterator[pa.RecordBatch]:
    batch = batch.filter(pa.array(asked.window.keeps(batch["REAL_TOPIC"])))
    if not batch.num_rows:
        return
    queue_id = batch["queueId"].to_numpy()
    due = batch["tagsCode"]
    due = pc.if_else(pc.greater(due, 0), due, pa.scalar(None, pa.int64()))
    progress = passed_levels(asked.progress, queue_id, batch["queueOffset"].to_numpy())
    state = _states(batch, asked, due, progress, np.zeros(batch.num_rows, np.bool_))
    yield _row_batch(batch, "level", state, due, pa.array(queue_id + 1, pa.int32()))


def _timer_rows(batch: pa.RecordBatch, asked: _Asked, fates: "_TimerFates") -> Iterator[pa.RecordBatch]:
    keep = asked.window.keeps(batch["REAL_TOPIC"]) & is_true(pc.is_null(batch[_DELETED]))
    batch = batch.filter(pa.array(keep))
    if not batch.num_rows:
        return
    due = whole_numbers(batch[_OUT])
    state = _states(batch, asked, due, passed_timers(asked.progress, due), fates.deleted(batch))
    state = pc.if_else(pa.array(fates.rolled(batch)), "rolled", state)
    yield _row_batch(batch, "timer", state, due, ids_of(whole_numbers(batch["TIMER_DELAY_LEVEL"])))


def _states(
    batch: pa.RecordBatch, asked: _Asked, due: pa.Array, progress: tuple[Mask, Mask], deleted: Mask
) -> pa.Array:
    """State of each row; ``progress`` is where it is known, and where it has passed the row."""
    known, passed = progress
    later = is_true(pc.greater(due, asked.now_ms))
    # A deletion that came too late deleted nothing, and the saved progress may be seconds old: look for the delivery.
    doubtful = (~later & ~passed) | deleted
    delivered = passed & ~deleted
    delivered[doubtful] = _arrived(batch.filter(pa.array(doubtful)), asked.finder)
    unkeyed = is_true(pc.is_null(batch["uniqKey"]))
    unknown = ~later & ~known & ~delivered & unkeyed | is_true(pc.is_null(due)) & ~delivered
    names = np.where(delivered, "delivered", np.where(deleted, "deleted", "pending"))
    return pa.array(names, pa.string(), mask=unknown & ~deleted)


def _arrived(batch: pa.RecordBatch, finder: Finder) -> Mask:
    """Return whether the real topic holds a later record with the unique key of each row."""
    places: Ints = last_places(finder, batch["REAL_TOPIC"], batch["uniqKey"])
    arrived: Mask = places > batch["physicalOffset"].to_numpy()
    return arrived


class _TimerFates:
    """Deletions and rolls in the timer topic: what later records say of earlier ones."""

    def __init__(self, store: Snapshot, window: SystemWindow) -> None:
        self._deletions: set[tuple[str, str]] = set()
        self._rolls: dict[tuple[str, str], int] = {}
        only = Sql92Filter.compile(" OR ".join(f"{name} IS NOT NULL" for name in (_DELETED, *ROLLS)))
        # A record that decides the fate of another is stored after it, and may be stored after the window.
        open_end = SystemWindow(start_ms=window.start_ms)
        for batch in messages_of(
            store, TIMERS, open_end, columns=("physicalOffset", "uniqKey"), properties=(_OUT, _DELETED), only=only
        ):
            columns = (batch[name].to_pylist() for name in (_OUT, _DELETED, "uniqKey", "physicalOffset"))
            for out, target, key, place in zip(*columns, strict=True):
                if target is not None:
                    # Later releases write `topic+key`, earlier ones the key alone.
                    self._deletions.add((out, target))
                elif key is not None:
                    self._rolls[key, out] = max(place, self._rolls.get((key, out), -1))

    def deleted(self, batch: pa.RecordBatch) -> Mask:
        """Return which timers a deletion names: same unique key, same second of delivery, (n,) bool."""
        if not self._deletions:
            return np.zeros(batch.num_rows, np.bool_)
        columns = (batch[name].to_pylist() for name in (_OUT, "uniqKey", "REAL_TOPIC"))
        return np.fromiter(
            (
                (out, key) in self._deletions or (out, f"{topic}+{key}") in self._deletions
                for out, key, topic in zip(*columns, strict=True)
            ),
            np.bool_,
            batch.num_rows,
        )

    def rolled(self, batch: pa.RecordBatch) -> Mask:
        """Return which timers the broker has written again since, (n,) bool."""
        if not self._rolls:
            return np.zeros(batch.num_rows, np.bool_)
        columns = (batch[name].to_pylist() for name in ("uniqKey", _OUT, "physicalOffset"))
        return np.fromiter(
            (self._rolls.get((key, out), -1) > place for key, out, place in zip(*columns, strict=True)),
            np.bool_,
            batch.num_rows,
        )


def _row_batch(batch: pa.RecordBatch, kind: str, state: pa.Array, due: pa.Array, level: pa.Array) -> pa.RecordBatch:
    return batch_of(
        SCHEMAS["delayed"],
        {
            **{name: batch[name] for name in _SHARED},
            "kind": pa.repeat(kind, batch.num_rows),
            "state": state,
            "dueTimestamp": instants(due),
            "level": level,
            "topic": batch["REAL_TOPIC"],
            "queueId": ids_of(whole_numbers(batch["REAL_QID"])),
            "delayQueueId": batch["queueId"],
            "delayQueueOffset": batch["queueOffset"],
        },
    )


# Transactions


def transaction_batches(store: Snapshot, window: SystemWindow) -> Iterator[pa.RecordBatch]:
    """Transactional messages as rows: half messages, with their outcome.

    ::

        RMQ_SYS_TRANS_HALF_TOPIC/0      half message: REAL_TOPIC, REAL_QID, PGROUP, UNIQ_KEY
        RMQ_SYS_TRANS_OP_HALF_TOPIC/0   TAGS d, body "12" or "12,13,": half messages that were answered, by queue offset
        RMQ_SYS_ROCKSDB_TRANS_…         the same two with transRocksDBEnable: TRANS_OFFSET is the half message's place
        REAL_TOPIC                      committed message: its prepared transaction offset is the half message's place

        committed message ──► commit     answered without one ──► rollback     later half message of its key ──► checked
        in TRANS_CHECK_MAX_TIME_TOPIC ──► discarded                   none of these ──► pending

    The broker writes a half message again before it checks it, so a transaction may have several rows. A committed
    message is found by its unique key: an answered half message without one has outcome null. Answers take 16 bytes of
    memory each.

    Yield the half messages of a store, by topic and queue offset.
    """
    finder = Finder(store)
    columns = (*_HALF_COLUMNS, "queueId", "queueOffset")
    for topics in (_IN_QUEUES, _IN_ROCKSDB):
        answers = _Answers(store, window, topics)
        for batch in messages_of(store, topics.halves, window, columns=columns, properties=_PROPERTIES):
            kept = batch.filter(pa.array(window.keeps(batch["REAL_TOPIC"])))
            if kept.num_rows:
                yield _rows(kept, answers, finder)


class _TransactionTopics(NamedTuple):
    """Topics of half messages and of answers to them."""

    halves: str
    answers: str
    named: str  # column of half messages that an answer names them by
    name: str  # column of answers with this


_IN_QUEUES: Final = _TransactionTopics("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "queueOffset", "body")
_IN_ROCKSDB: Final = _TransactionTopics(
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", "physicalOffset", _ANSWERED
)


def _rows(batch: pa.RecordBatch, answers: "_Answers", finder: Finder) -> pa.RecordBatch:
    keys, place = batch["uniqKey"], batch["physicalOffset"]
    answered = answers.of(batch)
    commit, commit_offset = _commits(finder, batch["REAL_TOPIC"], keys, place)

    def later(topic: str) -> pa.Array:
        return pa.array(last_places(finder, pa.repeat(topic, len(keys)), keys) > place.to_numpy())

    is_answered = pc.is_valid(answered)
    outcome = pc.case_when(
        pc.make_struct(
            pc.is_valid(commit),
            pc.and_(is_answered, pc.is_null(keys)),
            is_answered,
            later(answers.topics.halves),
            later(_DISCARDED),
        ),
        "commit",
        pa.scalar(None, pa.string()),
        "rollback",
        "checked",
        "discarded",
        "pending",
    )
    checks = batch["TRANSACTION_CHECK_TIMES"]
    return batch_of(
        SCHEMAS["transactions"],
        {
            **{name: batch[name] for name in _HALF_COLUMNS},
            "outcome": outcome,
            "topic": batch["REAL_TOPIC"],
            "queueId": ids_of(whole_numbers(batch["REAL_QID"])),
            "producerGroup": batch["PGROUP"],
            "checks": ids_of(whole_numbers(pc.fill_null(checks, "0"))),
            "halfQueueOffset": batch["queueOffset"],
            "answerPhysicalOffset": answered,
            "commitPhysicalOffset": commit,
            "commitQueueOffset": commit_offset,
        },
    )


def _commits(finder: Finder, topics: pa.Array, keys: pa.Array, place: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return physical and queue offset of the message that committed each half message; null for none."""
    nowhere = pa.nulls(len(keys), pa.int64())
    found = find_unique(finder, topics, keys)
    if found is None or not len(found):
        return nowhere, nowhere
    table = found.to_table(_COMMITTED)
    # By the type, too: ordinary messages have offset 0, which may be the place of a half message.
    table = table.filter(pc.equal(pc.bit_wise_and(table["sysFlag"], _TYPE_MASK), _TYPE_COMMIT)).combine_chunks()
    row = pc.index_in(place, value_set=table["preparedTransactionOffset"])
    return tuple(table[name].combine_chunks().take(row) for name in ("physicalOffset", "queueOffset"))


class _Answers:
    """Half messages that were answered: queue id of each and what names it, with the place of the answer."""

    def __init__(self, store: Snapshot, window: SystemWindow, topics: _TransactionTopics) -> None:
        self.topics = topics
        self._by_queue: dict[int, tuple[Ints, Ints]] = {}
        found: dict[int, list[tuple[Ints, Ints]]] = {}
        after = SystemWindow(start_ms=window.start_ms)  # an answer is stored after its half message
        columns = ("queueId", "physicalOffset", "body", "tags")
        for batch in messages_of(store, topics.answers, after, columns=columns, properties=(_ANSWERED,)):
            done = batch.filter(pc.equal(batch["tags"], "d"))
            for queue_id in pc.unique(done["queueId"]).to_pylist():
                of_queue = done.filter(pc.equal(done["queueId"], queue_id))
                found.setdefault(queue_id, []).append(_halves(of_queue[topics.name], of_queue["physicalOffset"]))
        for queue_id, pieces in found.items():
            offsets, places = (np.concatenate(each) for each in zip(*pieces, strict=True))
            offsets, first = np.unique(offsets, return_index=True)
            if offsets.size:
                self._by_queue[queue_id] = offsets, places[first]

    def of(self, halves: pa.RecordBatch) -> pa.Array:
        """Return the physical offset of the answer to each of (n,) half messages; null for none."""
        queue_ids, offsets = (halves[name].to_numpy() for name in ("queueId", self.topics.named))
        places = np.full(offsets.size, -1, np.int64)
        for queue_id, (answered, answers) in self._by_queue.items():
            rows = np.flatnonzero(queue_ids == queue_id)
            at = np.searchsorted(answered, offsets[rows])
            at[at == answered.size] = 0
            hit = answered[at] == offsets[rows]
            places[rows[hit]] = answers[at[hit]]
        return pa.array(places, mask=places < 0)


def _halves(named: pa.Array, places: pa.Array) -> tuple[Ints, Ints]:
    """Offsets of half messages that answers name, and the place of each answer."""
    parts = pc.split_pattern(named.cast(pa.binary()), b",")
    rows = pc.list_parent_indices(parts)
    texts = pc.list_flatten(parts)
    digits = pc.match_substring_regex(texts, "^[0-9]{1,18}$")
    offsets = texts.filter(digits).cast(pa.string()).cast(pa.int64())
    return offsets.to_numpy(), places.take(rows.filter(digits)).to_numpy()


# Traces


def trace_batches(store: Snapshot, window: SystemWindow) -> Iterator[pa.RecordBatch]:
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

    Yield the entries of a store's traces, by queue and queue offset.
    """
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
