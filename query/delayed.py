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
``rolled``. Deletions and rolled timers are kept in memory, some 100 bytes each.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.store import Sql92Filter, StoreReader
from segmentlog.store.find import Finder
from segmentlog.store.follow import DelayProgress, delay_progress

from .metadata import SCHEMAS
from .system_topics import (
    Ints,
    Mask,
    SystemWindow,
    batch_of,
    ids_of,
    instants,
    is_true,
    last_places,
    messages_of,
    whole_numbers,
)

_LEVELS: Final = "SCHEDULE_TOPIC_XXXX"
_TIMERS: Final = "rmq_sys_wheel_timer"
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
_ROLLS: Final = "TIMER_ROLL_TIMES"


@dataclass(frozen=True, slots=True)
class _Asked:
    """Request and progress, which decide the states of all rows."""

    window: SystemWindow
    finder: Finder
    progress: DelayProgress
    now_ms: int


def delayed_batches(store: StoreReader, window: SystemWindow, *, now_ms: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the delayed messages of a store: levels, then timers; messages of one queue by queue offset.

    ``now_ms`` is the time at which pending messages are pending; this host's clock by default.
    """
    now = int(time.time() * 1000) if now_ms is None else now_ms
    asked = _Asked(window, Finder(store), delay_progress(store.location.fs, store.path), now)
    for batch in messages_of(store, _LEVELS, window, columns=(*_SHARED, "tagsCode"), properties=_REAL):
        yield from _level_rows(batch, asked)
    if _TIMERS in store.topics():
        fates = _TimerFates.read(store, window)
        for batch in messages_of(
            store, _TIMERS, window, columns=_SHARED, properties=(*_REAL, _OUT, _DELETED, _ROLLS, "TIMER_DELAY_LEVEL")
        ):
            yield from _timer_rows(batch, asked, fates)


def _level_rows(batch: pa.RecordBatch, asked: _Asked) -> Iterator[pa.RecordBatch]:
    levels = asked.progress.levels
    batch = batch.filter(pa.array(asked.window.keeps(batch["REAL_TOPIC"])))
    if not batch.num_rows:
        return
    level = batch["queueId"].to_numpy() + 1
    names, which = np.unique(level, return_inverse=True)
    known = np.array([each in levels for each in names.tolist()], np.bool_)[which]
    reached = np.array([levels.get(each, 0) for each in names.tolist()], np.int64)[which]
    due = batch["tagsCode"]
    due = pc.if_else(pc.greater(due, 0), due, pa.scalar(None, pa.int64()))
    passed, none = batch["queueOffset"].to_numpy() < reached, np.zeros(batch.num_rows, np.bool_)
    state = _states(batch, asked, due, (known, passed), none)
    yield _row_batch(batch, "level", state, due, pa.array(level, pa.int32()))


def _timer_rows(batch: pa.RecordBatch, asked: _Asked, fates: "_TimerFates") -> Iterator[pa.RecordBatch]:
    reached_ms = asked.progress.timer_ms
    keep = asked.window.keeps(batch["REAL_TOPIC"]) & is_true(pc.is_null(batch[_DELETED]))
    batch = batch.filter(pa.array(keep))
    if not batch.num_rows:
        return
    due = whole_numbers(batch[_OUT])
    passed = is_true(pc.less(due, 0 if reached_ms is None else reached_ms))
    known = np.full(batch.num_rows, reached_ms is not None)
    state = _states(batch, asked, due, (known, passed), fates.deleted(batch))
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

    def __init__(self, deletions: set[tuple[str, str]], rolls: dict[tuple[str, str], int]) -> None:
        self._deletions = deletions
        self._rolls = rolls

    @classmethod
    def read(cls, store: StoreReader, window: SystemWindow) -> "_TimerFates":
        only = Sql92Filter.compile(f"{_DELETED} IS NOT NULL OR {_ROLLS} IS NOT NULL")
        # A record that decides the fate of another is stored after it, and may be stored after the window.
        open_end = SystemWindow(start_ms=window.start_ms)
        deletions, rolls = set[tuple[str, str]](), dict[tuple[str, str], int]()
        for batch in messages_of(
            store, _TIMERS, open_end, columns=("physicalOffset", "uniqKey"), properties=(_OUT, _DELETED), only=only
        ):
            columns = (batch[name].to_pylist() for name in (_OUT, _DELETED, "uniqKey", "physicalOffset"))
            for out, target, key, place in zip(*columns, strict=True):
                if target is not None:
                    # Later releases write `topic+key`, earlier ones the key alone.
                    deletions.add((out, target))
                elif key is not None:
                    rolls[key, out] = max(place, rolls.get((key, out), -1))
        return cls(deletions, rolls)

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
