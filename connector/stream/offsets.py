"""Offsets of a stream, which Spark keeps in its checkpoint: JSON that is the same for the same place.

::

    {"stores": {"broker-a": {                          by broker name
        "id": "3f…",                                   the store's own name, where it has one
        "gap": true,                                   messages of unseen queues may have been deleted
        "topics": {"orders": {
            "queues": {"0": 23, "1": 40},              next queue offset of each queue
            "begins": {"1": 12},                       where this batch begins, if not at the last one's end
            "last": [1, 39, 81920, 1767225600000],     a message read: queue, offset, place in the log, store time
            "lost": 3}}}},                             messages that were gone before they were read
     "version": 1}

Spark compares offsets as text, so keys are sorted and numbers are whole. ``begins`` is there only in the batch that
jumps: over what retention took, to the first message of a new queue. The first batch of a query has it, too, since
Spark keeps no offset before it and asks for the initial one again. With it a batch that is repeated after a restart
reads the same ranges, whatever the options or the store say by then.

``last`` tells a store or topic from another one in its place. It is the message with the highest physical offset that
was read of the topic, hence the last that retention reaches. A message that is still at that queue offset must have
that place in the log and that time. A copy of the store, wherever it is moved, has it too. One per topic keeps the
offset small with ten thousand queues, since a topic is recreated with all its queues.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from segmentlog.store import QueueKey
from segmentlog.store.follow import MessageIdentity

from ..errors import CheckpointError

VERSION: Final = 1


class LastRead(NamedTuple):
    """A message that was read, by which its topic is known again."""

    queue_id: int
    queue_offset: int
    mark: MessageIdentity


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicOffset:
    """Offset of a stream in one topic; the fields are those of the JSON."""

    queues: Mapping[int, int]
    begins: Mapping[int, int] = field(default_factory=dict)
    last: LastRead | None = None
    lost: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreOffset:
    id: str | None = None
    topics: Mapping[str, TopicOffset] = field(default_factory=dict)
    has_gap: bool = False
    """Whether the query may have missed a queue that came and lost its messages between two looks."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Offset of a stream in all its stores, by broker name."""

    stores: Mapping[str, StoreOffset]

    @classmethod
    def from_json(cls, text: str) -> "StreamOffset":
        """Read what `to_json` wrote; `CheckpointError` for other text."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise _not_ours(text) from None
        return cls.from_dict(found)

    @classmethod
    def from_dict(cls, found: Any) -> "StreamOffset":
        """Read the JSON of an offset, parsed; errors as `from_json`."""
        if not isinstance(found, dict) or not isinstance(found.get("version"), int):
            raise _not_ours(found)
        if found["version"] != VERSION:
            asked = found["version"]
            problem = f"the checkpoint holds an offset of version {asked}, this release reads version {VERSION}"
            raise CheckpointError(problem, fix="Go on with the release that wrote it, or begin a new checkpoint")
        try:
            return cls({name: _store(each) for name, each in found["stores"].items()})
        except (TypeError, ValueError, KeyError, AttributeError):
            raise _not_ours(found) from None

    def to_json(self) -> str:
        """Write it as JSON: the same text for the same offset."""
        return json.dumps(self.to_dict(), sort_keys=True)

    def to_dict(self) -> dict[str, Any]:
        """Return what `to_json` writes, with its keys in that order: Spark's Python side writes it as it is."""
        return {
            "stores": {name: _store_dict(self.stores[name]) for name in sorted(self.stores)},
            "version": VERSION,
        }

    def positions(self) -> dict[tuple[str, QueueKey], int]:
        """Return the next queue offset of each queue, by broker name and queue."""
        return {
            (name, QueueKey(topic, queue_id)): offset
            for name, store in self.stores.items()
            for topic, each in store.topics.items()
            for queue_id, offset in each.queues.items()
        }


def sum_if_known(parts: Iterable[int | None]) -> int | None:
    """Add numbers; None if one of them is not known."""
    known = list(parts)
    return None if None in known else sum(part for part in known if part is not None)


def _store(found: Any) -> StoreOffset:
    name = found.get("id")
    if name is not None and not isinstance(name, str):
        raise TypeError(name)
    has_gap = found.get("gap", False)
    if not isinstance(has_gap, bool):
        raise TypeError(has_gap)
    topics = {topic: _topic(each) for topic, each in found["topics"].items()}
    return StoreOffset(id=name, topics=topics, has_gap=has_gap)


def _topic(found: Any) -> TopicOffset:
    last = found.get("last")
    (lost,) = _whole([found.get("lost", 0)])
    return TopicOffset(
        queues=_by_queue(found["queues"]),
        begins=_by_queue(found.get("begins", {})),
        last=None if last is None else _last(_whole(last)),
        lost=lost,
    )


def _by_queue(found: Any) -> dict[int, int]:
    return dict(zip(map(int, found), _whole(found.values()), strict=True))


def _last(numbers: list[int]) -> LastRead:
    queue_id, queue_offset, physical, time = numbers
    return LastRead(queue_id, queue_offset, MessageIdentity(physical, time))


def _whole(numbers: Any) -> list[int]:
    """Take whole numbers that are not negative, and nothing else."""
    found = list(numbers)
    for each in found:
        if type(each) is not int or each < 0:
            raise TypeError(each)
    return found


def _store_dict(store: StoreOffset) -> dict[str, Any]:
    named: dict[str, Any] = {"gap": True} if store.has_gap else {}
    if store.id is not None:
        named["id"] = store.id
    return named | {"topics": {topic: _topic_dict(store.topics[topic]) for topic in sorted(store.topics)}}


def _topic_dict(topic: TopicOffset) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if topic.begins:
        made["begins"] = _sorted(topic.begins)
    if topic.last is not None:
        made["last"] = [topic.last.queue_id, topic.last.queue_offset, *topic.last.mark]
    if topic.lost:
        made["lost"] = topic.lost
    return made | {"queues": _sorted(topic.queues)}


def _sorted(by_queue: Mapping[int, int]) -> dict[str, int]:
    """Write numbers by queue, in the order of their keys as text, as ``sort_keys`` has it."""
    return dict(sorted((str(queue_id), number) for queue_id, number in by_queue.items()))


def _not_ours(found: object) -> CheckpointError:
    shown = str(found)
    shown = shown if len(shown) <= 200 else shown[:200] + "…"
    return CheckpointError(
        f"the checkpoint holds an offset that this source cannot have written: {shown}",
        fix="Use one checkpointLocation per query: this one is of a query with another source",
    )
