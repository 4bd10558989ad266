from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from segmentlog.connector.errors import in_spark_words
from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.store import DataLossError, MessageStore, QueueKey, QueueRange, ScanSpec, Snapshot
from support.archived_store import CONFIG, ROWS, Archived, append_rows, archive_some, settings, write_archived
from support.streams import Stream

EVERYTHING = {"subscribePattern": ".*"}
Read = Callable[..., pa.Table]


@pytest.fixture
def paths(tmp_path: Path) -> Archived:
    return write_archived(tmp_path)


def numbered(bodies: list[Any]) -> list[int]:
    return sorted(int(bytes(body).split()[1]) for body in bodies)


def test_a_batch_look_ups_and_metadata_read_both(read: Read, paths: Archived) -> None:
    given = EVERYTHING | {"archive": str(paths.archive)}
    assert numbered(read(paths.store, **given)["body"].to_pylist()) == list(range(ROWS))
    assert read(paths.store, **given, keys="k3,k700").num_rows == 2
    times = {"startingTimestamp": "1763700010000", "endingTimestamp": "1763700020000"}
    assert read(paths.store, **given, **times).num_rows == 100
    assert 0 < read(paths.store, **EVERYTHING).num_rows < ROWS
    source = SegmentLogDataSource(
        given | {"path": str(paths.store), "metadata": "queues", "subscribePattern": "orders"}
    )
    reader = source.reader(source.schema())
    found = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert [row["minOffset"] for row in found] == [0, 0]


@pytest.mark.slow
def test_a_stream_goes_from_the_archive_to_the_store_while_files_move(tmp_path: Path) -> None:
    path, archive = tmp_path / "store", tmp_path / "archive"
    archive.mkdir()
    seen: list[tuple[str, int, int]] = []
    with MessageStore.open(path, CONFIG, retention=settings(archive)) as store:
        append_rows(store, 0, 600)
        for _ in range(100):
            store.tick()
        assert store.bounds(QueueKey("orders", 0)).min_offset > 100
        query = Stream(path, archive=str(archive), startingOffsets="earliest", maxOffsetsPerTrigger="40", **EVERYTHING)
        for first in range(600, 1200, 30):
            seen += query.batch() or []
            append_rows(store, first, 30)
            store.tick()
        seen += query.all()
    assert len(seen) == len(set(seen)) == 1200
    for topic, queue, count in (("orders", 0, 480), ("orders", 1, 480), ("refunds", 0, 240)):
        assert [at for name, number, at in seen if (name, number) == (topic, queue)] == list(range(count))


def lost_in_a_stream(path: Path, archive: Path) -> None:
    query = Stream(path, startingOffsets="earliest", maxOffsetsPerTrigger="10", **EVERYTHING)
    query.batch()
    archive_some(path, archive, 3)
    query.batch()


def lost_in_a_task(path: Path, archive: Path) -> None:
    key = QueueKey("orders", 0)
    snapshot = Snapshot.open(path)
    (task,) = snapshot.plan([QueueRange(key, snapshot.bounds(key).min_offset, 300)], max_bytes=1 << 30)
    archive_some(path, archive, 3)
    with in_spark_words():
        list(Snapshot.open(path).scan(task, ScanSpec(columns=("body",))))


@pytest.mark.parametrize("read", [lost_in_a_stream, lost_in_a_task])
def test_a_reader_that_is_too_late_is_told_of_the_option(
    tmp_path: Path, read: Callable[[Path, Path], None], paths: Archived
) -> None:
    whole, archive = paths.whole, tmp_path / "of whole"
    with pytest.raises(DataLossError) as error:
        read(whole, archive)
    assert f", archived in {archive}, the last of the CommitLog" in str(error.value)
    assert "archive names the archive, and reads its messages with those of the store" in str(error.value)
