import json
import re
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from segmentlog.jobs.lake import parquet_files
from segmentlog.jobs.lake.parquet_files import (
    PartitionKey,
    TableLayout,
    _directory,
    check_columns,
    partition_keys,
    statistics,
    write_files,
)
from segmentlog.store import ConfigError
from support.lake import COLUMNS, KINDS, ROWS, Frame, Lake, part_of, rows_of


def test_files_of_a_target_size_have_the_rows_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "_ROW_GROUP_BYTES", 10_000)
    rows = rows_of(0, 2_000)
    layout = TableLayout(schema=COLUMNS, file_bytes=20_000)
    files = write_files(Frame(rows, 100), layout, f"file://{tmp_path}")
    assert sum(each.messages for each in files) == 2_000
    assert all(20_000 <= each.bytes < 40_000 for each in sorted(files, key=lambda each: each.bytes)[1:])
    assert all(each.bytes == (tmp_path / each.path).stat().st_size for each in files)
    found = pa.concat_tables([pq.read_table(tmp_path / each.path) for each in files])
    assert found.sort_by([("queueOffset", "ascending"), ("queueId", "ascending")]).cast(COLUMNS).equals(rows)


def test_memory_is_bounded_over_many_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "_BUFFERED_BYTES", 1 << 20)
    body = b"x" * 1_000

    def batches() -> "list[pa.RecordBatch]":
        queues = pa.array([each % 100 for each in range(500)], pa.int32())
        return [pa.record_batch({"queueId": queues, "body": pa.array([body] * 500)})]

    class Endless(Frame):
        def mapInArrow(self, work: object, schema: str) -> Frame:  # noqa: N802 - Spark's
            peak.append(0)
            source = (batches()[0] for _ in range(40))

            def watched() -> "object":
                for each in source:
                    peak[0] = max(peak[0], pa.total_allocated_bytes() - before)
                    yield each

            found = list(work(watched()))  # type: ignore[operator]
            return Frame(pa.Table.from_batches(found))

    peak: list[int] = []
    before = pa.total_allocated_bytes()
    schema = pa.schema([("queueId", pa.int32()), ("body", pa.binary())])
    layout = TableLayout(schema=schema, keys=(PartitionKey("queueId", "queueId"),))
    files = write_files(Endless(rows_of(0)), layout, f"file://{tmp_path}")
    assert sum(each.messages for each in files) == 20_000
    assert peak[0] < 16 << 20, "20 MB were written"


def test_partitions_are_files_and_directories(tmp_path: Path) -> None:
    keys = partition_keys(["day", "hour", "queue"], COLUMNS)
    files = write_files(Frame(rows_of(0), 7), TableLayout(schema=COLUMNS, keys=keys), f"file://{tmp_path}")
    assert [each.partition for each in files] == [("2026-01-31", "2026-01-31-00", str(queue)) for queue in (0, 1)]
    assert files[1].path.startswith("day=2026-01-31/hour=2026-01-31-00/queueId=1/")
    assert pq.read_table(tmp_path / files[1].path, partitioning=None)["queueId"].unique().to_pylist() == [1]


def test_days_are_utc_in_any_zone_of_the_session(tmp_path: Path) -> None:
    zone = pa.timestamp("us", "Asia/Tokyo")
    rows = pa.table({"storeTimestamp": pa.array([datetime(2026, 1, 31, 23, 59, tzinfo=UTC)], zone)})
    schema = pa.schema([("storeTimestamp", pa.timestamp("us", "UTC"))])
    (file,) = write_files(
        Frame(rows), TableLayout(schema=schema, keys=partition_keys(["day"], schema)), f"file://{tmp_path}"
    )
    assert file.partition == ("2026-01-31",)
    assert pq.read_table(tmp_path / file.path, partitioning=None)["storeTimestamp"].type == pa.timestamp("us", "UTC")


def test_missing_values_are_a_partition(tmp_path: Path) -> None:
    rows = pa.table({"tags": ["a", None, "a", None, ""]})
    layout = TableLayout(schema=rows.schema, keys=(PartitionKey("tags", "tags"),))
    files = write_files(Frame(rows), layout, f"file://{tmp_path}")
    assert {each.partition: each.messages for each in files} == {("a",): 2, (None,): 2, ("",): 1}


