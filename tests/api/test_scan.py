import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import polars as pl
import pyarrow as pa
import pytest

import segmentlog
from segmentlog.api import scan as scan_module
from segmentlog.api.scan import _BATCHES_A_TASK, read_in_order
from segmentlog.store import (
    DEFAULT_COLUMNS,
    ConfigError,
    CorruptRecordError,
    MessageStore,
    Outgoing,
    QueueKey,
    QueueRange,
    ScanSpec,
    ScanTask,
    Snapshot,
    StoreConfig,
)
from support.reading import read
from support.store_builder import StoreBuilder, messages
from support.tampering import put_at, segments

START_MS = 1_769_817_600_000


def every_row(path: Path) -> list[dict[str, Any]]:
    return list(read(Snapshot.open(path)))


def key_of(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["queueId"], row["queueOffset"]


def keys(table: pa.Table) -> list[tuple[str, int, int]]:
    return sorted(zip(*(table[name].to_pylist() for name in ("topic", "queueId", "queueOffset")), strict=True))


@pytest.mark.parametrize("threads", [1, 3])
def test_the_messages_of_a_queue_come_in_order(
    store: segmentlog.Store, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "_TASK_BYTES", 4096)
    seen: dict[tuple[str, int], list[int]] = {}
    batches = list(store.scan(["orders", "payments"]).to_batches(threads=threads))
    assert len(batches) > 20
    for row in pa.Table.from_batches(batches).select(["topic", "queueId", "queueOffset"]).to_pylist():
        seen.setdefault((row["topic"], row["queueId"]), []).append(row["queueOffset"])
    assert seen == {(topic, queue): list(range(100)) for topic in ("orders", "payments") for queue in range(4)}


def test_head_reads_no_more_than_it_returns(store: segmentlog.Store) -> None:
    scan = store.scan("orders", columns=["queueId", "queueOffset", "tags"])
    assert scan.head(3).num_rows == 3
    assert scan.head(0).num_rows == 0
    assert scan.head(0).schema == scan.schema
    assert scan.head(1000).num_rows == 400
    assert set(store.scan("orders", tags="sent").head(5)["tags"].to_pylist()) == {"sent"}
    with pytest.raises(ConfigError, match="n=-1 is not a whole number"):
        scan.head(-1)


def test_a_search_in_bodies_equals_a_filter_over_all_messages(store: segmentlog.Store, path: Path) -> None:
    scan = store.scan("orders", tags="paid").where_body(contains="message 1")
    expected = [row for row in every_row(path) if row["topic"] == "orders" and row["tags"] == "paid"]
    expected = [row for row in expected if b"message 1" in row["body"]]
    assert len(expected) > 10
    assert keys(scan.to_arrow()) == sorted(map(key_of, expected))
    assert scan.count() == len(expected)
    assert scan.head(4).num_rows == 4
    narrower = scan.where_body(regex="MESSAGE 1[0-9]{2}", ignore_case=True)
    assert narrower.count() == sum(b"message 1" in row["body"] and row["body"][10:11].isdigit() for row in expected)
    assert keys(pa.table(pickle.loads(pickle.dumps(narrower)))) == keys(narrower.to_arrow())
    assert scan.count() == len(expected)
    assert store.scan("orders").where_body(json_path="$.a", equals=1).to_arrow().num_rows == 0
    with pytest.raises(ConfigError, match="where_body has no condition"):
        scan.where_body()


@pytest.fixture
def json_store(tmp_path: Path) -> segmentlog.Store:
    with MessageStore.open(tmp_path / "json", StoreConfig(segment_bytes=1 << 20)) as written:
        for body in b'{"id":1,"body":"a"}', b"{", b'{"id":2}', b'{"id":"3"}':
            written.append(Outgoing(topic="orders", queue_id=0, body=body))
    return segmentlog.open(tmp_path / "json")


def test_columns_of_bodies_follow_the_columns_of_messages(json_store: segmentlog.Store) -> None:
    scan = json_store.scan(
        "orders", columns="queueOffset", properties="KEYS", body_as="json", schema="id int, body string"
    )
    assert scan.schema.names == ["queueOffset", "KEYS", "id", "body", "bodyError"]
    found = scan.to_arrow()
    assert found.schema == scan.schema == scan.head(2).schema
    assert found["id"].to_pylist() == [1, None, 2, None]
    assert found["body"].to_pylist() == ["a", None, None, None]
    assert found["bodyError"].is_null().to_pylist() == [True, False, True, False]
    assert scan.count() == 4
    assert scan.where_body(contains='"id"').to_arrow()["id"].to_pylist() == [1, 2, None]
    assert scan.head(1).to_pylist() == found.slice(0, 1).to_pylist()
    assert scan.lazy().filter(pl.col("id") > 1).select("body", "id").collect().rows() == [(None, 2)]
    whole = json_store.scan("orders", body_as="text")
    assert whole.schema.names == [*DEFAULT_COLUMNS, "text", "bodyError"]
    assert whole.to_arrow()["text"].to_pylist() == [each.decode() for each in whole.to_arrow()["body"].to_pylist()]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"schema": "id int"}, "schema needs body_as"),
        ({"body_as": "json"}, "body_as='json' needs schema"),
        ({"body_as": "json", "schema": "id integr"}, "schema: a type"),
        ({"body_as": "json", "schema": "body string"}, "the bodies have the column `body`, and so have the messages"),
    ],
)
def test_wrong_formats_of_bodies(json_store: segmentlog.Store, arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        json_store.scan("orders", **arguments)


def test_counting_without_a_filter_opens_no_segment(store: segmentlog.Store, path: Path) -> None:
    scan = store.scan("orders")
    for segment in (path / "commitlog").iterdir():
        segment.write_bytes(bytes(segment.stat().st_size))
    assert scan.count() == 400
    with pytest.raises(CorruptRecordError):
        scan.to_arrow()


def test_a_scan_keeps_its_offsets_while_messages_are_appended(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "live", StoreConfig(segment_bytes=1 << 20)) as written:
        written.append(Outgoing(topic="orders", queue_id=0, body=b"1"))
        written.wait_dispatched()
        store = segmentlog.open(tmp_path / "live")
        scan = store.scan("orders")
        written.append(Outgoing(topic="orders", queue_id=0, body=b"2"))
        written.wait_dispatched()
        assert scan.ranges == (QueueRange(QueueKey("orders", 0), 0, 1),)
        assert scan.to_arrow()["body"].to_pylist() == [b"1"]
        assert store.scan("orders").to_arrow()["body"].to_pylist() == [b"1", b"2"]


def test_a_number_of_threads_is_checked(store: segmentlog.Store) -> None:
    with pytest.raises(ConfigError, match="threads=0 is not a whole number from 1 on"):
        store.scan("orders").to_batches(threads=0)


SPEC = ScanSpec(columns=("body",))


class Fake:
    """Stands for a reader: task n yields n's number ``batches`` times; notes which threads read, and how far."""

    def __init__(self, batches: int = 3, fails: int = -1) -> None:
        self.batches, self.fails = batches, fails
        self.taken = 0
        self.threads: dict[int, Any] = {}
        self.lock = threading.Lock()

    def open(self) -> Snapshot:
        with self.lock:
            self.threads[len(self.threads)] = threading.current_thread()
        return cast("Snapshot", self)

    def scan(self, task: ScanTask, _: ScanSpec) -> Iterator[Any]:
        for number in range(self.batches):
            if task.rows == self.fails and number == 1:
                raise ValueError(str(task.rows))
            with self.lock:
                self.taken += 1
            yield task.rows, number


def tasks(count: int) -> list[ScanTask]:
    return [ScanTask((), number, 0) for number in range(count)]


def wanted(count: int, batches: int) -> list[tuple[int, int]]:
    return [(task, number) for task in range(count) for number in range(batches)]


@pytest.mark.parametrize("batches", [1, 100])
def test_reading_ahead_is_bounded(batches: int) -> None:
    fake = Fake(batches=batches)
    reading = read_in_order(fake.open, tasks(500), SPEC, 2)
    next(reading)
    before = -1
    while before != fake.taken:
        before = fake.taken
        time.sleep(0.1)
    # 3 tasks, each with what its channel holds, one batch that waits for room, and one that was taken
    assert fake.taken <= 3 * (_BATCHES_A_TASK + 2)
    reading.close()
    assert not any(each.is_alive() for each in fake.threads.values())


def test_an_error_comes_in_its_place() -> None:
    fake = Fake(fails=2)
    found: list[Any] = []
    with pytest.raises(ValueError, match="2"):
        found.extend(read_in_order(fake.open, tasks(6), SPEC, 3))
    seen = Fake(fails=2)
    reading = read_in_order(seen.open, tasks(6), SPEC, 3)
    found = [next(reading) for _ in range(7)]
    assert found == [*wanted(2, 3), (2, 0)]
    with pytest.raises(ValueError, match="2"):
        next(reading)
    assert not any(each.is_alive() for each in (*fake.threads.values(), *seen.threads.values()))


def test_a_time_limits_rows_beside_offsets_where_times_fall(tmp_path: Path) -> None:
    times = [10, 40, 20, 30]
    with StoreBuilder(tmp_path) as builder:
        done = builder.append(messages(4, queues=1, body_bytes=20, store_time_start=START_MS))
    (segment,) = segments(tmp_path)
    for place, ms in zip(done.physical_offsets.tolist(), times, strict=True):
        put_at(segment, place + 56, (START_MS + ms).to_bytes(8, "big"))
    with segmentlog.open(tmp_path) as opened:
        end = segmentlog.Time(ms=START_MS + 35)
        for start in (None, {0: 0}):
            found = opened.scan("Orders", start=start, end=end, columns="queueOffset").to_arrow()
            assert found["queueOffset"].to_pylist() == [0, 2, 3]
