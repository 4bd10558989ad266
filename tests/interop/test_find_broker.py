from pathlib import Path

import pytest

from segmentlog.store import StoreReader
from segmentlog.store.find import Finder, KeyField
from support import oracle, releases
from support.full_broker import serving
from support.indexed_stores import colliding
from support.planted_keys import TOPICS, own_key, plant

pytestmark = oracle.MARKS

COUNT = 140_000
MOST = 64
"""Messages that a broker returns for a key."""


@pytest.mark.scaled(quick=0)  # `test_find` asks RocketMQ without a broker
@pytest.mark.parametrize("version", releases.BROKERS)
def test_answers_of_a_broker_and_its_client_are_ours(version: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    stored = plant(path, COUNT)
    keys = [own_key(number) for number in [*range(0, COUNT, 9973), *range(0, 140, 7)]]
    keys += [colliding(own_key(number)) for number in range(2, 200, 10)]  # of the hash of another key
    keys += [own_key(number) for number in range(1, 140, 7)]  # in both topics
    keys += ["hot", "nothing"]
    with serving(version, path, stored.broker_config(), tmp_path) as broker:
        for topic in TOPICS:
            broker.create(topic)
        sent = broker.produce("Fresh", 40, "--keys", "--queues", 4)
        theirs = {topic: broker.by_keys(topic, keys) for topic in TOPICS}
        fresh_keys = sorted({key for line in sent for key in line["keys"].split()})
        fresh = broker.by_keys("Fresh", fresh_keys)
        by_offset_id = broker.by_ids("Fresh", [line["offsetMsgId"] for line in sent])
        by_unique_key = broker.by_ids("Fresh", [line["msgId"] for line in sent])
        finder = Finder(StoreReader.open(path))  # beside the running broker
        compare(finder, "Fresh", fresh_keys, fresh)
        ids = finder.by_message_ids([line["offsetMsgId"] for line in sent])
        found = dict(
            zip((ids.asked["messageId"][at].as_py() for at in ids.asked_index), ids.physical_offset, strict=True)
        )
        assert [[found[line["offsetMsgId"].upper()]] for line in sent] == by_offset_id
        for line, offsets in zip(sent, by_unique_key, strict=True):
            assert finder.by_keys(["Fresh"], [line["msgId"]], KeyField.UNIQUE).physical_offset.tolist() == offsets
    capped = sum(compare(Finder(StoreReader.open(path)), topic, keys, theirs[topic]) for topic in TOPICS)
    assert capped == 1  # hot, which messages of A alone carry
    assert sum(map(bool, theirs["A"])) > len(keys) // 2
    both = [key for at, key in enumerate(keys) if theirs["A"][at] and theirs["B"][at]]
    assert len(both) > 5  # the same key in two topics


def compare(finder: Finder, topic: str, keys: list[str], theirs: list[list[int]]) -> int:
    found = finder.by_keys([topic], keys)
    names = found.asked["key"].to_pylist()
    ours: dict[str, list[int]] = {key: [] for key in keys}
    for offset, at in zip(found.physical_offset.tolist(), found.asked_index.tolist(), strict=True):
        ours[names[at]].append(offset)
    capped = 0
    for key, offsets in zip(keys, theirs, strict=True):
        if len(offsets) == MOST:
            capped += 1
            assert set(offsets) < set(ours[key])
        else:
            assert sorted(offsets) == ours[key], key
    return capped
