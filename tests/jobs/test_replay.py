"""Replay into another store: equal rows in order, parts that are appended once."""

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import segmentlog
from segmentlog.jobs import replay
from segmentlog.jobs.replay import ReplaySettings
from segmentlog.query.source import StoreSource
from segmentlog.store import ConfigError, FormatError, MessageStore, Outgoing, QueueKey
from support.replays import MESSAGES, PART_BYTES, QUEUES, build_source, check_same, replayed, rows
from support.written_stores import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return build_source(tmp_path / "source")


@pytest.mark.spark
def test_replayed_rows_are_equal_and_in_order(spark: "SparkSession", path: Path) -> None:
    report = replayed(spark, path)
    assert not report.has_findings
    assert report.numbers["messages"] == QUEUES * MESSAGES
    assert int(str(report.numbers["parts"])) > 1
    assert report.table.to_pylist() == [
        {"topic": topic, "queueId": each, "messages": MESSAGES, "firstOffset": 0, "lastOffset": MESSAGES - 1}
        for topic, each in (("orders", 1), ("orders", 2), ("payments", 0))
    ]
    check_same(rows(path.parent / "target"), rows(path))
    again = replayed(spark, path)
    assert (again.numbers["messages"], again.has_findings) == (0, False)
    assert len(rows(path.parent / "target")) == QUEUES * MESSAGES


@pytest.mark.spark
def test_a_job_keeps_its_messages_although_the_source_grows(spark: "SparkSession", path: Path) -> None:
    expected, stop = rows(path), threading.Event()
    stop.set()
    report = replayed(spark, path, stop=stop)
    assert (report.numbers["messages"], report.has_findings) == (0, True)
    with MessageStore.open(path, SMALL) as store:
        store.append(Outgoing(topic="orders", queue_id=1, body=b"later"))
    assert not replayed(spark, path).has_findings
    check_same(rows(path.parent / "target"), expected)


@pytest.mark.spark
def test_filters_topics_and_keys(spark: "SparkSession", path: Path) -> None:
    report = replayed(
        spark,
        path,
        where="flag < 10 AND body LIKE '1/%'",
        read={"tags": "paid"},
        map_topic={"orders": "test"},
        key_prefix="t-",
    )
    found = rows(path.parent / "target", "test")
    assert report.numbers["messages"] == len(found) == 5
    assert [row["keys"] for row in found] == [f"t-k{serial} t-all" for serial in (1, 3, 5, 7, 9)]


@pytest.mark.spark
def test_a_pace_follows_store_times(spark: "SparkSession", tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "source", SMALL) as store:
        for serial in range(4):
            for topic, queue_id in (("orders", 1), ("payments", 0)):
                uniq_key = f"{topic}{serial}"  # the sink would make one
                store.append(Outgoing(topic=topic, queue_id=queue_id, body=b"%d" % serial, uniq_key=uniq_key))
            time.sleep(0.5)
    began = time.monotonic()
    report = replayed(spark, tmp_path / "source", speed=0.5)
    assert time.monotonic() - began >= 3
    assert int(str(report.numbers["parts"])) >= 3
    check_same(rows(tmp_path / "target"), rows(tmp_path / "source"))


@pytest.mark.spark
def test_a_lost_or_foreign_state_file_is_refused(spark: "SparkSession", path: Path) -> None:
    replayed(spark, path)
    state = path.parent / "state"
    with pytest.raises(ConfigError, match=r"is of another job: where was None, and is 'flag > 1'"):
        replayed(spark, path, where="flag > 1")
    with pytest.raises(ConfigError, match=r"has parts of this job, and --state .* does not exist"):
        replayed(spark, path, state="other")
    state.write_text("{")
    with pytest.raises(FormatError, match="is not the state file of a replay"):
        replayed(spark, path)
    assert len(rows(path.parent / "target")) == QUEUES * MESSAGES
    state.unlink()
    assert replayed(spark, path, again=True).numbers["messages"] == QUEUES * MESSAGES
    assert replayed(spark, path, again=True).numbers["messages"] == QUEUES * MESSAGES
    assert len(rows(path.parent / "target")) == 3 * QUEUES * MESSAGES


@pytest.mark.parametrize(
    ("target", "problem"),
    [("source", "the target of the replay is its source"), ("target", "no messages found between start and end")],
)
def test_bad_input_is_refused_before_spark_is_asked(path: Path, target: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        replay.run(
            None,  # type: ignore[arg-type] # it is not asked
            StoreSource.of(str(path), (), None, None, "appended"),
            [],
            str(path.parent / target),
            str(path.parent / "state"),
            settings=ReplaySettings(),
            asked={},
            stop=threading.Event(),
        )
    assert sorted(each.name for each in path.parent.iterdir()) == ["source"]


@pytest.mark.parametrize("speed", [None, 0.001])
def test_parts_follow_each_other_and_cover_all_messages(path: Path, speed: float | None) -> None:
    reader = StoreSource.of(str(path), (), None, None, "appended").open()
    scan = segmentlog.open(path).scan(["orders", "payments"])
    cuts, times = replay._cut(reader, scan.ranges, ReplaySettings(speed=speed, part_bytes=PART_BYTES))
    plan = replay._Plan("app", cuts, times)
    assert len(plan) > 1
    at = {each.key: each.start for each in scan.ranges}
    ends: dict[QueueKey, int] = {}
    for number in range(len(plan)):
        for each in plan.part(number):
            assert each.start == at[each.key]
            at[each.key] = ends[each.key] = each.stop
    assert ends == {each.key: each.stop for each in scan.ranges}
