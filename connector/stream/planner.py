"""Micro-batches: from where to where, and in which tasks. Lives in Spark's planning process for the whole query.

::

    start (checkpoint) ──┐
    WatchedStore ────────┴─► steps: begin and end of each queue that has something new ── admit ──► end (checkpoint)
                                                                                                      │
                                                                        start, end ──► ranges ──► tasks

Where a batch begins and ends is in its two offsets alone (`offsets`), so it can be planned again after a restart.
"""

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from segmentlog.query.position import Resolver, check_tables
from segmentlog.query.selection import Topics, check_topics
from segmentlog.query.suggestions import listing
from segmentlog.store import QueueKey, QueueRange, ScanSpec

from ..errors import OtherStoreError
from ..options.read_options import ReadOptions, TriggerLimits
from ..read import ANY_TIME, StorePartition, check_groups, open_stores, plan_shares, select_queues
from .offsets import StoreOffset, StreamOffset, TopicOffset
from .watched_store import Step, WatchedStore

# Admission

_SIZES_FIRST: Final = 1 << 10
_SIZES_MAX: Final = 1 << 20
_UNLIMITED = TriggerLimits()
_NOTHING = StoreOffset()


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waiting messages of one queue: at least one."""

    count: int
    sizes: Callable[[int, int], npt.NDArray[np.int64]]
    """Stored bytes of messages ``[start, stop)``, counted from the first waiting one: (stop - start,) int64."""


def admit(waiting: Sequence[Waiting], *, max_records: int | None, max_bytes: int | None) -> list[int]:
    """Admission control: exact limits and fair shares of the next micro-batch. Pure: numbers in, numbers out.

    ::

        waiting    A ████████████████   B ██   C █████          messages of each queue, their sizes asked for as needed
        turn       B first                                      another queue each time
        1. each    A █  B █  C █                                as long as there is room, in turn
        2. shares  A ███████  B █  C ██                         of what room is left, by what waits
        3. rest    B, C, A take what still fits

    Neither limit is ever exceeded but by a single message that is larger than ``max_bytes``: it goes alone, so that a
    query goes on. The queue whose turn it is always gets its first message, so none waits for ever, however many there
    are.

    Return how many messages of each queue go into the next batch: at least 1 of the queue whose turn it is.
    """
    # It is the turn of the first queue. A limit is at least 1, or None; the first that is reached ends the batch.
    if max_bytes is None:
        counts = [each.count for each in waiting]
        return counts if max_records is None else _share(counts, max_records)
    lines = [_Line(each) for each in waiting]
    room = _Room(sum(each.count for each in waiting) if max_records is None else max_records, max_bytes)
    for line in lines:
        room.take_first(line)
    if room.records and room.bytes:
        shares = _byte_shares(lines, room.bytes)
        records = _share([line.left for line in lines], room.records)
        for line, count, size in zip(lines, records, shares, strict=True):
            room.take(line, count, size)
    for line in lines:
        room.take(line, room.records, room.bytes)
    return [line.taken for line in lines]


class _Line:
    """Share of one queue so far, and the sizes of the messages that come next, read in blocks."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self.taken = 0
        self._start = 0
        self._ends: npt.NDArray[np.int64] = np.zeros(0, np.int64)  # bytes of all messages from `_start` up to each

    @property
    def left(self) -> int:
        return self._waiting.count - self.taken

    def mean(self) -> float:
        """Bytes of a message, as far as sizes are known."""
        self._ensure(0)
        return float(self._ends[-1]) / self._ends.size

    def fit(self, count: int, size: int) -> tuple[int, int]:
        """Return how many of the next ``count`` messages fit into ``size`` bytes together, and their bytes."""
        fits, used = 0, 0
        while fits < min(count, self.left):
            at = self._ensure(fits)
            before = int(self._ends[at - 1]) if at else 0
            stop = min(self._ends.size, at + min(count, self.left) - fits)
            more = int(np.searchsorted(self._ends[:stop], before + size - used, side="right")) - at
            if more <= 0:
                break
            used += int(self._ends[at + more - 1]) - before
            fits += more
        return fits, used

    def _ensure(self, ahead: int) -> int:
        """Know the size of the message so far ahead; where it is among those known."""
        at = self.taken + ahead - self._start
        if at >= self._ends.size:
            self._start += at
            length = min(max(_SIZES_FIRST, 4 * self._ends.size), _SIZES_MAX, self._waiting.count - self._start)
            sizes = self._waiting.sizes(self._start, self._start + length)
            # A damaged entry states no size: it counts as a byte, so that a run of them ends somewhere.
            self._ends = np.cumsum(np.maximum(sizes, 1))
            at = 0
        return at


