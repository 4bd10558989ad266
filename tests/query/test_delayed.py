from pathlib import Path
from typing import Any

import pytest

from segmentlog.query.metadata import SCHEMAS
from segmentlog.query.selection import Topics
from segmentlog.query.system_frames import SystemWindow, delayed_batches
from segmentlog.store import Snapshot
from support import fixtures
from support.system_store import HOUR_MS, START_MS, TIMERS, SystemStore

DAY_MS = 24 * HOUR_MS
ALL = SystemWindow()


def rows(path: Path, window: SystemWindow = ALL, *, now_ms: int = START_MS + HOUR_MS) -> list[dict[str, Any]]:
    found = []
    for batch in delayed_batches(Snapshot.open(path), window, now_ms=now_ms):
        assert batch.schema == SCHEMAS["delayed"]
        assert batch.num_rows
        found += batch.to_pylist()
    return found


def states(path: Path, window: SystemWindow = ALL, *, now_ms: int = START_MS + HOUR_MS) -> dict[str, str | None]:
    return {row["uniqKey"]: row["state"] for row in rows(path, window, now_ms=now_ms)}


def test_a_level_is_pending_until_its_progress_passes_it_or_it_is_delivered(tmp_path: Path) -> None:
    made = SystemStore(tmp_path)
    for key in ("passed", "found", "overdue"):
        made.put("orders", key=key, queue_id=1, DELAY=3)
    made.put("orders", key="later", DELAY=18)
    made.put("orders", key="found", queue_id=1, DELAY=3, tags="t")  # a producer that sent it again
    delivered = made.put("orders", key="found", queue_id=1)
    made.progress(levels={3: 1})
    path = made.close()
    # Queues come in no order.
    first, *_ = found = sorted(rows(path), key=lambda row: (row["delayQueueId"], row["delayQueueOffset"]))
    assert [row["state"] for row in found] == ["delivered", "delivered", "pending", "delivered", "pending"]
    assert first["dueTimestamp"].timestamp() * 1000 == START_MS + 10_000
    assert [first[name] for name in ("kind", "level", "topic", "queueId", "delayQueueId", "delayQueueOffset")] == [
        *("level", 3, "orders", 1, 2, 0)
    ]
    assert first["physicalOffset"] < delivered.physical_offset
    assert set(states(path, now_ms=START_MS - 1).values()) == {"delivered", "pending"}


def test_without_progress_and_unique_key_the_state_is_unknown_once_it_is_due(tmp_path: Path) -> None:
    made = SystemStore(tmp_path)
    made.put("orders", DELAY=3)
    made.timer(None, START_MS + 5000)
    made.timer("odd", 0, tags="t")
    path = made.close()
    (row, timer, odd) = rows(path)
    assert (row["state"], timer["state"], odd["state"]) == (None, None, "pending")
    assert [row["state"] for row in rows(path, now_ms=START_MS)][:2] == ["pending", "pending"]


@pytest.mark.parametrize("roll", ["TIMER_ROLL_TIMES", "TIMER_ROLL_LABEL"])  # of the wheel, of timerRocksDBEnable
def test_timers_are_delivered_deleted_or_rolled(tmp_path: Path, roll: str) -> None:
    made = SystemStore(tmp_path)
    due, far = START_MS + 60_000, START_MS + DAY_MS
    made.timer("passed", due)
    made.timer("gone", due)
    made.timer("gone-too", far)
    made.timer("kept", far)
    made.timer("far", far)
    made.timer(None, due, TIMER_DEL_UNIQKEY="gone")
    made.timer(None, far, TIMER_DEL_UNIQKEY="orders+gone-too")
    made.timer(None, far + 1000, TIMER_DEL_UNIQKEY="kept")  # of another second
    made.timer("late", due)
    made.put("orders", key="late")
    made.timer(None, due, TIMER_DEL_UNIQKEY="late")
    made.timer("far", far, **{roll: 1})
    made.progress(timer_ms=due + 5000)
    path = made.close()
    assert [(row["uniqKey"], row["state"]) for row in rows(path)] == [
        ("passed", "delivered"),
        ("gone", "deleted"),
        ("gone-too", "deleted"),
        ("kept", "pending"),
        ("far", "rolled"),
        ("late", "delivered"),
        ("far", "pending"),
    ]
    assert {row["kind"] for row in rows(path)} == {"timer"}


def test_malformed_properties_are_null(tmp_path: Path) -> None:
    made = SystemStore(tmp_path)
    made.put(TIMERS, TIMER_OUT_MS="soon", REAL_QID="9" * 12)
    made.put(TIMERS, key="bare")
    made.put(TIMERS, TIMER_OUT_MS=10**17)  # no timestamp has room for it
    path = made.close()
    *malformed, far = rows(path)
    assert (far["state"], far["dueTimestamp"]) == ("pending", None)
    for row in malformed:
        assert [row[name] for name in ("state", "dueTimestamp", "topic", "queueId")] == [None] * 4
    assert rows(path, SystemWindow(topics=Topics(("orders",)))) == []


def test_topics_and_times_limit_the_rows(tmp_path: Path) -> None:
    made = SystemStore(tmp_path)
    for number, topic in enumerate(["orders", "orders", "payments", "orders"]):
        made.put(topic, key=str(number), DELAY=18)
    path = made.close()
    orders = Topics(("orders", "none"))
    assert list(states(path, SystemWindow(topics=orders))) == ["0", "1", "3"]
    assert list(states(path, SystemWindow(start_ms=START_MS + 1000, stop_ms=START_MS + 3000))) == ["1", "2"]
    assert rows(path, SystemWindow(start_ms=START_MS + DAY_MS)) == []
    assert rows(path, SystemWindow(stop_ms=START_MS)) == []


@pytest.mark.conformance
@pytest.mark.parametrize("version", ["4.9.1", "5.3.3", "5.5.0"])
def test_delayed_messages_of_rocketmq(version: str, tmp_path: Path) -> None:
    name = f"delay-{version}"
    path = fixtures.unpack(name, tmp_path)
    lines = [line for line in fixtures.expected(name).messages if line["topic"] == "SCHEDULE_TOPIC_XXXX"]
    found = {(row["delayQueueId"], row["delayQueueOffset"]): row for row in rows(path)}
    assert len(found) == len(lines) > 0
    for line in lines:
        row = found[line["queueId"], line["queueOffset"]]
        assert row["dueTimestamp"].timestamp() * 1000 == pytest.approx(line["cqTagsCode"], abs=0.5)
        properties = line["properties"]
        assert row["topic"] == properties["REAL_TOPIC"]
        assert row["queueId"] == int(properties["REAL_QID"])
        assert row["physicalOffset"] == line["phyOffset"]
        assert row["level"] == int(properties["DELAY"])
    if version == "4.9.1":  # the other stores have no broker, which delivers
        real = [line for line in fixtures.expected(name).messages if line["topic"] != "SCHEDULE_TOPIC_XXXX"]
        delivered = sum("REAL_TOPIC" in line["properties"] for line in real)
        states = [row["state"] for row in rows(path, now_ms=max(line["cqTagsCode"] for line in lines) + 1)]
        assert states.count("delivered") == delivered > 0