def test_columns_that_a_frame_lacks_are_null(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    (file,) = write_files(
        Frame(pa.table({"a": pa.array([1], pa.int32())})), TableLayout(schema=schema), f"file://{tmp_path}"
    )
    assert pq.read_table(tmp_path / file.path).to_pylist() == [{"a": 1, "b": None}]


def test_a_directory_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    layout = TableLayout(schema=COLUMNS, keys=partition_keys(["queue"], COLUMNS))
    with pytest.raises(OSError, match="gone"):
        write_files(Frame(rows_of(0)), layout, f"file://{tmp_path}/gone")
    assert list(tmp_path.iterdir()) == []


def test_statistics_have_bounds_that_hold(tmp_path: Path) -> None:
    at = datetime(2026, 1, 31, 12, 0, 0, 999_500, tzinfo=UTC)
    rows = pa.table(
        {
            "n": [3, None, 1],
            "t": pa.array([at, at, at], pa.timestamp("us", "UTC")),
            "d": [date(2026, 1, 31), None, None],
            "s": ["b", "a", None],
            "long": ["x" * 200, "y", "z"],
            "raw": [b"x", b"y", None],
            "none": pa.array([None, None, None], pa.int32()),
            "m": pa.array([[("k", "v")], None, []], pa.map_(pa.string(), pa.string())),
        }
    )
    pq.write_table(rows, tmp_path / "file", row_group_size=2)
    found = statistics(pq.read_metadata(tmp_path / "file"))
    assert json.loads(json.dumps(found)) == {
        "numRecords": 3,
        "minValues": {"n": 1, "t": "2026-01-31T12:00:00.999Z", "d": "2026-01-31", "s": "a"},
        "maxValues": {"n": 3, "t": "2026-01-31T12:00:01.000Z", "d": "2026-01-31", "s": "b"},
        "nullCount": {"n": 1, "t": 0, "d": 2, "s": 1, "long": 0, "raw": 1, "none": 3},
    }


@pytest.mark.parametrize(
    ("name", "columns", "problem"),
    [
        ("hour", ["body"], "partitions by hour need the column `storeTimestamp`"),
        ("queeu", ["queueId"], "partitions by queeu need the column `queeu`"),
        ("body", ["body"], "column `body` cannot partition a table: it is of type binary"),
    ],
)
def test_a_column_that_cannot_partition_is_refused(name: str, columns: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        partition_keys([name], pa.schema([COLUMNS.field(each) for each in columns]))


def test_schemas_fit_if_types_are_the_same_or_wider() -> None:
    table = pa.schema(
        [
            ("topic", pa.large_string()),
            ("queueId", pa.int64()),
            ("queueOffset", pa.int64()),
            ("storeTimestamp", pa.timestamp("us", "UTC")),
            ("properties", pa.map_(pa.large_string(), pa.large_string())),
            ("body", pa.large_binary()),
            ("more", pa.list_(pa.struct([("x", pa.string())]))),
        ]
    )
    check_columns(COLUMNS, table, "t")
    written = pa.schema(
        [("queueId", pa.int64()), ("body", pa.string()), ("storeTimestamp", pa.timestamp("us")), ("x", pa.int8())]
    )
    with pytest.raises(ConfigError) as caught:
        check_columns(written, COLUMNS, "t")
    assert str(caught.value).count("`") == 2 * 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "values", [["T" * 250, "T" * 251], ["订" * 30, "订" * 29 + "x"], [None, "__HIVE_DEFAULT_PARTITION__"]]
)
def test_values_that_cannot_name_directories_are_partitions(kind: str, values: list[str], tmp_path: Path) -> None:
    lake = Lake(kind, tmp_path)
    target = lake.target(by=["hour", "topic"])
    target.open()
    rows = pa.concat_tables([rows_of(0, topic=value) for value in values])
    assert target.write(part_of(0), Frame(rows)).files == 2
    assert Counter(lake.rows()["topic"].to_pylist()) == dict.fromkeys(values, ROWS)
    assert max(len(part.encode()) for each in lake.files() for part in each.split("/")) <= 255


def test_a_long_name_is_not_cut_within_an_escape() -> None:
    names = {_directory("k", "x" * count + "%" * 100) for count in range(3)}
    assert len(names) == 3
    assert all(len(each) <= 255 and re.fullmatch(r"k=x*(%25)*-[0-9a-f]{16}", each) for each in names)
    assert _directory("k", "x" * 253) == f"k={'x' * 253}"
