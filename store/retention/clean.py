"""Retention applied: files of a plan are deleted one by one, in an order that survives a crash at each step.

::

    history line ──► log: unlink oldest, sync directory, pause, next ──► queues: unlink, sync ──► index: unlink, sync
                          └ a failure ends the run: queues and index follow the log in a later one

    archive:         copy, verify ──► history line ──► unlink, sync directory, pause ──► the next file

The log is deleted from its front, and each name is gone from the device before the next one: a crash leaves no gap.
Queue entries below the log's start are harmless: readers skip them, and the first run after a start deletes them. Files
are unlinked, never shrunk or reused, so that a reader that has one mapped finishes it. RocketMQ:
``MappedFileQueue.deleteExpiredFileByTime``, ``deleteExpiredFileByOffset``, ``IndexService.deleteExpiredFile``.
"""

import logging
import os
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from ..directory.retention_history import Deleted, History
from ..errors import NoSpaceError, SegmentLogError, StoreClosedError, StoreFailedError, StoreInUseError
from ..files.segments import SegmentFile
from ..files.writable_fs import WritableFileSystem
from .archive import Archive
from .policy import Deletion, Plan
from .settings import RetentionSettings
from .state import FileId, FileKind, Memory
from .survey import StoreFiles

_log = logging.getLogger(__name__)

_FATAL: Final = (StoreInUseError, StoreClosedError, StoreFailedError)


class Remover(Protocol):
    """Unlinks one file of a store, and syncs its directory; raises before it does so if the store is not ours."""

    def remove(self, file: FileId, found: SegmentFile) -> None:
        """Unlink a file that was found at ``found.path``."""


class Archiving(Protocol):
    """Copies files before they are deleted: `Archive`, or one in object storage."""

    path: str

    def path_of(self, file: FileId) -> str:
        """Path or URL of the copy of a file."""

    def copy(self, file: FileId, found: SegmentFile) -> Generator[float, None, None]:
        """Copy a file, unless its copy exists; raises if there is no verified copy afterwards."""


class DirectoryRemover:
    """Unlinks files of a store that no process has open; ``check_owned`` raises if another process took it over."""

    def __init__(self, fs: WritableFileSystem, check_owned: Callable[[], None]) -> None:
        self._fs = fs
        self._check_owned = check_owned

    def remove(self, file: FileId, found: SegmentFile) -> None:  # noqa: ARG002 - see Remover
        self._check_owned()
        self._fs.unlink(found.path)
        self._fs.sync_dir(os.path.dirname(found.path))


@dataclass(slots=True)
class Counts:
    """Deleted files by kind, their bytes, archived files, and files that could not be deleted or archived."""

    files: dict[FileKind, int] = field(default_factory=lambda: dict.fromkeys(FileKind, 0))
    bytes: int = 0
    archived: int = 0
    failures: int = 0


