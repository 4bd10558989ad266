"""Tasks and commits of the sink that go wrong, in Spark: what is committed is there once, and nothing else.

::

    attempt 0   before ── rows ── while ── rows ── after ──►  ✗     raises, exits, is killed, with all Python workers
    attempt 1   ───────────────────────────────────────────►  message ──► commit ──► committed
    a zombie                                                  staged files altered ▲     ▲ killed     stages now: late

S13. A driver of its own tries each task three times. The write fails if a task always fails, a staged file was changed,
or a commit is killed. It is then repeated, as by a user.
"""

import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from segmentlog.spark import last_commit
from segmentlog.store import Snapshot
from segmentlog.store.sink import sweep_staging
from support.faulty_sink import Faults
from support.pipes import Feed, Pipe
from support.reading import read
from support.scale import Report, scale
from support.spark_driver import SparkDriver

pytestmark = [
    pytest.mark.scaled(quick=0),  # `test_killed_drivers` has the drivers of a quick run: each takes 15 s of CPU
    pytest.mark.attack,
    pytest.mark.spark,
    pytest.mark.timeout(scale(600, 1800, 36_000)),
]

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261121"))
ROUNDS = scale(1, 1, 25)
ROWS = 60


class Fault(NamedTuple):
    """Fault of one write: time, kind, number, and the message of the write, if it fails."""

    moment: str
    kind: str
    times: int = 1
    says: str | None = None


ATTEMPTS = [
    Fault(moment, kind) for moment in ("before", "while", "after") for kind in ("raise", "exit", "kill", "daemon")
]
TWICE = [Fault("after", "raise", 2), Fault("after", "kill", 2)]
ZOMBIES = [Fault("before", "zombie"), Fault("after", "zombie")]
HOPELESS = [
    Fault("after", "raise", 6, "planted: after"),
    Fault("while", "kill", 6, "Python worker exited unexpectedly"),
]
ALTERED = [
    Fault("commit", kind, 1, "staged rows differ from the rows that their task wrote")
    for kind in ("flip", "cut", "longer", "gone", "swap")
]
KILLED = [Fault(moment, "kill", 1, "") for moment in ("commit", "committed")]
IN_BATCHES = [*ATTEMPTS, *TWICE, *ZOMBIES, *HOPELESS, *ALTERED, *KILLED]
# A stream takes some seconds to start, and its tasks are the same: some of each kind, and what goes wrong in commits.
IN_STREAMS = [
    *(Fault("before", "raise"), Fault("while", "exit"), Fault("after", "kill"), Fault("after", "daemon")),
    *(TWICE[1], ZOMBIES[1], HOPELESS[1], ALTERED[0], ALTERED[3], *KILLED),
]


