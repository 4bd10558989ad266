"""Job ``rebuild``: the same bytes by processes and by Spark's tasks; whole or not at all after any kill."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segmentlog.jobs import rebuild
from segmentlog.store.maintenance import log_parts, rebuild_queues
from support.scale import scale
from support.small_store import ROWS, write_small_store
from support.written_stores import tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOB = """
import sys
from segmentlog.jobs import rebuild
from segmentlog.store.maintenance import log_parts
if __name__ == "__main__":
    log_parts._NEAR_BYTES = 0
    print("begun", flush=True)
    rebuild.run(None, sys.argv[1], sys.argv[2], processes=2)
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(log_parts, "_NEAR_BYTES", 0)
    return write_small_store(tmp_path / "store")


@pytest.mark.slow
def test_processes_write_the_same_bytes(store: Path, tmp_path: Path) -> None:
    alone = rebuild_queues(store, tmp_path / "alone")
    assert rebuild.rebuilt(None, store, tmp_path / "both", processes=2) == alone
    assert tree(tmp_path / "both") == tree(tmp_path / "alone") == tree(store / "consumequeue")


def test_a_report_has_the_numbers(store: Path, tmp_path: Path) -> None:
    report = rebuild.run(None, store, tmp_path / "new", processes=1)
    assert (report.numbers["entries"], report.has_findings) == (ROWS, False)
    assert report.table.to_pylist() == [report.numbers]


@pytest.mark.spark
def test_tasks_of_spark_write_the_same_bytes(store: Path, tmp_path: Path, spark: "SparkSession") -> None:
    rebuild.rebuilt(spark, store, tmp_path / "new")
    assert tree(tmp_path / "new") == tree(store / "consumequeue")


@pytest.mark.slow
@pytest.mark.scaled
@pytest.mark.parametrize("seed", range(scale(quick=2, attack=20, soak=400)))
def test_a_killed_rebuild_leaves_nothing_that_a_second_run_keeps(store: Path, tmp_path: Path, seed: int) -> None:
    target, script = tmp_path / "new", tmp_path / "job.py"
    script.write_text(_JOB)
    command = [sys.executable, str(script), str(store), str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as job:
        assert job.stdout is not None
        job.stdout.readline()
        time.sleep(random.Random(seed).random() * 1.5)
        job.send_signal(signal.SIGKILL)
    queues = tree(store / "consumequeue")
    if target.exists():
        assert tree(target) == queues
        shutil.rmtree(target)
    rebuild_queues(store, target)
    assert tree(target) == queues
    assert {path.name for path in tmp_path.iterdir()} == {"store", "new", "job.py"}
    for _ in range(100):  # the processes of the killed job end, too
        if not _members(job.pid):
            return
        time.sleep(0.05)
    raise AssertionError(f"processes are left: {_members(job.pid)}")


def _members(session: int) -> list[str]:
    """Return the processes of a session, zombies left out."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z" and stat.parent.name != str(os.getpid()):
            found.append(stat.parent.name)
    return found