class _Room:
    def __init__(self, records: int, size: int) -> None:
        self.records = records
        self.bytes = size
        self._is_empty = True

    def take_first(self, line: _Line) -> None:
        """Take one message of a queue, if it fits; the very first in any case."""
        if not self.records or not line.left:
            return
        fits, size = line.fit(1, self.bytes)
        if self._is_empty and not fits:
            _, size = line.fit(1, 1 << 62)
            fits = 1
        if fits:
            line.taken += 1
            self.records -= 1
            self.bytes = max(0, self.bytes - size)
            self._is_empty = False

    def take(self, line: _Line, count: int, size: int) -> None:
        """Take as many messages of a queue as its share allows, and there is room for."""
        fits, used = line.fit(min(count, self.records), min(size, self.bytes))
        line.taken += fits
        self.records -= fits
        self.bytes -= used


def _byte_shares(lines: Sequence[_Line], size: int) -> list[int]:
    """Divide bytes by what waits: by number and mean size, as reading all sizes would grow with what waits."""
    weights = [line.left * line.mean() if line.left else 0.0 for line in lines]
    total = sum(weights)
    return [int(size * (weight / total)) if total else 0 for weight in weights]


def _share(counts: Sequence[int], limit: int) -> list[int]:
    """Divide a number of messages: one each in turn, the rest by what waits, what is over in turn."""
    total = sum(counts)
    if total <= limit:
        return list(counts)
    given = []
    for count in counts:
        given.append(min(1, count, limit))
        limit -= given[-1]
    rest = total - sum(given)
    shares = [(count - got) * limit // rest for count, got in zip(counts, given, strict=True)]
    given = [got + share for got, share in zip(given, shares, strict=True)]
    over = limit - sum(shares)
    for at, count in enumerate(counts):
        more = min(over, 1, count - given[at])
        given[at] += more
        over -= more
    return given


# The planner

logger = logging.getLogger(__name__)


class StreamPlanner:
    """Plans the micro-batches of one query; ``clock`` returns seconds that never fall."""

    def __init__(self, options: ReadOptions, spec: ScanSpec, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._spec = spec
        self._clock = clock
        self._stores = {snapshot.broker_name: WatchedStore(snapshot, options) for snapshot in open_stores(options)}
        self._has_looked = False
        self._is_subscribed = False
        self._target: dict[str, dict[QueueKey, int]] | None = None
        self._turn: tuple[str, QueueKey] | None = None
        self._last_batch: float | None = None
        self._exhausted: StreamOffset | None = None
        """Offset of the query when there was nothing to read, as of the last look."""
        self._newest: StreamOffset | None = None
        self._initial: StreamOffset | None = None
        """Offset of a query without a batch so far: Spark asks for it again, also for the tasks of the first batch."""

    def initial(self) -> StreamOffset:
        """Find where a new query begins; errors as `read.plan_partitions`."""
        options = self._options
        self._look()
        snapshots = [store.snapshot for store in self._stores.values()]
        selected = select_queues(snapshots, options)
        read = {(snapshot.broker_name, bounds.key) for snapshot, queues in selected for bounds in queues}
        check_tables({options.words.start: options.start}, read)
        check_groups(snapshots, options)
        stores = {}
        for snapshot, queues in selected:
            resolver = Resolver(snapshot, options.rules, options.words)
            topics: dict[str, dict[int, int]] = {}
            for bounds in queues:
                start = resolver.start(options.start, bounds)
                topics.setdefault(bounds.key.topic, {})[bounds.key.queue_id] = start
            store = self._stores[snapshot.broker_name]
            stores[store.name] = StoreOffset(
                id=store.id, topics={topic: self._begin(store, topic, starts) for topic, starts in topics.items()}
            )
        self._initial = StreamOffset(stores)
        return self._initial

    def fix_target(self) -> None:
        """Let the query end with what is there now: for AvailableNow."""
        self._look()
        self._target = {
            name: {QueueKey(topic, each): end for topic, ends in store.watch.ends.items() for each, end in ends.items()}
            for name, store in self._stores.items()
        }

    def latest(self, start: StreamOffset, limits: TriggerLimits | None) -> StreamOffset:
        """Return the end of the next batch; ``start`` itself when there is nothing to read yet."""
        # OtherStoreError or DataLossError if the stores are not as `start` says they were.
        self._look()
        if start is self._exhausted:
            return start
        self._exhausted = None
        before = self._aligned(start)
        self._check_subscribed(before)
        steps = [
            step
            for name, store in self._stores.items()
            for step in store.steps(before[name], None if self._target is None else self._target[name])
        ]
        waiting = [step for step in steps if step.begin < step.end]
        jumps = any(step.jumps for step in steps)
        limits = limits or _UNLIMITED
        if not jumps and not waiting:
            self._exhausted = start
            return start
        if not jumps and self._waits(sum(step.end - step.begin for step in waiting), limits):
            return start
        ends = self._admit(waiting, limits)
        self._last_batch = self._clock()
        if start != self._initial:
            self._initial = None
        return self._advanced(before, steps, ends)

    def newest(self) -> StreamOffset:
        """Return the ends of all queues as they were last seen: the same object until something changes."""
        if self._newest is None:
            self._newest = StreamOffset(
                {
                    name: StoreOffset(
                        id=store.id,
                        topics={topic: TopicOffset(queues=dict(ends)) for topic, ends in store.watch.ends.items()},
                    )
                    for name, store in self._stores.items()
                }
            )
        return self._newest

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[StorePartition]:
        """Cut a batch into tasks; errors as of `latest`."""
        if not self._has_looked:
            self._look()
        if start == end:
            return []
        before, after = self._aligned(start), self._aligned(end)
        shares = []
        for name, store in self._stores.items():
            store.check(after[name])
            wanted = _ranges(before[name], after[name])
            ranges = [found for found in map(store.still_there, wanted) if found is not None]
            if ranges:
                shares.append((store.snapshot, ANY_TIME, ranges))
        return plan_shares(shares, self._options, self._spec)

    def paths(self) -> dict[str, str]:
        return {name: store.snapshot.path for name, store in self._stores.items()}

    def by_path(self, offset: StreamOffset) -> dict[str, dict[QueueKey, int]]:
        """Return the positions of an offset by store path, to be published."""
        return {
            self._stores[name].snapshot.path: {
                QueueKey(topic, queue_id): position
                for topic, each in store.topics.items()
                for queue_id, position in each.queues.items()
            }
            for name, store in self._aligned(offset).items()
        }

    def _look(self) -> None:
        changed = [store.look() for store in self._stores.values()]
        self._has_looked = True
        if any(changed):
            self._exhausted = self._newest = None

    def _aligned(self, offset: StreamOffset) -> dict[str, StoreOffset]:
        """Return the part of an offset that each store has."""
        there, known = self._stores.keys(), offset.stores.keys()
        if len(there) == len(known) == 1:
            # One store is that one, whatever its directory is called now.
            return dict(zip(there, offset.stores.values(), strict=True))
        missing = sorted(known - there)
        if missing:
            problem = f"the checkpoint has the stores {listing(missing)}, this query reads {listing(sorted(there))}"
            fix = "Name each path as it was, in brokerNames, or begin a new checkpoint"
            if self._options.fail_on_data_loss:
                fix += "; failOnDataLoss=false goes on without those"
                raise OtherStoreError(problem, fix=fix)
            logger.warning("%s. They are left out", problem)
        return {name: offset.stores.get(name, _NOTHING) for name in self._stores}

    def _check_subscribed(self, before: Mapping[str, StoreOffset]) -> None:
        """Refuse a topic that is neither there nor was there, once: most likely a wrong name."""
        if self._is_subscribed or not isinstance(self._options.topics, Topics):
            return
        snapshots = [store.snapshot for store in self._stores.values()]
        known = set().union(
            *(snapshot.topics() for snapshot in snapshots), *(store.topics for store in before.values())
        )
        check_topics(self._options.topics.names, sorted(known), path=", ".join(each.path for each in snapshots))
        self._is_subscribed = True

    def _begin(self, store: WatchedStore, topic: str, starts: dict[int, int]) -> TopicOffset:
        bounds = {each: store.bounds(QueueKey(topic, each)) for each in starts}
        before = {each: start for each, start in starts.items() if start > bounds[each].min_offset}
        return TopicOffset(queues=starts, last=store.last_read(None, topic, before))

    def _waits(self, messages: int, limits: TriggerLimits) -> bool:
        """Return whether to wait for more. Not at the start of a query, nor where it is to end with what is there."""
        if limits.min_records is None or messages >= limits.min_records or self._target is not None:
            return False
        return self._last_batch is not None and self._clock() - self._last_batch < limits.max_delay_ms / 1000

    def _admit(self, waiting: Sequence[Step], limits: TriggerLimits) -> dict[tuple[str, QueueKey], int]:
        """Say where each waiting queue's part of the batch ends."""
        if limits.max_records is None and limits.max_bytes is None:
            return {_place(step): step.end for step in waiting}
        ordered = sorted(waiting, key=_place)
        at = 0 if self._turn is None else bisect_right(ordered, self._turn, key=_place)
        ordered = ordered[at:] + ordered[:at]
        if ordered:
            self._turn = _place(ordered[0])
        lines = [Waiting(step.end - step.begin, partial(self._sizes, step)) for step in ordered]
        counts = admit(lines, max_records=limits.max_records, max_bytes=limits.max_bytes)
        return {_place(step): step.begin + count for step, count in zip(ordered, counts, strict=True)}

    def _sizes(self, step: Step, start: int, stop: int) -> npt.NDArray[np.int64]:
        snapshot = self._stores[step.store].snapshot
        return snapshot.entries.sizes(QueueRange(step.key, step.begin + start, step.begin + stop))

    def _advanced(
        self, before: Mapping[str, StoreOffset], steps: Sequence[Step], ends: Mapping[tuple[str, QueueKey], int]
    ) -> StreamOffset:
        """Make the offset at which a batch ends."""
        is_first = self._initial is not None
        moved: dict[tuple[str, str], list[Step]] = {}
        for step in steps:
            moved.setdefault((step.store, step.key.topic), []).append(step)
        stores = {}
        for name, store in self._stores.items():
            known = before[name].topics
            topics = {}
            kept: dict[str, set[int]] = {}
            for key in store.kept:
                kept.setdefault(key.topic, set()).add(key.queue_id)
            for topic in dict.fromkeys([*store.watch.ends, *kept]):
                watched = kept.get(topic, set()) | store.watch.ends.get(topic, {}).keys()
                mine = moved.get((name, topic), [])
                if topic in known:
                    topics[topic] = _continued(store, known[topic], watched, mine, ends, is_first=is_first)
                elif mine:
                    topics[topic] = _continued(store, TopicOffset(queues={}), watched, mine, ends, is_first=is_first)
            stores[name] = StoreOffset(id=store.id, topics=topics, has_gap=store.has_gap)
            store.settle()
        return StreamOffset(stores)


def _continued(
    store: WatchedStore,
    known: TopicOffset,
    watched: set[int],
    steps: Sequence[Step],
    ends: Mapping[tuple[str, QueueKey], int],
    *,
    is_first: bool,
) -> TopicOffset:
    """Return the offset of a topic at the end of a batch; ``ends`` has the ends of the queues that waited.

    The first batch of a query has its begins, too: no checkpoint has its start, which would move with retention.
    """
    if not steps and not known.begins and known.queues.keys() <= watched:
        return known
    queues = {each: position for each, position in known.queues.items() if each in watched}
    begins, read = {}, {}
    last = known.last
    for step in steps:
        queue_id = step.key.queue_id
        stop = ends.get(_place(step), step.begin)
        queues[queue_id] = stop
        if stop > step.begin:
            read[queue_id] = stop
        if step.jumps or ((is_first or step.position is None) and stop > step.begin):
            begins[queue_id] = step.begin
        if step.position is not None and step.begin < step.position:
            last = None  # it is not there any more
    topic = steps[0].key.topic if steps else ""
    lost = known.lost + store.lost.get(topic, 0)
    return TopicOffset(queues=queues, begins=begins, last=store.last_read(last, topic, read), lost=lost)


def _ranges(before: StoreOffset, after: StoreOffset) -> Iterator[QueueRange]:
    """Yield the ranges that a batch reads of one store, by the offsets at its ends."""
    for topic, each in after.topics.items():
        known = before.topics.get(topic)
        starts = known.queues if known is not None else {}
        for queue_id, stop in each.queues.items():
            start = each.begins.get(queue_id, starts.get(queue_id, stop))
            if start < stop:
                yield QueueRange(QueueKey(topic, queue_id), start, stop)


def _place(step: Step) -> tuple[str, QueueKey]:
    return step.store, step.key
