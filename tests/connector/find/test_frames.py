from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segmentlog.spark import SchemaError, find_by_keys
from segmentlog.store import ConfigError
from segmentlog.store.errors import NotAStoreError
from segmentlog.store.find import KeyField
from segmentlog.store.format.index_file import Geometry
from support.indexed_stores import Row, build, every_record, write_index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("frames") / "store"
    build(path, [Row("AB"[i % 2], f"key-{i} group-{i % 7}", f"u-{i}") for i in range(300)])
    write_index(path, Geometry(997, 9000))
    return path


def test_every_key_of_a_frame_is_looked_up_once_in_every_store(
    spark: "SparkSession", path: Path, tmp_path: Path
) -> None:
    build(tmp_path / "other", [Row("A", "key-0 mine"), Row("B", "key-0")])
    pairs = [("AB"[i % 2], f"key-{i}") for i in range(0, 200, 3)]
    pairs += [("A", "key-1"), ("A", None), (None, "key-2"), *pairs[:10], ("B", "group-3"), ("A", "mine")]
    frame = spark.createDataFrame(pairs, "topic string, key string").repartition(2)
    paths = [str(path), str(tmp_path / "other"), f"file:{path}", str(path)]
    found = find_by_keys(spark, paths, frame).select("brokerName", "physicalOffset", "topic", "asked").collect()
    wanted = {pair for pair in pairs if None not in pair}
    expected = sorted(
        (each.name, record.physical_offset, record.topic, key)
        for each in (path, tmp_path / "other")
        for record in every_record(each)
        for key in record.keys
        if (record.topic, key) in wanted
    )
    assert sorted(map(tuple, found)) == expected
    assert len(expected) > 80
    assert [row[3] for row in expected if row[0] == "other"] == ["key-0", "mine"]


def test_unique_keys_are_found(spark: "SparkSession", path: Path) -> None:
    frame = spark.createDataFrame([("A", "u-8"), ("A", "key-8"), ("B", "u-8")], "topic string, key string")
    (row,) = find_by_keys(spark, str(path), frame, field=KeyField.UNIQUE).collect()
    assert (row.uniqKey, row.asked, row.body, row.properties["UNIQ_KEY"]) == ("u-8", "u-8", bytes(8), "u-8")
    options = {"subscribe": "A,B", "keys": "key-8,key-9"}
    found = spark.read.format("segmentlog").options(**options).load(str(path)).select("uniqKey").collect()
    assert sorted(row.uniqKey for row in found) == ["u-8", "u-9"]


def test_wrong_arguments_of_find_by_keys_are_refused_at_the_call(
    spark: "SparkSession", path: Path, tmp_path: Path
) -> None:
    with pytest.raises(SchemaError, match="column `key` of the keys does not exist"):
        find_by_keys(spark, str(path), spark.createDataFrame([("A",)], "topic string"))
    with pytest.raises(SchemaError, match=r"withColumnRenamed\('Keys', 'key'\)"):
        find_by_keys(spark, str(path), spark.createDataFrame([("A", "k")], "topic string, Keys string"))
    with pytest.raises(ConfigError, match="`path` names no store"):
        find_by_keys(spark, [], spark.createDataFrame([("A", "k")], "topic string, key string"))
    with pytest.raises(SchemaError, match="column `key` of the keys has the type int"):
        find_by_keys(spark, str(path), spark.createDataFrame([("A", 1)], "topic string, key int"))
    frame = spark.createDataFrame([("A", "k")], "topic string, key string")
    for wrong in (str(tmp_path / "nothing"), [str(path), str(tmp_path / "nothing")]):
        with pytest.raises(NotAStoreError):
            find_by_keys(spark, wrong, frame)
    with pytest.raises(ConfigError, match="belongs to another session"):
        find_by_keys(spark.newSession(), str(path), frame)
