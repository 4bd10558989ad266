import sys

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from segmentlog import MissingExtraError
from segmentlog.spark import LagMetrics, LagReport, QueueLag
from segmentlog.store import QueueKey


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
