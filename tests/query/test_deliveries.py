from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.query.deliveries import delivery_batches, match
from segmentlog.query.metadata import SCHEMAS
from segmentlog.query.selection import Topics
from segmentlog.query.system_frames import SystemWindow
from segmentlog.store import Snapshot
from support import fixtures
from support.system_store import HOUR_MS, START_MS, SystemStore

ALL = SystemWindow()
DUE = START_MS + 60_000
RETRY = "%RETRY%billing"


def rows(path: Path, window: SystemWindow = ALL, *, now_ms: int = START_MS + HOUR_MS) -> list[dict[str, Any]]:
    found = []
    for batch in delivery_batches(Snapshot.open(path), window, now_ms=now_ms):
        assert batch.schema == SCHEMAS["deliveries"]
        found += batch.to_pylist()
    return sorted(found, key=lambda row: row["physicalOffset"])


def deliveries(path: Path, **options: Any) -> list[tuple[str, str | None, int | None]]:
    return [(row["uniqKey"], row["delivery"], row["deliveries"]) for row in rows(path, **options)]


def test_each_delivery_has_its_name(tmp_path: Path) -> None:
    made = SystemStore(tmp_path)
    for key in ("once", "missing", "twice", "late"):
        made.put("orders", key=key, DELAY=3)
    made.put("orders", key="far", DELAY=18)
    first, last = (made.put("orders", key=key) for key in ("twice", "twice"))
    made.put("orders", key="once")
    made.put("other", key="missing")  # a copy in another topic
    made.progress(levels={3: 3})
    path = made.close()
    assert deliveries(path) == [
        ("once", "once", 1),
        ("missing", "missing", 0),
        ("twice", "repeated", 2),
        ("late", "late", 0),
        ("far", "pending", 0),
    ]
    twice = rows(path)[2]
    assert twice["deliveryPhysicalOffset"] == first.physical_offset
    assert twice["lastDeliveryPhysicalOffset"] == last.physical_offset
    assert rows(path)[1]["deliveryPhysicalOffset"] is None
    # Before they are due, those that were not delivered are pending.
    assert {name for _, name, _ in deliveries(path, now_ms=START_MS - 1)} == {"once", "pending", "repeated"}


@pytest.mark.parametrize("roll", ["TIMER_ROLL_TIMES", "TIMER_ROLL_LABEL"])
def test_timers_are_checked_by_the_progress_of_the_wheel(tmp_path: Path, roll: str) -> None:
    made = SystemStore(tmp_path)
    for key, due in (("once", DUE), ("missing", DUE), ("late", DUE + 20_000), ("gone", DUE), ("far", DUE)):
        made.timer(key, due)
    made.timer(None, DUE, TIMER_DEL_UNIQKEY="gone")
    made.timer("far", DUE, **{roll: 1})
    for key in ("once", "far", "far"):
        made.put("orders", key=key)
    made.progress(timer_ms=DUE + 5000)
    assert deliveries(made.close()) == [
        ("once", "once", 1),
        ("missing", "missing", 0),
        ("late", "late", 0),
        ("gone", "deleted", 0),
        ("far", "rolled", None),
        ("far", "repeated", 2),
    ]


def test_without_unique_key_or_due_time_nothing_is_said(tmp_path: Path) -> None:
    made = SystemStore(tmp_path)
    made.put("orders", DELAY=3)
    made.put("orders", DELAY=18)
    made.timer("odd", "soon")  # type: ignore[arg-type]
    made.progress(levels={3: 1, 18: 1}, timer_ms=DUE)
    assert deliveries(made.close(), now_ms=DUE) == [(None, None, None), (None, "pending", None), ("odd", None, 0)]


def test_retries_of_one_message_are_told_apart(tmp_path: Path) -> None:
    """Each retry of a group is a delayed record with the unique key of the message, in a further level."""
    made = SystemStore(tmp_path)
    made.put("orders", key="m", DELAY=3)  # the message itself was delayed
    made.put("orders", key="m")
    for level in (3, 4, 5):
        made.put(RETRY, key="m", DELAY=level)
        for _ in range(2 if level == 4 else 1):
            made.put(RETRY, key="m")
    made.put(RETRY, key="m", DELAY=6)
    path = made.close()
    names = [("once", 1), ("once", 1), ("repeated", 2), ("once", 1), ("late", 0)]
    assert [(name, count) for _, name, count in deliveries(path)] == names
    # A window does not change what is counted.
    window = SystemWindow(start_ms=START_MS + 2000, stop_ms=START_MS + 5000, topics=Topics((RETRY,)))
    assert [(name, count) for _, name, count in deliveries(path, window=window)] == names[1:3]


def test_a_send_that_the_client_repeated_is_delivered_twice(tmp_path: Path) -> None:
    made = SystemStore(tmp_path)
    for _ in range(3):
        made.put("orders", key="m", DELAY=3)
    for _ in range(2):
        made.put("orders", key="m")
    made.progress(levels={3: 3})
    assert [name for _, name, _ in deliveries(made.close())] == ["once", "once", "missing"]


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=30), st.randoms(use_true_random=False))
def test_match_is_a_queue_per_group(events: list[tuple[int, bool]], random: Any) -> None:
    """Compare with a walk over the log that keeps what waits."""
    waiting, last = defaultdict(list), dict[int, int]()
    expected: dict[int, list[int]] = {}
    for place, (group, is_record) in enumerate(events):
        if is_record:
            waiting[group].append(place)
            last[group], expected[place] = place, []
        elif waiting[group]:
            expected[waiting[group].pop(0)].append(place)
        elif group in last:
            expected[last[group]].append(place)
    sides = []
    for side in (True, False):
        places = [(group, place) for place, (group, is_record) in enumerate(events) if is_record is side]
        random.shuffle(places)
        sides += [np.array([each[number] for each in places], np.int64) for number in (0, 1)]
    found = match(*sides)
    told = zip(sides[1].tolist(), *(each.tolist() for each in found), strict=True)
    assert {place: (count, first, last) for place, count, first, last in told} == {
        place: (len(taken), min(taken, default=-1), max(taken, default=-1)) for place, taken in expected.items()
    }


@pytest.mark.conformance
def test_deliveries_of_rocketmq(tmp_path: Path) -> None:
    path = fixtures.unpack("delay-4.9.1", tmp_path)
    real = [line for line in fixtures.expected("delay-4.9.1").messages if line["topic"] != "SCHEDULE_TOPIC_XXXX"]
    places = {
        line["phyOffset"] for line in real if "REAL_TOPIC" in line["properties"] and "UNIQ_KEY" in line["properties"]
    }
    found = [row for row in rows(path, now_ms=1 << 60) if row["delivery"] == "once"]
    assert {row["deliveryPhysicalOffset"] for row in found} == places
    assert len(found) == len(places) > 0
    assert not [row for row in rows(path, now_ms=1 << 60) if row["delivery"] == "repeated"]
