"""Store times that fall, as brokers write them whose clock is set back: windows hold what a look at all messages finds.

::

    clock     now ──► +1 s, +1 s, -30 s, +1 s, +1 h, … ──► now       each message has the time that it was stored at
    windows   edges at, before and after the times that are there    each message is in one of those that tile the time

Stores are built by us and get such times, or RocketMQ writes them under such a clock.
"""

import itertools
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import segmentlog
from segmentlog import Time
from segmentlog.store import Boundary, QueueKey, Snapshot
from support import oracle, releases, writing
from support.scale import Report, scale
from support.store_builder import Geometry, StoreBuilder, messages
from support.tampering import put_at, segments

pytestmark = pytest.mark.attack

START_MS = 1_763_700_000_000
STEPS_MS = [1, 1, 1, 40, 1000, 60_000, 3_600_000, -1, -40, -1000, -30_000, -3_600_000, 0]
TIME_AT = 56  # of a record


def built(path: Path, draw: random.Random) -> list[tuple[int, int]]:
    """Write a store whose clock jumps; return queue id and store time of each message, in their order."""
    count, queues = draw.randrange(1, 120), draw.randrange(1, 4)
    steps = STEPS_MS if draw.random() < 0.8 else [each for each in STEPS_MS if each >= 0]
    times = list(itertools.accumulate((draw.choice(steps) for _ in range(count - 1)), initial=START_MS))
    segment = draw.choice([1 << 12, 1 << 14, 1 << 16])
    with StoreBuilder(path, geometry=Geometry(segment_bytes=segment, queue_segment_entries=50)) as builder:
        done = builder.append(messages(count, queues=queues, body_bytes=draw.choice([20, 300])))
    for place, time in zip(done.physical_offsets.tolist(), times, strict=True):
        file = next(each for each in reversed(segments(path)) if int(each.name) <= place)
        put_at(file, place - int(file.name) + TIME_AT, time.to_bytes(8, "big"))
    return [(number % queues, time) for number, time in enumerate(times)]


@pytest.mark.scaled
@pytest.mark.parametrize("has_queues", [True, False])
def test_windows_hold_what_a_look_at_all_messages_finds(tmp_path: Path, report: Report, *, has_queues: bool) -> None:
    draw, stores, falling = random.Random(71), scale(8, 150, 20_000), 0
    for number in range(stores):
        path = tmp_path / f"s{number}"
        written = built(path, draw)
        times = sorted({time for _, time in written})
        falling += any(after < before for (_, before), (_, after) in itertools.pairwise(written))
        edges = sorted(draw.sample([*times, *(each + 1 for each in times)], min(len(times), 4)))
        if not has_queues:
            shutil.rmtree(path / "consumequeue")
        snapshot = Snapshot.open(path)
        for queue_id in {queue for queue, _ in written}:
            own = [time for queue, time in written if queue == queue_id]
            check_offsets(snapshot, QueueKey("Orders", queue_id), own, edges)
        check_windows(path, written, [times[0], *edges, times[-1] + 1])
        shutil.rmtree(path)
    report("stores, stores with falling times", (stores, falling))
    assert falling > stores // 2


@pytest.mark.interop
@pytest.mark.skipif(oracle.available() is not None, reason=str(oracle.available()))
@pytest.mark.scaled(quick=0)
@pytest.mark.parametrize("version", releases.STORES)
def test_windows_hold_each_message_that_rocketmq_wrote_before_and_after_its_clock_was_set_back(
    version: str, tmp_path: Path
) -> None:
    path, config = tmp_path / "store", writing.broker_config(writing.SMALL)
    planned: list[oracle.Line] = []
    for step_ms in [0, -3_600_000, 7_200_000, -40]:
        planned.append({"op": "clock", "ms": step_ms})
        for number in range(40):
            planned += [
                {"topic": "Orders", "queueId": number % 3, "body": "x" * 300},
                {"op": "sleep", "ms": number % 3},
            ]
    put = oracle.write(path, config, version, planned, "--clock")
    written = [(planned[each["index"]]["queueId"], each["storeTimestamp"]) for each in put]
    falls = sum(after < before for (_, before), (_, after) in itertools.pairwise(written))
    assert (len(written), falls) == (160, 2)
    times = sorted({time for _, time in written})
    edges = [*times[1::9], *(each + 1 for each in times[1::9])]
    snapshot = Snapshot.open(path)
    for queue_id in range(3):
        own = [time for queue, time in written if queue == queue_id]
        check_offsets(snapshot, QueueKey("Orders", queue_id), own, edges)
    check_windows(path, written, [times[0], *edges, times[-1] + 1])
    opened = [each for each in oracle.dump(path, config, version) if each["type"] == "message"]
    assert sorted((each["queueId"], each["storeTimestamp"]) for each in opened) == sorted(written)


def check_offsets(snapshot: Snapshot, key: QueueKey, own: list[int], edges: list[int]) -> None:
    for edge in edges:
        at_or_after = [number for number, time in enumerate(own) if time >= edge]
        before = [number for number, time in enumerate(own) if time < edge]
        until = [number for number, time in enumerate(own) if time <= edge]
        assert snapshot.offset_at(key, edge) == (at_or_after[0] if at_or_after else len(own))
        assert snapshot.end_at(key, edge) == (before[-1] + 1 if before else 0)
        assert snapshot.offset_at(key, edge, Boundary.UPPER) == (until[-1] if until else 0)
    found = snapshot.offsets_at(key, np.array(sorted(set(edges)), np.int64))
    assert found.tolist() == [snapshot.offset_at(key, each) for each in sorted(set(edges))]


def check_windows(path: Path, written: list[tuple[int, int]], edges: list[int]) -> None:
    """Compare windows that tile all times with the messages, by rows and by their number."""
    found = []
    with segmentlog.open(path, queue_cache="none") as store:
        for start, end in itertools.pairwise(sorted(edges)):
            scan = store.scan("Orders", start=Time(ms=start), end=Time(ms=end), columns=["queueId", "storeTimestamp"])
            rows = scan.to_arrow()
            held = list(zip(rows["queueId"].to_pylist(), rows["storeTimestamp"].cast("int64").to_pylist(), strict=True))
            assert sorted((queue, us // 1000) for queue, us in held) == sorted(
                each for each in written if start <= each[1] < end
            )
            assert scan.count() == len(held)
            found += held
    assert len(found) == len(written)
