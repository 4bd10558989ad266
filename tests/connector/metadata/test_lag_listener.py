import json
import logging
import uuid
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent, StreamingQueryProgress

from segmentlog.spark import LagListener, LagMetrics, LagReport
from segmentlog.store import MessageStore, NotAStoreError, Outgoing, StoreConfig

CONFIG = StoreConfig(segment_bytes=1 << 20, index=False)
RUN = uuid.UUID(int=7)


@pytest.fixture
def path(tmp_path: Path) -> str:
    with MessageStore.open(tmp_path / "broker-a", CONFIG) as made:
        for _ in range(5):
            made.append(Outgoing(topic="Orders", body=b"x"))
    return str(tmp_path / "broker-a")


def offset(position: int, broker: str = "broker-a") -> str:
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


def test_progress_becomes_a_report_for_all_that_want_it(path: str, caplog: pytest.LogCaptureFixture) -> None:
    reports: list[LagReport] = []
    registry = CollectorRegistry()
    listener = LagListener(path, callback=reports.append, metrics=LagMetrics(registry))
    with caplog.at_level(logging.INFO):
        listener.onQueryProgress(QueryProgressEvent(progress(source(offset(2), offset(5)))))
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


def test_without_paths_messages_are_counted(path: str) -> None:
    found = LagListener().report(progress(source(offset(2), offset(5)), name=None))
    assert found is not None
    assert (found.name, found.messages, found.bytes) == (str(uuid.UUID(int=1)), 3, None)
    other = LagListener(path).report(progress(source(offset(2, "other"), offset(5, "other"))))
    assert other is not None
    assert (other.messages, other.bytes) == (3, None)


@pytest.mark.parametrize("latest", [None, "null", "None"], ids=repr)
def test_a_progress_without_an_end_is_measured_against_the_store(path: str, latest: str | None) -> None:
    found = LagListener(path).report(progress(source(offset(1), latest)))
    assert found is not None
    assert found.messages == 4


def test_other_sources_are_left_out(path: str) -> None:
    kafka = source('{"Orders":{"0":3}}', '{"Orders":{"0":9}}')
    assert LagListener(path).report(progress(kafka)) is None
    assert LagListener(path).report(progress()) is None
    found = LagListener(path).report(progress(kafka, source(offset(5), offset(5)), source(offset(3), offset(5))))
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
        first, second = (listener.report(progress(source(offset(0, name), offset(1, name)))) for name in brokers)
        assert first is not None
        assert second is not None
        assert first.bytes is not None
        assert second.bytes is not None
        assert second.bytes > first.bytes + 900


def test_measuring_takes_a_small_part_of_the_time(path: str) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0  # so a measurement takes one second
        return now[0]

    listener = LagListener(path, clock=clock)
    behind, caught_up = progress(source(offset(2), offset(5))), progress(source(offset(5), offset(5)))
    assert listener.report(behind) is not None
    reported = [listener.report(behind) is not None for _ in range(12)]
    assert reported == [False] * 8 + [True] + [False] * 3
    for _ in range(3):
        found = listener.report(caught_up)  # which costs nothing, and may be the last that is heard of a query
        assert found is not None
        assert (found.messages, found.bytes, found.time_ms) == (0, 0, 0)


def test_errors_of_the_listener_are_logged_and_do_not_reach_the_query(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(report: LagReport) -> None:
        raise RuntimeError(f"no room for {report.name}")

    listener = LagListener(path, callback=broken, clock=float)
    assert listener.report(progress(source(offset(2), offset(5)))) is not None
    assert "no room for etl" in caplog.text
    Path(path).rename(Path(path).with_name("moved"))
    assert listener.report(progress(source(offset(2), offset(5)), name="later")) is None
    assert "the lag of query later cannot be told" in caplog.text


def test_a_path_without_a_store_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        LagListener(str(tmp_path))
