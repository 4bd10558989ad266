"""Retention rules: which files a run deletes, in which order, and whether puts are refused. Pure.

::

    now, hour ─┐                     ┌─ CommitLog   oldest first while expired or forced; at most `files_max`
    disks ─────┼─► decide ──► Plan ──┼─ first file  tried again if an earlier attempt failed
    files ─────┤                     ├─ queue files whose last entry is below the log's start; never the last file
    memory ────┘                     └─ index files that end below the log's start; never the last one

    start = hour in deleteWhen, or too little space, or a manual trigger          forced = disk above the force level

    used share   0 ─────────── 0.75 ─────────── 0.85 ─────────── 0.90 ─────── 1
    5.x                         delete expired   delete young     and refuse puts
    4.9                         delete expired   … if anything starts the run      and refuse puts

The disks of the CommitLog and of the ConsumeQueues are looked at in this order. Rounds follow each other through
`Memory`, as the objects of a broker do. RocketMQ: ``CleanCommitLogService`` (``isSpaceToDelete``),
``CleanConsumeQueueService``, ``IndexService.deleteExpiredFile``, ``UtilAll.getDiskPartitionSpaceUsedPercent``.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

import numpy as np

from ..files.fs import Space
from ..format.message import Ints
from .settings import RetentionSettings, RocketMQRelease, Thresholds
from .state import UNKNOWN_MS, FileId, FileKind, IndexFiles, LogFiles, Memory, Moment, QueueFiles, State

_HOUR_MS: Final = 3_600_000
_QUEUE_HELD_MS: Final = 60_000
_INDEX_HELD_MS: Final = 3_000
_INTEGER: Final = re.compile(r"[+-]?\d+")


class Disks(NamedTuple):
    """File systems of the CommitLog directories, in their order, and of the ConsumeQueues; None where it is missing."""

    logs: tuple[Space | None, ...]
    queues: Space | None


class Verdict(NamedTuple):
    """Result of a look at the disks."""

    delete: bool  # whether space alone starts a deletion
    forced: bool  # whether young segments may go
    disk_full: bool  # whether puts are refused from now on


def used_share(space: Space | None, release: RocketMQRelease) -> float:
    """Return the used share of a file system as a release computes it; -1 without one."""
    # 4.9 divides by the total space; 5.x by the space that users can have, rounded up to a whole percent.
    if space is None or space.total <= 0:
        return -1.0
    used = space.total - space.free
    if release is RocketMQRelease.V4_9:
        return used / space.total
    return -(-used * 100 // (used + space.usable)) / 100.0


def look_at_disks(disks: Disks, store_bytes: int, settings: RetentionSettings, *, disk_full: bool) -> Verdict:
    """Judge the disks."""
    limits = settings.thresholds
    logs = [used_share(space, settings.release) for space in disks.logs]
    queues = used_share(disks.queues, settings.release)
    if settings.release is RocketMQRelease.V4_9:
        return _look_as_4(logs[0], queues, limits, disk_full=disk_full)
    emptiest = min(range(len(logs)), key=logs.__getitem__)
    log = logs[emptiest]
    force = min(limits.force, limits.refuse)
    if log > force:
        return Verdict(delete=True, forced=True, disk_full=disk_full or log > limits.refuse)
    if queues > force:
        return Verdict(delete=True, forced=True, disk_full=queues > limits.refuse)
    if settings.brokers_per_disk <= 1:
        short = any(share < 0 or share > limits.delete for share in (log, queues))
        return Verdict(delete=short, forced=False, disk_full=False)
    chosen = disks.logs[emptiest]
    own = int((-1 if chosen is None else chosen.total) / settings.brokers_per_disk)
    share = store_bytes / own if own else math.inf
    forced = share > settings.share_force
    return Verdict(delete=forced or share > limits.delete, forced=forced, disk_full=False)


def is_full_after_check(disks: Disks, settings: RetentionSettings, *, disk_full: bool) -> bool:
    """Return whether puts are refused after the check that 4.9 makes on another timer, of the CommitLog's disk only."""
    if settings.release is not RocketMQRelease.V4_9:
        return disk_full
    return used_share(disks.logs[0], settings.release) > settings.thresholds.refuse


