"""One store of a stream: what moved in it, and whether it still is what the checkpoint says.

::

    checkpoint ── StoreOffset ──┐
    QueueWatch.look ── ends ────┴─► Cursor of each queue that moved ──► Step: messages that wait, or a jump
                                    (query/cursor.py)

A loss is an error, or with ``failOnDataLoss=false`` a warning. Then a queue that was cut in front goes on at its first
message. One that ends too early, or was recreated, goes on at the first message stored after the last one that was read
of its topic, or at the offset of the checkpoint if that comes first. In a recreated topic that is its first message, in
a truncated one what was appended since.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from segmentlog.query.cursor import Cursor, State, other_message, queue_gone, remaining
from segmentlog.query.selection import Queues
from segmentlog.store import (
    QueueBounds,
    QueueKey,
    QueueRange,
    SegmentLogError,
    Snapshot,
)
from segmentlog.store.follow import QueueWatch, deletion_note, message_identity, store_id

from ..errors import OtherStoreError
from ..options.read_options import ReadOptions
from .offsets import LastRead, StoreOffset, TopicOffset

logger = logging.getLogger(__name__)

_LAST_READ_CANDIDATES: Final = 8
_GO_ON = "failOnDataLoss=false goes on"
_NEW_CHECKPOINT = (
    "Point the query to the store that the checkpoint was made on, or begin a new checkpoint; failOnDataLoss=false "
    "goes on with the messages stored after the last one that was read"
)


class Step(NamedTuple):
    """A step of a stream in one queue of the store of a broker name: the waiting messages ``[begin, end)``."""

    # `position` is the offset that the stream has reached. It is None for a queue that is new to the stream, and 0 if
    # the first messages of such a queue are lost. `begin` differs from it only if messages were lost.

    store: str
    key: QueueKey
    position: int | None
    begin: int
    end: int

    @property
    def jumps(self) -> bool:
        """Return whether the stream goes on elsewhere than where it stood."""
        return self.position is not None and self.begin != self.position


class WatchedStore:
    def __init__(self, snapshot: Snapshot, options: ReadOptions) -> None:
        self.name = snapshot.broker_name
        self._fails = options.fail_on_data_loss
        self._wanted = options.topics
        self.watch = QueueWatch(snapshot, self._wanted.wants, self._wanted.wants_queue)
        self.id = store_id(snapshot.path, snapshot.location.fs)
        self._doubtful: set[str] | None = None
        """Topics to be known again before they are read; None for all, as at the start."""
        self._said: set[str] = set()
        self.lost: dict[str, int] = {}  # messages that were found lost by topic, and are in no offset yet
        self.kept: set[QueueKey] = set()  # queues that are not listed now, and keep their positions
        self._had_gap = False

    @property
    def snapshot(self) -> Snapshot:
        """The store as of the last look that found a change."""
        return self.watch.snapshot

    def look(self) -> bool:
        """See what changed; whether anything did."""
        sighting = self.watch.look()
        if sighting.rewritten and self._doubtful is not None:
            self._doubtful |= {key.topic for key in sighting.rewritten}
        return bool(sighting.moved or sighting.gone)

    def bounds(self, key: QueueKey) -> QueueBounds:
        """The offsets that a queue holds, be it watched or not."""
        watched = key.queue_id in self.watch.ends.get(key.topic, {})
        return self.watch.bounds(key) if watched else self.snapshot.bounds(key)

    def steps(self, before: StoreOffset, target: Mapping[QueueKey, int] | None) -> list[Step]:
        """Find waiting messages, and queues that jump; ``target`` are the ends of a run with AvailableNow."""
        # OtherStoreError if the store, or a topic, was replaced; DataLossError if messages were or may be lost.
        if self._doubtful is None and not self.snapshot.entries.lists_empty:
            self._had_gap = self._has_passed(before, unread=self.snapshot.log.min_offset)
        self._had_gap |= before.has_gap
        remade = self._remade(before)
        self._doubtful = set()
        self.kept.clear()
        steps = [step for topic, known in before.topics.items() for step in self._of_known(topic, known, remade)]
        steps += self._of_new(before)
        if target is not None:
            # A queue that came later and has lost its front jumps, too, and none of its messages are of this run.
            wanted = [step for step in steps if step.key in target or step.jumps]
            steps = [self._up_to(step, target.get(step.key, step.begin)) for step in wanted]
        return steps

    def settle(self) -> None:
        """Note that what was lost is in an offset now."""
        self.lost.clear()
        self._said.clear()

    def last_read(self, before: LastRead | None, topic: str, positions: Mapping[int, int]) -> LastRead | None:
        """Find the message to know a topic by, among the one before and those that were read last of some queues."""
        found = before
        for queue_id, position in list(positions.items())[:_LAST_READ_CANDIDATES]:
            mark = message_identity(self.snapshot, QueueKey(topic, queue_id), position - 1)
            if mark is not None and (found is None or mark.physical_offset > found.mark.physical_offset):
                found = LastRead(queue_id, position - 1, mark)
        return found

    def still_there(self, wanted: QueueRange) -> QueueRange | None:
        """The part of a planned range that the queue still holds; None for nothing."""
        held, error = remaining(self.snapshot, wanted, self.bounds(wanted.key))
        if error is not None:
            self._lose(error)
            self._count(wanted.key.topic, len(wanted) - (0 if held is None else len(held)))
        return held

    def check(self, before: StoreOffset) -> None:
        """Raise `OtherStoreError`, or warn, if this is not the store of an offset; once at the start of a query."""
        if self._doubtful is None:
            self._remade(before)

    def _of_known(self, topic: str, known: TopicOffset, remade: set[str]) -> Iterator[Step]:
        """Steps of the queues that the stream has been reading."""
        ends = self.watch.ends.get(topic, {})
        short = {each for each, position in known.queues.items() if position > ends.get(each, position)}
        waiting = set(self._unconfirmed(topic, known, ends)) if self.snapshot.holds_back else set()
        if topic in remade or short - waiting:
            yield from self._of_remade(topic, known)
            return
        for queue_id, position in known.queues.items():
            end = ends.get(queue_id)
            if end == position:
                continue  # nearly all of them
            key = QueueKey(topic, queue_id)
            if end is None and (queue_id in waiting or self._is_expired(key, known)):
                self.kept.add(key)
            if queue_id in waiting or key in self.kept:
                continue
            if end is None:
                self._leave(key, position)
                continue
            cursor = Cursor(self.snapshot, self.watch.bounds(key), position)
            begin = cursor.bounds.min_offset
            if cursor.state is State.DELETED:
                self._lose(cursor.deleted())
                self._count(topic, begin - position)
            yield Step(self.name, key, position, max(begin, position), end)

    def _is_expired(self, key: QueueKey, known: TopicOffset) -> bool:
        """Return whether a queue is not listed because retention deleted its messages; its next one tells the loss."""
        if self.snapshot.entries.lists_empty or not (self._wanted.wants(key.topic) and self._wanted.wants_queue(key)):
            return False
        last = known.last  # if it is there, or deleted itself, the topic was not recreated
        if last is None or last.queue_id in self.watch.ends.get(key.topic, {}):
            return True
        return self.snapshot.log.min_offset > last.mark.physical_offset

    def _unconfirmed(self, topic: str, known: TopicOffset, ends: Mapping[int, int]) -> Iterator[int]:
        """Queues whose messages were read, are stored, and wait again; see `State.UNCONFIRMED`."""
        for queue_id, position in known.queues.items():
            key = QueueKey(topic, queue_id)
            # A queue that is derived from the log shows no sign of messages that nobody agreed on.
            is_short = position > ends.get(queue_id, 0)
            if is_short and Cursor(self.snapshot, self.bounds(key), position).state is State.UNCONFIRMED:
                yield queue_id

    def _of_remade(self, topic: str, known: TopicOffset) -> Iterator[Step]:
        """Steps of a topic whose queues are others, or shorter, than they were."""
        for queue_id, position in known.queues.items():
            key = QueueKey(topic, queue_id)
            if queue_id not in self.watch.ends.get(topic, {}):
                self._leave(key, position)
                continue
            bounds = self.watch.bounds(key)
            if position > bounds.max_offset:
                self._lose(Cursor(self.snapshot, bounds, position).truncated(_NEW_CHECKPOINT))
            begin = min(position, bounds.max_offset)
            if known.last is not None:
                begin = min(begin, self.snapshot.offset_at(key, known.last.mark.store_time + 1))
            yield Step(self.name, key, position, max(begin, bounds.min_offset), bounds.max_offset)

    def _of_new(self, before: StoreOffset) -> Iterator[Step]:
        """Steps of queues that the stream has not been reading: they begin at their first message."""
        for topic, ends in self.watch.ends.items():
            known = before.topics[topic].queues if topic in before.topics else {}
            if len(known) == len(ends) and known.keys() == ends.keys():
                continue
            for queue_id, end in ends.items():
                if queue_id in known:
                    continue
                key = QueueKey(topic, queue_id)
                begin = self.watch.bounds(key).min_offset
                is_lost = begin > 0 and self._may_have_missed(before)
                if is_lost and self._lose_front(key, begin, is_added=topic in before.topics):
                    yield Step(self.name, key, 0, begin, end)
                    continue
                if begin < end:
                    self._say(f"{key} is new to this query, and is read from offset {begin} on")
                yield Step(self.name, key, None, begin, end)

    @property
    def has_gap(self) -> bool:
        """Whether a queue may have lost messages before it was ever seen: in a part of the log that was not."""
        return self._had_gap or self.watch.has_gap

    def _may_have_missed(self, before: StoreOffset) -> bool:
        # A queue that is listed without messages, too, and is new to the topic, came after what was read of the topic.
        return self.has_gap or (self.snapshot.entries.lists_empty and self._has_passed(before))

    def _has_passed(self, before: StoreOffset, unread: int = 0) -> bool:
        """Return whether the log begins after all that was read: what came next may be deleted, too."""
        read = (topic.last.mark.physical_offset for topic in before.topics.values() if topic.last is not None)
        return self.snapshot.log.min_offset > max(read, default=unread)

    def _lose_front(self, key: QueueKey, begin: int, *, is_added: bool) -> bool:
        """Say that the first messages of a new queue of the stream are deleted; return whether they are lost."""
        # A queue that was added to a topic had none before. A topic, or an assigned queue, may be new to the options.
        if not is_added or isinstance(self._wanted, Queues):
            note = deletion_note(self.snapshot.path)
            problem = f"{begin} messages of {key}, offsets 0 to {begin - 1}, are gone{note.text}"
            problem += ". If the queue is not older than the query, they are lost"
            self._say(problem, warn=True)
            return False
        self._lose(Cursor(self.snapshot, self.watch.bounds(key), 0).deleted_unseen())
        self._count(key.topic, begin)
        return True

    def _up_to(self, step: Step, target: int) -> Step:
        return step._replace(end=max(step.begin, min(step.end, target)))

    def _leave(self, key: QueueKey, position: int) -> None:
        """Leave a queue that is not read any more: it was deleted, or the options do not ask for it now."""
        if not (self._wanted.wants(key.topic) and self._wanted.wants_queue(key)):
            self._say(f"{key} was read up to offset {position}, and is not subscribed to any more: it is left there")
        elif position:
            fix = f"Was the topic deleted? Then {_GO_ON} without it"
            self._lose(queue_gone(self.snapshot, key, position, fix=fix))

    def _remade(self, before: StoreOffset) -> set[str]:
        """The doubtful topics that are others than those that were read."""
        topics = [topic for topic in before.topics if self._doubtful is None or topic in self._doubtful]
        if self._doubtful is None and None not in (self.id, before.id) and self.id != before.id:
            problem = f"the checkpoint was made on the store with id {before.id}, this one has id {self.id}"
            self._lose(OtherStoreError(problem, path=self.snapshot.path, fix=_NEW_CHECKPOINT))
            return set(topics)
        found = set()
        for topic in topics:
            last = before.topics[topic].last
            if last is None or last.queue_id not in self.watch.ends.get(topic, {}):
                continue
            key = QueueKey(topic, last.queue_id)
            bounds = self.watch.bounds(key)
            if not bounds.min_offset <= last.queue_offset < bounds.max_offset:
                continue  # retention took it, or the queue is too short, which is found without it
            mark = other_message(self.snapshot, key, last.queue_offset, last.mark)
            if mark is None:
                continue
            problem = (
                f"the checkpoint is of another store, or topic `{topic}` was recreated: the message of {key} at offset "
                f"{last.queue_offset} had physical offset {last.mark.physical_offset} and store time "
                f"{last.mark.store_time} ms; it now has {mark.physical_offset} and {mark.store_time} ms"
            )
            self._lose(OtherStoreError(problem, path=self.snapshot.path, fix=_NEW_CHECKPOINT))
            found.add(topic)
        return found

    def _count(self, topic: str, messages: int) -> None:
        self.lost[topic] = self.lost.get(topic, 0) + messages

    def _lose(self, error: SegmentLogError) -> None:
        """Fail with an error, or say it and go on."""
        if self._fails:
            raise error
        self._say(error.described, warn=True)

    def _say(self, what: str, *, warn: bool = False) -> None:
        """Log something once, however often it is found before an offset says so."""
        if what not in self._said:
            self._said.add(what)
            logger.log(logging.WARNING if warn else logging.INFO, "%s", what)
