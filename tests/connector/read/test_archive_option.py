"""Option `archive`: a store and its archive in Spark, as a batch, as a stream, as look-ups and as metadata."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segmentlog.connector.errors import in_spark_words
from segmentlog.store import DataLossError, MessageStore, QueueKey, QueueRange, ScanSpec, StoreReader
from support.archived_store import CONFIG, ROWS, Archived, append_rows, archive_some, settings, write_archived
from support.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERYTHING = {"subscribePattern": ".*"}


@pytest.fixture
def paths(tmp_path: Path) -> Archived:
    return write_archived(tmp_path)


def numbered(bodies: list[Any]) -> list[int]:
    return sorted(int(bytes(body).split()[1]) for body in bodies)


@pytest.mark.spark
def test_a_batch_a_stream_and_look_ups_read_both(spark: "SparkSession", paths: Archived, tmp_path: Path) -> None:
    def load(**options: str) -> Any:
        given = {"path": str(paths.store), "archive": str(paths.archive)} | EVERYTHING | options
        return spark.read.format("segmentlog").options(**given).load()

    assert numbered([row.body for row in load().select("body").collect()]) == list(range(ROWS))
    assert load(keys="k3,k700").count() == 2
    assert load(startingTimestamp="1763700010000", endingTimestamp="1763700020000").count() == 100
    alone = spark.read.format("segmentlog").options(path=str(paths.store), **EVERYTHING).load()
    assert 0 < alone.count() < ROWS

    stream = spark.readStream.format("segmentlog").options(
        path=str(paths.store), archive=str(paths.archive), startingOffsets="earliest", **EVERYTHING
    )
    found = tmp_path / "found"
    query = (
        stream.load()
        .select("body")
        .writeStream.format("parquet")
        .option("path", str(found))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert numbered([row.body for row in spark.read.parquet(str(found)).collect()]) == list(range(ROWS))

    queues = spark.read.format("segmentlog").options(
        path=str(paths.store), archive=str(paths.archive), metadata="queues", subscribe="orders"
    )
    assert [row.minOffset for row in queues.load().select("minOffset").collect()] == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["40", "1000"])
def test_a_stream_goes_from_the_archive_to_the_store_while_files_move(tmp_path: Path, limit: str) -> None:
    path, archive = tmp_path / "store", tmp_path / "archive"
    archive.mkdir()
    seen: list[tuple[str, int, int]] = []
    with MessageStore.open(path, CONFIG, retention=settings(archive)) as store:
        append_rows(store, 0, 600)
        for _ in range(100):
            store.tick()
        assert store.bounds(QueueKey("orders", 0)).min_offset > 100
        query = Stream(path, archive=str(archive), startingOffsets="earliest", maxOffsetsPerTrigger=limit, **EVERYTHING)
        for first in range(600, 1200, 30):
            seen += query.batch() or []
            append_rows(store, first, 30)
            store.tick()
        seen += query.all()
    assert len(seen) == len(set(seen)) == 1200
    for topic, queue, count in (("orders", 0, 480), ("orders", 1, 480), ("refunds", 0, 240)):
        assert [at for name, number, at in seen if (name, number) == (topic, queue)] == list(range(count))


def lost_in_a_stream(path: Path, archive: Path) -> None:
    query = Stream(path, startingOffsets="earliest", maxOffsetsPerTrigger="10", **EVERYTHING)
    query.batch()
    archive_some(path, archive, 3)
    query.batch()


def lost_in_a_task(path: Path, archive: Path) -> None:
    key = QueueKey("orders", 0)
    reader = StoreReader.open(path)
    (task,) = reader.plan([QueueRange(key, reader.bounds(key).min_offset, 300)], max_bytes=1 << 30)
    archive_some(path, archive, 3)
    with in_spark_words():
        list(StoreReader.open(path).scan(task, ScanSpec(columns=("body",))))


@pytest.mark.parametrize("read", [lost_in_a_stream, lost_in_a_task])
def test_a_reader_that_is_too_late_is_told_of_the_option(
    tmp_path: Path, read: Callable[[Path, Path], None], paths: Archived
) -> None:
    whole, archive = paths.whole, tmp_path / "of whole"
    with pytest.raises(DataLossError) as error:
        read(whole, archive)
    assert f", archived in {archive}, the last of the CommitLog" in str(error.value)
    assert "archive names the archive, and reads its messages with those of the store" in str(error.value)
