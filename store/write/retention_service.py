"""Retention service of an open store: expired files are deleted while the store is written, as in a broker.

::

    start ── 60 s ──► run ── 10 s ──► run ── …         run: list files ──► decide ──► delete, one file per pause
                       └ puts are refused from here on while a disk is above diskSpaceWarningLevelRatio

A thread of its own calls `RetentionService.step`, or with ``Services.ON_CALL`` each put. It never waits: it deletes as
many files as the pauses since the last call allow. A batch in flight postpones a run that would delete a segment of it.
RocketMQ: ``DefaultMessageStore.cleanFilesPeriodically``, ``RunningFlags.DISK_FULL_BIT``.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import datetime
from typing import Final

from ..archive.retained import archive_at
from ..errors import NoSpaceError, SegmentLogError, StoreClosedError, StoreFailedError, StoreInUseError
from ..files.fs import space_of
from ..files.writable_fs import WritableFileSystem
from ..format.store_paths import StorePaths
from ..retention.clean import Cleaner, Counts, Remover
from ..retention.guard import Guard, TopicAges
from ..retention.policy import Disks, Plan, decide, is_full_after_check, look_at_disks
from ..retention.settings import RetentionSettings
from ..retention.state import FileKind, Memory, Moment, State
from ..retention.survey import KnownLog, StoreFiles

_log = logging.getLogger(__name__)

_COPY_SECONDS: Final = 0.05
"""Seconds of copying after which `RetentionService.step` returns, and continues in its next call: a put may wait."""


class RetentionService:
    """Deletes the expired files of one open store. Thread-safe."""

    def __init__(
        self,
        settings: RetentionSettings,
        *,
        fs: WritableFileSystem,
        path: str,
        remover: Remover,
        clock: Callable[[], int],
        active_base: Callable[[], int],
        hidden_from: Callable[[], int | None],
        dispatched: Callable[[], int],
        disks: Callable[[StoreFiles], Disks] | None = None,
    ) -> None:
        self._settings = settings
        self._files = StoreFiles(fs, path)
        self._log = KnownLog(self._files)
        self._guard = Guard(self._files, settings.protected_groups, dispatched)
        self._ages = TopicAges(self._files, dispatched)
        self._keeps_wanted = False
        archive = archive_at(path, self._files.log_directories, settings.archive)
        self._cleaner = Cleaner(fs, self._files, remover, settings, archive)
        self._step_seconds = math.inf if settings.archive is None else _COPY_SECONDS
        self._clock = clock
        self._active_base = active_base
        self._hidden_from = hidden_from
        self._disks = disks or disks_of
        self._memory = Memory()
        self._triggered = False
        self._stepping = threading.Lock()
        self._running: Generator[float, None, Memory] | None = None
        self._resume_at = 0.0
        self._due = time.monotonic() + settings.start_ms / 1000
        self.disk_full = False
        """True while puts are refused."""

    @property
    def counts(self) -> Counts:
        """Files deleted since the store was opened."""
        return self._cleaner.counts

    def trigger(self) -> None:
        """Let the next 20 runs delete expired segments at any hour (``executeDeleteFilesManually``)."""
        self._triggered = True

    def check_room(self) -> None:
        """Raise `NoSpaceError` while puts are refused."""
        if self.disk_full:
            raise NoSpaceError(
                f"a disk of this store is used above {self._settings.thresholds.refuse:.0%}: puts are refused",
                path=self._files.path,
                fix="Free space; puts are accepted after the next retention run that finds enough of it",
            )

    def stop(self) -> None:
        """End the current run, and begin no further run; an unfinished copy is removed."""
        with self._stepping:
            self._due = math.inf
            if self._running is not None:
                self._running.close()
                self._running = None

    def step(self) -> None:
        """Start a run that is due, or continue the current run; return without waiting."""
        if not self._stepping.acquire(blocking=False):
            return  # another thread is at it
        try:
            self._step(time.monotonic())
        except (StoreInUseError, StoreClosedError, StoreFailedError):
            raise
        except (SegmentLogError, OSError) as error:
            _log.error("%s: the retention run ends here, the next one tries again: %s", self._files.path, error)
            self._running = None
        finally:
            self._stepping.release()

    def _step(self, now: float) -> None:
        if self._running is not None and now >= self._due:
            self._due = now + self._settings.interval_ms / 1000
            self._look_at_disks()  # a run that makes copies can take longer than a disk to fill up
        if self._running is None:
            if now < self._due:
                return
            self._running = self._begin()
            if self._running is None:
                return
            self._due, self._resume_at = now + self._settings.interval_ms / 1000, now
        while self._resume_at <= now and time.monotonic() - now < self._step_seconds:
            try:
                self._resume_at += next(self._running)
            except StopIteration as done:
                self._memory, self._running = replace(done.value, disk_full=self.disk_full), None
                return

    def _begin(self) -> Generator[float, None, Memory] | None:
        """Decide on a run, and return its steps; None if it has to wait for a batch."""
        now_ms = self._clock()
        # Retention keeps the last segment, which has to be the active one: reserved segments after it are left out.
        active = self._active_base()
        before = self._memory.triggered() if self._triggered else self._memory
        state = State(
            self._log.list_if_changed(now_ms).up_to(active),
            self._files.below,
            self._bytes(),
            before,
            self._guard.unread,
            self._ages.newest,
        )
        moment = Moment(now_ms, datetime.fromtimestamp(now_ms / 1000).astimezone().hour)
        disks = self._disks(self._files)
        plan = decide(state, moment, disks, self._settings)
        if plan.deletions:
            state = state._replace(log=self._log.list_again(now_ms).up_to(active))
            plan = decide(state, moment, disks, self._settings)
        if self._touches_batch(plan, state):
            return None
        self._triggered = False
        if plan.failure:
            _log.error("%s: retention skips the CommitLog: %s", self._files.path, plan.failure)
        self._log_wanted(plan)
        self._set_disk_full(disk_full=plan.disk_full_checked)
        return self._cleaner.steps(plan, before, now_ms)

    def _look_at_disks(self) -> None:
        """Refuse puts, or accept puts again, during a run."""
        disks = self._disks(self._files)
        verdict = look_at_disks(disks, self._bytes(), self._settings, disk_full=self.disk_full)
        self._set_disk_full(disk_full=is_full_after_check(disks, self._settings, disk_full=verdict.disk_full))

    def _bytes(self) -> int:
        """Return the bytes of all files, where they are needed: if brokers share the disk."""
        return self._files.bytes() if self._settings.brokers_per_disk > 1 else 0

    def _touches_batch(self, plan: Plan, state: State) -> bool:
        hidden = self._hidden_from()
        if hidden is None:
            return False
        stops = dict(zip(state.log.base.tolist(), (state.log.base + state.log.size).tolist(), strict=True))
        return any(each.file.kind is FileKind.LOG and stops[each.file.base] > hidden for each in plan.deletions)

    def _log_wanted(self, plan: Plan) -> None:
        keeps = bool(plan.wanted) and not plan.disk_wins
        if plan.wanted and plan.disk_wins:
            _log.error(
                "%s: a disk is used above %d%%, messages are deleted although a rule protects them: %s",
                self._files.path,
                self._settings.hard_limit_percent,
                plan.wanted,
            )
        elif keeps and not self._keeps_wanted:
            _log.warning("%s: segments that are due are kept: %s", self._files.path, plan.wanted)
        self._keeps_wanted = keeps

    def _set_disk_full(self, *, disk_full: bool) -> None:
        if disk_full and not self.disk_full:
            _log.error(
                "%s: a disk is used above %.0f%%, puts are refused",
                self._files.path,
                100 * self._settings.thresholds.refuse,
            )
        elif self.disk_full and not disk_full:
            _log.warning("%s: the disks have room again, puts are accepted", self._files.path)
        self.disk_full = disk_full


def disks_of(files: StoreFiles) -> Disks:
    """Return the space of the disks that a store is on."""
    return Disks(tuple(map(space_of, files.log_directories)), space_of(StorePaths(files.path).consume_queues))
