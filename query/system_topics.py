"""Messages that RocketMQ keeps in topics of its own, in batches, and the later messages that decide their fate.

::

    SystemWindow(topics, start, stop) ──► messages_of(store, "RMQ_SYS_TRACE_TOPIC", …) ──► batches in bounded memory
    last_places(finder, topics, unique keys) ──► physical offset of the last record of each, -1 for none

Columns of properties are texts; `whole_numbers` reads them without a statement per row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.store import (
    OnLoss,
    Predicate,
    PropertyFilter,
    QueueRange,
    ScanSpec,
    StoreReader,
)
from segmentlog.store.find import Finder, Found, KeyField

from .position import AtTime, Earliest, Fallback, Latest, Resolver, Rules, Words
from .selection import Selection
from .times import Instant

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_TASK_BYTES: Final = 32 << 20
_DIGITS: Final = "^-?[0-9]{1,18}$"
_RULES: Final = Rules(unlisted=Fallback.EARLIEST, unmatched_time=Fallback.LATEST, on_loss=OnLoss.SKIP, is_lenient=True)


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
    store: StoreReader,
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
    asked = pc.index_in(_pairs(topics, keys), value_set=_pairs(found.asked["topic"], found.asked["key"]))
    places: Ints = last[pc.fill_null(asked, found.asked.num_rows).to_numpy(zero_copy_only=False)]
    return places


def _pairs(topics: Any, keys: Any) -> pa.Array:
    """Join topics and keys; no topic has the separator."""
    joined = pc.binary_join_element_wise(topics.cast(pa.string()), keys, "\x01")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def batch_of(schema: pa.Schema, columns: dict[str, pa.Array], keep: Mask | None = None) -> pa.RecordBatch:
    """Make a batch of columns by name, each cast to its type in the schema."""
    arrays = [columns[field.name].cast(field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return batch if keep is None or keep.all() else batch.filter(pa.array(keep))
