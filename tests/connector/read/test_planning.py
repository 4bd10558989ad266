import json
import pickle
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from segmentlog.connector.errors import MissingOptionError
from segmentlog.connector.options.read_options import parse_read_options
from segmentlog.connector.read.planning import open_stores, plan_partitions
from segmentlog.connector.read.task import StorePartition
from segmentlog.query.selection import UnknownTopicError
from segmentlog.store import ConfigError, OffsetOutOfRangeError, ScanSpec
from support.store_builder import StoreBuilder, messages

BODIES = ScanSpec(columns=("body",))

Store = Callable[[str], Path]
BASIC = "basic-5.3.3"
RETENTION = "retention-5.3.3"
TOPICS = {"TopicA": [57, 69, 72, 50], "TopicB": [51, 54, 66, 47], "topic_c-3": [49, 58, 63, 65]}


def plan(path: Path, **given: str) -> list[StorePartition]:
    return plan_partitions(parse_read_options({"path": str(path)} | given), BODIES)


def queues(partitions: list[StorePartition]) -> dict[str, tuple[int, int]]:
    """First and last offset of each queue; checks that the pieces are contiguous."""
    found: dict[str, tuple[int, int]] = {}
    for partition in partitions:
        for piece in partition.task.ranges:
            start, stop = found.get(str(piece.key), (piece.start, piece.start))
            assert stop == piece.start
            found[str(piece.key)] = (start, piece.stop)
    return found


def whole(*topics: str) -> dict[str, tuple[int, int]]:
    return {f"{topic}/{n}": (0, stop) for topic in topics for n, stop in enumerate(TOPICS[topic])}


def test_queues_of_a_pattern_and_of_an_assignment(store: Store) -> None:
    assert queues(plan(store(BASIC), subscribePattern="Topic.")) == whole("TopicA", "TopicB")
    assigned = plan(store(BASIC), assign='{"TopicB": [3], "TopicA": [1]}')
    assert queues(assigned) == {"TopicA/1": (0, 69), "TopicB/3": (0, 47)}


def test_offsets_of_both_ends(store: Store) -> None:
    partitions = plan(
        store(BASIC),
        assign='{"TopicA": [0, 1, 2]}',
        startingOffsets='{"TopicA": {"0": 10, "1": -1, "2": -2}}',
        endingOffsets='{"TopicA": {"0": 20, "2": 5}}',
    )
    assert queues(partitions) == {"TopicA/0": (10, 20), "TopicA/2": (0, 5)}


def test_a_start_that_retention_deleted_is_an_error_or_moves_to_the_minimum(store: Store) -> None:
    asked = {"subscribe": "Hot", "startingOffsets": '{"Hot": {"0": 5, "1": -2}}'}
    with pytest.raises(
        OffsetOutOfRangeError, match=r"asks for offset 5 of Hot/0, .*\(min 268, max 444\).*5 to 267 are gone"
    ):
        plan(store(RETENTION), **asked)
    assert queues(plan(store(RETENTION), **asked, failOnDataLoss="false")) == {"Hot/0": (268, 444), "Hot/1": (86, 165)}
    assert plan(store(RETENTION), subscribe="Cold") == []


@pytest.mark.parametrize("limit", ["1", "7", "1000"])
def test_partitions_by_records(store: Store, limit: str) -> None:
    partitions = plan(store(BASIC), subscribe="TopicA", maxRecordsPerPartition=limit)
    assert queues(partitions) == whole("TopicA")
    assert all(0 < partition.task.rows <= int(limit) for partition in partitions)
    assert len(plan(store(BASIC), subscribe="TopicA", maxBytesPerPartition="32k")) > 3


def test_least_partitions(store: Store) -> None:
    partitions = plan(store(BASIC), subscribe="TopicA", minPartitions="9")
    assert len(partitions) >= 9
    assert queues(partitions) == whole("TopicA")


def test_tags_of_blanks_alone_match_nothing_but_the_options_are_checked(store: Store) -> None:
    assert plan(store(BASIC), subscribe="TopicA", tags=" || ") == []
    with pytest.raises(UnknownTopicError):
        plan(store(BASIC), subscribe="nothing", tags=" || ")


