"""Restored archives of DLedger stores: RocketMQ loads them as the brokers of a group, and goes on."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store import Snapshot
from segmentlog.store.archive.look import verify as verify_archive
from segmentlog.store.archive.push import push
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.maintenance import verify
from segmentlog.store.maintenance.archives import pull
from segmentlog.store.types import Window
from support import oracle, reading
from support.dledger_group import CONFIG, DLedgerGroup, alone
from support.memory_objects import MemoryObjects
from support.scale import scale

pytestmark = oracle.MARKS
ENDS = ["4.9.1", "5.3.3"]  # the code asks for no release: the ends stand for all
SMALL = CONFIG | {"mappedFileSizeCommitLog": 1 << 14}


def message(number: int) -> dict[str, object]:
    return {
        "topic": "Orders",
        "queueId": number % 3,
        "keys": f"k{number}",
        "tags": "a",
        "size": 300 + number,
        "seed": str(number),
    }


def messages(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["type"] == "message"]


@pytest.mark.scaled(quick=0)  # `store/archive/test_dledger.py` restores such stores and reads them
@pytest.mark.parametrize(("version", "older"), [("4.9.1", 30), ("5.1.0", 0), ("5.3.3", 30)])
def test_rocketmq_loads_a_restored_store_and_goes_on(version: str, older: int, tmp_path: Path) -> None:
    store, restored, objects = tmp_path / "store", tmp_path / "restored", MemoryObjects()
    if older:
        oracle.write(store, SMALL, version, [message(number) for number in range(older)])
    config = alone("n0", 1, SMALL)
    for first in (older, 90):  # the second push makes one piece of those of a segment
        oracle.write(store, config, version, [message(number) for number in range(first, first + 60)])
        push(store, objects)
    pull(objects, restored)
    assert verify(restored).is_sound
    lines = oracle.dump(store, config, version)
    assert len(messages(lines)) == older + 60 + 60
    found = oracle.dump(restored, config, version)
    assert [line for line in found if line["type"] != "checkpoint"] == [
        line for line in lines if line["type"] != "checkpoint"
    ]
    keys = [
        {"query": "messageByKey", "topic": "Orders", "key": f"k{number}", "maxNum": 64, "begin": 0, "end": 1 << 50}
        for number in range(150)
    ]
    assert oracle.query(restored, config, version, keys) == oracle.query(store, config, version, keys)

    answers = oracle.write(restored, config, version, [message(number) for number in range(150, 180)])
    assert {answer["status"] for answer in answers} == {"PUT_OK"}
    assert len(messages(oracle.dump(restored, config, version))) == len(messages(lines)) + 30
    push(restored, objects)
    assert len(list(reading.read(Snapshot.open(restored)))) == len(messages(lines)) + 30


@pytest.mark.scaled(quick=0)
@pytest.mark.parametrize("version", ENDS)
def test_rocketmq_loads_a_part_of_a_store(version: str, tmp_path: Path) -> None:
    store, part, objects = tmp_path / "store", tmp_path / "part", MemoryObjects()
    config = alone("n0", 1, SMALL)
    for first in range(0, 150, 50):
        oracle.write(store, config, version, [message(number) for number in range(first, first + 50)])
    push(store, objects)
    middle = Snapshot.open(store).log.segments[2]
    time = Snapshot.open(store).log.store_time_at(middle.first)
    assert time is not None
    pull(objects, part, window=Window(time))
    start = Snapshot.open(part).log.min_offset
    assert 0 < start <= middle.base
    found, whole = (messages(oracle.dump(path, config, version)) for path in (part, store))
    assert found == [line for line in whole if int(line["phyOffset"]) >= start]


@pytest.mark.scaled(quick=0)
@pytest.mark.parametrize("version", scale(ENDS, ENDS, ["4.9.1", "5.1.0", "5.3.3"]))
def test_pushes_beside_a_group_lose_nothing_over_leader_changes(version: str, tmp_path: Path) -> None:
    folder, objects = tmp_path / "group", MemoryObjects()
    folder.mkdir()
    draw = random.Random(version)
    with DLedgerGroup(version, folder) as group:
        leader, stopped = group.start(), None
        for number in range(180):
            group.put(message(number))
            if number % 10 == 0:  # from any broker that has written its store, be it behind the others or stopped
                name = draw.choice(group.names)
                if (folder / name).exists():
                    report = push(folder / name, objects)
                    assert report.is_complete
            if number % 60 == 50:
                if stopped is not None:
                    group.tell("start", node=stopped)
                    group.leader()
                group.tell("await")
                stopped = leader
                group.tell("stop", node=stopped)
                leader = group.leader()
        group.tell("start", node=stopped)
        group.leader()
        group.tell("await")
    for name in group.names:
        assert push(folder / name, objects).is_complete
    check = verify_archive(objects, deep=True)
    assert (check.findings, check.records) == ((), 180)
    archived = [row["body"] for row in reading.read(Snapshot.open(StoreLocation.on_objects(objects)))]
    assert archived == [row["body"] for row in reading.read(Snapshot.open(folder / "n0"))]


@pytest.mark.scaled(quick=0)
@pytest.mark.parametrize("version", ENDS)
def test_a_group_goes_on_from_copies_of_a_restored_store(version: str, tmp_path: Path) -> None:
    store, restored, folder, objects = tmp_path / "store", tmp_path / "restored", tmp_path / "group", MemoryObjects()
    oracle.write(store, alone("n0", 1, SMALL), version, [message(number) for number in range(90)])
    push(store, objects)
    pull(objects, restored)
    for name in ("n0", "n1", "n2"):
        shutil.copytree(restored, folder / name)
        (folder / name / "dledger-n0").rename(folder / name / f"dledger-{name}")
    with DLedgerGroup(version, folder, config=SMALL) as group:
        group.start()
        answers = [group.put(message(number)) for number in range(90, 150)]
        assert [answer["queueOffset"] for answer in answers[:3]] == [30, 30, 30]
        group.tell("await")
    rows = [list(reading.read(Snapshot.open(folder / name, broker_name="b"))) for name in group.names]
    assert rows[0] == rows[1] == rows[2]
    assert len(rows[0]) == 150
    assert push(folder / "n1", objects).records == 60
