"""Tables of the lake on this disk: a job with a few parts, frames without a JVM, and writers that are killed.

::

    test ── fork server ──► writer: open, write all parts, close      kill -9 after a random time, until all is there
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from segmentlog.jobs.backfill import Part, Request, Window
from segmentlog.jobs.lake.delta import DeltaTarget
from segmentlog.jobs.lake.iceberg import IcebergTarget
from segmentlog.jobs.lake.target import Job
from segmentlog.query.source import StoreSource
from segmentlog.store import QueueKey

from .live_copy import live_paths
from .processes import fork_server

KINDS = ("iceberg", "delta")
_KILLS_OF_A_TABLE = 5
START_MS = 1_769_817_600_000
"""2026-01-31T00:00:00Z."""
HOUR_MS = 3_600_000
PARTS = 6
ROWS = 40
"""Of each part."""
COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("storeTimestamp", pa.timestamp("us", "UTC")),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
    ]
)


class Frame:
    """Stands for a DataFrame: its one task runs in this process."""

    def __init__(self, rows: pa.Table, batch_rows: int = 1_000) -> None:
        self._rows, self._batch_rows = rows, batch_rows

    def mapInArrow(self, work: Callable[..., Iterator[pa.RecordBatch]], schema: str) -> "Frame":  # noqa: N802 - Spark's
        found = list(work(iter(self._rows.to_batches(self._batch_rows))))
        names = [each.split()[0] for each in schema.split(", ")]
        return Frame(pa.Table.from_batches(found) if found else pa.table({name: [] for name in names}))

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's
        return self._rows


class Meanwhile(Frame):
    """Frame during whose tasks something else is done: before they run, or after."""

    def __init__(self, rows: pa.Table, act: Callable[[], object], *, after: bool = False) -> None:
        super().__init__(rows)
        self._act, self._after = act, after

    def mapInArrow(self, work: Any, schema: str) -> Frame:  # noqa: N802 - Spark's
        if not self._after:
            self._act()
        found = super().mapInArrow(work, schema)
        if self._after:
            self._act()
        return found


def rows_of(number: int, rows: int = ROWS, topic: str = "orders") -> pa.Table:
    """Return the messages of a part: two queues by turns, in an hour of their own."""
    offsets = [number * rows + each for each in range(rows)]
    step_us = HOUR_MS * 1_000 // rows
    return pa.table(
        {
            "topic": [topic] * rows,
            "queueId": pa.array([each % 2 for each in offsets], pa.int32()),
            "queueOffset": [each // 2 for each in offsets],
            "storeTimestamp": [(START_MS + number * HOUR_MS) * 1_000 + each * step_us for each in range(rows)],
            "properties": [[("k", str(each))] if each % 3 else None for each in offsets],
            "body": [b"%d" % each for each in offsets],
        },
        COLUMNS,
    )


def part_of(number: int, rows: int = ROWS) -> Part:
    start = START_MS + number * HOUR_MS
    span = (number * rows // 2, (number + 1) * rows // 2)
    offsets = {QueueKey("orders", queue): span for queue in (0, 1)}
    return Part(window=Window(start, start + HOUR_MS), number=0, offsets=offsets, planned_ms=start + HOUR_MS)


def request(topics: Sequence[str] = ("orders",), store: str | Path = "/data/store", **options: str) -> Request:
    source = StoreSource.of(store)
    return Request(
        source=source, topics=tuple(topics), start_ms=0, end_ms=1, columns=tuple(COLUMNS.names), options=options
    )


@dataclass(frozen=True)
class Lake:
    """A catalog or a directory with one table."""

    kind: str
    directory: Path

    @property
    def catalog(self) -> dict[str, str]:
        self.directory.mkdir(parents=True, exist_ok=True)
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.directory}/catalog.db",
            "warehouse": f"file://{self.directory}/warehouse",
        }

    @property
    def table(self) -> Path:
        return self.directory / ("warehouse/lake/messages" if self.kind == "iceberg" else "messages")

    def target(
        self,
        columns: pa.Schema = COLUMNS,
        job: Job | None = None,
        by: Sequence[str] | None = ("hour", "queue"),
        file_bytes: int = 1 << 20,
    ) -> Any:
        job = job or Job(request())
        if self.kind == "delta":
            return DeltaTarget(str(self.table), columns, job, partition_by=by, file_bytes=file_bytes)
        return IcebergTarget(
            "lake.messages",
            columns,
            job,
            catalog="test",
            properties=self.catalog,
            partition_by=by,
            file_bytes=file_bytes,
        )

    def load(self) -> Any:
        if self.kind == "delta":
            from deltalake import DeltaTable  # noqa: PLC0415 - a test of one kind needs one library

            return DeltaTable(str(self.table))
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - as above

        return load_catalog("test", **self.catalog).load_table("lake.messages")

    def rows(self) -> pa.Table:
        """Return the rows that the table's own library reads, in the order of their bodies, with our columns."""
        table = self.load()
        found = table.to_pyarrow_table() if self.kind == "delta" else table.scan().to_arrow()
        plain = pa.Table.from_arrays([found[each.name].cast(each.type) for each in COLUMNS], schema=COLUMNS)
        return plain.sort_by([("queueOffset", "ascending"), ("queueId", "ascending")])

    def paths(self) -> set[str]:
        """Return the files that the table names."""
        table = self.load()
        found = table.file_uris() if self.kind == "delta" else table.inspect.files()["file_path"].to_pylist()
        return {each.removeprefix("file://") for each in found}

    def files(self) -> set[str]:
        files = [each.relative_to(self.table) for each in live_paths(self.table) if each.suffix == ".parquet"]
        return {str(self.table / each) for each in files if "segmentlog" in each.parts}

    def attempts(self) -> set[Path]:
        """Return the directories of attempts, committed ones included."""
        return set(self.table.rglob("segmentlog/*/*"))

    def age(self) -> None:
        """Let all files of attempts be older than a day."""
        old_s = time.time() - 25 * 3600
        for each in self.table.rglob("segmentlog/**/*"):
            os.utime(each, (old_s, old_s))


