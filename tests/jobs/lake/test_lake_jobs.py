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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("topic", "queueId", "queueOffset", "storeTimestamp", "bornTimestamp", "keys", "properties", "body")
DAYS, MESSAGES = 2, 200


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lake") / "store"
    append_at(path, spread_over(DAYS, MESSAGES))
    append_at(path, [START_MS + DAYS * DAY_MS])
    return path


def request_of(store: Path) -> Request:
    source = StoreSource.of(store)
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
@pytest.mark.scaled(quick=1)  # test_target.py proves both kinds alike
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
