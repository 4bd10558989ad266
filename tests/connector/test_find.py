import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality

from segmentlog.connector.find import FoundRecords
from segmentlog.spark import SchemaError, find_by_keys
from segmentlog.store import ConfigError, DataLossError
from segmentlog.store.errors import NotAStoreError
from segmentlog.store.find import KeyField
from segmentlog.store.format.index_file import Geometry
from support.indexed_stores import START_MS, Row, build, every_record, write_index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Read = Callable[..., pa.Table]
COLUMNS = "topic,queueId,queueOffset,keys,uniqKey,msgId,storeTimestamp,physicalOffset,body"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rows = [
        Row("AB"[i % 2], f"key-{i} group-{i % 7}", f"u-{i}", START_MS + 1000 * i, queue_id=i % 3) for i in range(400)
    ]
    build(tmp_path / "store", rows, segment_bytes=8192)
    write_index(tmp_path / "store", Geometry(53, 500))
    return tmp_path / "store"


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["physicalOffset"])


def chosen(read: Read, path: Path, keep: Callable[[dict[str, Any]], bool], **options: str) -> list[dict[str, Any]]:
    """Rows of a read of all messages that a condition keeps."""
    return [row for row in rows(read(path, columns=COLUMNS, **options)) if keep(row)]


def test_keys_and_unique_keys_find_the_rows_of_an_equal_filter(read: Read, path: Path) -> None:
    wanted = {"key-7", "group-3", "key-500", "u-9"}
    found = rows(read(path, subscribe="A,B", keys=",".join(wanted), columns=COLUMNS))
    assert found == chosen(read, path, lambda row: bool(wanted & set(row["keys"].split())), subscribe="A,B")
    assert len(found) == 58
    found = rows(read(path, subscribe="A", uniqueKeys="u-8,u-9,key-7", columns=COLUMNS))
    assert [row["uniqKey"] for row in found] == ["u-8"]


def test_times_limit_a_look_up(read: Read, path: Path) -> None:
    window = {"startingTimestamp": str(START_MS + 20_000), "endingTimestamp": str(START_MS + 100_000)}
    found = rows(read(path, subscribe="A,B", keys="group-3", columns=COLUMNS, **window))
    expected = [i for i in range(20, 100) if i % 7 == 3]
    assert [row["uniqKey"] for row in found] == [f"u-{i}" for i in expected]
    ids = [f"7F00000100002A9F{record.physical_offset:016X}" for record in every_record(path)]
    found = rows(read(path, subscribe="A", messageIds=",".join(ids), columns=COLUMNS, **window))
    assert [row["uniqKey"] for row in found] == [f"u-{i}" for i in range(20, 100, 2)]


def test_a_text_that_is_no_message_id_is_refused_as_it_was_passed(read: Read, path: Path) -> None:
    with pytest.raises(ConfigError, match="messageIds: 'xx' is not a message id"):
        read(path, subscribe="A", messageIds="xx", columns=COLUMNS)


def test_an_absent_key_has_no_rows_and_no_partitions(read: Read, path: Path) -> None:
    planned: list[object] = []
    assert read(path, subscribe="A", keys="nothing", columns=COLUMNS, partitions=planned).num_rows == 0
    assert planned == []


def test_records_are_shared_out(read: Read, path: Path) -> None:
    planned: list[object] = []
    read(path, subscribe="A,B", keys="group-3", maxRecordsPerPartition="10", partitions=planned)
    assert len(planned) == 6
    planned.clear()
    read(path, subscribe="A,B", keys="group-3", minPartitions="4", partitions=planned)
    assert len(planned) == 4
    assert all(isinstance(each, FoundRecords) for each in planned)


def test_a_look_up_has_the_kafka_schema_and_property_columns_of_a_read(read: Read, path: Path) -> None:
    options = {"subscribe": "A,B", "schemaMode": "kafka", "propertyColumns": "UNIQ_KEY"}
    found = read(path, keys="group-3", **options).to_pylist()
    every = [row for row in read(path, **options).to_pylist() if b"group-3" in row["key"].split()]
    assert sorted(found, key=str) == sorted(every, key=str)
    assert len(found) == 57


