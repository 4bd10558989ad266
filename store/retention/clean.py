"""Retention applied: files of a plan are deleted one by one, in an order that survives a crash at each step.

::

    history line ──► log: unlink oldest, sync directory, pause, next ──► queues: unlink, sync ──► index: unlink, sync
                          └ a failure ends the run: queues and index follow the log in a later one

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

from ..errors import NoSpaceError, SegmentLogError, StoreClosedError, StoreFailedError, StoreInUseError
from ..files.segments import SegmentFile
from ..files.writable_fs import WritableFileSystem
from .history import Deleted, History
from .policy import Deletion, Plan
from .settings import RetentionSettings
from .state import FileId, Kind, Memory
from .survey import StoreFiles

_log = logging.getLogger(__name__)

_FATAL: Final = (StoreInUseError, StoreClosedError, StoreFailedError)


class Remover(Protocol):
    """Unlinks one file of a store, and syncs its directory; raises before it does so if the store is not ours."""

    def remove(self, file: FileId, found: SegmentFile) -> None:
        """Unlink a file that was found at ``found.path``."""


class DirectoryRemover:
    """Unlinks files of a store that no process has open; ``own`` raises if another process took it over."""

    def __init__(self, fs: WritableFileSystem, own: Callable[[], None]) -> None:
        self._fs = fs
        self._own = own

    def remove(self, file: FileId, found: SegmentFile) -> None:  # noqa: ARG002 - see Remover
        """Unlink one file."""
        self._own()
        self._fs.unlink(found.path)
        self._fs.sync_dir(os.path.dirname(found.path))


@dataclass(slots=True)
class Counts:
    """Deleted files by kind, their bytes, and files that could not be deleted."""

    files: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    bytes: int = 0
    failures: int = 0


class Cleaner:
    """Deletes the files of plans, and counts them. Not thread-safe.

    Parameters
    ----------
    fs, files
        Which store.
    remover
        How files are deleted.
    settings
        Pauses.
    """

    def __init__(
        self, fs: WritableFileSystem, files: StoreFiles, remover: Remover, settings: RetentionSettings
    ) -> None:
        self.counts = Counts()
        self._files = files
        self._remover = remover
        self._log_pause_s = settings.log_pause_ms / 1000
        self._queue_pause_s = settings.queue_pause_ms / 1000
        self._history = History(fs, files.path)

    def steps(self, plan: Plan, before: Memory, now_ms: int) -> Generator[float, None, Memory]:
        """Delete the files of a plan, one after each step.

        Parameters
        ----------
        before
            Memory that the plan was made with.
        now_ms
            Time of the run, ms since the epoch.

        Yields
        ------
        float
            Seconds to wait before the next step.

        Returns
        -------
        Memory
            For the next run: of the plan, but for what failed. Queues and index are cleaned again unless the log was.

        Raises
        ------
        StoreInUseError, StoreClosedError, StoreFailedError
            If the store is not ours any more; nothing is deleted then.
        """
        found = self._find(plan.deletions)
        wanted = [each for each in plan.deletions if each.file in found]
        lines = [Deleted(now_ms, str(each.file), found[each.file].size, each.reason) for each in wanted]
        recorded = not lines or self._record(lines)
        hung = dict(plan.memory.hung)
        stuck: set[object] = set()  # the log, queues and the index whose oldest file could not be deleted
        for at, each in enumerate(wanted):
            group = each.file.queue or each.file.kind
            if group in stuck or Kind.LOG in stuck:
                continue
            if not self._remove(each, found[each.file]):
                hung[each.file] = before.hung.get(each.file, now_ms)
                stuck.add(group)
                continue
            following = wanted[at + 1].file if at + 1 < len(wanted) else None
            if each.file.kind is Kind.LOG:
                yield self._log_pause_s
            elif following is None or following.queue != each.file.queue:
                yield self._queue_pause_s if each.file.kind is Kind.QUEUE else 0.0
        if not recorded:
            self._record(lines)  # there is room now
        reached = before.queues_cleaned_to if Kind.LOG in stuck else plan.memory.queues_cleaned_to
        return replace(plan.memory, hung=hung, queues_cleaned_to=reached)

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
        try:
            self._history.add(lines)
        except NoSpaceError as error:
            _log.warning("no room for the history of deletions: %s", error)
            return False
        return True

    def _find(self, deletions: Sequence[Deletion]) -> dict[FileId, SegmentFile]:
        """Find the files of a plan; one that another process deleted meanwhile is missing."""
        found: dict[FileId, SegmentFile] = {}
        if any(each.file.kind is Kind.LOG for each in deletions):
            found |= {FileId(Kind.LOG, segment.base): segment for segment in self._files.segments()}
        for key in {each.file.queue for each in deletions if each.file.queue is not None}:
            found |= {FileId(Kind.QUEUE, segment.base, key): segment for segment in self._files.queue_segments(key)}
        for each in deletions:
            if each.file.kind is Kind.INDEX and (segment := self._files.index_file(each.file.base)) is not None:
                found[each.file] = segment
        return found


def finish(steps: Generator[float, None, Memory], pause: Callable[[float], None]) -> Memory:
    """Take all steps of `Cleaner.steps`, with their pauses; return the memory for the next run."""
    while True:
        try:
            pause(next(steps))
        except StopIteration as done:
            memory: Memory = done.value
            return memory
