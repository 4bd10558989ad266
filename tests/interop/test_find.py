"""Real RocketMQ and our look-ups, asked for the same keys in a store full of collisions.

RocketMQ's answer is capped and has the collisions in it; without them it has to be the newest part of ours.

::

    message i   topic A or B, in turn    KEYS  id-i                    its own
                                               jE-(i+2)  every 10th    hash of id-(i+2), another text
                                               id-(i+1)  every 7th     a key of the other topic
                                               hot       every 1000th  far more than 64 messages
"""

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store import Snapshot
from segmentlog.store.find import Finder, KeyField
from segmentlog.store.format.index_file import Geometry
from support import oracle, releases, store_builder
from support.broker_index import BATCH_MAX
from support.indexed_stores import START_MS, colliding, write_index
from support.scale import scale
from support.store_builder import StoreBuilder

pytestmark = oracle.MARKS

COUNT = scale(70_000, 70_000, 1_000_000)
TOPICS = ("A", "B")
_BATCH = 50_000
SEGMENT_BYTES = 16 << 20
QUEUE_ENTRIES = 300_000


class Planted(NamedTuple):
    """Messages that were stored: which of them carry a key, and where each is."""

    carriers: dict[tuple[str, str], list[int]]
    physical_offset: list[int]
    geometry: Geometry

    def places(self, topic: str, key: str) -> list[int]:
        return [self.physical_offset[number] for number in self.carriers.get((topic, key), [])]

    def broker_config(self) -> dict[str, int]:
        sizes = store_builder.Geometry(segment_bytes=SEGMENT_BYTES, queue_segment_entries=QUEUE_ENTRIES)
        index = {"maxHashSlotNum": self.geometry.slots, "maxIndexNum": self.geometry.entries}
        return {**sizes.broker_config(), **index}


def own_key(number: int) -> str:
    """The key that one message alone has in its topic, but for those that the plan above repeats."""
    return f"id-{number:08d}"


def plant(path: Path, count: int) -> Planted:
    geometry = Geometry(count // 16, count)
    carriers: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    offsets: list[int] = []
    sizes = store_builder.Geometry(segment_bytes=SEGMENT_BYTES, queue_segment_entries=QUEUE_ENTRIES)
    with StoreBuilder(path, geometry=sizes) as builder:
        for first in range(0, count, _BATCH):
            numbers = np.arange(first, min(first + _BATCH, count))
            keys: list[str] = []
            for number in numbers.tolist():
                mine = _keys_of(number)
                keys.append(" ".join(mine))
                for key in {*mine, f"u-{number:08d}"}:
                    carriers[TOPICS[number % 2], key].append(number)
            batch = pa.record_batch(
                {
                    "topic": pa.array(TOPICS).take(pa.array(numbers % 2)),
                    "queueId": pa.array(np.zeros(numbers.size, np.int32)),
                    "body": pa.array([b"body"]).take(pa.array(np.zeros(numbers.size, np.int64))),
                    "keys": pa.array(keys),
                    "uniqKey": pa.array([f"u-{number:08d}" for number in numbers.tolist()]),
                    "storeTimestamp": pa.array(START_MS + numbers),
                }
            )
            offsets += builder.append(batch).physical_offsets.tolist()
    write_index(path, geometry)
    return Planted(dict(carriers), offsets, geometry)


def _keys_of(number: int) -> list[str]:
    keys = [own_key(number)]
    if number % 10 == 0:
        keys.append(colliding(own_key(number + 2)))
    if number % 7 == 0:
        keys.append(own_key(number + 1))
    if number % 1000 == 0:
        keys.append("hot")
    return keys


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Planted]:
    """A store that is only read, and what is in it."""
    path = tmp_path_factory.mktemp("planted") / "store"
    return path, plant(path, COUNT)


@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize("version", releases.STORES)
def test_rocketmqs_answers_without_collisions_are_ours(version: str, planted: tuple[Path, Planted]) -> None:
    store, stored = planted
    keys = [own_key(number) for number in range(0, COUNT, 997)]
    keys += [own_key(number) for number in range(0, 300, 7)]
    keys += [colliding(own_key(number)) for number in range(2, 400, 5)]
    keys += ["hot", "nothing", *(f"u-{number:08d}" for number in range(0, COUNT, 9999))]
    questions = [
        {"query": "messageByKey", "topic": topic, "key": key, "maxNum": 64, "begin": 0, "end": 1 << 42}
        for topic in TOPICS
        for key in dict.fromkeys(keys)
    ]
    found = Finder(Snapshot.open(store)).by_keys(TOPICS, keys, KeyField.EITHER)
    pairs = list(zip(found.asked["topic"].to_pylist(), found.asked["key"].to_pylist(), strict=True))
    ours: dict[tuple[str, str], list[int]] = {pair: [] for pair in pairs}
    for offset, at in zip(found.physical_offset.tolist(), found.asked_index.tolist(), strict=True):
        ours[pairs[at]].append(offset)
    collisions = capped = 0
    for line in oracle.query(store, stored.broker_config(), version, questions):
        pair = line["topic"], line["key"]
        theirs = line["answer"]["phyOffsets"]
        carrying = [offset for offset in theirs if offset in set(stored.places(*pair))]
        collisions += len(theirs) - len(carrying)
        if len(theirs) == BATCH_MAX:
            capped += 1
            assert ours[pair][-len(carrying) :] == carrying
        else:
            assert ours[pair] == carrying
        assert ours[pair] == stored.places(*pair)
    assert collisions > 40
    assert capped == 1
