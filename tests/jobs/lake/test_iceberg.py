from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import BucketTransform

from segmentlog.jobs.lake.iceberg import IcebergTarget
from segmentlog.jobs.lake.target import Job
from segmentlog.store import ConfigError
from support.lake import COLUMNS, START_MS, Frame, Lake, expected, part_of, request, rows_of, write_all


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake("iceberg", tmp_path)


def foreign_table(lake: Lake, fields: list[Any]) -> Any:
    catalog = load_catalog("test", **lake.catalog)
    catalog.create_namespace("lake")
    return catalog.create_table("lake.messages", pa.schema(fields))


def test_files_have_field_ids_and_partitions(lake: Lake) -> None:
    write_all(lake, [0, 1])
    table = lake.load()
    assert [str(each) for each in table.spec().fields] == ["1000: hour: hour(4)", "1001: queueId: identity(2)"]
    for path in lake.paths():
        schema = pq.read_schema(path)
        assert [field.metadata[b"PARQUET:field_id"] for field in schema] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    files = table.inspect.files().to_pylist()
    assert sorted((each["partition"]["hour"], each["partition"]["queueId"]) for each in files) == [
        (START_MS // 3_600_000 + hour, queue) for hour in (0, 1) for queue in (0, 1)
    ]
    assert {each["record_count"] for each in files} == {20}


def test_another_job_may_be_first_with_the_namespace_and_with_the_table(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()

    def late_once(name: str) -> None:
        call = getattr(SqlCatalog, name)

        def late(*arguments: Any, **others: Any) -> Any:
            calls[name] += 1
            if calls[name] == 1:
                raise CommitFailedException(f"{name} was too late")
            return call(*arguments, **others)

        monkeypatch.setattr(SqlCatalog, name, late)

    late_once("create_namespace_if_not_exists")
    late_once("create_table_transaction")
    write_all(lake)
    assert calls == {"create_namespace_if_not_exists": 3, "create_table_transaction": 2}
    assert lake.rows() == expected()


def test_a_scan_leaves_out_files_by_their_statistics(lake: Lake) -> None:
    write_all(lake, range(4))
    scan = lake.load().scan(row_filter="storeTimestamp >= '2026-01-31T02:00:00+00:00' and queueOffset < 45")
    assert len(list(scan.plan_files())) == 2
    assert scan.to_arrow().num_rows == 10


def test_polars_and_duckdb_read_the_table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    write_all(lake)
    table = lake.load()
    frame = pl.scan_iceberg(table).select("body", "properties", "storeTimestamp").collect()
    assert sorted(frame["body"].to_list()) == sorted(expected()["body"].to_pylist())
    found = table.scan().to_duckdb("messages").sql("SELECT count(*), max(queueOffset) FROM messages").fetchall()
    assert found == [(expected().num_rows, 119)]


def test_one_snapshot_has_a_part_and_names_it(lake: Lake) -> None:
    write_all(lake, range(3))
    summaries = [each.summary.additional_properties for each in lake.load().snapshots()]
    assert [each["added-records"] for each in summaries] == ["40"] * 3
    assert all('"offsets":[["orders",0,' in each["segmentlog.part"] for each in summaries)


def snapshots(lake: Lake) -> list[int]:
    return [each.snapshot_id for each in lake.load().snapshots()]


def expire_second(lake: Lake) -> None:
    lake.load().maintenance.expire_snapshots().by_id(snapshots(lake)[1]).commit()


def tag_first_and_expire_second(lake: Lake) -> None:
    lake.load().manage_snapshots().create_tag(snapshots(lake)[0], "kept").commit()
    expire_second(lake)


def branch_first_and_expire_second(lake: Lake) -> None:
    lake.load().manage_snapshots().create_branch(snapshots(lake)[0], "kept").commit()
    expire_second(lake)


def roll_back(lake: Lake) -> None:
    lake.load().manage_snapshots().rollback_to_snapshot(snapshots(lake)[0]).commit()
    assert lake.rows().equals(expected(1))


def roll_back_and_expire(lake: Lake) -> None:
    others = snapshots(lake)[1:]
    roll_back(lake)
    lake.load().maintenance.expire_snapshots().by_ids(others).commit()


def set_forward_after_parts_were_written_again(lake: Lake) -> None:
    last = snapshots(lake)[2]
    roll_back(lake)
    write_all(lake)
    lake.load().manage_snapshots().set_current_snapshot(last).commit()
    assert lake.rows().equals(expected(3))


@pytest.mark.parametrize(
    "maintain",
    [
        expire_second,
        tag_first_and_expire_second,
        branch_first_and_expire_second,
        roll_back,
        roll_back_and_expire,
        set_forward_after_parts_were_written_again,
    ],
)
def test_each_part_is_there_once_after_maintenance(lake: Lake, maintain: Callable[[Lake], None]) -> None:
    write_all(lake, range(3))
    maintain(lake)
    write_all(lake)
    assert lake.rows().equals(expected())


def test_a_table_of_another_writer_gets_parts_if_the_columns_fit(lake: Lake) -> None:
    fields = [pa.field("extra", pa.string()), *COLUMNS]
    fields[2] = pa.field("queueId", pa.int64())
    foreign_table(lake, fields).append(pa.Table.from_pylist([{"extra": "theirs"}], pa.schema(fields)))
    target = lake.target(by=None)
    target.open()
    target.write(part_of(0), Frame(rows_of(0)))
    target.close()
    found = lake.load().scan().to_arrow()
    assert found.num_rows == 1 + len(rows_of(0))
    assert sorted(found["queueId"].drop_null().unique().to_pylist()) == [0, 1]


def test_a_column_that_the_table_requires_must_be_written(lake: Lake) -> None:
    foreign_table(lake, [pa.field("extra", pa.string(), nullable=False), *COLUMNS])
    with pytest.raises(ConfigError, match="`extra` is required by the table, and is not written"):
        lake.target(by=None).open()


def test_a_format_that_pyiceberg_does_not_write_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all(lake, [0])
    monkeypatch.setattr(Table, "format_version", 3)
    with pytest.raises(ConfigError, match="has version 3 of Iceberg's format"):
        lake.target(by=None).open()


def test_a_partition_by_a_hash_is_refused(lake: Lake) -> None:
    write_all(lake, [0])
    with lake.load().update_spec() as spec:
        spec.add_field("topic", BucketTransform(4), "bucket")
    with pytest.raises(ConfigError, match=r"partitioned by bucket\[4\] of the column `topic`"):
        lake.target(by=None).open()


def test_long_topics_with_the_same_beginning_are_partitions_of_their_own(lake: Lake) -> None:
    topics = ["a-topic-with-a-long-name-1", "a-topic-with-a-long-name-2", "%RETRY%group=x/y"]
    target = lake.target(by=["topic"])
    target.open()
    target.write(part_of(0), Frame(pa.concat_tables([rows_of(0, topic=topic) for topic in topics])))
    target.close()
    found = lake.load().inspect.files().to_pylist()
    assert sorted(each["partition"]["topic"] for each in found) == sorted(topics)
    assert lake.load().scan(row_filter=f"topic = '{topics[2]}'").to_arrow().num_rows == 40


@pytest.mark.parametrize(
    ("catalog", "properties"),
    [
        ("missing", {}),
        ("test", {"type": "sql", "uri": "sqlite:////nowhere/at/all.db"}),
        ("test", {"type": "unheard-of"}),
    ],
)
def test_a_catalog_that_cannot_be_opened_is_an_error(
    catalog: str, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    target = IcebergTarget("lake.messages", COLUMNS, Job(request()), catalog=catalog, properties=properties)
    with pytest.raises(ConfigError, match=f"catalog {catalog} cannot be opened"):
        target.open()
    target.close()


@pytest.mark.parametrize("name", ["messages", "lake.", ".messages"])
def test_a_table_without_a_namespace_is_refused(lake: Lake, name: str) -> None:
    with pytest.raises(ConfigError, match="no namespace"):
        IcebergTarget(name, COLUMNS, Job(request()), properties=lake.catalog).open()


def test_a_commit_with_a_lost_answer_is_found(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    commit: Any = Transaction.commit_transaction

    def lost(self: Transaction) -> None:
        commit(self)
        raise OSError("connection reset")

    target = lake.target()
    target.open()
    monkeypatch.setattr(Transaction, "commit_transaction", lost)
    assert target.write(part_of(0), Frame(rows_of(0))).messages == len(rows_of(0))
    monkeypatch.undo()
    assert lake.rows().equals(expected(1))
    assert lake.files() == lake.paths()
