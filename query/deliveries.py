"""Check of delayed messages: how often the broker delivered each of them.

::

    SCHEDULE_TOPIC_XXXX, rmq_sys_wheel_timer        real topic, later records with the unique key
      a   due, passed                               a                          once
      b   due, passed                               b … b                      repeated
      c   due, passed by the broker's progress      –                          missing
      d   due, not passed                           –                          late
      e   due after now                             –                          pending

Several delayed records may have one unique key in one real topic: a send that the client repeated, and each retry of a
consumer group. In the order of the log, a delivery belongs to the first of the records before it that has none, and a
record with a further roll of a timer takes the place of the one before it::

    r1 d r2 d      each once          r1 d d r2      r1 repeated, r2 late          r1 r2 d      r1 once, r2 late
"""

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.store import OnCorrupt, OnLoss, ScanSpec, Snapshot
from segmentlog.store.find import ASKED, Finder
from segmentlog.store.follow import DelayProgress

from .metadata import SCHEMAS
from .system_frames import (
    LEVELS,
    ROLLS,
    TIMERS,
    Ints,
    Mask,
    SystemWindow,
    batch_of,
    delayed_rows,
    find_unique,
    is_true,
    joined,
    passed_levels,
    passed_timers,
    store_and_progress,
)

FINDINGS: Final = ("late", "missing", "repeated")
"""Deliveries that are not as they should be."""
_REAL: Final = "REAL_TOPIC"
_TOPICS: Final = {"level": LEVELS, "timer": TIMERS}
_DELAYED: Final = ScanSpec(
    columns=("physicalOffset",),
    property_columns=(_REAL, *ROLLS),
    on_corrupt=OnCorrupt.SKIP,
    on_loss=OnLoss.SKIP,
)


