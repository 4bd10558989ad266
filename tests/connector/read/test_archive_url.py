import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import segmentlog
from segmentlog.spark import register
from segmentlog.store import MessageStore
from segmentlog.store.archive.prune import prune
from segmentlog.store.archive.push import push
from segmentlog.store.objects.manifests import newest
from segmentlog.store.objects.opening import open_objects
from support.fault_server import Fault, serving
from support.s3_servers import S3Server
from support.small_store import CONFIG, ROWS, write_small_store

pytestmark = pytest.mark.spark


@pytest.fixture
def s3a(spark: SparkSession, moto: S3Server) -> Iterator[str]:
    """Set the session's S3A settings, and return their secret."""
    options = moto.options
    settings = {
        "fs.s3a.endpoint": options["aws_endpoint"],
        "spark.hadoop.fs.s3a.endpoint.region": options["aws_region"],
        "fs.s3a.access.key": options["aws_access_key_id"],
        "fs.s3a.path.style.access": "true",
        "fs.s3a.fast.upload.buffer": "disk",
    }
    hush = "a-secret-of-this-session"  # moto takes any
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    for name, value in settings.items():
        spark.conf.set(name, value)
    hadoop.set("fs.s3a.secret.key", hush)
    yield hush
    for name in settings:
        spark.conf.unset(name)
    hadoop.unset("fs.s3a.secret.key")
    register(spark)


def started(
    spark: SparkSession, url: str, folder: Path, options: Mapping[str, str], **trigger: bool | str
) -> StreamingQuery:
    """Write the rows of a stream into ``found``."""
    return (
        spark.readStream.format("segmentlog")
        .options(startingOffsets="earliest", **options)
        .load(url)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**trigger)  # type: ignore[arg-type] # one of its arguments
        .start(str(folder / "found"))
    )


def followed(spark: SparkSession, url: str, folder: Path, options: Mapping[str, str]) -> StreamingQuery:
    """Write all rows of a stream into ``found``, and return the query, which has ended."""
    query = started(spark, url, folder, options, availableNow=True)
    query.awaitTermination()
    return query


@pytest.mark.scaled(quick=0)
def test_settings_of_the_session_are_read_when_it_is_registered(
    spark: SparkSession, tmp_path: Path, moto: S3Server, s3a: str
) -> None:
    path, url = write_small_store(tmp_path / "store"), moto.url().replace("s3:", "s3a:")
    push(path, open_objects(url, moto.options))
    register(spark)
    options = {"subscribe": "orders", "cacheDir": "none"}
    frame = spark.read.format("segmentlog").options(**options).load(url)
    assert frame.count() == ROWS * 2 // 3
    assert spark.read.format("segmentlog").options(metadata="topics").load(url).count() == 2
    frame.createOrReplaceTempView("orders_of_s3a")
    query = followed(spark, url, tmp_path, options)
    assert spark.read.parquet(str(tmp_path / "found")).count() == ROWS * 2 // 3
    with pytest.raises(Exception, match=r"NoSuchBucket|does not exist|MISSING") as raised:
        spark.read.format("segmentlog").options(**options).load("s3a://no-such-bucket/a").count()
    plan = frame._jdf.queryExecution()  # type: ignore[operator]
    texts = [plan.toString(), plan.logical().toJSON(), str(query.lastProgress), str(raised.value)]
    texts += [each[0] for each in spark.sql("EXPLAIN EXTENDED SELECT * FROM orders_of_s3a").collect()]
    texts += [each.read_bytes().decode("latin-1") for each in (tmp_path / "checkpoint").rglob("*") if each.is_file()]
    as_numbers = ", ".join(str(each) for each in s3a.encode())
    for text in texts:
        assert s3a not in text
        assert as_numbers not in text, "bytes of the pickled class"
    wrong = {"storage.aws_endpoint": "http://127.0.0.1:9", "storage.max_retries": "0"}
    with pytest.raises(Exception, match="no connection"):
        spark.read.format("segmentlog").options(**options, **wrong).load(url)
    spark.conf.set("fs.s3a.endpoint", "http://127.0.0.1:9")
    assert spark.read.format("segmentlog").options(**options).load(url).count() == ROWS * 2 // 3
    spark.conf.set("fs.s3a.attempts.maximum", "0")
    register(spark)
    with pytest.raises(Exception, match="no connection"):
        spark.read.format("segmentlog").options(**options).load(url)
    spark.conf.unset("fs.s3a.attempts.maximum")


