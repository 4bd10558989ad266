import json
import logging
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent, StreamingQueryProgress

from segmentlog import MissingExtraError
from segmentlog.connector.errors import CheckpointError
from segmentlog.connector.metadata.lag import stream_lag
from segmentlog.spark import LagListener, LagMetrics, LagReport, QueueLag, group_lag
from segmentlog.store import ConfigError, MessageStore, NotAStoreError, Outgoing, QueueKey, StoreConfig, StoreReader
from segmentlog.store.groups import commit_offsets, publish_progress

START_MS = 1_700_000_000_000
O0, O1, GONE = QueueKey("Orders", 0), QueueKey("Orders", 1), QueueKey("Gone", 2)
CONFIG = StoreConfig(segment_bytes=1 << 20, index=False)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Orders: six messages in queue 0, at 0 to 5 s, then two in queue 1, and one of another topic."""
    now = [START_MS]
    with MessageStore.open(tmp_path / "broker-a", CONFIG, clock=lambda: now[0]) as made:
        for number in range(8):
            now[0] = START_MS + 1000 * min(number, 5)
            made.append(Outgoing(topic="Orders", queue_id=number // 6, body=b"x" * 100))
        made.append(Outgoing(topic="Other", body=b"x"))
    return str(tmp_path / "broker-a")


def offset(positions: dict[QueueKey, int], broker: str = "broker-a") -> str:
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for key, position in positions.items():
        topics.setdefault(key.topic, {"queues": {}})["queues"][str(key.queue_id)] = position
    return json.dumps({"stores": {broker: {"topics": topics}}, "version": 1})


def lag(messages: int | None, size: int | None, time_ms: int | None) -> QueueLag:
    return QueueLag(broker_name="b", key=O0, messages=messages, bytes=size, time_ms=time_ms)


def test_the_lag_of_a_group_covers_all_queues_of_its_topics(path: str) -> None:
    publish_progress(path, "g", {O0: 4, O1: 2})
    report = group_lag(path, "g")
    assert [(queue.key, queue.position, queue.messages, queue.time_ms) for queue in report.queues] == [
        (O0, 4, 2, 1000),
        (O1, 2, 0, 0),
    ]
    assert (report.messages, report.unknown, report.time_ms) == (2, 0, 1000)
    assert report.bytes == report.queues[0].bytes
    assert report.bytes is not None
    assert report.bytes > 200
    assert str(report) == f"g: 2 messages, {report.bytes} bytes, 1.000 s behind in 2 queues"


def test_a_queue_with_unknown_lag_makes_the_total_unknown(path: str) -> None:
    commit_offsets(path, "g", {O0: 4, GONE: 7})
    report = group_lag(path, "g")
    assert [(queue.key, queue.position, queue.messages) for queue in report.queues] == [
        (GONE, 7, None),  # the topic is not there any more
        (O0, 4, 2),
        (O1, None, None),  # no position yet
    ]
    assert (report.messages, report.bytes, report.time_ms, report.unknown) == (None, None, None, 2)
    expected = "g: messages unknown, bytes unknown, time unknown behind in 3 queues, 2 of them unknown"
    assert str(report) == expected


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        ([], (0, 0, 0)),
        ([lag(2, 20, 5), lag(3, 30, 4)], (5, 50, 5)),
        ([lag(2, 20, 5), lag(3, 30, None)], (5, 50, None)),
        ([lag(0, 0, 0), lag(None, None, None)], (None, None, None)),
    ],
)
def test_totals(queues: list[QueueLag], expected: tuple[int | None, ...]) -> None:
    report = LagReport("g", tuple(queues))
    assert (report.messages, report.bytes, report.time_ms) == expected


def test_a_broadcasting_consumer_has_its_own(path: str) -> None:
    publish_progress(path, "g", {O0: 6, O1: 2})
    publish_progress(path, "g", {O0: 1, O1: 2}, consumer="one")
    assert group_lag(path, "g").messages == 0
    assert group_lag(path, "g", consumer="one").messages == 5
    with pytest.raises(ConfigError):
        group_lag(path, "g", consumer="two")


def test_an_unknown_group_is_an_error_with_a_suggestion(path: str) -> None:
    publish_progress(path, "readers", {O0: 6})
    with pytest.raises(ConfigError, match=r"`reader` has no position here.*Did you mean `readers`\?"):
        group_lag(path, "reader")


def test_the_lag_of_a_stream_is_counted_from_its_progress(path: str) -> None:
    stores = {"broker-a": StoreReader.open(path)}
    report = stream_lag("etl", offset({O0: 1, O1: 2}), offset({O0: 5, O1: 2}), stores)
    first, second = report.queues
    assert (first.messages, first.time_ms, first.next_time_ms, first.lost) == (4, 4000, START_MS + 1000, 0)
    assert (second.messages, second.bytes, second.time_ms) == (0, 0, 0)
    assert first.bytes == stream_lag("etl", offset({O0: 1}), offset({O0: 5}), stores).bytes != 0
    now = stream_lag("etl", offset({O0: 1, O1: 2}), None, stores)
    assert now.messages == 5


def test_without_the_store_only_messages_are_counted() -> None:
    report = stream_lag("etl", offset({O0: 1, O1: 2}), offset({O0: 5, O1: 2, GONE: 3}), {})
    assert [(queue.key, queue.messages, queue.bytes, queue.time_ms) for queue in report.queues] == [
        (GONE, None, None, None),  # new, and nothing says where it begins
        (O0, 4, None, None),
        (O1, 0, 0, 0),
    ]
    assert stream_lag("etl", offset({O0: 1}), None, {}).messages is None


@pytest.mark.parametrize("text", ["", "12", '{"orders": {"0": 3}}', "not json", '{"version": 2, "stores": {}}'])
def test_offsets_of_other_sources_are_refused(text: str) -> None:
    with pytest.raises(CheckpointError):
        stream_lag("etl", text, None, {})


def queue(queue_id: int, messages: int | None, time_ms: int | None = 0, topic: str = "T") -> QueueLag:
    size = None if messages is None else 10 * messages
    key = QueueKey(topic, queue_id)
    return QueueLag(broker_name="b", key=key, messages=messages, bytes=size, time_ms=time_ms)


def shown(registry: CollectorRegistry) -> dict[str, float]:
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    return {
        name.removeprefix("segmentlog_lag_"): float(value) for name, value in (each.rsplit(" ", 1) for each in lines)
    }


def test_a_topic_has_the_sum_of_its_queues_and_the_longest_time() -> None:
    registry = CollectorRegistry()
    LagMetrics(registry).show(LagReport("g", (queue(0, 2, 1500), queue(1, 3, 250), queue(0, 7, topic="U"))))
    labels = '{broker="b",name="g",topic="T"}'
    found = shown(registry)
    assert found["messages" + labels] == 5
    assert found["bytes" + labels] == 50
    assert found["seconds" + labels] == 1.5
    assert found["unknown_queues" + labels] == 0
    assert found['messages{broker="b",name="g",topic="U"}'] == 7


def test_an_unknown_lag_is_not_shown_as_zero() -> None:
    registry = CollectorRegistry()
    metrics = LagMetrics(registry)
    metrics.show(LagReport("g", (queue(0, 2, 5), queue(1, 3, 5))))
    metrics.show(LagReport("g", (queue(0, 2, 5), queue(1, None, None))))
    assert shown(registry) == {'unknown_queues{broker="b",name="g",topic="T"}': 1}


def test_each_queue_may_have_its_own() -> None:
    registry = CollectorRegistry()
    LagMetrics(registry, per_queue=True).show(LagReport("g", (queue(0, 2), queue(1, None, None))))
    found = shown(registry)
    assert found['messages{broker="b",name="g",queue="0",topic="T"}'] == 2
    assert found['unknown_queues{broker="b",name="g",queue="1",topic="T"}'] == 1
    assert 'messages{broker="b",name="g",queue="1",topic="T"}' not in found


def test_metrics_of_ended_topics_and_forgotten_groups_are_removed() -> None:
    registry = CollectorRegistry()
    metrics = LagMetrics(registry)
    metrics.show(LagReport("g", (queue(0, 2), queue(0, 2, topic="U"))))
    metrics.show(LagReport("h", (queue(0, 4),)))
    metrics.show(LagReport("g", (queue(0, 2),)))  # U is not read any more
    assert {label for label in shown(registry) if 'topic="U"' in label} == set()
    metrics.forget("g")
    metrics.forget("never seen")
    assert set(shown(registry)) == {
        f'{name}{{broker="b",name="h",topic="T"}}' for name in ("messages", "bytes", "seconds", "unknown_queues")
    }


def test_without_the_extra_it_says_which_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match=r"prometheus-client, which is not installed.*segmentlog\[metrics\]"):
        LagMetrics()


RUN = uuid.UUID(int=7)


@pytest.fixture
def small(tmp_path: Path) -> str:
    with MessageStore.open(tmp_path / "broker-a", CONFIG) as made:
        for _ in range(5):
            made.append(Outgoing(topic="Orders", body=b"x"))
    return str(tmp_path / "broker-a")


def place(position: int, broker: str = "broker-a") -> str:
    topics = {"Orders": {"queues": {"0": position}}}
    return json.dumps({"stores": {broker: {"topics": topics}}, "version": 1})


def source(end: str, latest: str | None) -> dict[str, Any]:
    rates = {"numInputRows": 1, "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0}
    return {"description": "d", "startOffset": end, "endOffset": end, "latestOffset": latest, **rates}


def progress(*sources: dict[str, Any], name: str | None = "etl") -> StreamingQueryProgress:
    return StreamingQueryProgress.fromJson(
        {
            "id": str(uuid.UUID(int=1)),
            "runId": str(RUN),
            "name": name,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "batchId": 1,
            "batchDuration": 1,
            "stateOperators": [],
            "sources": list(sources),
            "sink": {"description": "s", "numOutputRows": 1},
        }
    )


def test_progress_becomes_a_report_for_all_that_want_it(small: str, caplog: pytest.LogCaptureFixture) -> None:
    reports: list[LagReport] = []
    registry = CollectorRegistry()
    listener = LagListener(small, callback=reports.append, metrics=LagMetrics(registry))
    with caplog.at_level(logging.INFO):
        listener.onQueryProgress(QueryProgressEvent(progress(source(place(2), place(5)))))
    (report,) = reports
    assert (report.name, report.messages, report.unknown) == ("etl", 3, 0)
    assert report.bytes is not None
    assert report.bytes > 0
    assert report.time_ms is not None
    assert str(report) in caplog.text
    assert (
        'segmentlog_lag_messages{broker="broker-a",name="etl",topic="Orders"} 3.0' in generate_latest(registry).decode()
    )
    listener.onQueryTerminated(QueryTerminatedEvent(uuid.UUID(int=1), RUN, None, None))
    assert "etl" not in generate_latest(registry).decode()
    listener.onQueryTerminated(QueryTerminatedEvent(uuid.UUID(int=1), uuid.UUID(int=99), None, None))


def test_without_paths_messages_are_counted(small: str) -> None:
    found = LagListener().report(progress(source(place(2), place(5)), name=None))
    assert found is not None
    assert (found.name, found.messages, found.bytes) == (str(uuid.UUID(int=1)), 3, None)
    other = LagListener(small).report(progress(source(place(2, "other"), place(5, "other"))))
    assert other is not None
    assert (other.messages, other.bytes) == (3, None)


@pytest.mark.parametrize("latest", [None, "null", "None"], ids=repr)
def test_a_progress_without_an_end_is_measured_against_the_store(small: str, latest: str | None) -> None:
    found = LagListener(small).report(progress(source(place(1), latest)))
    assert found is not None
    assert found.messages == 4


def test_other_sources_are_left_out(small: str) -> None:
    kafka = source('{"Orders":{"0":3}}', '{"Orders":{"0":9}}')
    assert LagListener(small).report(progress(kafka)) is None
    assert LagListener(small).report(progress()) is None
    found = LagListener(small).report(progress(kafka, source(place(5), place(5)), source(place(3), place(5))))
    assert found is not None
    assert [queue.messages for queue in found.queues] == [0, 2]


def test_several_stores_are_told_apart_as_the_query_does(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        with MessageStore.open(tmp_path / name / "store", CONFIG) as made:
            made.append(Outgoing(topic="Orders", body=b"x" * (1000 if name == "b" else 1)))
    paths = [str(tmp_path / name / "store") for name in ("a", "b")]
    unnamed, named = LagListener(*paths, clock=float), LagListener(*paths, broker_names="xy", clock=float)
    for listener, brokers in ((unnamed, "ab"), (named, "xy")):
        first, second = (listener.report(progress(source(place(0, name), place(1, name)))) for name in brokers)
        assert first is not None
        assert second is not None
        assert first.bytes is not None
        assert second.bytes is not None
        assert second.bytes > first.bytes + 900


def test_measuring_takes_a_small_part_of_the_time(small: str) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0  # so a measurement takes one second
        return now[0]

    listener = LagListener(small, clock=clock)
    behind, caught_up = progress(source(place(2), place(5))), progress(source(place(5), place(5)))
    assert listener.report(behind) is not None
    reported = [listener.report(behind) is not None for _ in range(12)]
    assert reported == [False] * 8 + [True] + [False] * 3
    for _ in range(3):
        found = listener.report(caught_up)  # which costs nothing, and may be the last that is heard of a query
        assert found is not None
        assert (found.messages, found.bytes, found.time_ms) == (0, 0, 0)


def test_errors_of_the_listener_are_logged_and_do_not_reach_the_query(
    small: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(report: LagReport) -> None:
        raise RuntimeError(f"no room for {report.name}")

    listener = LagListener(small, callback=broken, clock=float)
    assert listener.report(progress(source(place(2), place(5)))) is not None
    assert "no room for etl" in caplog.text
    Path(small).rename(Path(small).with_name("moved"))
    assert listener.report(progress(source(place(2), place(5)), name="later")) is None
    assert "the lag of query later cannot be told" in caplog.text


def test_a_path_without_a_store_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        LagListener(str(tmp_path))
