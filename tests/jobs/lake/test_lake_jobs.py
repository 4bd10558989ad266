"""Backfills into tables with real Spark: rows as those of the store, late messages, drivers that are killed."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import segmentlog
from segmentlog.jobs import backfill
from segmentlog.jobs.backfill import Request
from segmentlog.jobs.lake.target import Job, columns_of
from segmentlog.query.source import StoreSource
from support.commands import run_command
from support.dated_store import DAY_MS, START_MS, append_at, spread_over
from support.lake import KINDS, Lake
from support.scale import scale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("topic", "queueId", "queueOffset", "storeTimestamp", "bornTimestamp", "keys", "properties", "body")
DAYS, MESSAGES = 3, 3_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lake") / "store"
    append_at(path, spread_over(DAYS, MESSAGES))
    append_at(path, [START_MS + DAYS * DAY_MS])
    return path


def request_of(store: Path) -> Request:
    source = StoreSource.of(store, (), None, None, "appended")
    end_ms = START_MS + DAYS * DAY_MS
    return Request(source=source, topics=("orders",), start_ms=START_MS, end_ms=end_ms, columns=COLUMNS)


def stored(store: Path) -> pa.Table:
    with segmentlog.open(store) as opened:
        rows = opened.scan("orders", columns=list(COLUMNS)).to_arrow()
    rows = rows.sort_by([("queueOffset", "ascending"), ("queueId", "ascending")]).slice(0, MESSAGES)
    schema = columns_of(request_of(store))
    return pa.Table.from_arrays([rows[each.name].cast(each.type) for each in schema], schema=schema)


def read(lake: Lake, store: Path) -> pa.Table:
    table = lake.load()
    rows = table.to_pyarrow_table() if lake.kind == "delta" else table.scan().to_arrow()
    schema = columns_of(request_of(store))
    plain = pa.Table.from_arrays([rows[each.name].cast(each.type) for each in schema], schema=schema)
    return plain.sort_by([("queueOffset", "ascending"), ("queueId", "ascending")])


@pytest.mark.spark
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_has_the_rows_of_the_store(kind: str, spark: "SparkSession", store: Path, tmp_path: Path) -> None:
    lake, request = Lake(kind, tmp_path), request_of(store)
    for written in (MESSAGES, 0):
        target = lake.target(columns_of(request), Job(request), by=["day", "queue"])
        report = backfill.run(spark, request, target, catches_up=True)
        assert report.numbers["messages"] == written
    assert read(lake, store).equals(stored(store))
    assert lake.files() == lake.paths()
    assert len(lake.paths()) >= 2 * DAYS


@pytest.mark.spark
@pytest.mark.scaled
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_command_continues_when_it_is_run_again(kind: str, store: Path, tmp_path: Path) -> None:
    lake, chance = Lake(kind, tmp_path), random.Random(7)
    to = ["--to", f"delta:{lake.table}"]
    if kind == "iceberg":
        to = ["--to", "iceberg:lake.messages", "--catalog", "test"]
        to += [text for name, value in lake.catalog.items() for text in ("--catalog-property", f"{name}={value}")]
    period = ["--start", "2026-01-31", "--end", "2026-02-03", "--by", "day,queue", "--columns", ",".join(COLUMNS)]
    command = [sys.executable, "-m", "segmentlog.command", "backfill", str(store), "orders", *to, *period]
    command += ["--master", "local[2]"]
    for _ in range(scale(1, 4, 200)):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        # Spark needs some seconds to start: kills are to hit the parts.
        before = lake.files()
        while lake.files() == before and process.poll() is None:
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 2))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        _, said = process.communicate(timeout=60)
        assert process.returncode in (0, -signal.SIGKILL), said[-3000:]
        if process.returncode == 0:
            shutil.rmtree(tmp_path)  # it was done: the next one begins with a new table
            tmp_path.mkdir()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    assert read(lake, store).equals(stored(store))
    assert lake.files() == lake.paths()
    assert lake.leases() == []


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--to", "delta:/x", "--catalog", "prod"], "--catalog is passed without an Iceberg table"),
        (["--to", "/x", "--catalog-property", "type=sql"], "--catalog is passed without an Iceberg table"),
        (["--to", "iceberg:lake.x", "--catalog-property", "sql"], "`sql` is not a property"),
        (["--to", "iceberg:lake.x", "--output", "orc"], "--output orc is passed with a table"),
    ],
)
def test_flags_of_another_target_are_refused(flags: list[str], problem: str) -> None:
    ran = run_command("backfill", "/nowhere", "orders", "--start", "2026-01-31", "--end", "2026-02-03", *flags)
    assert ran.code == 2
    assert problem in ran.err
