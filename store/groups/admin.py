"""Consumer groups of a store directory: publish, commit, reset, clone, list, delete.

::

    change ──► .segmentlog/groups.lock ──► both documents read, positions decided
                                              │
                                              ├──► .segmentlog/groups.json            our positions
                                              └──► config/consumerOffset.json         where no broker has the store:
                                                   (the former one as .bak)           renamed under the store's lock

A broker with the store open keeps offsets in memory and would overwrite ours. So they stay in the document beside its
own, and `directory.group_offsets` merges both. Once the broker has closed the store, the first change writes them all
into its document. RocketMQ: ``ConsumerOffsetManager``, ``ConfigManager``, ``LocalFileOffsetStore``.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ..directory.group_offsets import Table, by_queue, group_offsets, read_progress
from ..directory.layout import require_store
from ..errors import ConfigError
from ..files.fs import FileSystem
from ..files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from ..format.broker_config import GroupTopic, is_position
from ..format.naming import GROUP_CHARS, is_group_name, is_readable_topic
from ..read.snapshot import Snapshot
from ..types import Boundary, QueueKey
from .writer import GroupWriter, Recorded

_log = logging.getLogger(__name__)


class MessageModel(Enum):
    """Distribution of messages within a group (RocketMQ: ``MessageModel``)."""

    CLUSTERING = "clustering"
    """The consumers share the queues; the group has one position in each."""
    BROADCASTING = "broadcasting"
    """Every consumer reads all queues, and has positions of its own."""


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """The first message that each queue still holds."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """One past the last message of each queue: skip all stored messages."""


@dataclass(frozen=True, slots=True)
class ToTime:
    """The message that a store time stands for, in ms since 1970; see `types.Boundary`."""

    ms: int
    boundary: Boundary = Boundary.LOWER


@dataclass(frozen=True, slots=True)
class ToOffset:
    """One queue offset in every queue, clamped to the offsets of the queue."""

    offset: int


ResetTarget: TypeAlias = ToEarliest | ToLatest | ToTime | ToOffset


@dataclass(frozen=True, slots=True)
class Move:
    """One queue of a change: the next queue offset before and after it, None for no position."""

    key: QueueKey
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class GroupChange:
    """Effect of a change on a group, queue by queue.

    ``moves`` has all queues that were asked for, by topic and id, also those that stay where they are. ``recorded`` is
    the document that has the change.
    """

    group: str
    moves: tuple[Move, ...]
    recorded: Recorded

    def __str__(self) -> str:
        return "\n".join(f"{move.key}: {_shown(move.before)} to {_shown(move.after)}" for move in self.moves)


def _shown(offset: int | None) -> str:
    return "no position" if offset is None else str(offset)


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """Offsets of a group, or of one broadcasting consumer of it.

    ``model`` is how its consumers divide the queues, ``consumer`` the client id of a broadcasting consumer, None for
    the group as a whole. ``offsets`` has the next queue offset of each queue.
    """

    group: str
    model: MessageModel
    consumer: str | None
    offsets: Mapping[QueueKey, int]


def publish_progress(
    path: str,
    group: str,
    offsets: Mapping[QueueKey, int],
    *,
    consumer: str | None = None,
    fs: WritableFileSystem | None = None,
) -> None:
    """Publish the positions of a group. They only go forward: a position lower than the known one is left out.

    Parameters
    ----------
    path
        The store directory.
    group
        The group.
    offsets
        The next queue offset to read of each queue; other queues keep their positions.
    consumer
        The id of a broadcasting consumer, which has positions of its own; None for the group.
    fs
        The file system to write through. With a given one, no lock is taken.

    Raises
    ------
    ConfigError
        If the group, a topic or an offset cannot be one.
    NotAStoreError
        If there is no store.
    UnreadableError, NoSpaceError
        If this process cannot write there.
    """
    asked = _by_owner(group, offsets)

    def forward(held: Table) -> Table:
        return {
            owner: {q: offset for q, offset in queues.items() if offset > held.get(owner, {}).get(q, -1)}
            for owner, queues in asked.items()
        }

    if consumer is not None:
        GroupWriter(path, fs).set_broadcast(group, _checked_consumer(consumer), forward)
    else:
        GroupWriter(path, fs).set_offsets(forward)


def commit_offsets(
    path: str, group: str, offsets: Mapping[QueueKey, int], *, fs: WritableFileSystem | None = None
) -> GroupChange:
    """Set positions of a group, forwards or back; arguments and errors as `publish_progress`."""
    asked = _by_owner(group, offsets)
    return _set(path, group, asked, fs=fs)


def reset_group(
    path: str,
    group: str,
    to: ResetTarget,
    *,
    topics: Collection[str] | None = None,
    dry_run: bool = False,
    fs: WritableFileSystem | None = None,
) -> GroupChange:
    """Move a group to another place in all queues of its topics.

    Parameters
    ----------
    path, group, fs
        As `publish_progress`.
    to
        Where.
    topics
        In which topics; all that the group has positions in, if not given. A topic that is named need not be known to
        the group.
    dry_run
        Return the change without making it.

    Raises
    ------
    ConfigError
        If the group has no position anywhere, and no topic is named.
    UnknownQueueError
        If the store has no such topic.
    """
    _check_group(group)
    snapshot = Snapshot.open(path, fs=fs)
    wanted = sorted({key.topic for key in group_offsets(path, group, fs=fs)} if topics is None else set(topics))
    if not wanted:
        raise ConfigError(
            f"group {group} has no position in any topic",
            path=snapshot.path,
            fix="Name the topics in which it gets offsets",
        )
    asked: Table = {}
    for topic in wanted:
        for bounds in snapshot.queues(topic):
            match to:
                case ToEarliest():
                    offset = bounds.min_offset
                case ToLatest():
                    offset = bounds.max_offset
                case ToTime(ms, boundary):
                    offset = snapshot.offset_at(bounds.key, ms, boundary)
                case ToOffset(number):
                    offset = min(max(number, bounds.min_offset), bounds.max_offset)
            asked.setdefault(GroupTopic(topic, group), {})[bounds.key.queue_id] = offset
    return _set(path, group, asked, dry_run=dry_run, fs=fs)


def clone_group(
    path: str,
    source: str,
    target: str,
    *,
    topics: Collection[str] | None = None,
    dry_run: bool = False,
    fs: WritableFileSystem | None = None,
) -> GroupChange:
    """Copy the offsets of another group; those in other queues stay. Arguments and errors as `reset_group`."""
    _check_group(target)
    there = {key: offset for key, offset in _offsets(path, source, fs).items() if topics is None or key.topic in topics}
    if not there:
        of = "" if topics is None else f" of topics {', '.join(sorted(topics))}"
        raise ConfigError(
            f"group {source} has no position in any queue{of}", path=path, fix="list_groups() tells which groups have"
        )
    return _set(path, target, _by_owner(target, there), dry_run=dry_run, fs=fs)


def delete_group(
    path: str,
    group: str,
    *,
    topics: Collection[str] | None = None,
    dry_run: bool = False,
    fs: WritableFileSystem | None = None,
) -> GroupChange:
    """Forget a group's positions, those of broadcasting consumers too; arguments as `reset_group`.

    Raises `StoreInUseError` if a broker has the store open and knows the group: it would write it down again.
    """
    held = {key: offset for key, offset in _offsets(path, group, fs).items() if topics is None or key.topic in topics}
    writer = GroupWriter(path, fs)
    if not dry_run:
        writer.delete(group, topics)
    return GroupChange(group, tuple(Move(key, held[key], None) for key in sorted(held)), writer.recorded)


def list_groups(path: str, *, fs: FileSystem | None = None) -> list[GroupProgress]:
    """List every group with an offset, by name; broadcasting consumers follow their group. Errors: `group_offsets`."""
    progress = read_progress(fs or LocalWritableFileSystem(), require_store(path) if fs is None else path)
    merged = progress.merged()
    found = [
        GroupProgress(group, MessageModel.CLUSTERING, None, by_queue(merged, group))
        for group in {owner.group for owner, queues in merged.items() if queues}
    ]
    for group, consumers in progress.sidecar.broadcast.items():
        found += [
            GroupProgress(group, MessageModel.BROADCASTING, consumer, by_queue(table, group))
            for consumer, table in consumers.items()
        ]
    return sorted(found, key=lambda each: (each.group, each.consumer or ""))


def _offsets(path: str, group: str, fs: WritableFileSystem | None) -> dict[QueueKey, int]:
    """Positions of a group; `NotAStoreError` where no store is."""
    return group_offsets(Snapshot.open(path, fs=fs).path, group, fs=fs)


def _set(path: str, group: str, asked: Table, *, dry_run: bool = False, fs: WritableFileSystem | None) -> GroupChange:
    """Set positions of a group, or only return the change."""
    writer = GroupWriter(path, fs)
    if dry_run:
        held = read_progress(fs or LocalWritableFileSystem(), writer.path).merged()
    else:
        held = writer.set_offsets(lambda _: asked)
    before = by_queue(held, group)
    moves = tuple(Move(key, before.get(key), after) for key, after in sorted(by_queue(asked, group).items()))
    if writer.recorded is Recorded.SIDECAR:
        _log.warning(
            "another process has %s open: positions of group %s are noted beside its own, where our readers see them"
            " and a broker's consumers do not",
            writer.path,
            group,
        )
    return GroupChange(group, moves, writer.recorded)


def _by_owner(group: str, offsets: Mapping[QueueKey, int]) -> Table:
    """Arrange positions by topic, after a look at each."""
    _check_group(group)
    found: Table = {}
    for (topic, queue_id), offset in offsets.items():
        owner = GroupTopic(topic, group)
        if owner not in found and ("@" in topic or not is_readable_topic(topic)):
            raise ConfigError(f"{topic[:80]!r} cannot be a topic with consumers", fix="Name a topic of the store")
        if not is_position(queue_id, offset):
            raise ConfigError(
                f"queue {queue_id} of topic {topic} cannot have the position {offset}",
                fix="Pass a queue id and an offset from 0 up",
            )
        found.setdefault(owner, {})[queue_id] = int(offset)
    return found


def _check_group(group: str) -> None:
    if not is_group_name(group):
        raise ConfigError(f"{group[:80]!r} cannot be a consumer group", fix=f"Use {GROUP_CHARS}")


def _checked_consumer(consumer: str) -> str:
    if not consumer or not consumer.isprintable():
        raise ConfigError(f"{consumer[:80]!r} cannot be a consumer's id", fix="Pass a printable text")
    return consumer