def test_a_scan_for_keys_is_logged(read: Read, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.rmtree(path / "index")
    with caplog.at_level(logging.WARNING):
        assert read(path, subscribe="A", keys="key-8", columns="keys").num_rows == 1
    assert "bytes of CommitLog were scanned to look up keys" in caplog.text


def test_records_deleted_since_they_were_found_are_a_loss(path: Path) -> None:
    from segmentlog.connector.source import SegmentLogDataSource  # noqa: PLC0415 - as Spark's worker does

    for allowed in ("true", "false"):
        source = SegmentLogDataSource(
            {"path": str(path), "subscribe": "A,B", "keys": "group-3", "failOnDataLoss": allowed}
        )
        reader = source.reader(source.schema())
        (planned,) = reader.partitions()
        segment = min((path / "commitlog").iterdir())
        held = segment.rename(path / "held")
        if allowed == "true":
            with pytest.raises(DataLossError, match="are no longer in the CommitLog"):
                list(reader.read(planned))
        else:
            assert 0 < sum(batch.num_rows for batch in reader.read(planned)) < 57
        held.rename(segment)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    indexed = tmp_path_factory.mktemp("frames") / "store"
    build(indexed, [Row("AB"[i % 2], f"key-{i} group-{i % 7}", f"u-{i}") for i in range(300)])
    write_index(indexed, Geometry(997, 9000))
    return indexed


@pytest.mark.spark
def test_every_key_of_a_frame_is_looked_up_once_in_every_store(
    spark: "SparkSession", indexed: Path, tmp_path: Path
) -> None:
    build(tmp_path / "other", [Row("A", "key-0 mine"), Row("B", "key-0")])
    pairs = [("AB"[i % 2], f"key-{i}") for i in range(0, 200, 3)]
    pairs += [("A", "key-1"), ("A", None), (None, "key-2"), *pairs[:10], ("B", "group-3"), ("A", "mine")]
    frame = spark.createDataFrame(pairs, "topic string, key string").repartition(2)
    paths = [str(indexed), str(tmp_path / "other"), f"file:{indexed}", str(indexed)]
    found = find_by_keys(spark, paths, frame).select("brokerName", "physicalOffset", "topic", "asked")
    wanted = {pair for pair in pairs if None not in pair}
    expected = sorted(
        (each.name, record.physical_offset, record.topic, key)
        for each in (indexed, tmp_path / "other")
        for record in every_record(each)
        for key in record.keys
        if (record.topic, key) in wanted
    )
    assert_df_equality(found, spark.createDataFrame(expected, found.schema), ignore_row_order=True)
    assert len(expected) > 80
    assert [row[3] for row in expected if row[0] == "other"] == ["key-0", "mine"]


@pytest.mark.spark
def test_unique_keys_are_found(spark: "SparkSession", indexed: Path) -> None:
    frame = spark.createDataFrame([("A", "u-8"), ("A", "key-8"), ("B", "u-8")], "topic string, key string")
    found = find_by_keys(spark, str(indexed), frame, field=KeyField.UNIQUE)
    found = found.select("uniqKey", "asked", "body", found.properties["UNIQ_KEY"])
    assert_df_equality(found, spark.createDataFrame([("u-8", "u-8", bytearray(8), "u-8")], found.schema))
    options = {"subscribe": "A,B", "keys": "key-8,key-9"}
    found = spark.read.format("segmentlog").options(**options).load(str(indexed)).select("uniqKey")
    assert_df_equality(found, spark.createDataFrame([("u-8",), ("u-9",)], "uniqKey string"), ignore_row_order=True)


@pytest.mark.spark
def test_wrong_arguments_of_find_by_keys_are_refused_at_the_call(
    spark: "SparkSession", indexed: Path, tmp_path: Path
) -> None:
    with pytest.raises(SchemaError, match="column `key` of the keys does not exist"):
        find_by_keys(spark, str(indexed), spark.createDataFrame([("A",)], "topic string"))
    with pytest.raises(SchemaError, match=r"withColumnRenamed\('Keys', 'key'\)"):
        find_by_keys(spark, str(indexed), spark.createDataFrame([("A", "k")], "topic string, Keys string"))
    with pytest.raises(ConfigError, match="`path` names no store"):
        find_by_keys(spark, [], spark.createDataFrame([("A", "k")], "topic string, key string"))
    with pytest.raises(SchemaError, match="column `key` of the keys has the type int"):
        find_by_keys(spark, str(indexed), spark.createDataFrame([("A", 1)], "topic string, key int"))
    frame = spark.createDataFrame([("A", "k")], "topic string, key string")
    for wrong in (str(tmp_path / "nothing"), [str(indexed), str(tmp_path / "nothing")]):
        with pytest.raises(NotAStoreError):
            find_by_keys(spark, wrong, frame)
    with pytest.raises(ConfigError, match="belongs to another session"):
        find_by_keys(spark.newSession(), str(indexed), frame)
