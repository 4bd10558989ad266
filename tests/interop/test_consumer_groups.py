import json
import random
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing, QueueKey
from segmentlog.store.format.broker_config import ClientQueue
from segmentlog.store.groups import group_offsets
from segmentlog.store.groups.admin import publish_progress
from segmentlog.store.groups.allocation import allocate_averagely, allocate_by_circle, allocate_consistent_hash
from support import groups_oracle, oracle, releases

MISSING = oracle.available(groups_oracle.NEEDED)

pytestmark = [
    pytest.mark.interop,
    pytest.mark.scaled(quick=1),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]

SEED = 20261121
STRATEGIES = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_by_circle,
    "CONSISTENT_HASH": allocate_consistent_hash,
}


def _cases() -> list[tuple[list[str], list[tuple[str, str, int]]]]:
    """Groups and topics of many sizes, in no order; some with more consumers than queues."""
    choose = random.Random(SEED)
    cases = []
    for number in range(60):
        consumers = [f"10.0.{choose.randrange(4)}.{n}@{choose.randrange(1 << 20)}" for n in range(1 + number % 13)]
        brokers = choose.sample(["broker-a", "broker-b", "Broker", "broker-é"], 1 + number % 3)
        queues = [(f"Topic{number % 5}", broker, n) for broker in brokers for n in range(choose.randrange(1, 12))]
        choose.shuffle(consumers)
        choose.shuffle(queues)
        cases.append((consumers, queues))
    return cases


@pytest.mark.parametrize("version", releases.BROKERS)
def test_queues_are_allocated_as_clients_do_it(version: str) -> None:
    cases = _cases()
    for (consumers, queues), answers in zip(cases, groups_oracle.allocate(version, cases), strict=True):
        own = [ClientQueue(*queue) for queue in queues]
        ours = [
            f"{name} {consumer} " + ",".join(f"{q.topic}:{q.broker_name}:{q.queue_id}" for q in got)
            for name, allocate in STRATEGIES.items()
            for consumer in sorted(consumers)
            for got in [allocate(own, consumers, consumer)]
        ]
        assert ours == answers


@pytest.mark.scaled(quick=0)  # `test_served_store` has the whole broker of a quick run
@pytest.mark.parametrize("version", releases.BROKERS)
def test_published_group_offsets_are_loaded_by_brokers_and_read_after_they_save_them(
    tmp_path: Path, version: str
) -> None:
    store = tmp_path / "store"
    with MessageStore.open(store) as made:
        made.append(Outgoing(topic="Orders", body=b"x"))
    document = store / "config" / "consumerOffset.json"
    document.write_text('{"offsetTable":{"Orders@theirs":{0:12,1:30},"%RETRY%g@g":{0:1}},"unknown":[1]}')
    published = {QueueKey("Orders", 1): 7, QueueKey("Orders", 11): 1 << 40}
    publish_progress(str(store), "spark-jobs", published)
    whole = ["%RETRY%g@g 0 1", "Orders@spark-jobs 1 7", f"Orders@spark-jobs 11 {1 << 40}"]
    theirs = ["Orders@theirs 0 12", "Orders@theirs 1 30"]
    assert groups_oracle.offsets(document, version) == [*whole, *theirs]
    assert json.loads(document.read_text())["unknown"] == [1]

    document.write_text("{ torn")  # the broker takes the former document
    assert groups_oracle.offsets(document, version) == ["%RETRY%g@g 0 1", *theirs]
    publish_progress(str(store), "spark-jobs", published | {QueueKey("Orders", 1): 8})
    assert groups_oracle.offsets(document, version)[1] == "Orders@spark-jobs 1 8"

    groups_oracle.commit(document, version, "spark-jobs", ("Orders", 1), 9)
    assert "{" in document.read_text()
    offsets = group_offsets(store, "spark-jobs")
    assert offsets == {QueueKey("Orders", 1): 9, QueueKey("Orders", 11): 1 << 40}
    assert group_offsets(store, "theirs") == {QueueKey("Orders", 0): 12, QueueKey("Orders", 1): 30}
