from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import segmentlog
from segmentlog.store import MessageStore
from segmentlog.store.archive.push import push
from segmentlog.store.objects.opening import open_objects
from support.s3_servers import S3Server
from support.small_store import CONFIG, ROWS, write_small_store

pytestmark = pytest.mark.spark


def test_an_archive_is_loaded_and_followed(spark: SparkSession, tmp_path: Path, moto: S3Server) -> None:
    path, url = write_small_store(tmp_path / "store"), moto.url()
    objects, hush = open_objects(url, moto.options), moto.options["aws_secret_access_key"]
    push(path, objects)
    options = {"subscribe": "orders", "cacheDir": str(tmp_path / "cache")}
    options |= {f"storage.{name}": value for name, value in moto.options.items()}
    frame = spark.read.format("segmentlog").options(**options).load(url)
    columns = ["topic", "queueId", "queueOffset", "body", "tags", "keys"]
    with segmentlog.open(path) as store:
        expected = store.scan("orders", columns=columns).to_arrow().to_pylist()
    order = itemgetter("queueId", "queueOffset")
    assert sorted(frame.select(columns).toArrow().to_pylist(), key=order) == sorted(expected, key=order)
    plan = frame._jdf.queryExecution().toString()  # type: ignore[operator]
    assert hush not in plan

    def run() -> int:
        query = (
            spark.readStream.format("segmentlog")
            .options(startingOffsets="earliest", **options)
            .load(url)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "found"))
        )
        query.awaitTermination()
        assert hush not in str(query.lastProgress)
        return int(sum(pq.read_metadata(each).num_rows for each in (tmp_path / "found").glob("*.parquet")))

    assert run() == ROWS * 2 // 3
    with MessageStore.open(path, CONFIG) as store:
        store.append_batch(pa.RecordBatch.from_pydict({"topic": ["orders"] * 3, "body": [b"more"] * 3}))
    push(path, objects)
    assert run() == ROWS * 2 // 3 + 3
    written = [each.read_bytes() for each in (tmp_path / "checkpoint").rglob("*") if each.is_file()]
    assert not any(hush.encode() in each for each in written)
