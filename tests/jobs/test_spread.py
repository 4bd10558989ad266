"""Work spread over processes and over Spark's tasks: results in order, errors reported."""

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from segmentlog.jobs.report import Report
from segmentlog.jobs.spread import spread
from segmentlog.store import StoreFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def square(number: int) -> tuple[int, int]:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number * number, os.getpid()


@pytest.mark.parametrize("processes", [1, 2])
def test_results_have_the_order_of_the_parts_and_an_error_ends_the_work(processes: int) -> None:
    found = spread(square, range(20), processes=processes)
    assert [each for each, _ in found] == [number * number for number in range(20)]
    assert ({pid for _, pid in found} == {os.getpid()}) == (processes == 1)
    with pytest.raises(ValueError, match="-1 is negative"):
        spread(square, [1, -1], processes=processes)


def end_process(_: int) -> None:
    os._exit(1)


def test_a_process_that_ends_is_an_error_with_its_likely_causes() -> None:
    with pytest.raises(StoreFailedError, match="ended before its result") as caught:
        spread(end_process, [1, 2], processes=2)
    assert "__main__" in str(caught.value)


def test_no_parts_start_nothing() -> None:
    assert spread(square, []) == []


@pytest.mark.spark
def test_tasks_of_spark_do_the_same_and_a_report_becomes_a_frame(spark: "SparkSession") -> None:
    found = spread(square, range(3), spark)
    assert [each for each, _ in found] == [0, 1, 4]
    assert os.getpid() not in {pid for _, pid in found}
    with pytest.raises(Exception, match="-1 is negative"):
        spread(square, [-1], spark)
    table = pa.table({"squares": [each for each, _ in found]})
    assert Report(numbers={}, table=table).to_frame(spark).count() == 3