class Batches:
    """Batch writes with a version: each appends the rows after those before."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.path = folder / "store"
        self.faults = Faults(folder / "faults")
        self.version = 0

    def write(self, driver: SparkDriver) -> str | None:
        """Write the next batch, or write it again; what the write said when it failed."""
        version = {"txnAppId": "jobs", "txnVersion": str(self.version), "faults": str(self.faults.folder)}
        error = driver.ask(do="batch", path=str(self.path), first=self.version * ROWS, rows=ROWS, options=version)[
            "error"
        ]
        return None if error is None else str(error)

    def next(self) -> None:
        self.version += 1

    def check(self, batches: int) -> int:
        """Check that so many batches are there; return the number of rows."""
        if not self.path.exists():
            return 0
        found = Counter(row["body"].decode() for row in read(Snapshot.open(self.path), columns=("body",)))
        assert found == Counter(f"row-{number}" for number in range(batches * ROWS))
        return found.total()

    @property
    def done(self) -> int:
        committed = last_commit(self.path, "jobs") if self.path.exists() else None
        return committed.version + 1 if committed is not None else 0


class Streams:
    """A stream that is run again and again, for as many more messages each."""

    def __init__(self, folder: Path, feed: Feed, pipe: Pipe) -> None:
        self._folder, self._feed, self._pipe = folder, feed, pipe
        self.path = pipe.sink
        self.faults = Faults(folder / "faults")
        feed.put(ROWS)

    def write(self, driver: SparkDriver) -> str | None:
        """Run the stream to its end; what it said when it failed."""
        options = {"faults": str(self.faults.folder)}
        error = driver.ask(do="stream", folder=str(self._folder), options=options)["error"]
        return None if error is None else str(error)

    def next(self) -> None:
        self._feed.put(ROWS)

    def check(self, batches: int) -> int:
        """Check that so many batches are there; return the number of rows."""
        if not self.path.exists():
            return 0
        if batches * ROWS == self._feed.total:
            return self._pipe.check()
        found = sum(1 for _ in read(Snapshot.open(self.path), columns=("body",)))
        assert found == batches * ROWS
        return found

    @property
    def done(self) -> int:
        return self._pipe.committed + 1


def staged(path: Path) -> list[str]:
    folder = path / ".segmentlog" / "staging"
    return [file.name for file in folder.iterdir()] if folder.exists() else []


def attack(driver: SparkDriver, writes: Batches | Streams, fault: Fault, what: str) -> int:
    """Do one write with a fault, and repeat it if it failed; return the number of faults."""
    faults, batches = writes.faults, writes.done
    faults.plant(fault.moment, fault.kind, fault.times)
    error = writes.write(driver)
    committed = writes.done
    if fault.says is None:
        assert error is None, what
    else:
        assert error is not None, what
        assert fault.says in error, f"{what}: {error}"
        # All or nothing, and a write that failed after the sink's commit is there.
        assert committed == batches + (fault.moment == "committed"), what
        writes.check(committed)
        faults.forget(fault.moment)  # a task gave up before the other one had all of them
        error = writes.write(driver)
        assert error is None, f"{what}, again: {error}"
        if fault.times > 1 and isinstance(writes, Batches):
            sweep_staging(writes.path, idle_s=0)  # a task may end well while the write is given up
    hits = faults.take_hits()
    assert fault.times // 2 <= hits <= fault.times if fault.says else hits == fault.times, what
    assert writes.done == batches + 1, what
    writes.check(batches + 1)
    if fault.kind == "zombie":
        assert staged(writes.path) == [], what
        (faults.folder / "late").touch()
        until = time.monotonic() + 300
        while not (faults.folder / "late.done").exists():
            assert time.monotonic() < until, f"{what}: the zombie did not rise"
            time.sleep(0.01)
        (faults.folder / "late").unlink()
        (faults.folder / "late.done").unlink()
        assert len(staged(writes.path)) == 1, what
        writes.check(batches + 1)
        writes.next()
        assert writes.write(driver) is None, what
        writes.check(batches + 2)
        assert sweep_staging(writes.path, idle_s=0) == 1, what
    assert staged(writes.path) == [], what
    writes.next()
    return hits


def test_failed_tasks_and_commits_neither_lose_nor_repeat_rows(tmp_path: Path, report: Report) -> None:
    rng = random.Random(SEED)
    pipe = Pipe(tmp_path / "stream")
    counted: Counter[str] = Counter()
    with SparkDriver(tmp_path / "driver", "local[2,3]") as driver, Feed(pipe.source) as feed:
        batches, streams = Batches(tmp_path / "batch"), Streams(tmp_path / "stream", feed, pipe)
        for number in range(ROUNDS):
            plan = [(fault, batches) for fault in IN_BATCHES] + [(fault, streams) for fault in IN_STREAMS]
            rng.shuffle(plan)
            writes: Batches | Streams
            for fault, writes in plan:
                what = f"seed {SEED}, round {number}, {fault} in {type(writes).__name__}"
                counted[f"{fault.moment} {fault.kind}"] += attack(driver, writes, fault, what)
        batches.check(batches.version)
        streams.check(streams.done)
    report(f"S13, seed {SEED}", dict(counted))
    assert counted.total() >= 40 * ROUNDS
    assert len(counted) >= len({(fault.moment, fault.kind) for fault in IN_BATCHES})