def _look_as_4(log: float, queues: float, limits: Thresholds, *, disk_full: bool) -> Verdict:
    """4.9: the force level deletes nothing by itself, and each disk sets or clears the refusal in turn."""
    forced = False
    for share in (log, queues):
        if share > limits.refuse:
            disk_full = forced = True
        elif share > limits.force:
            forced = True
        else:
            disk_full = False
        if share < 0 or share > limits.delete:
            return Verdict(delete=True, forced=forced, disk_full=disk_full)
    return Verdict(delete=False, forced=forced, disk_full=disk_full)


class Deletion(NamedTuple):
    file: FileId
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Result of a decision: the files that one run deletes, and its memory for the next run."""

    deletions: tuple[Deletion, ...]  # files in order
    # reason to keep segments that are due: a protected group or a minimum age; empty without one
    wanted: str
    # whether a disk is above the hard limit: segments are deleted in spite of ``wanted``
    disk_wins: bool
    time_up: bool | None  # rules that started the run; None if `failure` kept them from being looked at
    space_short: bool | None
    manual: bool
    forced: bool  # whether the disk asks for young segments, too
    failure: str  # why the CommitLog was skipped; empty if it was not
    log_start: int  # first physical offset of the log afterwards; -1 without a segment
    # whether puts are refused after the check of the disk that 4.9 makes on another timer; of 5.x as in ``memory``
    disk_full_checked: bool
    memory: Memory  # for the next run, if all deletions succeed as foreseen


def decide(state: State, now: Moment, disks: Disks, settings: RetentionSettings) -> Plan:
    """Return the files that one run deletes; nothing is read but by the functions of ``state``."""
    memory = state.memory
    hung = dict(memory.hung)
    manual = memory.manual_left > 0
    time_up: bool | None = None
    space: Verdict | None = None
    deletions: list[Deletion] = []
    kept = 0
    failure = ""
    manual_left, retried_ms = memory.manual_left, memory.retried_ms
    try:
        time_up = is_due(settings.delete_when, now.hour)
    except ValueError as error:
        failure = str(error)
    else:
        space = look_at_disks(disks, state.bytes, settings, disk_full=memory.disk_full)
        if time_up or space.delete or manual:
            manual_left -= manual
            rules = [name for name, on in (("time", time_up), ("space", space.delete), ("manual", manual)) if on]
            deletions, kept = _from_log(state.log, now.ms, settings, hung, ", ".join(rules), forced=space.forced)
        if settings.log_bytes_max is not None:
            deletions += _above_limit(state.log, kept, now.ms, settings, hung)
            kept = len(deletions)
        if now.ms - retried_ms > settings.retry_ms:
            retried_ms = now.ms
            if again := _retry(state.log, kept, now.ms, settings.held_ms, hung):
                deletions.append(again)
                kept += 1
    disk_wins = _is_above_hard_limit(disks, settings)
    deletions, wanted = _spare_wanted(state, deletions, now.ms, settings, hung, disk_wins=disk_wins)
    kept = len(deletions)
    log_start = _start(state.log, kept, hung)
    cleaned_to = memory.queues_cleaned_to
    if log_start > cleaned_to:
        cleaned_to = log_start
        queues, index = state.below(log_start)
        deletions += _from_queues(queues, log_start, now.ms, hung)
        deletions += _from_index(index, log_start, now.ms, hung)
    disk_full = memory.disk_full if space is None else space.disk_full
    return Plan(
        deletions=tuple(deletions),
        wanted=wanted,
        disk_wins=disk_wins,
        time_up=time_up,
        space_short=None if space is None else space.delete,
        manual=manual,
        forced=space is not None and space.forced,
        failure=failure,
        log_start=log_start,
        disk_full_checked=is_full_after_check(disks, settings, disk_full=disk_full),
        memory=Memory(
            manual_left=manual_left,
            disk_full=disk_full,
            queues_cleaned_to=cleaned_to,
            retried_ms=retried_ms,
            hung=hung,
        ),
    )


# -- when


def is_due(delete_when: str, hour: int) -> bool:
    """Return whether an hour is in ``deleteWhen``, read from the left up to the first match."""
    entries = delete_when.split(";")
    while len(entries) > 1 and not entries[-1]:  # Java drops empty strings at the end
        entries.pop()
    if len(entries) == 1 and not entries[0] and delete_when:
        return False
    for entry in entries:
        if not _INTEGER.fullmatch(entry) or not -1 << 31 <= int(entry) < 1 << 31:
            raise ValueError(f"deleteWhen is {delete_when!r}, and {entry!r} in it is not an hour")
        if int(entry) == hour:
            return True
    return False


# -- files


def _from_log(
    log: LogFiles,
    now: int,
    settings: RetentionSettings,
    hung: dict[FileId, int],
    rules: str,
    *,
    forced: bool,
) -> tuple[list[Deletion], int]:
    """Return the segments to delete, and their number."""
    forced = forced and settings.force_enabled
    found: list[Deletion] = []
    candidates = max(log.base.size - 1, 0)
    expired = log.modified_ms[:candidates] + settings.file_reserved_hours * _HOUR_MS <= now
    for at in range(candidates):
        if not (forced or expired[at]):
            break
        file = FileId(FileKind.LOG, int(log.base[at]))
        if not _destroy(file, now, settings.held_ms, hung, held=bool(log.held[at])):
            break
        found.append(Deletion(file, f"{'expired' if expired[at] else 'forced'} ({rules})"))
        if len(found) >= settings.files_max:
            break
    return found, len(found)


def _above_limit(
    log: LogFiles, first: int, now: int, settings: RetentionSettings, hung: dict[FileId, int]
) -> list[Deletion]:
    """Return further segments to delete, from ``first`` on, until the log is within `log_bytes_max`."""
    assert settings.log_bytes_max is not None
    found: list[Deletion] = []
    left = int(log.size[first:].sum())
    for at in range(first, min(log.base.size - 1, settings.files_max)):
        file = FileId(FileKind.LOG, int(log.base[at]))
        if left <= settings.log_bytes_max:
            break
        if not _destroy(file, now, settings.held_ms, hung, held=bool(log.held[at])):
            break
        found.append(Deletion(file, "above log_bytes_max"))
        left -= int(log.size[at])
    return found


def _is_above_hard_limit(disks: Disks, settings: RetentionSettings) -> bool:
    used = max(used_share(space, settings.release) for space in (*disks.logs, disks.queues))
    return used * 100 > settings.hard_limit_percent


def _spare_wanted(
    state: State,
    deletions: list[Deletion],
    now: int,
    settings: RetentionSettings,
    hung: dict[FileId, int],
    *,
    disk_wins: bool,
) -> tuple[list[Deletion], str]:
    """Keep protected segments, and return the reason; if the disk wins they are deleted, with that reason added."""
    stops = (state.log.base + state.log.size)[: len(deletions)].tolist()
    unread = _first_unread(state, stops, settings)
    young = _first_young(state, stops[: unread[0]], now, settings)
    first, why = young if young[1] else unread
    if not why:
        return deletions, ""
    due, deletions = deletions[first:], deletions[:first]
    if disk_wins:
        return deletions + [each._replace(reason=f"{each.reason}, {why}") for each in due], why
    hung |= {each.file: state.memory.hung[each.file] for each in due if each.file in state.memory.hung}
    return deletions, why


def _first_unread(state: State, stops: Sequence[int], settings: RetentionSettings) -> tuple[int, str]:
    """Return the number of segments before the first that a protected group has not read, and the reason."""
    if stops and settings.protected_groups:
        unread = state.unread()
        read = sum(stop <= unread.physical_offset for stop in stops)
        if read < len(stops):
            return read, f"unread: {unread.text}"
    return len(stops), ""


def _first_young(state: State, stops: Sequence[int], now: int, settings: RetentionSettings) -> tuple[int, str]:
    """Return the number of segments before the first that holds a message below its topic's minimum age, and which."""
    for at, stop in enumerate(stops):
        for topic, age in settings.min_age_ms.items():
            newest = state.newest(topic, stop)
            if newest is not None and now - newest < age:
                return at, f"young: topic {topic} has {_shown(newest)}, and keeps messages for {age} ms"
    return len(stops), ""


