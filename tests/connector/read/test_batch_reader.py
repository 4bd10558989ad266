import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from segmentlog.connector.options.read_options import parse_read_options
from segmentlog.connector.read.batch_reader import SegmentLogBatchReader
from segmentlog.connector.read.schema import spark_schema
from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.store import DataLossError
from support import fixtures

Store = Callable[[str], Path]
Read = Callable[..., pa.Table]
BASIC = "basic-5.3.3"
HUNDREDS = {str(number) for number in range(100, 201)}
ALL = {"subscribePattern": ".*", "includeSystemTopics": "true"}


def reader_of(path: Path, **options: str) -> SegmentLogBatchReader:
    source = SegmentLogDataSource({"path": str(path)} | options)
    return source.reader(source.schema())


def moment(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def store_times(name: str) -> list[datetime]:
    return [moment(line["storeTimestamp"]) for line in fixtures.expected(name).messages]


@pytest.mark.parametrize("mode", ["native", "kafka"])
def test_batches_have_sparks_schema_to_the_letter(store: Store, mode: str) -> None:
    path = store(BASIC)
    given = {"path": str(path), "subscribe": "TopicA", "schemaMode": mode, "propertyColumns": "user"}
    every = spark_schema(parse_read_options(given | {"includeProperties": "true"}))
    choose = random.Random(5)
    for _ in range(10):
        fields = choose.sample(every.fields, choose.randint(1, len(every.fields)))
        asked = StructType(fields)
        reader = SegmentLogDataSource(given).reader(asked)
        batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
        assert sum(batch.num_rows for batch in batches) == 248
        for batch in batches:
            batch.validate(full=True)
            assert batch.schema.equals(to_arrow_schema(asked, timezone="UTC"))


def test_kafkas_timestamp_is_of_the_clock_that_the_options_go_by(store: Store, read: Read) -> None:
    times = sorted(set(store_times("time-5.3.3")))
    start, stop = times[3], times[-4]
    window = {
        "startingTimestamp": start.isoformat(),
        "endingTimestamp": stop.isoformat(),
        "startingOffsetsByTimestampStrategy": "latest",
    }
    found = read(store("time-5.3.3"), **ALL, schemaMode="kafka", **window).column("timestamp").to_pylist()
    assert found
    assert (min(found), max(found)) == (start, times[-5])


def test_property_columns(store: Store, read: Read) -> None:
    rows = read(store(BASIC), **ALL, includeProperties="true", propertyColumns="user,größe,nobody").to_pylist()
    assert sum(row["user"] is not None for row in rows) > 100
    for row in rows:
        properties = dict(row["properties"] or ())
        assert [row[name] for name in ("user", "größe", "nobody")] == [
            properties.get(name) for name in ("user", "größe", "nobody")
        ]


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("TAGS = '标签'", lambda p: p.get("TAGS") == "标签"),
        ("KEYS IS NULL AND NOT (user IS NULL)", lambda p: "KEYS" not in p and "user" in p),
        ("WAIT = TRUE OR KEYS BETWEEN 100 AND 200", lambda p: p.get("WAIT") == "true" or p.get("KEYS") in HUNDREDS),
        ("user CONTAINS 'ship'", lambda p: "ship" in p.get("user", "")),
        ("nobody = 1", lambda p: False),
    ],
)
def test_sql_filters(store: Store, read: Read, text: str, matches: Callable[[dict[str, str]], bool]) -> None:
    wanted = [line for line in fixtures.expected(BASIC).messages if matches(line["properties"])]
    assert bool(wanted) == (text != "nobody = 1")
    assert read(store(BASIC), **ALL, sqlFilter=text).num_rows == len(wanted)


def test_a_time_window_is_exact_and_half_open(store: Store, read: Read) -> None:
    times = sorted(set(store_times("time-5.3.3")))
    for start, stop in ((times[3], times[-4]), (times[5], times[6]), (times[5], times[5])):
        found = read(
            store("time-5.3.3"),
            **ALL,
            startingTimestamp=start.isoformat(),
            endingTimestamp=stop.isoformat(),
            startingOffsetsByTimestampStrategy="latest",
        )
        wanted = [time for time in store_times("time-5.3.3") if start <= time < stop]
        assert found.num_rows == len(wanted)
        assert bool(wanted) == (start != stop)


@pytest.mark.parametrize("method", ["pushFilters", "pushLimit"])  # the latter exists from 4.4 on
def test_the_reader_overrides_no_pushdown(store: Store, method: str) -> None:
    # Spark refuses to read from a reader that does, unless the pushdown is enabled.
    reader = type(reader_of(store(BASIC), **ALL))
    assert getattr(reader, method, None) is getattr(DataSourceReader, method, None)


def test_a_partition_without_a_share_is_empty(store: Store) -> None:
    reader = reader_of(store(BASIC), **ALL)
    assert list(reader.read(InputPartition(None))) == []


def test_the_pickled_reader_and_partitions_are_small(store: Store) -> None:
    reader = reader_of(store(BASIC), subscribe="TopicA")
    partitions = reader.partitions()
    for sent in (reader, *partitions):
        assert len(cloudpickle.dumps(sent)) < 4096
    copy = cloudpickle.loads(cloudpickle.dumps(reader))
    assert sum(batch.num_rows for batch in copy.read(partitions[0])) == 248


@pytest.mark.parametrize("fail", ["true", "false"])
def test_messages_that_go_while_the_query_runs(store: Store, tmp_path: Path, fail: str) -> None:
    path = copytree(store(BASIC), tmp_path / "store")
    reader = reader_of(path, **ALL, failOnDataLoss=fail)
    partitions = reader.partitions()
    first = min((path / "commitlog").iterdir())
    first.unlink()  # as retention does
    if fail == "true":
        with pytest.raises(DataLossError, match=r"^\[SEGMENTLOG_DATA_LOSS\]"):
            [batch for partition in partitions for batch in reader.read(partition)]
        return
    left = [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]
    second = int(min((path / "commitlog").iterdir()).name)
    wanted = [line for line in fixtures.expected(BASIC).messages if line["phyOffset"] >= second]
    assert len(left) == len(wanted) > 0


@pytest.mark.parametrize(("corrupt", "rows"), [("skip", 247), ("null", 248)])
def test_a_damaged_record(store: Store, tmp_path: Path, read: Read, corrupt: str, rows: int) -> None:
    path = copytree(store(BASIC), tmp_path / "store")
    line = next(line for line in fixtures.expected(BASIC).messages if line["topic"] == "TopicA" and line["tags"])
    segment = max(file for file in (path / "commitlog").iterdir() if int(file.name) <= line["phyOffset"])
    with segment.open("r+b") as file:
        file.seek(line["phyOffset"] - int(segment.name) + 4)
        file.write(b"\0\0\0\0")  # its magic
    found = read(path, subscribe="TopicA", corruptRecord=corrupt).to_pylist()
    assert len(found) == rows
    damaged = [row for row in found if row["storeTimestamp"] is None]
    assert len(damaged) == rows - 247
    for row in damaged:
        assert (row["queueId"], row["queueOffset"]) == (line["queueId"], line["queueOffset"])
        assert row["body"] is row["tags"] is None
    with pytest.raises(Exception, match=r"^\[SEGMENTLOG_CORRUPT_RECORD\] .*TopicA"):
        read(path, subscribe="TopicA")