def test_times_cut_ranges_and_go_along_as_a_window(store: Store) -> None:
    path = store("time-5.3.3")
    everything = queues(plan(path, subscribe="TimeTopic"))
    assert everything == {"TimeTopic/0": (0, 483), "TimeTopic/1": (0, 137)}
    middle = 1_795_227_236_700
    before = plan(path, subscribe="TimeTopic", endingTimestamp=str(middle))
    after = plan(path, subscribe="TimeTopic", startingTimestamp=str(middle))
    cuts = {key: stop for key, (_, stop) in queues(before).items()}
    assert {key: start for key, (start, _) in queues(after).items()} == cuts
    assert all(0 < cut < everything[key][1] for key, cut in cuts.items())
    assert {(p.spec.predicate.store_time_start, p.spec.predicate.store_time_stop) for p in before} == {(None, middle)}
    assert {(p.spec.predicate.store_time_start, p.spec.predicate.store_time_stop) for p in after} == {(middle, None)}
    inexact = plan(path, subscribe="TimeTopic", startingTimestamp=str(middle), exactTimestamps="false")
    assert {p.spec.predicate.store_time_start for p in inexact} == {None}


def test_queues_with_windows_of_their_own_do_not_share_a_task(store: Store) -> None:
    times = {"TimeTopic": {"0": 1_795_227_236_700, "1": 1_795_227_236_600}}
    partitions = plan(store("time-5.3.3"), subscribe="TimeTopic", startingOffsetsByTimestamp=json.dumps(times))
    assert len(partitions) == 2
    for partition in partitions:
        (piece,) = partition.task.ranges
        assert partition.spec.predicate.store_time_start == times["TimeTopic"][str(piece.key.queue_id)]


def test_a_group_is_read_from_the_store(store: Store, tmp_path: Path) -> None:
    path = copytree(store(BASIC), tmp_path / "store")
    (path / "config").mkdir(exist_ok=True)
    document = {"offsetTable": {"TopicA@billing": {"0": 10, "1": 20, "2": 30, "3": 40}, "TopicB@billing": {"0": 5}}}
    (path / "config" / "consumerOffset.json").write_text(json.dumps(document))
    rest = plan(path, subscribe="TopicA", startingOffsets="group:billing")
    assert {key: start for key, (start, _) in queues(rest).items()} == {f"TopicA/{n}": 10 * (n + 1) for n in range(4)}
    consumed = plan(path, subscribe="TopicB", endingOffsets="group:billing")
    assert queues(consumed) == {"TopicB/0": (0, 5)}
    with pytest.raises(MissingOptionError, match="the consumer group `billing` has no position for topic_c-3/0"):
        plan(path, subscribe="topic_c-3", startingOffsets="group:billing")


def test_a_pattern_leaves_out_retry_and_dead_letter_topics(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with StoreBuilder(tmp_path) as builder:
        for topic in ("Orders", "%RETRY%etl", "%DLQ%etl"):
            builder.append(messages(4, topic=topic))
    assert {key.split("/")[0] for key in queues(plan(tmp_path, subscribePattern=".*"))} == {"Orders"}
    every = {"Orders", "%RETRY%etl", "%DLQ%etl"}
    found = plan(tmp_path, subscribePattern=".*", includeSystemTopics="true")
    assert {key.split("/")[0] for key in queues(found)} == every
    assert {key.split("/")[0] for key in queues(plan(tmp_path, subscribe="%RETRY%etl"))} == {"%RETRY%etl"}
    caplog.clear()
    assert plan(tmp_path, subscribePattern="%DLQ%.*") == []
    assert "with includeSystemTopics=true it matches `%DLQ%etl`" in caplog.text


def test_several_stores(store: Store, tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b"):
        copytree(store(BASIC), tmp_path / name / "store")
    paths = [str(tmp_path / name / "store") for name in ("broker-a", "broker-b")]
    given = {"paths": json.dumps(paths), "subscribe": "TopicA"}
    assert [each.broker_name for each in open_stores(parse_read_options(given))] == ["broker-a", "broker-b"]
    starts: dict[str, Any] = {"broker-b": {"TopicA": {"0": 50}}, "TopicA": {"0": 7}}
    partitions = plan_partitions(
        parse_read_options(given | {"startingOffsets": json.dumps(starts), "startingOffsetsDefault": "latest"}), BODIES
    )
    found = {partition.source.broker_name: queues([partition]) for partition in partitions}
    assert found == {"broker-a": {"TopicA/0": (7, 57)}, "broker-b": {"TopicA/0": (50, 57)}}
    named = parse_read_options(given | {"brokerNames": "x,y"})
    assert {partition.source.broker_name for partition in plan_partitions(named, BODIES)} == {"x", "y"}


def test_stores_with_the_same_name_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"tells these stores apart.*brokerNames"):
        open_stores(parse_read_options({"paths": "/x/y,/y/y,/x/x", "topic": "t"}))


def test_a_pickled_partition_is_small(store: Store) -> None:
    (partition,) = plan(store(BASIC), subscribe="TopicA")
    sent = pickle.dumps(partition)
    assert len(sent) < 4096
    assert pickle.loads(sent) == partition
