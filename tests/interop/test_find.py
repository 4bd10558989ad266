"""Real RocketMQ and our look-ups, asked for the same keys in a store full of collisions.

RocketMQ's answer is capped and has the collisions in it; without them it has to be the newest part of ours.
"""

from pathlib import Path

import pytest

from segmentlog.store import StoreReader
from segmentlog.store.find import Finder, KeyField
from support import oracle, releases
from support.broker_index import BATCH_MAX
from support.indexed_stores import colliding
from support.planted_keys import TOPICS, Planted, own_key, plant
from support.scale import scale

pytestmark = oracle.MARKS

COUNT = scale(70_000, 70_000, 1_000_000)


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
    found = Finder(StoreReader.open(store)).by_keys(TOPICS, keys, KeyField.EITHER)
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