def delivery_batches(store: Snapshot, window: SystemWindow, *, now_ms: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `delayed_batches` with the number of deliveries of each, and what follows from it.

    Deliveries are found by unique key: without one their number is null, and ``delivery`` too, once the message is due.
    """
    store, progress = store_and_progress(store)
    now = int(time.time() * 1000) if now_ms is None else now_ms
    finder = Finder(store)
    for batch in delayed_rows(store, progress, window, now):
        yield _checked(batch, finder, progress, now)


def _checked(batch: pa.RecordBatch, finder: Finder, progress: DelayProgress, now_ms: int) -> pa.RecordBatch:
    state = batch["state"]
    is_counted = ~is_true(pc.equal(state, "rolled")) & is_true(
        pc.and_(pc.is_valid(batch["topic"]), pc.is_valid(batch["uniqKey"]))
    )
    found = _deliveries_of(batch.filter(pa.array(is_counted)), _TOPICS[batch["kind"][0].as_py()], finder)
    count, first, last = (_spread(values, is_counted) for values in (found.number, found.first, found.last))
    due_ms = pc.divide(batch["dueTimestamp"].cast(pa.int64()), 1000)
    if batch["kind"][0].as_py() == "level":
        places = batch["delayQueueId"].to_numpy(), batch["delayQueueOffset"].to_numpy()
        _, passed = passed_levels(progress, *places)
    else:
        _, passed = passed_timers(progress, due_ms)
    delivery = pc.case_when(
        pc.make_struct(
            *(
                pc.fill_null(each, False)  # noqa: FBT003 - a value
                for each in (
                    pc.equal(state, "rolled"),
                    pc.greater(count, 1),
                    pc.equal(count, 1),
                    pc.equal(state, "deleted"),
                    pc.greater(due_ms, now_ms),
                    pc.or_(pc.is_null(count), pc.is_null(due_ms)),
                    pa.array(passed),
                )
            )
        ),
        "rolled",
        "repeated",
        "once",
        "deleted",
        "pending",
        pa.scalar(None, pa.string()),
        "missing",
        "late",
    )
    return batch_of(
        SCHEMAS["deliveries"],
        {
            **dict(zip(batch.schema.names, batch.columns, strict=True)),
            "delivery": delivery,
            "deliveries": count,
            "deliveryPhysicalOffset": first,
            "lastDeliveryPhysicalOffset": last,
        },
    )


def _spread(values: Ints, rows: Mask) -> pa.Array:
    """Return an int64 per row; null for rows without one of ``values``, and for -1."""
    spread = np.full(rows.size, -1, np.int64)
    spread[rows] = values
    return pa.array(spread, mask=spread < 0)


class Deliveries(NamedTuple):
    """Deliveries of n delayed records: number, first and last physical offset, -1 for none; (n,) int64 each."""

    number: Ints
    first: Ints
    last: Ints


def _deliveries_of(batch: pa.RecordBatch, delayed_in: str, finder: Finder) -> Deliveries:
    """Find the deliveries of the rows of a batch, whose records are in one topic of RocketMQ."""
    rows, keys = batch["physicalOffset"].to_numpy(), batch["uniqKey"]
    delivered = find_unique(finder, batch["topic"], keys)
    if delivered is None:
        return Deliveries(*(np.zeros(0, np.int64) for _ in Deliveries._fields))
    records = find_unique(finder, pa.repeat(delayed_in, rows.size), keys)
    assert records is not None
    found = records.to_table(_DELAYED)
    asked = joined(delivered.asked["topic"], delivered.asked["key"])
    group = pc.index_in(joined(found[_REAL], found[ASKED].cast(pa.string())), value_set=asked)
    found = found.append_column("group", group.cast(pa.int64())).filter(pc.is_valid(group))
    found = found.sort_by([("group", "ascending"), ("physicalOffset", "ascending")])
    groups, places = found["group"].to_numpy(), found["physicalOffset"].to_numpy()
    # A roll takes the place of the record before it.
    stays = np.ones(groups.size, np.bool_)
    stays[:-1] = (np.diff(groups) != 0) | pc.is_null(pc.coalesce(*(found[name] for name in ROLLS))).to_numpy()[1:]
    groups, places = groups[stays], places[stays]
    matched = match(groups, places, delivered.asked_index, delivered.physical_offset)
    order = np.argsort(places)
    at = np.searchsorted(places, rows, sorter=order)
    at[at == places.size] = -1  # damaged, or deleted by retention meanwhile: read as a record without deliveries
    at = np.append(order, places.size)[at]
    is_row = np.append(places, -1)[at] == rows
    return Deliveries(
        *(np.where(is_row, np.append(each, none)[at], none) for each, none in zip(matched, (0, -1, -1), strict=True))
    )


def match(record_group: Ints, record_place: Ints, delivery_group: Ints, delivery_place: Ints) -> Deliveries:
    """Return the deliveries of n records: each belongs to the first record before it in its group that has none.

    A delivery after which none is left to be delivered belongs to the last record before it.
    """
    n = record_group.size
    group = np.append(record_group, delivery_group)
    order = np.lexsort((np.append(record_place, delivery_place), group))
    group, is_record = group[order], order < n
    begin = np.searchsorted(group, group)

    def within(totals: Ints, steps: Ints) -> Ints:
        """Return running totals from the beginning of each group on."""
        result: Ints = totals - (totals - steps)[begin]
        return result

    step = np.where(is_record, 1, -1)
    waiting = within(np.cumsum(step), step)
    # The lowest total so far; an offset per group lets it begin anew in each.
    offset = np.cumsum(begin == np.arange(group.size)) * (2 * group.size + 1)
    lowest = np.append(0, np.minimum.accumulate(waiting - offset)[:-1])
    lowest = np.where(begin == np.arange(group.size), 0, np.minimum(lowest + offset, 0))
    is_matched = ~is_record & (waiting >= lowest)
    number = np.cumsum(is_record)
    before: Ints = (number - is_record)[begin]
    owner = np.where(is_matched, before + within(np.cumsum(is_matched), is_matched.astype(np.int64)), number) - 1
    has_owner = ~is_record & (owner >= before)
    found = Deliveries(np.zeros(n, np.int64), np.full(n, np.iinfo(np.int64).max), np.full(n, -1, np.int64))
    owners, places = order[is_record][owner[has_owner]], np.append(record_place, delivery_place)[order][has_owner]
    np.add.at(found.number, owners, 1)
    np.minimum.at(found.first, owners, places)
    np.maximum.at(found.last, owners, places)
    return found._replace(first=np.where(found.number > 0, found.first, -1))
