from pathlib import Path

import pytest

from segmentlog.query.metadata import SCHEMAS, group_rows, lag_by_queue, lag_rows, queue_rows, segment_rows, topic_rows
from segmentlog.store import QueueKey, Snapshot
from segmentlog.store.groups import commit_offsets, list_groups
from support import fixtures
from support.store_builder import Geometry, StoreBuilder, messages


def opened(path: Path) -> Snapshot:
    with StoreBuilder(path, geometry=Geometry(segment_bytes=1 << 14)) as builder:
        builder.append(messages(100, topic="orders", queues=2))
    return Snapshot.open(path)


def test_rows_have_the_wanted_columns(tmp_path: Path) -> None:
    store = opened(tmp_path)
    queues = store.queues("orders")
    for kind, rows in (("topics", topic_rows), ("queues", queue_rows)):
        wanted = set(SCHEMAS[kind].names)
        assert all(set(row) == wanted for row in rows(store, queues, wanted))
    assert all(list(row) == SCHEMAS["segments"].names for row in segment_rows(store))
    row = next(queue_rows(store, store.queues("orders"), {"messages"}))
    assert "bytes" not in row
    assert "firstStoreTimestamp" not in row
    assert row["messages"] == 50


def test_a_position_in_a_queue_that_is_not_there_has_no_lag(tmp_path: Path) -> None:
    store = opened(tmp_path)
    commit_offsets(tmp_path, "etl", {QueueKey("orders", 0): 10})
    config = tmp_path / "config" / "consumerOffset.json"
    config.write_text('{"offsetTable": {"orders@etl": {"0": 10, "7": 3}}}')
    (progress,) = (each for each in list_groups(tmp_path) if each.group == "etl")
    gone = lag_by_queue(store, progress)[-1]
    assert (gone.key, gone.position, gone.max_offset, gone.messages) == (QueueKey("orders", 7), 3, None, None)
    lag = {row["queueId"]: row.get("messages") for row in lag_rows(store, progress)}
    assert lag == {0: 40, 1: None, 7: None}


@pytest.mark.conformance
@pytest.mark.parametrize(("name", "ends"), [("lite-groups-5.1.0", (28, 23)), ("lite-groups-5.5.0", (16, 8))])
def test_light_queues_have_positions_and_lag(name: str, ends: tuple[int, int], tmp_path: Path) -> None:
    """%LMQ%a is a light group, which reads the queue of its name; etl reads a light queue beside others."""
    snapshot = Snapshot.open(fixtures.unpack(name, tmp_path))
    groups = {each.group: each for each in list_groups(snapshot.path)}
    positions = {
        (row["group"], row["topic"]): row["position"] for each in groups.values() for row in group_rows(snapshot, each)
    }
    assert (positions["%LMQ%a", "%LMQ%a"], positions["etl", "%LMQ%b"]) == (5, 2)
    for group, topic, position, end in (("%LMQ%a", "%LMQ%a", 5, ends[0]), ("etl", "%LMQ%b", 2, ends[1])):
        (row,) = (row for row in lag_rows(snapshot, groups[group]) if row["topic"] == topic)
        assert (row["position"], row["maxOffset"], row["messages"], row["lost"]) == (position, end, end - position, 0)
        assert row["bytes"] > 0
