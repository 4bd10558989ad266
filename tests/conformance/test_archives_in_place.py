"""Archives of stores of RocketMQ, through every door: equal to the directory that was pushed."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

import segmentlog
from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.store import OnCorrupt, QueueRange, QueueSource, ScanSpec, StoreReader
from segmentlog.store.archive.push import push
from segmentlog.store.objects.opening import open_objects
from support import fixtures
from support.commands import run_command
from support.streams import Stream

pytestmark = pytest.mark.conformance
ALL = {"subscribePattern": ".*", "includeSystemTopics": "true", "brokerNames": "b", "checkCrc": "true"}
SKIPPED = {"corruptRecord": "skip", "failOnDataLoss": "false"}


@pytest.mark.parametrize("name", fixtures.cases())
def test_each_door_reads_an_archive_as_the_directory(name: str, tmp_path: Path) -> None:
    path = fixtures.unpack(name, tmp_path)
    url = f"file://{tmp_path}/archive"
    push(path, open_objects(url), keep_damage=True)

    # Python and the command: topics and queues are those of the log
    of_log = StoreReader.open(path, queue_source=QueueSource.COMMIT_LOG)
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
    by_log = ALL | SKIPPED | {"queueSource": "commitlog"}
    found = batch(url, **ALL | SKIPPED)
    assert found == batch(str(path), **by_log)
    stream, local = (
        Stream(place, startingOffsets="earliest", **options)
        for place, options in ((url, ALL | SKIPPED), (path, by_log))
    )
    assert sorted(stream.batch() or []) == sorted(local.batch() or [])


def rows_of(reader: StoreReader) -> int:
    ranges = [
        QueueRange(each.key, each.min_offset, each.max_offset)
        for topic in reader.topics()
        for each in reader.queues(topic)
    ]
    spec = ScanSpec(columns=("body",), on_corrupt=OnCorrupt.SKIP)
    return sum(part.num_rows for task in reader.plan(ranges, max_bytes=1 << 30) for part in reader.scan(task, spec))


def batch(path: str, **options: str) -> list[dict[str, object]]:
    source = SegmentLogDataSource({"path": path} | options)
    reader = source.reader(source.schema())
    tables = [pa.Table.from_batches([each]) for part in reader.partitions() for each in reader.read(part)]
    rows = pa.concat_tables(tables).to_pylist() if tables else []
    return sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))
