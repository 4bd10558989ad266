"""DLedger groups that run: random stores against RocketMQ's own reading, and streams beside leader changes."""

import random
import time
from pathlib import Path

import pytest

from segmentlog.store import Snapshot
from segmentlog.store.maintenance import verify
from support import oracle, reading
from support.dledger_group import CHECKPOINT_S, CONFIG, DLedgerGroup, alone
from support.scale import scale
from support.streams import Stream

pytestmark = [*oracle.MARKS, pytest.mark.slow]
RELEASES = ("4.9.1", "5.1.0", "5.3.3", "5.5.1")
GROUPS = scale(RELEASES[::3], RELEASES[::3], RELEASES)  # the code asks for no release: the ends stand for all
STORES = scale(1, 8, 120)


def some_message(draw: random.Random, number: int) -> dict[str, object]:
    message: dict[str, object] = {
        "topic": draw.choice(["Orders", "Payments", "%RETRY%g"]),
        "queueId": draw.randrange(3),
        "keys": f"k{number} all",
        "tags": draw.choice(["a", "b", "ä"]),
    }
    size = draw.choice([0, 1, 90, 700, 5000])
    message |= {"size": size, "seed": str(number)} if size else {"body": ""}
    kind = draw.random()
    if kind < 0.1:
        message["transaction"] = draw.choice(["prepared", "rollback"])
    elif kind < 0.2:
        batch = [{"body": f"b{number}-{at}", "keys": f"b{number}-{at}"} for at in range(draw.randint(1, 6))]
        return {"topic": message["topic"], "queueId": message["queueId"], "batch": batch}
    return message


@pytest.mark.scaled
@pytest.mark.parametrize("seed", range(STORES))
def test_a_random_store_reads_as_rocketmq_reads_it(seed: int, tmp_path: Path) -> None:
    draw = random.Random(f"dledger {seed}")
    version, store = RELEASES[seed % len(RELEASES)], tmp_path / "n0"
    config = CONFIG | {"mappedFileSizeCommitLog": draw.choice([1 << 14, 1 << 16])}
    numbers = iter(range(10_000))
    if draw.random() < 0.3:  # an older log before the first entry
        oracle.write(store, config, version, [some_message(draw, next(numbers)) for _ in range(draw.randint(1, 60))])
    of_group, is_crashed = alone("n0", 1, config), draw.random() < 0.5
    for is_last in (*[False] * draw.randrange(2), True):
        plan = [some_message(draw, next(numbers)) for _ in range(draw.randint(1, 90))]
        if is_last and is_crashed and draw.random() < 0.5:
            plan.insert(draw.randrange(len(plan)), {"op": "sleep", "ms": int(CHECKPOINT_S * 1000)})
        oracle.write(store, of_group, version, plan, *(["--crash"] if is_last and is_crashed else []))
    snapshot = Snapshot.open(store)
    stop = snapshot.log.data_stop()
    found = {row["physicalOffset"]: reading.described(row) for row in reading.read(snapshot)}
    # 5.1.0 and 5.3.3 lose messages when they recover, which the newest release reads: docs/compatibility.md.
    readers = {version, RELEASES[-1]} if is_crashed else {version}
    dumps = {reader: oracle.dump(store, of_group, reader) for reader in readers}
    messages = (
        [line for line in lines if line["type"] == "message" and line["phyOffset"] < stop] for lines in dumps.values()
    )
    assert found == {line["phyOffset"]: reading.expected_row(line) for line in max(messages, key=len)}
    if not is_crashed:
        assert stop == next(line["maxPhyOffset"] for line in dumps[version] if line["type"] == "store")
        assert verify(store).is_sound


def told(stream: Stream, count: int, deadline_s: float = 60) -> list[tuple[str, int, int]]:
    """Return the rows of micro-batches until there are so many, and those that come within a second after them."""
    rows: list[tuple[str, int, int]] = []
    end = time.monotonic() + deadline_s
    while len(rows) < count and time.monotonic() < end:
        rows += stream.batch() or ()
        time.sleep(0.05)
    time.sleep(1)
    return rows + (stream.batch() or [])


@pytest.mark.scaled(quick=0)  # `conformance/test_dledger.py` reads what such groups wrote
@pytest.mark.parametrize("version", GROUPS)
def test_a_stream_beside_a_group_has_each_row_once_over_leader_changes(version: str, tmp_path: Path) -> None:
    folder = tmp_path / "group"
    folder.mkdir()
    with DLedgerGroup(version, folder) as group:
        leader = group.start()
        ends = dict.fromkeys(range(3), 0)
        group.put({"topic": "Orders", "queueId": 0, "body": "first"})
        ends[0] = 1
        group.tell("await")
        streams = {name: Stream(folder / name, startingOffsets="earliest", subscribe="Orders") for name in group.names}
        rows: dict[str, list[tuple[str, int, int]]] = {name: [] for name in group.names}
        stopped: str | None = None
        for _ in range(3):  # each ends with a leader change
            for number in range(60):
                answer = group.put({"topic": "Orders", "queueId": number % 3, "size": 200 + number, "seed": "s"})
                ends[number % 3] += 1
                assert answer["queueOffset"] == ends[number % 3] - 1
                if number % 20 == 0:
                    for name, stream in streams.items():
                        rows[name] += stream.batch() or ()
            if stopped is not None:
                group.tell("start", node=stopped)
                group.leader()
            group.tell("await")
            stopped, former = leader, leader
            group.tell("stop", node=former)
            leader = group.leader()
            assert leader != former
        group.tell("start", node=stopped)
        group.leader()
        group.tell("await")
        for name, stream in streams.items():
            rows[name] += told(stream, sum(ends.values()) - len(rows[name]))
    wanted = sorted(("Orders", key, offset) for key, end in ends.items() for offset in range(end))
    assert {name: sorted(found) for name, found in rows.items()} == dict.fromkeys(group.names, wanted)
    bodies = [
        {(row["queueId"], row["queueOffset"]): row["body"] for row in reading.read(Snapshot.open(folder / name))}
        for name in group.names
    ]
    assert bodies[0] == bodies[1] == bodies[2]