def _shown(store_ms: int) -> str:
    if store_ms == UNKNOWN_MS:
        return "messages of unknown age"
    return f"a message of {datetime.fromtimestamp(store_ms / 1000, UTC).isoformat(timespec='milliseconds')}"


def _retry(log: LogFiles, first: int, now: int, held_ms: int, hung: dict[FileId, int]) -> Deletion | None:
    """Return the first segment that is left, if an earlier attempt to delete it failed and this one succeeds."""
    if first >= log.base.size:
        return None
    file = FileId(FileKind.LOG, int(log.base[first]))
    if file not in hung or not _destroy(file, now, held_ms, hung, held=bool(log.held[first])):
        return None
    return Deletion(file, "retried")


def _start(log: LogFiles, first: int, hung: Mapping[FileId, int]) -> int:
    """Return the log's first offset; a first segment that could not be deleted does not count."""
    if first >= log.base.size:
        return -1
    base, size = int(log.base[first]), int(log.size[first])
    if FileId(FileKind.LOG, base) not in hung:
        return base
    return base + size - base % size if size else base


def _from_queues(files: QueueFiles, start: int, now: int, hung: dict[FileId, int]) -> list[Deletion]:
    count = files.base.size
    if not count:
        return []
    is_last = np.ones(count, np.bool_)
    is_last[:-1] = files.queue_of[1:] != files.queue_of[:-1]
    goes = (files.last_physical < start) & ~is_last
    for file in hung:
        if file.kind is FileKind.QUEUE:  # its entries cannot be read any more
            goes[_row_of(files, file)] = True
    goes &= ~is_last
    # No file is deleted after a file that stays: rows of a queue count up to its first file that stays.
    stays = np.cumsum(~goes)
    firsts = np.concatenate([[0], np.flatnonzero(is_last)[:-1] + 1])
    before = np.repeat(stays[firsts] - ~goes[firsts], np.diff(np.append(firsts, count)))
    found: list[Deletion] = []
    stuck = -1
    for row in np.flatnonzero(goes & (stays == before)).tolist():
        queue = int(files.queue_of[row])
        if queue == stuck:
            continue
        file = FileId(FileKind.QUEUE, int(files.base[row]), files.queues[queue])
        if _destroy(file, now, _QUEUE_HELD_MS, hung, held=bool(files.held[row])):
            found.append(Deletion(file, f"below the log's start {start}"))
        else:
            stuck = queue
    return found


def _row_of(files: QueueFiles, file: FileId) -> Ints:
    """Return the row of a file; none if it is missing."""
    rows = np.flatnonzero(files.base == file.base)
    return np.array([row for row in rows.tolist() if files.queues[int(files.queue_of[row])] == file.queue], np.int64)


def _from_index(files: IndexFiles, start: int, now: int, hung: dict[FileId, int]) -> list[Deletion]:
    found: list[Deletion] = []
    for at in range(files.name.size - 1):
        file = FileId(FileKind.INDEX, int(files.name[at]))
        below = files.end_physical[at] < start
        if not below or not _destroy(file, now, _INDEX_HELD_MS, hung, held=bool(files.held[at])):
            break
        found.append(Deletion(file, f"below the log's start {start}"))
    return found


def _destroy(file: FileId, now: int, held_ms: int, hung: dict[FileId, int], *, held: bool) -> bool:
    """Return whether an attempt to delete a file succeeds, and note one that does not (``ReferenceResource``)."""
    since = hung.get(file)
    if held and (since is None or now - since < held_ms):
        hung.setdefault(file, now)
        return False
    hung.pop(file, None)
    return True
