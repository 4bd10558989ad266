"""Decisions of retention that delete nothing, on real directories of sparse files.

::

    10,000 segments, 50,000 queues of two files      log from offset 0: queues are not read
                                                     log that begins later: the first run reads all queues
      first run       listing included
      a run again     known names: the service's repeated decision
      names listed    a name in the directory changed since

What a service of `MessageStore` does in its own thread, with `RetentionService.step`; no store is open.
"""

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness import Case, Found, Result, Unit, nothing, result_of

from segmentlog.store import RetentionSettings
from segmentlog.store.files.segments import SegmentFile
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.retention.state import FileId
from segmentlog.store.write.retention_service import RetentionService

if TYPE_CHECKING:
    from bench import Bench

SEGMENTS, QUEUES, TOPICS = 10_000, 50_000, 50
SEGMENT_BYTES, QUEUE_FILE_BYTES = 1 << 30, 6_000_000
AGAIN = 30
OURS = "segmentlog"
NOTHING = RetentionSettings(start_ms=0, interval_ms=0, disk_max_used_percent=95, force_enabled=False)
FIRST, LATER_START, REPEATED, LISTED = (
    "first run",
    "first run, the log begins later",
    "a run again",
    "a run again, a name changed",
)


class Keeping:
    """Deletes nothing: a run that wants to is an error of the benchmark."""

    def remove(self, file: FileId, found: SegmentFile) -> None:
        """Refuse."""
        raise AssertionError(f"{file} of {found.size} bytes is to be deleted")


def write_directories(path: Path, segments: int, queues: int, first: int = 0) -> None:
    """Make a store directory of sparse files; each queue has a full file and one that is written."""
    log = path / "commitlog"
    log.mkdir(parents=True)
    for number in range(first, first + segments):
        _sparse(log / f"{number * SEGMENT_BYTES:020d}", SEGMENT_BYTES)
    beyond = ((first + segments) * SEGMENT_BYTES).to_bytes(8, "big")
    for number in range(queues):
        queue = path / "consumequeue" / f"topic-{number % TOPICS}" / str(number // TOPICS)
        queue.mkdir(parents=True)
        _sparse(queue / f"{0:020d}", QUEUE_FILE_BYTES, beyond)
        _sparse(queue / f"{QUEUE_FILE_BYTES:020d}", QUEUE_FILE_BYTES)


def _sparse(path: Path, size: int, last: bytes = b"") -> None:
    with path.open("wb") as file:
        if last:
            file.seek(size - 20)
            file.write(last)
        file.truncate(size)


def service_of(path: Path) -> RetentionService:
    """Return a service whose runs are due at once."""
    return RetentionService(
        NOTHING,
        fs=LocalWritableFileSystem(),
        path=str(path),
        remover=Keeping(),
        clock=lambda: time.time_ns() // 1_000_000,
        active_base=lambda: 1 << 62,
        hidden_from=lambda: None,
        dispatched=lambda: 1 << 62,
    )


def timed(service: RetentionService) -> float:
    """Return the seconds of one run."""
    begun = time.perf_counter()
    service.step()
    taken = time.perf_counter() - begun
    assert not any(service.counts.files.values())
    assert not service.counts.failures
    return taken


def decisions(bench: "Bench") -> Found:
    """Measure runs that delete nothing."""
    segments, queues = bench.scaled(SEGMENTS, 10), bench.scaled(QUEUES, 10)
    path, results = bench.place("expiring"), list[Result]()

    def add(what: str, seconds: list[float]) -> None:
        name = f"{OURS}: {what}, {segments:,} segments and {queues:,} queues"
        results.append(result_of(Case(name=name, peer=OURS, rows=1, action=nothing, unit=Unit.CALLS), seconds))

    for first in (0, 1):
        write_directories(path, segments, queues, first)
        time.sleep(2.5)  # two changes within one tick of the file system's clock look the same
        add((FIRST, LATER_START)[first], [timed(service_of(path)) for _ in range(3)])
        if not first:
            service = service_of(path)
            timed(service)
            add(REPEATED, [timed(service) for _ in range(AGAIN)])
            add(LISTED, [_after_a_change(service, path, number) for number in range(3)])
        shutil.rmtree(path)
    return Found(results=results)


def _after_a_change(service: RetentionService, path: Path, number: int) -> float:
    os.utime(path / "commitlog", ns=(0, number))  # as a new name does
    return timed(service)