class Cleaner:
    """Deletes the files of plans, and counts them. Not thread-safe."""

    def __init__(
        self,
        fs: WritableFileSystem,
        files: StoreFiles,
        remover: Remover,
        settings: RetentionSettings,
        archive: Archiving | None = None,
    ) -> None:
        self.counts = Counts()
        self._files = files
        self._remover = remover
        self._log_pause_s = settings.log_pause_ms / 1000
        self._queue_pause_s = settings.queue_pause_ms / 1000
        self._history = History(fs, files.path)
        self._archive = archive or archive_of(fs, files, settings)

    def steps(self, plan: Plan, before: Memory, now_ms: int) -> Generator[float, None, Memory]:
        """Delete the files of a plan; yield the seconds to wait after each step, return the memory for the next run."""
        # Queues and index are cleaned again by the next run, unless the log was cleaned and all copies were made.
        found = self._find(plan.deletions)
        wanted = [each for each in plan.deletions if each.file in found]
        lines = [Deleted(now_ms, str(each.file), found[each.file].size, each.reason) for each in wanted]
        unrecorded = [] if self._archive is not None or self._record(lines) else lines
        hung = dict(plan.memory.hung)
        stuck: set[object] = set()  # the log, queues and the index whose oldest file could not be deleted
        all_copied = True
        for at, each in enumerate(wanted):
            group = each.file.queue or each.file.kind
            if group in stuck or FileKind.LOG in stuck:
                continue
            if self._archive is not None:
                line = yield from self._copy(self._archive, lines[at], each.file, found[each.file], plan)
                if line is None:
                    all_copied = False
                    stuck.add(group)
                    continue
                unrecorded += [] if self._record([line]) else [line]
            if not self._remove(each, found[each.file]):
                hung[each.file] = before.hung.get(each.file, now_ms)
                stuck.add(group)
                continue
            following = wanted[at + 1].file if at + 1 < len(wanted) else None
            if each.file.kind is FileKind.LOG:
                yield self._log_pause_s
            elif following is None or following.queue != each.file.queue:
                yield self._queue_pause_s if each.file.kind is FileKind.QUEUE else 0.0
        if unrecorded:
            self._record(unrecorded)  # there is room now
        reached = (
            plan.memory.queues_cleaned_to if all_copied and FileKind.LOG not in stuck else before.queues_cleaned_to
        )
        return replace(plan.memory, hung=hung, queues_cleaned_to=reached)

    def _copy(
        self, archive: Archiving, line: Deleted, file: FileId, found: SegmentFile, plan: Plan
    ) -> Generator[float, None, Deleted | None]:
        """Archive a file; return its line of the history, or None if it has to stay."""
        try:
            yield from archive.copy(file, found)
        except (SegmentLogError, OSError) as error:
            self.counts.failures += 1
            if not plan.disk_wins:
                _log.error("%s could not be archived and stays, a later run tries again: %s", found.path, error)
                return None
            _log.error("%s is deleted without a copy, since its disk is above the hard limit: %s", found.path, error)
            return line._replace(reason=f"{line.reason}, not archived")
        self.counts.archived += 1
        return line._replace(archive=archive.path)

    def _remove(self, each: Deletion, found: SegmentFile) -> bool:
        try:
            self._remover.remove(each.file, found)
        except _FATAL:
            raise
        except (SegmentLogError, OSError) as error:
            _log.error("%s could not be deleted, a later run tries again: %s", found.path, error)
            self.counts.failures += 1
            return False
        _log.info("deleted %s, %d bytes: %s", found.path, found.size, each.reason)
        self.counts.files[each.file.kind] += 1
        self.counts.bytes += found.size
        return True

    def _record(self, lines: Sequence[Deleted]) -> bool:
        if not lines:
            return True
        try:
            self._history.add(lines)
        except NoSpaceError as error:
            _log.warning("no room for the history of deletions: %s", error)
            return False
        return True

    def _find(self, deletions: Sequence[Deletion]) -> dict[FileId, SegmentFile]:
        """Find the files of a plan; one that another process deleted meanwhile is missing."""
        found: dict[FileId, SegmentFile] = {}
        if any(each.file.kind is FileKind.LOG for each in deletions):
            found |= {FileId(FileKind.LOG, segment.base): segment for segment in self._files.segments()}
        for key in {each.file.queue for each in deletions if each.file.queue is not None}:
            found |= {FileId(FileKind.QUEUE, segment.base, key): segment for segment in self._files.queue_segments(key)}
        for each in deletions:
            if each.file.kind is FileKind.INDEX and (segment := self._files.index_file(each.file.base)) is not None:
                found[each.file] = segment
        return found


def archive_of(fs: WritableFileSystem, files: StoreFiles, settings: RetentionSettings) -> Archive | None:
    """Return the archive of the settings; None without one."""
    return None if settings.archive is None else Archive(fs, files.path, os.path.abspath(settings.archive))


def finish(steps: Generator[float, None, Memory], pause: Callable[[float], None]) -> Memory:
    """Take all steps of `Cleaner.steps`, with their pauses; return the memory for the next run."""
    while True:
        try:
            pause(next(steps))
        except StopIteration as done:
            memory: Memory = done.value
            return memory
