"""Selection: topics and queues that a read names.

::

    Topics(("orders",), queue_ids=(0, 3))    TopicPattern("order.*")    Queues((orders/0, orders/3))
        │ wants(topic), wants_queue(key)              without a store: followers and streams ask for new queues
        ▼
    select(stores, selection) ──► each store with the bounds of its queues

Loaded by every start of the command: numpy and Arrow are imported by the functions that need them.
"""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from segmentlog.store import ConfigError, FormatError, UnknownQueueError

from .suggestions import did_you_mean, listing, several_or_near

_log = logging.getLogger(__name__)
_SPECIAL = re.compile(r"[.*+?\[(]")
"""Characters of patterns, which no topic has."""

if TYPE_CHECKING:
    from segmentlog.store import QueueBounds, QueueKey, Snapshot
    from segmentlog.store.groups import GroupProgress


class UnknownTopicError(UnknownQueueError):
    """A topic that no store holds."""

    condition = "SEGMENTLOG_UNKNOWN_TOPIC"


@dataclass(frozen=True)
class Topics:
    """Topics by name; of each all queues, or those with some ids."""

    names: tuple[str, ...]
    queue_ids: tuple[int, ...] | None = None

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.names)

    def wants(self, topic: str) -> bool:
        """Return whether the topic is read."""
        return topic in self._names

    def wants_queue(self, key: "QueueKey") -> bool:
        """Return whether the queue of a wanted topic is read."""
        return self.queue_ids is None or key.queue_id in self.queue_ids


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Topics whose whole name the expression matches; system topics only if `has_system`."""

    expression: str
    has_system: bool = False

    def wants(self, topic: str) -> bool:
        """Return whether the topic is read."""
        from segmentlog.store import is_system_topic  # noqa: PLC0415 - loads numpy

        return re.fullmatch(self.expression, topic) is not None and (self.has_system or not is_system_topic(topic))

    def wants_queue(self, key: "QueueKey") -> bool:  # noqa: ARG002 - a pattern has all queues
        """Return whether the queue of a wanted topic is read."""
        return True


@dataclass(frozen=True)
class Queues:
    """Queues by key."""

    keys: tuple["QueueKey", ...]

    @cached_property
    def _keys(self) -> frozenset["QueueKey"]:
        return frozenset(self.keys)

    @cached_property
    def names(self) -> dict[str, None]:
        """Topics of the queues, in order, each once."""
        return dict.fromkeys(key.topic for key in self.keys)

    def wants(self, topic: str) -> bool:
        """Return whether any queue of the topic is read."""
        return topic in self.names

    def wants_queue(self, key: "QueueKey") -> bool:
        """Return whether the queue is read."""
        return key in self._keys


Selection: TypeAlias = Topics | TopicPattern | Queues


def select(
    stores: "Sequence[Snapshot]", wanted: Selection, *, argument: str = ""
) -> "list[tuple[Snapshot, list[QueueBounds]]]":
    """Return the bounds of the wanted queues of each store; a topic or queue need not be in all stores, but in one."""
    topics = [store.topics() for store in stores]
    path = _paths(stores)
    known = sorted(set().union(*topics))
    if isinstance(wanted, TopicPattern):
        chosen: Collection[str] = list(filter(wanted.wants, known))
    else:
        chosen = wanted.names
        check_topics(chosen, known, path=path, argument=argument)
    held = [
        [bounds for topic in chosen if topic in there for bounds in store.queues(topic)]
        for store, there in zip(stores, map(frozenset, topics), strict=True)
    ]
    _check_queues(wanted, {bounds.key for queues in held for bounds in queues}, path)
    return [
        (store, [bounds for bounds in queues if wanted.wants_queue(bounds.key)])
        for store, queues in zip(stores, held, strict=True)
    ]


def _check_queues(wanted: Selection, held: "AbstractSet[QueueKey]", path: str) -> None:
    match wanted:
        case Topics(names, queue_ids) if queue_ids is not None:
            for queue_id in queue_ids:
                if all(key.queue_id != queue_id for key in held):
                    raise unknown_queue(queue_id, names, held, path=path)
        case Queues(keys):
            for key in keys:
                if key not in held:
                    raise unknown_queue(key.queue_id, [key.topic], held, path=path)


def check_topics(wanted: Iterable[str], known: Sequence[str], *, path: str, argument: str = "") -> None:
    """Raise `UnknownTopicError` for the first topic that is not known; ``argument`` is what named it."""
    for topic in wanted:
        if topic not in known:
            raise unknown_topic(topic, known, path=path, argument=argument)


def topic_pattern(names: Sequence[str]) -> TopicPattern | None:
    """Return the pattern that a name is: ``^order`` matches topics that begin so, ``^order.*s$`` whole names."""
    # As in librdkafka and kcat. No topic has this character.
    if len(names) != 1 or not names[0].startswith("^"):
        return None
    (text,) = names
    try:
        re.compile(text)
    except re.error as error:
        fix = "Write such as ^order, or ^order.*s$ for whole names"
        raise ConfigError(f"`{text}` is not a regular expression: {error}", fix=fix) from None
    return TopicPattern(text if text.endswith("$") else f"(?:{text}).*")


def topics_of(names: Sequence[str], known: Iterable[str], *, path: str, argument: str = "") -> tuple[str, ...]:
    """Return topics by name, or those of a `topic_pattern`; `UnknownTopicError` if one is unknown or none matches."""
    pattern, there = topic_pattern(names), sorted(known)
    if pattern is None:
        for name in names:
            if name not in there and (special := _SPECIAL.search(name)) is not None:
                error = unknown_topic(name, there, path=path, argument=argument)
                fix = f"A pattern begins with ^, such as `^{name[: special.start()]}`. {error.fix}"
                raise UnknownTopicError(error.problem, path=path, fix=fix)
        check_topics(names, there, path=path, argument=argument)
        return tuple(dict.fromkeys(names))
    found = tuple(filter(pattern.wants, there))
    if not found:
        prefix = f"{argument}: " if argument else ""
        others = [topic for topic in there if TopicPattern(".*").wants(topic)]
        fix = f"The topics are {listing(others)}" if others else "The store has no topics"
        raise UnknownTopicError(f"{prefix}no topic matches `{names[0]}`", path=path, fix=fix)
    return found


def topics_in(stores: "Sequence[Snapshot]", choose: Callable[[Sequence[str]], Sequence[str]]) -> list[tuple[str, ...]]:
    """Return the topics of each store that ``choose`` takes from the topics of all stores."""
    there = [frozenset(store.topics()) for store in stores]
    chosen = choose(sorted(frozenset().union(*there)))
    return [tuple(filter(topics.__contains__, chosen)) for topics in there]


def unknown_topic(
    topic: str, known: Iterable[str], *, path: str, argument: str = "", make: str = ""
) -> UnknownTopicError:
    """Make the error for a topic that is not known; ``make`` says what makes it, if anything does."""
    names = sorted(known)
    prefix = f"{argument}: " if argument else ""
    the = f"{make} makes it; the" if make else "The"
    others = f"{the} topics are {listing(names)}" if names else f"{the} store has no topics"
    near = several_or_near(topic, names, "topics")
    return UnknownTopicError(f"{prefix}there is no topic `{topic}`", path=path, fix=f"{near}{others}")


def topics_to_write(snapshot: "Snapshot") -> set[str]:
    """Return the topics that messages may be appended to: those with queues, and those that a broker made without."""
    from segmentlog.store.sink import topic_queues  # noqa: PLC0415 - readers do not need it

    try:
        return {*snapshot.topics(), *topic_queues(snapshot.path)}
    except FormatError as error:
        _log.warning("topics without messages are unknown: %s", error)
        return set(snapshot.topics())


def unknown_queue(queue_id: int, topics: Sequence[str], held: "Iterable[QueueKey]", *, path: str) -> UnknownQueueError:
    """Make the error for a queue that topics do not have; ``held`` are their queues."""
    there = sorted({key.queue_id for key in held if key.topic in topics})
    of, these = ("topic", "this topic") if len(topics) == 1 else ("topics", "these topics")
    problem = f"there is no queue {queue_id} of {of} {listing(topics)}"
    return UnknownQueueError(problem, path=path, fix=f"The queues of {these} are {', '.join(map(str, there))}")


def group_progress(stores: "Sequence[Snapshot]", group: str | None) -> "list[tuple[Snapshot, GroupProgress]]":
    """Return the positions of a consumer group, or of all groups, with their store.

    `ConfigError` if a group has no position in any store.
    """
    from segmentlog.store.groups import list_groups  # noqa: PLC0415 - loads the writer of groups

    found = [(store, each) for store in stores for each in list_groups(store.path, fs=store.location.fs)]
    if group is None:
        return found
    of_group = [(store, each) for store, each in found if each.group == group]
    if not of_group:
        raise unknown_group(group, {each.group for _, each in found}, path=_paths(stores))
    return of_group


def unknown_group(group: str, known: Iterable[str], *, path: str) -> ConfigError:
    """Make the error for a consumer group without a position in any of the stores."""
    names = sorted(known)
    fix = f"{did_you_mean(group, names)}The groups with a position are {listing(names)}"
    if not names:
        fix = "No group has one: pass the store of the broker that the group consumes from, or an offset or time"
    return ConfigError(f"consumer group `{group}` has no position here", path=path, fix=fix)


def _paths(stores: "Sequence[Snapshot]") -> str:
    return ", ".join(store.path for store in stores)
