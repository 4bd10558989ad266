"""Jobs that are killed and started again: their commands, their progress, and what their targets have to hold.

::

    begin ──► a new target     command ──► driver ✗ … driver ✗ … finish ──► check: the rows of an undisturbed run
                               sign changes as the job gets on: a kill follows some change of it
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from . import jobs_without_spark
from .backfills import COLUMNS, HOUR_MS, START_MS, TOPICS, Hours, Row, build_hours, read_hours, rows_by_hour
from .commands import run_command
from .dated_store import append_at
from .lake import Lake
from .live_copy import live_paths
from .replays import build_source, check_same, rows
from .small_store import write_small_store
from .spark_driver import TESTS, SparkDriver
from .tampering import put_at, segments
from .written_stores import tree

HOURS: Final = 8
_FINISH_S: Final = 120


class KilledJob:
    """A job, its source, and the target of the present round; ``rows`` is the size of an hour of the source."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.round = folder, 0
        folder.mkdir()
        self.build(rows)
        self.begin()

    def build(self, rows: int) -> None:
        """Make the source."""

    def without_spark(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        """Return a function that does the same in this process, and its arguments."""
        raise NotImplementedError

    def begin(self) -> None:
        """Take a target that does not exist."""
        self.round += 1
        self.target = self.folder / f"target{self.round}"

    def command(self, master: str) -> dict[str, Any]:
        return {"do": "verb", "arguments": [*map(str, self.arguments()), "--master", master, "--json"]}

    def arguments(self) -> list[object]:
        raise NotImplementedError

    def sign(self) -> object:
        """Return a value that changes while the job works."""
        return None

    def feed(self) -> None:
        """Add to the source, if it grows while the job runs."""

    def allowed(self) -> Mapping[int, Sequence[list[Row]]]:
        """Return the rows of each hour that a reader may see meanwhile; none if no reader looks."""
        return {}

    def end(self, process: BaseProcess) -> None:
        """Wait until a process that runs `without_spark` ends by itself, and check what it made."""
        process.join()
        assert process.exitcode == 0
        self.check({})

    def answer(self, driver: SparkDriver) -> Mapping[str, Any]:
        """Wait until the job of a driver is done, and return what it said."""
        return driver.answer()

    def check(self, answer: Mapping[str, Any]) -> None:
        raise NotImplementedError


class Backfill(KilledJob):
    mode = "files"
    start_ms = START_MS

    def without_spark(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return jobs_without_spark.backfill, (str(self.store), str(self.target), self.start_ms, HOURS, self.mode)

    def build(self, rows: int) -> None:
        self.store = build_hours(self.folder / "store", HOURS, rows)
        self.expected = rows_by_hour(self.store)

    def arguments(self) -> list[object]:
        by = ",".join(["hour", "topic", "queue", "tags"][: self.round % 3 + 2])
        return [*self.asked(), "--columns", ",".join(COLUMNS), "--by", by]

    def asked(self) -> list[object]:
        period = ["--start", "2026-01-31T00:00:00Z", "--end", f"2026-01-31T{HOURS:02}:00:00Z"]
        return ["backfill", self.store, *TOPICS, *period, "--to", self.target]

    @property
    def control(self) -> Path:
        return self.target.with_name(f".{self.target.name}.backfill")

    @property
    def staged(self) -> list[str]:
        return sorted(path.name for path in self.control.glob("staging/*"))

    def sign(self) -> object:
        return sum(each.name.startswith("part=") for each in live_paths(self.target)), self.staged

    def allowed(self) -> Mapping[int, Sequence[list[Row]]]:
        return {hour: [found] for hour, found in self.expected.items()}

    def check(self, answer: Mapping[str, Any]) -> None:
        assert read_hours(self.target) == self.expected
        assert self.staged == []


class CatchUp(Backfill):
    """Late messages in each hour of a target that is finished."""

    mode = "catch-up"

    def build(self, rows: int) -> None:
        store, finished = build_hours(self.folder / "store", HOURS, rows), str(self.folder / "finished")
        self.first = rows_by_hour(store)
        asked = str(store), finished, START_MS, HOURS
        program = f"from support.jobs_without_spark import backfill; backfill(*{asked!r})"
        subprocess.run([sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": str(TESTS)}, check=True)
        shutil.rmtree(store)
        self.store = build_hours(store, HOURS, rows, rounds=2)
        self.expected = rows_by_hour(self.store)

    def begin(self) -> None:
        super().begin()
        shutil.copytree(self.folder / "finished", self.target)
        shutil.copytree(self.folder / ".finished.backfill", self.control)

    def arguments(self) -> list[object]:
        return [*self.asked(), "--columns", ",".join(COLUMNS), "--by", "hour", "--catch-up"]

    def allowed(self) -> Mapping[int, Sequence[list[Row]]]:
        return {hour: [self.first[hour], found] for hour, found in self.expected.items()}


class Follow(Backfill):
    """Messages of the last hours, and of now: the store grows while the job runs."""

    mode = "follow"

    def build(self, rows: int) -> None:
        self.store, self._count = self.folder / "store", itertools.count()
        self._rows, self._fed = rows // 10, 0.0
        now = _now_ms()
        self.start_ms = (now // HOUR_MS - 3) * HOUR_MS
        for hour in range(3):
            self._append([self.start_ms + hour * HOUR_MS + each for each in range(rows)])
        self._append([now])

    def _append(self, times_ms: Sequence[int]) -> None:
        append_at(self.store, times_ms, first=next(self._count))

    def feed(self) -> None:
        if time.monotonic() > self._fed + 0.3:
            self._append([_now_ms()] * self._rows)
            self._fed = time.monotonic()

    def arguments(self) -> list[object]:
        period = ["--start", f"@{self.start_ms}", "--follow", "--every", "0.1"]
        columns = ["--columns", ",".join(COLUMNS), "--by", "hour"]
        return ["backfill", self.store, "orders", *period, *columns, "--to", self.target]

    def allowed(self) -> Mapping[int, Sequence[list[Row]]]:
        return {}

    def wait_whole(self) -> None:
        """Wait until the target has all messages of the store."""
        self.expected = rows_by_hour(self.store)
        until = time.monotonic() + _FINISH_S
        while read_hours(self.target) != self.expected:
            assert time.monotonic() < until, "the job does not write all messages"
            time.sleep(0.1)

    def end(self, process: BaseProcess) -> None:
        self.wait_whole()
        Path(f"{self.target}.stop").touch()
        super().end(process)

    def answer(self, driver: SparkDriver) -> Mapping[str, Any]:
        self._append([_now_ms()])  # the job at work writes it: an interrupt before it has begun is not answered by it
        self.wait_whole()
        driver.interrupt()
        return driver.answer()


class DeadLetters(Backfill):
    """Bodies as columns; every third body does not parse."""

    mode = "dead letters"

    def build(self, rows: int) -> None:
        def body(number: int) -> bytes:
            return b"no JSON %d" % number if number % 3 == 0 else b'{"id": "%d"}' % number

        self.store = build_hours(self.folder / "store", HOURS, rows, body=body)
        stored = rows_by_hour(self.store)
        self.dead = {hour: [row for row in found if row[3][:1] != b"{"] for hour, found in stored.items()}
        self.expected = {
            hour: [(*row[:3], json.loads(row[3])["id"]) for row in found if row[3][:1] == b"{"]
            for hour, found in stored.items()
        }

    def arguments(self) -> list[object]:
        columns = ["--columns", ",".join(name for name in COLUMNS if name != "body"), "--by", "hour"]
        return [*self.asked(), *columns, "--body", "json", "--schema", "id string"]

    def allowed(self) -> Mapping[int, Sequence[list[Row]]]:
        return {}

    def check(self, answer: Mapping[str, Any]) -> None:
        assert read_hours(self.target, "id") == self.expected
        assert read_hours(self.target.with_name(f"{self.target.name}-dead-letters")) == self.dead
        assert self.staged == []


class LakeBackfill(Backfill):
    kind: str

    def begin(self) -> None:
        super().begin()
        self.lake = Lake(self.kind, self.target)

    def arguments(self) -> list[object]:
        to = ["--to", f"delta:{self.lake.table}"]
        if self.kind == "iceberg":
            to = ["--to", "iceberg:lake.messages", "--catalog", "test"]
            to += [
                text for name, value in self.lake.catalog.items() for text in ("--catalog-property", f"{name}={value}")
            ]
        return [*self.asked()[:-2], *to, "--columns", ",".join(COLUMNS), "--by", "hour,queue"]

    def sign(self) -> object:
        return len(self.lake.files())

    def allowed(self) -> Mapping[int, Sequence[list[Row]]]:
        return {}

    def check(self, answer: Mapping[str, Any]) -> None:
        table = self.lake.load()
        found: Hours = {}
        for row in (table.to_pyarrow_table() if self.kind == "delta" else table.scan().to_arrow()).to_pylist():
            hour = round(row["storeTimestamp"].timestamp() * 1000) // HOUR_MS
            found.setdefault(hour, []).append((row["topic"], row["queueId"], row["queueOffset"], row["body"]))
        assert {hour: sorted(rows) for hour, rows in found.items()} == self.expected
        assert self.lake.paths() <= self.lake.files()  # files of runs that were killed stay for a day


class Iceberg(LakeBackfill):
    kind = "iceberg"


class Delta(LakeBackfill):
    kind = "delta"


class Replay(KilledJob):
    def build(self, rows: int) -> None:
        self.source = build_source(self.folder / "source")

    def command(self, master: str) -> dict[str, Any]:
        names = {"target": self.target.name, "state": f"{self.target.name}.state"}
        return {"do": "replay", "path": str(self.source), **names, "part_bytes": 4000}

    def without_spark(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return jobs_without_spark.replay_without_spark, (
            str(self.source),
            self.target.name,
            f"{self.target.name}.state",
            4000,
        )

    def sign(self) -> object:
        ledger = self.target / ".segmentlog" / "ledger"
        return ledger.stat().st_mtime_ns if ledger.exists() else self.target.exists()

    def check(self, answer: Mapping[str, Any]) -> None:
        check_same(rows(self.target), rows(self.source))


class Verify(KilledJob):
    """A report of a store, which is damaged; it is that of a run without Spark."""

    def build(self, rows: int) -> None:
        self.store = write_small_store(self.folder / "store")
        self.copy = shutil.copytree(self.store, self.folder / "copy")
        put_at(segments(self.store)[1], 1000, b"\xff" * 250)
        self.before = tree(self.store)

    def arguments(self) -> list[object]:
        return ["verify", self.store]

    def check(self, answer: Mapping[str, Any]) -> None:
        alone = run_command(*self.arguments(), "--json")
        assert alone.code == 1
        assert json.loads(answer["text"]) == json.loads(alone.text)
        assert tree(self.store) == self.before


class Diff(Verify):
    """A report of two stores, by queue and by log."""

    def arguments(self) -> list[object]:
        return ["diff", self.copy, self.store, "--by", ["log", "queue"][self.round % 2]]


class Rebuild(Verify):
    def arguments(self) -> list[object]:
        return ["rebuild", self.copy, "--to", self.target]

    def check(self, answer: Mapping[str, Any]) -> None:
        assert tree(self.target) == tree(self.copy / "consumequeue")
        made = {"store", "copy", *(f"target{each}" for each in range(1, self.round + 1))}
        assert {path.name for path in self.folder.iterdir()} <= made


JOBS: Final[Mapping[str, type[KilledJob]]] = {
    "files": Backfill,
    "catch-up": CatchUp,
    "iceberg": Iceberg,
    "follow": Follow,
    "dead letters": DeadLetters,
    "replay": Replay,
    "delta": Delta,
    "verify": Verify,
    "rebuild": Rebuild,
    "diff": Diff,
}
"""Jobs whose driver or executors are killed."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
