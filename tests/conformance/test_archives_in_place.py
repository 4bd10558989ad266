"""Archives of stores of RocketMQ, through every door: equal to the directory that was pushed."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

import segmentlog
from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.store import OnCorrupt, QueueSource, ScanSpec, Snapshot
from segmentlog.store.archive.push import push
from segmentlog.store.objects.opening import open_objects
from support import fixtures
from support.commands import run_command
from support.reading import whole_queues
from support.s3_servers import S3Server
from support.streams import Stream

pytestmark = pytest.mark.conformance
ALL = {"subscribePattern": ".*", "includeSystemTopics": "true", "brokerNames": "b", "checkCrc": "true"}
SKIPPED = {"corruptRecord": "skip", "failOnDataLoss": "false"}


@pytest.mark.parametrize("name", fixtures.kinds())  # the bytes of an archive are those of its store
def test_each_door_reads_an_archive_as_the_directory(name: str, tmp_path: Path) -> None:
    path, url = fixtures.unpack(name, tmp_path), f"file://{tmp_path}/archive"
    push(path, open_objects(url), keep_damage=True)

    # Python and the command: topics and queues are those of the log
    of_log = Snapshot.open(path, queue_source=QueueSource.COMMIT_LOG)
    with segmentlog.open(url) as store:
        assert sorted(store.topics().to_arrow()["topic"].to_pylist()) == of_log.topics()
        topics = of_log.topics()
        rows = store.scan(topics, on_corrupt="skip").to_arrow().num_rows if topics else 0
    assert rows == rows_of(of_log)
    ran = run_command("queues", url, "-o", "jsonl")
    assert ran.code == run_command("queues", path, "-o", "jsonl").code, ran.err
    listed = {(row["topic"], row["queueId"], row["maxOffset"]) for row in map(json.loads, ran.out.splitlines())}
    bounds = [each for topic in of_log.topics() for each in of_log.queues(topic)]
    assert listed == {(each.key.topic, each.key.queue_id, each.max_offset) for each in bounds}

    # Spark: a batch, and a stream from the first message on
    by_url = ALL | SKIPPED
    by_log = by_url | {"queueSource": "commitlog"}
    assert batch(url, **by_url) == batch(str(path), **by_log)
    stream, local = (
        Stream(place, startingOffsets="earliest", **options) for place, options in ((url, by_url), (path, by_log))
    )
    assert sorted(stream.batch() or []) == sorted(local.batch() or [])


def test_each_door_reads_the_archives_of_a_pattern(tmp_path: Path, moto: S3Server) -> None:
    url, storage = moto.url(), moto.options
    for name in ("basic-5.3.3", "time-5.3.3"):
        push(fixtures.unpack(name, tmp_path / name), open_objects(f"{url}/{name}", storage))
    with segmentlog.open_stores(f"{url}/*", storage=storage) as stores:
        rows = stores.scan("^T.*c$", columns=["brokerName", "topic", "queueId", "queueOffset"]).to_arrow()
        assert stores.scan("^T").count() == 248 + 218 + 620
    assert rows.num_rows == 620
    flags = [word for name, value in storage.items() for word in ("--storage", f"{name}={value}")]
    by_command = run_command("cat", f"{url}/*", "^T.*c$", "--columns", ",".join(rows.schema.names), "--json", *flags)
    assert by_command.rows == rows.to_pylist()
    options = {f"storage.{name}": value for name, value in storage.items()}
    options |= {"subscribePattern": "T.*c", "columns": ",".join(rows.schema.names)}
    source = SegmentLogDataSource({"path": f"{url}/*"} | options)
    reader = source.reader(source.schema())
    by_spark = [row for part in reader.partitions() for each in reader.read(part) for row in each.to_pylist()]
    assert sorted(by_spark, key=str) == sorted(rows.to_pylist(), key=str)
    stream = Stream(f"{url}/*", startingOffsets="earliest", **options)
    assert len(stream.batch() or []) == 620


def rows_of(snapshot: Snapshot) -> int:
    spec = ScanSpec(columns=("body",), on_corrupt=OnCorrupt.SKIP)
    tasks = snapshot.plan(whole_queues(snapshot), max_bytes=1 << 30)
    return sum(part.num_rows for task in tasks for part in snapshot.scan(task, spec))


def batch(path: str, **options: str) -> list[dict[str, object]]:
    source = SegmentLogDataSource({"path": path} | options)
    reader = source.reader(source.schema())
    tables = [pa.Table.from_batches([each]) for part in reader.partitions() for each in reader.read(part)]
    rows = pa.concat_tables(tables).to_pylist() if tables else []
    return sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))