def expected(parts: int = PARTS) -> pa.Table:
    return pa.concat_tables([rows_of(number) for number in range(parts)])


def write_all(lake: Lake, parts: Sequence[int] = range(PARTS)) -> None:
    """Write the parts that a table lacks, as the job does."""
    target = lake.target()
    target.open()
    there = {each.window for each in target.parts()}
    for number in parts:
        part = part_of(number)
        if part.window not in there:
            target.write(part, cast("Any", Frame(rows_of(number), 10)))
    target.close()


def nursery(kind: str, mode: str, directory: Path, count: int, seed: int) -> dict[str, Any]:
    """Kill writers at random times, or start two at once, for some tables; return what was counted."""
    return _kill(directory, kind, count, random.Random(seed)) if mode == "kill" else _race(directory, kind, count)


def _writer(lake: Lake) -> BaseProcess:
    process = fork_server().Process(target=write_all, args=(lake,))
    process.start()
    return process


def _finished(*writers: BaseProcess) -> None:
    for each in writers:
        each.join()
        assert each.exitcode == 0, "a writer failed"


def _kill(directory: Path, kind: str, count: int, chance: random.Random) -> dict[str, Any]:
    """Kill writers at random times, with new tables as the old ones get all parts; return what was left behind."""
    fork_server()  # its start is no part of the time that a writer takes
    started = time.monotonic()
    _finished(_writer(Lake(kind, directory / "whole")))
    whole_s = time.monotonic() - started
    kills = tables = orphans = 0
    while kills < count:
        lake = Lake(kind, directory / f"table{tables}")
        tables += 1
        for _ in range(_KILLS_OF_A_TABLE):  # a machine that became slower may never finish
            writer = _writer(lake)
            time.sleep(chance.uniform(0, whole_s))
            writer.kill()
            writer.join()
            assert writer.exitcode in (0, -signal.SIGKILL), f"a writer failed after {kills} kills"
            if writer.exitcode == 0:
                break
            kills += 1
        left = lake.attempts()
        lake.age()
        _finished(_writer(lake))
        orphans += len(left - lake.attempts())
    return {"kills": kills, "tables": tables, "orphans": orphans}


def _race(directory: Path, kind: str, count: int) -> dict[str, Any]:
    """Start two writers at once, for each of some tables."""
    for number in range(count):
        lake = Lake(kind, directory / f"table{number}")
        _finished(_writer(lake), _writer(lake))
    return {"tables": count}
