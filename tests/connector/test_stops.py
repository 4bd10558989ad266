import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segmentlog.spark import register
from support.pipes import Feed, Pipe, is_worker_timeout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Takes the process that plans a stream longer to start than Spark waits, once.
LATE = """\
#!/bin/sh
case "$*" in *python_streaming_source_runner*) rm "{mark}" 2>/dev/null && sleep 12 ;; esac
exec "{python}" "$@"
"""


@pytest.fixture
def be_late(spark: "SparkSession", tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Let the next worker that plans a stream start late."""
    python, mark, context = tmp_path / "python", tmp_path / "late", spark.sparkContext
    python.write_text(LATE.format(mark=mark, python=sys.executable))
    python.chmod(0o755)
    usual, context.pythonExec = context.pythonExec, str(python)
    register(spark)
    yield mark.touch
    context.pythonExec = usual
    register(spark)


@pytest.mark.spark
@pytest.mark.scaled(quick=0)  # it waits for a time limit of Spark's
def test_a_worker_that_starts_late_is_one_more_stop(
    spark: "SparkSession", be_late: Callable[[], None], tmp_path: Path
) -> None:
    pipe = Pipe(tmp_path)
    with Feed(pipe.source) as feed:
        feed.put(200)
    be_late()
    assert pipe.drain(spark)
    assert pipe.timed_out == 1
    assert pipe.check() == feed.total


def test_other_errors_are_not_worker_timeouts() -> None:
    assert is_worker_timeout(RuntimeError("SparkException: Python worker failed to connect back."))
    assert not is_worker_timeout(RuntimeError("[SEGMENTLOG_DATA_LOSS] …"))
    assert not is_worker_timeout(None)
