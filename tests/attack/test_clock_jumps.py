"""A clock that jumps: what was put stays in order, is found by time and key, and is recovered after a crash.

::

    clock   now ──► a jump: back a day, on ten years, 0, negative, the end of 64 bits ──► now
    store   5 messages       100 messages, several segments and index files             5 messages    closed | crashed
"""

import shutil
from bisect import bisect_left, bisect_right
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import Boundary, Flush, MessageStore, Outgoing, QueueKey, QueueRange, ScanSpec, Snapshot
from segmentlog.store.maintenance import verify
from support.broker_index import BATCH_MAX, query_index
from support.written_stores import SMALL

pytestmark = pytest.mark.attack

NOW = 1_763_700_000_000
DAY = 86_400_000
JUMPS = {
    "a day back": NOW - DAY,
    "ten years on": NOW + 3652 * DAY,
    "zero": 0,
    "negative": -1,
    "32 bits": 1 << 31,
    "the year 10000": 253_402_300_800_000,
    "the end of 64 bits": (1 << 63) - 1,
    "the beginning of 64 bits": -(1 << 63),
}
CONFIG = replace(SMALL, segment_bytes=1 << 13, flush=Flush.ASYNC)
KEY = QueueKey("T", 0)


class Clock:
    """Tells the time that it was set to."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def put(store: MessageStore, serial: int, count: int) -> None:
    for number in range(serial, serial + count):
        store.append(Outgoing(topic="T", queue_id=0, body=str(number).encode(), keys="all"))


def rows(snapshot: Snapshot) -> list[tuple[int, int, int | None]]:
    bounds = snapshot.bounds(KEY)
    tasks = snapshot.plan([QueueRange(KEY, bounds.min_offset, bounds.max_offset)], max_bytes=1 << 20)
    spec = ScanSpec(columns=("physicalOffset", "body"), check_crc=True)
    return [
        (int(row["body"]), row["physicalOffset"], snapshot.log.store_time_at(row["physicalOffset"]))
        for task in tasks
        for batch in snapshot.scan(task, spec)
        for row in batch.to_pylist()
    ]


@pytest.mark.scaled(quick=6)
@pytest.mark.parametrize("ended", ["closed", "crashed"])
@pytest.mark.parametrize("begins", ["now", "with the jump"])
@pytest.mark.parametrize("jump", JUMPS.values(), ids=JUMPS)
def test_messages_are_found_by_time_across_a_jump_of_the_clock(
    tmp_path: Path, jump: int, begins: str, ended: str
) -> None:
    store, clock = tmp_path / "store", Clock(NOW if begins == "now" else jump)
    with MessageStore.open(store, CONFIG, clock=clock) as opened:
        put(opened, 0, 5)
        clock.now = jump
        put(opened, 5, 100)
        clock.now = NOW + 1
        put(opened, 105, 5)
        if ended == "crashed":
            shutil.copytree(store, tmp_path / "crashed")
    if ended == "crashed":
        store = tmp_path / "crashed"
    with MessageStore.open(store, CONFIG, clock=clock) as opened:
        put(opened, 110, 1)
        found = query_index(opened, "T", "all")
    assert verify(store).is_sound
    snapshot = Snapshot.open(store)
    held = rows(snapshot)
    assert [serial for serial, _, _ in held] == list(range(111))
    times = [time for _, _, time in held if time is not None]
    assert len(times) == 111
    assert times == sorted(times)
    assert found == [offset for _, offset, _ in held][-BATCH_MAX:]
    for asked in {0, 1, NOW - DAY, NOW, NOW + 1, NOW + 2, *JUMPS.values(), *times}:
        assert snapshot.offset_at(KEY, asked, Boundary.LOWER) == bisect_left(times, asked)
        assert snapshot.offset_at(KEY, asked, Boundary.UPPER) == max(bisect_right(times, asked) - 1, 0)
