import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

from segmentlog.connector.options.read_options import ReadOptions, parse_read_options
from segmentlog.connector.read import task as tasks
from segmentlog.connector.read.planning import plan_partitions
from segmentlog.connector.read.schema import Projection, project, spark_schema
from segmentlog.connector.read.task import StorePartition, read_partition, scan_spec
from segmentlog.store import CorruptRecordError, DataLossError, OnCorrupt, OnLoss, ScanSpec
from support.store_builder import StoreBuilder, messages
from support.tampering import overwrite

COUNT = 40


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with StoreBuilder(tmp_path / "s") as builder:
        builder.append(messages(COUNT, queues=2))
    return tmp_path / "s"


def options_of(path: Path, **given: str) -> ReadOptions:
    return parse_read_options({"path": str(path), "subscribe": "Orders", "columns": "queueId,keys,body"} | given)


def planned(options: ReadOptions) -> tuple[Projection, list[StorePartition]]:
    projection = project(spark_schema(options), options)
    return projection, plan_partitions(options, scan_spec(options, projection))


def read(path: Path, **given: str) -> pa.Table:
    """Read all partitions as workers do: each crosses as a pickle."""
    projection, partitions = planned(options_of(path, **given))
    batches = [
        batch
        for partition in partitions
        for batch in read_partition(pickle.loads(pickle.dumps(partition)), pickle.loads(pickle.dumps(projection)))
    ]
    return pa.Table.from_batches(batches, projection.target)


def spec_of(**given: str) -> ScanSpec:
    options = options_of(Path("/data"), **given)
    return scan_spec(options, project(spark_schema(options), options))


def test_the_spec_of_a_plain_query() -> None:
    spec = spec_of()
    assert spec.columns == ("queueId", "keys", "body")
    assert (spec.property_columns, spec.check_crc, spec.raw_body) == ((), False, False)
    assert (spec.on_corrupt, spec.on_loss) == (OnCorrupt.FAIL, OnLoss.FAIL)


@pytest.mark.parametrize(
    ("option", "text", "field", "value"),
    [
        ("checkCrc", "true", "check_crc", True),
        ("rawBody", "true", "raw_body", True),
        ("corruptRecord", "null", "on_corrupt", OnCorrupt.NULL),
        ("failOnDataLoss", "false", "on_loss", OnLoss.SKIP),
        ("maxBodyBytes", "5k", "max_body_bytes", 5 << 10),
        ("batchBytes", "2m", "batch_bytes", 2 << 20),
        ("batchRows", "77", "batch_rows", 77),
    ],
)
def test_each_option_of_rows_reaches_the_store(option: str, text: str, field: str, value: object) -> None:
    assert getattr(spec_of(**{option: text}), field) == value
    assert getattr(spec_of(), field) != value


def test_property_columns_are_read_as_properties() -> None:
    spec = spec_of(columns="keys,colour", propertyColumns="colour")
    assert (spec.columns, spec.property_columns) == (("keys",), ("colour",))


def test_all_partitions_together_have_all_rows(store: Path) -> None:
    found = read(store, minPartitions="7")
    assert sorted(found.column("keys").to_pylist()) == sorted(f"key-{number}" for number in range(COUNT))
    assert found.schema.names == ["queueId", "keys", "body"]


def test_a_partition_that_spark_made_up_has_no_rows(store: Path) -> None:
    projection, _ = planned(options_of(store))
    assert list(read_partition(InputPartition(0), projection)) == []


def test_the_worker_is_tuned_around_the_first_batch(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("keep_memory", "settle_worker"):
        monkeypatch.setattr(tasks, name, lambda name=name: calls.append(name))
    projection, (partition, *_) = planned(options_of(store))
    reading = read_partition(partition, projection)
    assert calls == []
    next(reading)
    assert calls == ["keep_memory", "settle_worker"]


def test_a_damaged_record_is_an_error_that_names_the_option(store: Path) -> None:
    overwrite(store, 4, b"\xff" * 8)
    with pytest.raises(CorruptRecordError, match="corruptRecord=skip"):
        read(store)
    assert read(store, corruptRecord="skip").num_rows == COUNT - 1


def test_a_loss_after_planning_is_an_error_that_names_the_option(store: Path) -> None:
    def lacking(**given: str) -> Iterator[pa.RecordBatch]:
        projection, (partition, *_) = planned(options_of(store, **given))
        first, *rest = partition.task.ranges
        promised = replace(partition.task, ranges=(first._replace(rows=first.rows + 1), *rest))
        return read_partition(replace(partition, task=promised), projection)

    with pytest.raises(DataLossError, match="failOnDataLoss"):
        list(lacking())
    assert sum(batch.num_rows for batch in lacking(failOnDataLoss="false")) > 0
