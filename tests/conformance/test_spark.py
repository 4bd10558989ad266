"""Every store that real RocketMQ wrote, read through Spark: all columns, all rows, as RocketMQ reads them."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segmentlog.store import QueueSource
from support import conformance, fixtures, reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.conformance, pytest.mark.spark]


@pytest.mark.parametrize("name", fixtures.cases())
def test_rows_are_rocketmqs(name: str, spark: "SparkSession", tmp_path: Path) -> None:
    frame = (
        spark.read.format("segmentlog")
        .option("subscribePattern", ".*")
        .option("includeSystemTopics", "true")
        .option("columns", ",".join(reading.ALL_COLUMNS))
        .option("checkCrc", "true")
        .option("corruptRecord", "null")
        .option("maxBytesPerPartition", "300k")
        .load(str(fixtures.unpack(name, tmp_path)))
    )
    assert tuple(frame.columns) == reading.ALL_COLUMNS
    rows = frame.toArrow().to_pylist(maps_as_pydicts="strict")
    conformance.check_rows(name, rows, QueueSource.AUTO)


def test_rows_of_a_queue_are_in_order(spark: "SparkSession", tmp_path: Path) -> None:
    store = fixtures.unpack("time-5.3.3", tmp_path)
    frame = spark.read.format("segmentlog").option("subscribe", "TimeTopic").load(str(store))
    for queue_id in (0, 1):
        offsets = [row.queueOffset for row in frame.where(f"queueId = {queue_id}").select("queueOffset").collect()]
        assert offsets == list(range(len(offsets)))
        assert offsets
