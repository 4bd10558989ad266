import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing, Snapshot, StoreConfig
from support import full_broker, oracle, reading, releases
from support.live_copy import copy_live
from support.writing import broker_config

pytestmark = [
    *oracle.MARKS,
    pytest.mark.scaled(quick=0),  # `test_live_stream` has the broker of a quick run
    pytest.mark.timeout(600),
]

CONFIG = StoreConfig(segment_bytes=1 << 20, queue_segment_entries=2000, index_slots=1000, index_entries=8000)
TOPIC = "Served"


def appended(store: MessageStore, first: int, count: int) -> list[bytes]:
    bodies = [b"ours %d" % number for number in range(first, first + count)]
    for number, body in enumerate(bodies):
        store.append(Outgoing(topic=TOPIC, body=body, queue_id=number % 4, tags="a", keys=f"k{number}"))
    return bodies


def read(store: Path) -> Counter[bytes]:
    rows = reading.read(Snapshot.open(store))
    return Counter(bytes(row["body"]) for row in rows if row["topic"] == TOPIC)


@pytest.mark.parametrize("version", releases.BROKERS)
def test_a_broker_serves_our_store_to_consumers_and_crashes_of_both_are_recovered(tmp_path: Path, version: str) -> None:
    opened, store = tmp_path / "open", tmp_path / "store"
    with MessageStore.open(opened, CONFIG) as writer:
        bodies = Counter(appended(writer, 0, 400))
        copy_live(opened, store)  # what our crash leaves
    shutil.rmtree(opened)
    with full_broker.serving(version, store, broker_config(CONFIG), tmp_path) as broker:
        broker.create(TOPIC)
        got = broker.consume(TOPIC, 10_000, "--least", bodies.total(), "--idle", 5000)
        assert len(got) == len(bodies)
        assert {line["queueId"] for line in got} == set(range(4))
        sent = broker.produce(TOPIC, 100)
        assert all(line["status"] == "SEND_OK" for line in sent)
        os.kill(broker.pid, signal.SIGKILL)
    assert (store / "abort").exists()
    found = read(store)
    assert bodies <= found
    assert found.total() == 500
    with MessageStore.open(store, CONFIG) as writer:
        bodies += Counter(appended(writer, 400, 50))
    assert bodies <= read(store)
    with full_broker.serving(version, store, broker_config(CONFIG), tmp_path) as broker:
        broker.create(TOPIC)
        got = broker.consume(TOPIC, 10_000, "--least", 550, "--idle", 5000, "--group", "second")
        assert len(got) == 550
