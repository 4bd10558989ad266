"""Stores of RocketMQ 5.3.3 to 5.5.1 with queues in files, in RocksDB and in both, by turns: no row wrong or missing.

::

    5.3.3 files ─► halted ─► 5.5.0 both ─► 5.5.1 RocksDB ─► some part removed ─► read by database, files, cache and log
"""

import os
import random
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store import QueueSource, Snapshot
from segmentlog.store.entries import choose, rocksdb
from support import oracle
from support.reading import read
from support.scale import Report, scale

pytestmark = [*oracle.MARKS, pytest.mark.attack, pytest.mark.scaled(quick=0), pytest.mark.timeout(7200)]

SIZES = {
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 4000,
}
ROCKSDB = {"storeType": "defaultRocksDB"}
BOTH = {"rocksdbCQDoubleWriteEnable": True}
APART = {"rocksdbCQDoubleWriteEnable": True, "useSeparateStorePathForRocksdbCQ": True}
# An upgrade goes from files to both, and then to RocksDB. The way back is by files that were written all the time.
PATHS: dict[str, list[tuple[str, dict[str, object]]]] = {
    "files, upgraded": [("5.3.3", {}), ("5.5.0", {}), ("5.5.1", {})],
    "RocksDB": [("5.3.3", ROCKSDB), ("5.4.0", ROCKSDB), ("5.5.1", ROCKSDB)],
    "files, both, RocksDB": [("5.3.3", {}), ("5.5.1", BOTH), ("5.5.1", ROCKSDB)],
    "files, both apart": [("5.4.0", {}), ("5.5.1", APART)],
    "both, files": [("5.5.0", BOTH), ("5.5.1", {})],
}
Place = tuple[str, int, int]


def written(store: Path, draw: random.Random) -> dict[Place, set[bytes]]:
    """Write a store by some of the runs of a path; return the bodies of the acknowledged messages by their place.

    After a crash on a busy machine RocketMQ may give a place again. Its queue files keep the first message, and RocksDB
    mostly the second: the log does not tell which of the two consumers get.
    """
    name = draw.choice(list(PATHS))
    runs = PATHS[name][: draw.randrange(1, len(PATHS[name]) + 1)]
    bodies: dict[Place, set[bytes]] = {}
    for number, (version, mode) in enumerate(runs):
        messages: list[dict[str, Any]] = []
        for _ in range(draw.randrange(1, 120)):
            body = str(draw.random()) * draw.choice([0, 1, 50])
            topic = draw.choice(["Orders", "Refunds", f"New{number}"])
            messages.append({"topic": topic, "queueId": draw.randrange(3), "body": body})
        options = ["--crash"] if draw.random() < 0.4 else []
        for answer in oracle.write(store, SIZES | mode, version, messages, *options):
            put = messages[answer["index"]]
            if answer["status"] == "PUT_OK":
                place = put["topic"], put["queueId"], answer["queueOffset"]
                bodies.setdefault(place, set()).add(put["body"].encode())
    return bodies


def removed(store: Path, draw: random.Random) -> str:
    """Remove a part that only says again what the log says."""
    database = store / "consumequeue_rocksdb"
    tables = [*store.glob("consumequeue*/*.sst"), *store.glob("consumequeue*/CURRENT")]
    match draw.randrange(5):
        case 0 if tables:
            draw.choice(tables).unlink()
        case 1 if database.exists():
            shutil.rmtree(database)
        case 2:
            shutil.rmtree(store / "consumequeue", ignore_errors=True)
            shutil.rmtree(database, ignore_errors=True)
        case 3:
            shutil.rmtree(store / "index", ignore_errors=True)
        case _:
            return "nothing"
    return "something"


def check(store: Path, bodies: dict[Place, set[bytes]], snapshot: Snapshot) -> None:
    rows = list(read(snapshot))
    found = {(row["topic"], row["queueId"], row["queueOffset"]): bytes(row["body"] or b"") for row in rows}
    assert len(found) == len(rows)
    assert found.keys() == bodies.keys()
    assert {place: body for place, body in found.items() if body not in bodies[place]} == {}
    places = sorted(bodies)
    for before, after in pairwise(places):
        if before[:2] == after[:2]:
            assert before[2] + 1 == after[2]


def test_stores_of_all_queue_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    monkeypatch.setattr(choose, "WORTH_BYTES", 1)
    monkeypatch.setattr(rocksdb, "_WORTH_ENTRIES", 1)
    messages = 0
    first = int(os.environ.get("SEGMENTLOG_FIRST_SEED", "0"))
    count = scale(1, 10, 200)
    for seed in range(first, first + count):
        draw, store = random.Random(seed), tmp_path / f"store{seed}"
        bodies = written(store, draw)
        what = removed(store, draw)
        try:
            for source in QueueSource:
                check(store, bodies, Snapshot.open(store, queue_source=source, queue_cache=tmp_path / "cache"))
                check(store, bodies, Snapshot.open(store, queue_source=source, queue_cache=tmp_path / "cache"))
            with monkeypatch.context() as without:
                without.setitem(sys.modules, "rocksdict", None)
                check(store, bodies, Snapshot.open(store))
            check(store, bodies, Snapshot.open(store))
        except BaseException as error:
            error.add_note(f"seed {seed}, {what} removed")
            raise
        messages += len(bodies)
        shutil.rmtree(store)
    report("stores of all queue modes", f"{count}, {messages} messages")