def test_an_error_of_credentials_names_register(spark: SparkSession) -> None:
    with serving() as server:
        server.fail(Fault(status=403, code="AccessDenied", times=9))
        options = {f"storage.{name}": value for name, value in server.options().items()}
        with pytest.raises(Exception, match=r"register\(spark\) takes the session's fs.s3a"):
            spark.read.format("segmentlog").options(subscribe="orders", **options).load("s3://bucket/a")


def test_an_archive_is_loaded_and_followed(spark: SparkSession, tmp_path: Path, moto: S3Server) -> None:
    path, url = write_small_store(tmp_path / "store"), moto.url()
    objects, hush = open_objects(url, moto.options), moto.options["aws_secret_access_key"]
    push(path, objects)
    options = {"subscribe": "orders", "cacheDir": str(tmp_path / "cache")}
    options |= {f"storage.{name}": value for name, value in moto.options.items()}
    frame = spark.read.format("segmentlog").options(**options).load(url)
    columns = ["topic", "queueId", "queueOffset", "body", "tags", "keys"]
    with segmentlog.open(path) as store:
        expected = [tuple(row.values()) for row in store.scan("orders", columns=columns).to_arrow().to_pylist()]
    found = frame.select(columns)
    assert_df_equality(found, spark.createDataFrame(expected, found.schema), ignore_row_order=True)
    plan = frame._jdf.queryExecution().toString()  # type: ignore[operator]
    assert hush not in plan

    def run() -> int:
        query = followed(spark, url, tmp_path, options)
        assert hush not in str(query.lastProgress)
        return int(sum(pq.read_metadata(each).num_rows for each in (tmp_path / "found").glob("*.parquet")))

    assert run() == ROWS * 2 // 3
    with MessageStore.open(path, CONFIG) as store:
        store.append_batch(pa.RecordBatch.from_pydict({"topic": ["orders"] * 3, "body": [b"more"] * 3}))
    push(path, objects)
    assert run() == ROWS * 2 // 3 + 3
    written = [each.read_bytes() for each in (tmp_path / "checkpoint").rglob("*") if each.is_file()]
    assert not any(hush.encode() in each for each in written)


@pytest.mark.scaled(quick=0)
def test_a_restarted_stream_has_each_row_once_beside_pushes_and_prunes(
    spark: SparkSession, tmp_path: Path, moto: S3Server
) -> None:
    path, url = write_small_store(tmp_path / "store"), moto.url()
    objects = open_objects(url, moto.options)
    push(path, objects)
    options = {"subscribe": "orders", "cacheDir": str(tmp_path / "cache")}
    options |= {f"storage.{name}": value for name, value in moto.options.items()}
    sent, pruned = ROWS * 2 // 3, 0
    (tmp_path / "found").mkdir()
    columns = "queueId INT, queueOffset BIGINT, body BINARY"

    def found() -> DataFrame:  # looked for again: a frame keeps its list of files
        return spark.read.schema(columns).parquet(str(tmp_path / "found"))

    was_empty = False
    for queues in ([0, 1], [0, 0], [0, 1]):  # queue 1 has no new messages for a while
        query = started(spark, url, tmp_path, options, processingTime="0 seconds")
        for _ in range(2):
            bodies = [b"%d %s" % (number, b"." * 200) for number in range(sent, sent + 200)]
            with MessageStore.open(path, CONFIG) as store:
                columns_of = {"topic": ["orders"] * 200, "queueId": pa.array(queues * 100, pa.int32()), "body": bodies}
                store.append_batch(pa.RecordBatch.from_pydict(columns_of))
            push(path, objects)
            sent += 200
            give_up = time.monotonic() + 60
            while found().count() < sent and time.monotonic() < give_up:
                assert query.isActive, str(query.exception())
                time.sleep(0.1)
            pruned += prune(objects, 1 << 60, grace_s=0).pieces  # all but the last segment, which the stream has read
            was_empty |= any(each.queue == ("orders", 1) for each in newest(objects)[1].pruned)
        query.stop()
    assert pruned > 6
    assert was_empty
    with segmentlog.open(path) as opened:
        expected = opened.scan("orders", columns=["queueId", "queueOffset", "body"]).to_arrow().to_pylist()
    wanted = spark.createDataFrame([tuple(row.values()) for row in expected], columns)
    assert_df_equality(found(), wanted, ignore_row_order=True)
