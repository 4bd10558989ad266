import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

from segmentlog.jobs.backfill.job import _widened
from segmentlog.jobs.spread import _by_tasks, spread
from segmentlog.query.bodies import body_format
from segmentlog.store import MissingExtraError, StoreFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Part(NamedTuple):
    number: int
    folder: Path  # each process that works makes a file here
    processes: int

    def meet(self) -> None:
        """Wait until as many processes as wanted have a part."""
        (self.folder / str(os.getpid())).touch()
        until = time.monotonic() + 60
        while len(list(self.folder.iterdir())) < self.processes:
            assert time.monotonic() < until, "one process has no part"
            time.sleep(0.005)


def square(number: int) -> tuple[int, int]:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number * number, os.getpid()


def square_together(part: Part) -> tuple[int, int]:
    part.meet()
    return square(part.number)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_results_have_the_order_of_the_parts_and_come_from_so_many_processes(processes: int, tmp_path: Path) -> None:
    parts = [Part(number, tmp_path, processes) for number in range(20)]
    found = list(spread(square_together, parts, processes=processes))
    assert [each for each, _ in found] == [number * number for number in range(20)]
    assert len({pid for _, pid in found}) == processes
    with pytest.raises(ValueError, match="-1 is negative"):
        list(spread(square, [1, -1], processes=processes))


def wait_for_use(part: Part) -> int:
    """Return the number; all but the first wait until the caller has used a result."""
    until = time.monotonic() + 30
    while part.number and not (part.folder / "used").exists():
        assert time.monotonic() < until, "no result was used before all were there"
        time.sleep(0.005)
    return part.number


def test_a_result_is_yielded_while_other_parts_are_worked_on(tmp_path: Path) -> None:
    found = []
    for number in spread(wait_for_use, [Part(number, tmp_path, 2) for number in range(9)], processes=2):
        (tmp_path / "used").touch()
        found.append(number)
    assert found == list(range(9))


def end_process(part: Part) -> None:
    part.meet()
    os._exit(1)


def test_a_process_that_ends_is_an_error_with_its_likely_causes(tmp_path: Path) -> None:
    with pytest.raises(StoreFailedError, match="ended before its result") as caught:
        list(spread(end_process, [Part(number, tmp_path, 2) for number in range(9)], processes=2))
    assert "__main__" in str(caught.value)


def test_no_parts_start_nothing() -> None:
    assert list(spread(square, [])) == []


@pytest.mark.spark
def test_tasks_of_spark_do_the_same(spark: "SparkSession") -> None:
    assert list(spread(square, [], spark)) == []
    found = list(spread(square, range(3), spark))
    assert [each for each, _ in found] == [0, 1, 4]
    assert os.getpid() not in {pid for _, pid in found}
    with pytest.raises(Exception, match="-1 is negative"):
        list(spread(square, [-1], spark))


def test_tasks_of_spark_need_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    fix = r"tasks of Spark need the package pandas, .* pip install 'segmentlog\[jobs\]'"
    with pytest.raises(MissingExtraError, match=fix):
        next(_by_tasks(abs, [1], cast("Any", None)))
    with pytest.raises(MissingExtraError, match=fix):
        _widened(cast("Any", None), body_format("text", None))
