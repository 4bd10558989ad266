"""A store that is larger than the memory of its reader, streamed through each library in a process of its own."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import segmentlog
from support.scale import scale

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

ROW_BYTES = 1 << 12
BATCH_ROWS = 1 << 11
MEASURED = """
import sys
from pathlib import Path
import duckdb, pandas, polars as pl, pyarrow as pa, pyarrow.compute, segmentlog

def rss_bytes():
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))

store = segmentlog.open(sys.argv[1])
database = duckdb.connect(sys.argv[2], config={"memory_limit": "64MB", "threads": 1})
columns = ["queueId", "queueOffset", "keys", "body"]

def use(scan):
    found = []
    %s
    return found

few = store.scan("orders", columns=columns, start={0: 0}, end={0: 3})
assert sum(use(few)) == 3 << 12
database.execute("DROP TABLE IF EXISTS x")
before = rss_bytes()
bodies = sum(use(store.scan("orders", columns=columns)))
print(bodies, rss_bytes() - before)
"""
USES = {
    "reader": "found = [pa.compute.sum(pa.compute.binary_length(batch['body'])).as_py() for batch in scan.to_reader()]",
    "batches": "found = [sum(map(len, batch['body'].to_pylist())) for batch in scan]",
    "pandas": "found = [int(batch.to_pandas()['body'].map(len).sum()) for batch in scan]",
    "polars": (
        "found = [scan.lazy().filter(pl.col('queueOffset') >= 0).select(pl.col('body').bin.size().sum())"
        ".collect(engine='streaming').item()]"
    ),
    "duckdb": "found = [database.execute('SELECT sum(octet_length(body)) FROM scan').fetchall()[0][0]]",
    "table": (
        "scan.to_duckdb(database, 'x');"
        "found = [database.execute('SELECT sum(octet_length(body)) FROM x').fetchall()[0][0]]"
    ),
}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A store, and the bytes of its bodies, which do not compress."""
    path = tmp_path_factory.mktemp("large") / "store"
    batches = scale(40, 160, 1000)
    bodies = np.random.default_rng(7)
    config = segmentlog.Config(segment_bytes=64 << 20, flush="async", index=False)
    with segmentlog.open(path, "x", config=config) as store:
        for number in range(batches):
            rows = {
                "topic": ["orders"] * BATCH_ROWS,
                "queueId": pa.array(np.arange(BATCH_ROWS) % 4, pa.int32()),
                "keys": [f"{number}-{row}" for row in range(BATCH_ROWS)],
                "body": [bodies.bytes(ROW_BYTES) for _ in range(BATCH_ROWS)],
            }
            store.append_batch(pa.table(rows))
    return path, batches * BATCH_ROWS * ROW_BYTES


@pytest.mark.scaled(quick=2)
@pytest.mark.parametrize("use", USES)
def test_a_stream_needs_less_memory_than_the_store(large: tuple[Path, int], tmp_path: Path, use: str) -> None:
    path, size = large
    program = MEASURED % USES[use]
    ran = subprocess.run(
        [sys.executable, "-c", program, path, tmp_path / "a.duckdb"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    bodies, grown = map(int, ran.stdout.splitlines()[-1].split())  # DuckDB may draw its progress before
    assert bodies == size
    assert grown < 256 << 20 < size
