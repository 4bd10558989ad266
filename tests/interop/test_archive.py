import dataclasses
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Snapshot
from segmentlog.store.archive.push import push
from segmentlog.store.maintenance.archives import pull
from segmentlog.store.types import Window
from support import oracle, releases, writing
from support.archives import content
from support.memory_objects import MemoryObjects
from support.writing import Journal

pytestmark = [*oracle.MARKS, pytest.mark.scaled(quick=1)]
VERSIONS = dict.fromkeys([*releases.STORES, "5.5.0", "4.9.1", "5.1.0", "5.3.3"])


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.scaled(quick=0)  # a part of a store has the reader of a quick run; this one asks RocketMQ for all keys
def test_rocketmq_reads_a_restored_store_as_the_original(tmp_path: Path, version: str) -> None:
    journal, objects = Journal(writing.SMALL), MemoryObjects()
    with MessageStore.open(tmp_path / "store", writing.SMALL, clock=writing.clock()) as store:
        journal.append(store, writing.every_kind(long_topics=releases.LONG_TOPICS.holds(version)))
        push(tmp_path / "store", objects)
        journal.append_batch(store, writing.plain(150))
        push(tmp_path / "store", objects)
        journal.append_batch(store, writing.plain(40, seed=2, body_bytes=2_000))
    push(tmp_path / "store", objects)
    pull(objects, tmp_path / "restored")
    config = writing.broker_config(writing.SMALL)
    writing.check_dump(oracle.dump(tmp_path / "restored", config, version), journal)
    keys = [
        {"query": "messageByKey", "topic": topic, "key": key, "maxNum": 64, "begin": 0, "end": 1 << 50}
        for topic, key in journal.all_keys()
    ]
    answers = [oracle.query(tmp_path / name, config, version, keys) for name in ("store", "restored")]
    assert answers[0] == answers[1]


def test_rocketmq_reads_a_part_of_a_store(tmp_path: Path, version: str) -> None:
    config = dataclasses.replace(writing.SMALL, index=False)
    journal, objects = Journal(config), MemoryObjects()
    with MessageStore.open(tmp_path / "store", config, clock=writing.clock()) as store:
        for seed in range(20):
            journal.append_batch(store, writing.plain(20, seed=seed, body_bytes=500))
    push(tmp_path / "store", objects)
    pieces = content(objects).pieces
    middle = pieces[len(pieces) // 2]
    pull(objects, tmp_path / "part", window=Window(middle.first_time))
    start = Snapshot.open(tmp_path / "part").log.min_offset
    assert start > 0
    broker = writing.broker_config(config)
    found, whole = (oracle.dump(tmp_path / name, broker, version) for name in ("part", "store"))
    messages = [line for line in found if line["type"] == "message"]
    assert messages == [line for line in whole if line["type"] == "message" and int(line["phyOffset"]) >= start]
    assert messages
