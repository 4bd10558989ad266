"""Lets other files fill the small disk of a store with retention, round by round. Run as a program, as `full_disk`.

::

    unshare -m python -m support.expiring_disk FOLDER SEED ROUNDS      one line of JSON

    tmpfs  [store ████████     ]          puts
           [store ████████][ballast ███]  above 90 %: puts are refused, young segments are deleted
           [store ████][ballast ███    ]  85 % or below: puts go on; the ballast goes, next round
"""

import json
import logging
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from segmentlog.store import (
    Flush,
    MessageStore,
    NoSpaceError,
    QueueKey,
    QueueRange,
    RetentionSettings,
    ScanSpec,
    Services,
    StoreConfig,
    StoreReader,
)
from segmentlog.store.directory.retention_history import deletions
from segmentlog.store.files.fs import LocalFileSystem, space_of
from segmentlog.store.maintenance import verify
from segmentlog.store.retention.policy import used_share
from segmentlog.store.retention.settings import RocketMQRelease
from segmentlog.store.retention.state import Kind

from .full_disk import mount
from .telling import COLUMNS, batch_of, check

DISK_KIB = 8 << 10
CONFIG = StoreConfig(
    segment_bytes=64 << 10,
    queue_segment_entries=200,
    index_slots=50,
    index_entries=400,
    flush_interval_ms=2,
    queue_flush_interval_ms=2,
)
SETTINGS = RetentionSettings(
    delete_when="24",  # never: only the disk starts a run
    start_ms=0,
    interval_ms=10,
    log_pause_ms=0,
    queue_pause_ms=0,
)
KEY = QueueKey("orders", 0)
ROWS = 50
PUTS_MAX = 2_000
PUTS_PER_FILL = 100
REFUSED_SECONDS_MAX = 300
RUN_SECONDS_MAX = 300


class Disk:
    """A store on a small disk, and all that was put."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._rng = random.Random(seed)
        self._path = folder / "store"
        self._ballast = folder / "ballast"
        self._end = 0
        self._placed: list[tuple[int, int]] = []  # queue offset and physical offset of each batch
        self._named: dict[int, str] = {}
        self.counted = Counter[str]()
        self._store = self._open()

    def round(self) -> None:
        self._until_used(0.7)
        self._until_refused(self._rng.uniform(0.905, 0.97))
        assert self._used() > 0.5
        self._until_accepted()
        for _ in range(3):
            self._put()
        self._ballast.unlink()
        self.counted["rounds"] += 1
        if self._rng.random() < 0.2:
            self._look()
            self._store.close()
            self._store = self._open()

    def end(self) -> None:
        self._look()
        self._store.close()
        assert verify(self._path).findings == ()

    def _open(self) -> MessageStore:
        services, flush = self._rng.choice(list(Services)), self._rng.choice(list(Flush))
        return MessageStore.open(self._path, replace(CONFIG, services=services, flush=flush), retention=SETTINGS)

    def _used(self) -> float:
        return used_share(space_of(str(self._folder)), RocketMQRelease.V5_1)

    def _put(self) -> None:
        placed = self._store.append_batch(batch_of([(KEY, self._end, ROWS)]))
        assert int(placed.queue_offsets[0]) == self._end
        self._placed.append((self._end, int(placed.physical_offsets[0])))
        self._end += ROWS
        self.counted["acknowledged"] += ROWS

    def _until_used(self, share: float) -> None:
        for _ in range(PUTS_MAX):
            if self._used() >= share:
                return
            self._put()
        raise AssertionError("the disk does not fill")

    def _until_refused(self, share: float) -> None:
        for number in range(PUTS_MAX):
            if number % PUTS_PER_FILL == 0:  # a run that came while it was filled has made room
                self._fill(share)
            end = self._store.end_offset
            try:
                self._put()
            except NoSpaceError as error:
                _check_refusal(error)
                assert self._store.end_offset == end
                self.counted["refused"] += 1
                return
            time.sleep(0.001)
        raise AssertionError("no put is refused above the ratio")

    def _fill(self, share: float) -> None:
        space = space_of(str(self._folder))
        assert space is not None
        with self._ballast.open("ab") as ballast:
            ballast.write(bytes(max(0, int(share * space.total) - (space.total - space.free))))

    def _until_accepted(self) -> None:
        retention = self._store.retention
        assert retention is not None
        until = time.monotonic() + REFUSED_SECONDS_MAX
        while True:
            try:
                self._put()
            except NoSpaceError as error:
                _check_refusal(error)
                assert time.monotonic() < until, f"puts are refused at {self._used():.0%}"
                self.counted["refused again"] += 1
                self._store.tick()
                time.sleep(0.002)
            else:
                break
        # the put itself may begin a segment, of one percent
        assert self._used() <= 0.85 + 2 * CONFIG.segment_bytes / (DISK_KIB << 10) + 0.01

    def _look(self) -> None:
        """Read everything: what is missing was in a segment of the history."""
        self._store.wait_dispatched()
        assert self._store.retention is not None
        assert self._store.retention.counts.failures == 0
        self.counted["segments"] += self._store.retention.counts.files[Kind.LOG]
        self.counted["queue files"] += self._store.retention.counts.files[Kind.QUEUE]
        start = self._history_agrees()
        assert set(self._named.values()) == {"forced (space)"}
        reader = StoreReader.open(self._path)
        bounds = reader.bounds(KEY)
        assert bounds.max_offset == self._end
        self._placed = [each for each in self._placed if each[1] >= start]
        assert bounds.min_offset <= self._placed[0][0]
        tasks = reader.plan([QueueRange(KEY, bounds.min_offset, self._end)], max_bytes=16 << 20)
        offsets: list[int] = []
        for task in tasks:
            for batch in reader.scan(task, ScanSpec(columns=COLUMNS, check_crc=True)):
                check(batch)
                offsets += batch.column("queueOffset").to_pylist()
        assert offsets == list(range(bounds.min_offset, self._end))
        self.counted["read"] += len(offsets)

    def _history_agrees(self) -> int:
        """Wait until the history names the deleted segments and no other; return the start of the log.

        A run in progress goes on after the ballast is gone, and its lines are written before its files are deleted.
        """
        until = time.monotonic() + RUN_SECONDS_MAX
        while True:
            for each in deletions(LocalFileSystem(), str(self._path)):
                if each.log_base is not None:
                    self._named[each.log_base] = each.reason
            segments = sorted(int(each.name) for each in (self._path / "commitlog").iterdir())
            assert all(after - base == CONFIG.segment_bytes for base, after in pairwise(segments))
            deleted = set(range(0, segments[0], CONFIG.segment_bytes))
            if set(self._named) == deleted:
                return segments[0]
            assert time.monotonic() < until, f"history and log differ: {set(self._named) ^ deleted}"
            self._store.tick()
            time.sleep(0.002)


def _check_refusal(error: NoSpaceError) -> None:
    if "puts are refused" not in str(error):
        raise error  # the disk is really full


def main() -> None:
    logging.disable(logging.ERROR)
    folder, seed, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    mount(folder, DISK_KIB)
    try:
        disk = Disk(folder, seed)
        for number in range(rounds):
            try:
                disk.round()
            except Exception as error:
                error.add_note(f"round {number}, seed {seed}")
                raise
        disk.end()
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
    sys.stdout.write(json.dumps(disk.counted) + "\n")


if __name__ == "__main__":
    main()
