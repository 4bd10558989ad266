"""Expired files of a store that no process has open: planned deletions, and deletions.

::

    plan     files listed ──► decide ──► round 1: these files     nothing is changed
                                │          └ treated as gone ──► decide ──► round 2 …
    apply    lock ──► files listed ──► decide ──► delete ──► decide ──► delete …     with the pauses between files

    broker.conf   storePathRootDir=/data/store                 STORE is /backup/store: paths below the root move with it
                  storePathCommitLog=/data/store/log,/disk2    ──► /backup/store/log  /disk2
                  readOnlyCommitLogStorePaths=/disk3           ──► /disk3         + a note for each contradiction

Conditions may be supposed: a time, an hour, the use of the disks, a manual trigger. RocketMQ does this only within the
broker (``DefaultMessageStore.cleanFilesPeriodically``, ``MessageStoreConfig``, ``MixAll.MULTI_PATH_SPLITTER``).
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from ..archive.retained import archive_at
from ..directory.layout import refuse_dledger, refuse_read_only
from ..errors import ConfigError
from ..files.fs import LocalFileSystem, Space, space_of
from ..files.segments import list_segments
from ..files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from ..format.broker_config import parse_properties
from ..format.message import MIN_RECORD_BYTES
from ..format.store_paths import StorePaths
from ..queues.consume_queue import ConsumeQueue
from ..read.snapshot import Snapshot
from ..retention.clean import Archiving, Cleaner, Counts, DirectoryRemover, archive_of, finish
from ..retention.guard import Guard, TopicAges
from ..retention.policy import Disks, Plan, decide
from ..retention.settings import RetentionSettings
from ..retention.state import FileId, FileKind, Memory, Moment, State
from ..retention.survey import StoreFiles
from ..types import QueueBounds

_ROOT: Final = "storePathRootDir"
_LOGS: Final = ("storePathCommitLog", "readOnlyCommitLogStorePaths")
_HOUR_MS = 3_600_000
_SUPPOSED_BYTES = 10**12


class BrokerPaths(NamedTuple):
    # directories in their order; empty if the configuration names only ``commitlog`` of the store
    commit_logs: tuple[str, ...]
    notes: tuple[str, ...]  # contradictions between configuration and store, as sentences


def configured_paths(conf: str, store: str | os.PathLike[str]) -> BrokerPaths:
    """Return the CommitLog directories that the text of a ``broker.conf`` names for a store, and notes.

    Raises `ConfigError` if a directory that is named is missing, `FormatError` if the text holds a wrong escape.
    """
    fs = LocalFileSystem()
    properties = parse_properties(conf)
    store = os.path.abspath(store)
    root = os.path.abspath(properties[_ROOT].strip()) if properties.get(_ROOT, "").strip() else store
    notes: list[str] = []
    if root != store:
        notes.append(f"{_ROOT} of the configuration is {root}, and not {store}")
    found: list[str] = []
    for name in _LOGS:
        for path in filter(None, (part.strip() for part in properties.get(name, "").split(","))):
            directory = os.path.abspath(path)
            if directory == root or directory.startswith(f"{root}/"):
                directory = store + directory[len(root) :]
            if fs.stamp(directory) is None:
                raise ConfigError(
                    f"{name} of the configuration names a directory that does not exist",
                    path=directory,
                    fix="Pass the configuration of this store's broker, or the directories with --commit-log",
                )
            if directory not in found:
                found.append(directory)
    default = StorePaths(store).commit_log
    if found and default not in found and list_segments(fs, [default]):
        notes.append(f"{default} has segments, and {_LOGS[0]} of the configuration names other directories")
    return BrokerPaths(() if found == [default] else tuple(found), tuple(notes))


@dataclass(frozen=True, kw_only=True, slots=True)
class Conditions:
    """Conditions of some runs.

    Attributes
    ----------
    now_ms
        Time of the first run, ms since the epoch; the clock's if None. Runs follow each other by the interval.
    hour
        Local hour of the first run, 0 to 23; that of the time if None.
    log_used, queues_used
        Used percent of the disks of CommitLog and ConsumeQueues; the disks' own if None.
    manual
        Whether a manual trigger comes before the first run.
    rounds
        Number of runs.
    """

    now_ms: int | None = None
    hour: int | None = None
    log_used: float | None = None
    queues_used: float | None = None
    manual: bool = False
    rounds: int = 1

    def __post_init__(self) -> None:
        if self.hour is not None and not 0 <= self.hour <= 23:
            raise ConfigError(f"hour is {self.hour}", fix="Name an hour from 0 to 23")
        if self.rounds < 1:
            raise ConfigError(f"rounds is {self.rounds}", fix="Ask for one round at least")
        for name in ("log_used", "queues_used"):
            used = getattr(self, name)
            if used is not None and not 0 <= used <= 100:
                raise ConfigError(f"{name} is {used}", fix="Name a percentage from 0 to 100")

    def disks(self, files: StoreFiles) -> Disks:
        """Return the space of the disks, supposed or measured."""
        logs = tuple(
            space_of(path) if self.log_used is None else _supposed(self.log_used) for path in files.log_directories
        )
        queues = StorePaths(files.path).consume_queues
        return Disks(logs, space_of(queues) if self.queues_used is None else _supposed(self.queues_used))

    def moments(self, interval_ms: int) -> Iterator[Moment]:
        """Return the time of each run."""
        first = time.time_ns() // 1_000_000 if self.now_ms is None else self.now_ms
        for number in range(self.rounds):
            at = number * interval_ms
            local = datetime.fromtimestamp((first + at) / 1000).astimezone()
            hour = local.hour if self.hour is None else (self.hour + at // _HOUR_MS) % 24
            yield Moment(first + at, hour)


class Expired(NamedTuple):
    file: str  # path in the store
    bytes: int  # its length
    modified_ms: int | None  # modification time of a CommitLog segment, ms since the epoch; None for another file
    reason: str  # rule by which it is deleted
    archive: str | None  # path of the copy that is made first; None without an archive


class CleaningRun(NamedTuple):
    """One run: its time, the rules that started it, and the files in order of their deletion."""

    moment: Moment
    plan: Plan
    expired: tuple[Expired, ...]


@dataclass(frozen=True, slots=True)
class Retained:
    """Result of some runs.

    Attributes
    ----------
    runs
        Each run.
    log_start
        First physical offset of the log afterwards; -1 without a segment.
    queues
        Queue offsets of each queue afterwards.
    disk_full
        Whether a broker refuses puts after the last run.
    archived
        Files that were archived; 0 of a plan.
    failures
        Files that could not be deleted or archived; 0 of a plan.
    """

    runs: tuple[CleaningRun, ...]
    log_start: int
    queues: tuple[QueueBounds, ...]
    disk_full: bool
    archived: int
    failures: int


def plan_retention(
    path: str | os.PathLike[str],
    settings: RetentionSettings,
    conditions: Conditions | None = None,
    *,
    commit_log_paths: tuple[str, ...] = (),
) -> Retained:
    """Return the files that runs would delete. Nothing is changed; a broker may have the store open.

    Parameters
    ----------
    commit_log_paths
        Directories of CommitLog segments, if not ``commitlog`` in the store.

    Raises
    ------
    NotAStoreError, UnsupportedStoreError
        If the directory is not a store, or a store of another kind.
    ConfigError
        If the archive belongs to another store.
    """
    conditions = conditions or Conditions()
    files = _files(path, commit_log_paths)
    refuse_dledger(files.fs, files.path, "expired files cannot be listed")
    archive = _archive(LocalWritableFileSystem(), files, settings)
    memory = Memory().triggered() if conditions.manual else Memory()
    runs: list[CleaningRun] = []
    for moment in conditions.moments(settings.interval_ms):
        plan = _decide(files, memory, moment, conditions, settings)
        runs.append(_run(files, moment, plan, archive))
        files = files.without(each.file for each in plan.deletions)
        memory = plan.memory
    return _retained(files, runs, Counts())


def apply_retention(
    path: str | os.PathLike[str],
    settings: RetentionSettings,
    conditions: Conditions | None = None,
    *,
    commit_log_paths: tuple[str, ...] = (),
) -> Retained:
    """Delete expired files, one run after the other without the interval between them; see `plan_retention`.

    Raises
    ------
    StoreInUseError
        If a broker or another process has the store open; nothing is deleted then.
    """
    conditions = conditions or Conditions()
    files = _files(path, commit_log_paths)
    fs = LocalWritableFileSystem()
    refuse_read_only(fs, files.path, "its files cannot be deleted")
    archive = _archive(fs, files, settings)
    memory = Memory().triggered() if conditions.manual else Memory()
    runs: list[CleaningRun] = []
    lock = fs.lock_store(StorePaths(files.path).lock)
    try:
        cleaner = Cleaner(fs, files, DirectoryRemover(fs, lock.ensure_held), settings, archive)
        for moment in conditions.moments(settings.interval_ms):
            plan = _decide(files, memory, moment, conditions, settings)
            runs.append(_run(files, moment, plan, archive))
            memory = finish(cleaner.steps(plan, memory, moment.ms), time.sleep)
        return _retained(files, runs, cleaner.counts)
    finally:
        lock.release()


def _files(path: str | os.PathLike[str], commit_log_paths: tuple[str, ...]) -> StoreFiles:
    snapshot = Snapshot.open(path, commit_log_paths=commit_log_paths)  # makes sure that it is a store
    return StoreFiles(LocalWritableFileSystem(), snapshot.path, commit_log_paths)


def _decide(
    files: StoreFiles, memory: Memory, moment: Moment, conditions: Conditions, settings: RetentionSettings
) -> Plan:
    held = files.bytes() if settings.brokers_per_disk > 1 else 0
    guard, ages = Guard(files, settings.protected_groups), TopicAges(files)
    state = State(files.log(), files.below, held, memory, guard.unread, ages.newest)
    return decide(state, moment, conditions.disks(files), settings)


def _archive(fs: WritableFileSystem, files: StoreFiles, settings: RetentionSettings) -> Archiving | None:
    return archive_at(files.path, files.log_directories, settings.archive) or archive_of(fs, files, settings)


def _run(files: StoreFiles, moment: Moment, plan: Plan, archive: Archiving | None) -> CleaningRun:
    log = files.log()
    modified = dict(zip(log.base.tolist(), log.modified_ms.tolist(), strict=True))
    sizes = {FileId(FileKind.LOG, base): size for base, size in zip(log.base.tolist(), log.size.tolist(), strict=True)}
    for key in {each.file.queue for each in plan.deletions if each.file.queue is not None}:
        sizes |= {FileId(FileKind.QUEUE, found.base, key): found.size for found in files.queue_segments(key)}
    for each in plan.deletions:
        if each.file.kind is FileKind.INDEX and (found := files.index_file(each.file.base)) is not None:
            sizes[each.file] = found.size
    expired = tuple(
        Expired(
            str(each.file),
            sizes[each.file],
            modified[each.file.base] if each.file.kind is FileKind.LOG else None,
            each.reason,
            None if archive is None else archive.path_of(each.file),
        )
        for each in plan.deletions
    )
    return CleaningRun(moment, plan, expired)


def _retained(files: StoreFiles, runs: list[CleaningRun], counts: Counts) -> Retained:
    log = files.log()
    start = int(log.base[0]) if log.base.size else -1
    return Retained(
        tuple(runs),
        start,
        tuple(_bounds(files, start)),
        runs[-1].plan.disk_full_checked,
        counts.archived,
        counts.failures,
    )


def _bounds(files: StoreFiles, log_start: int) -> Iterator[QueueBounds]:
    """Queue offsets as RocketMQ 5 corrects them: an empty queue keeps its end."""
    records_max = int(files.log().size.sum()) // MIN_RECORD_BYTES
    for key in files.queues():
        queue = ConsumeQueue(files.fs, StorePaths(files.path).consume_queue(key), key, missing_max=records_max)
        queue.segments = files.queue_segments(key)
        end = queue.data_end()
        yield QueueBounds(key, queue.first_alive(log_start, end), end)


def _supposed(percent: float) -> Space:
    free = _SUPPOSED_BYTES - round(percent * _SUPPOSED_BYTES / 100)
    return Space(_SUPPOSED_BYTES, free, free)
