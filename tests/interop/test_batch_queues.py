"""Stores with batch queues (``queue.type=BatchCQ``): a broker starts on what is made of them, and has all messages."""

import json
from pathlib import Path

import pytest

from segmentlog.store import Snapshot, UnsupportedStoreError
from segmentlog.store.archive.push import push
from segmentlog.store.maintenance import beside_log, rebuild_queues, salvage, verify
from segmentlog.store.maintenance.archives import pull
from segmentlog.store.write.message_store import MessageStore
from support import full_broker, oracle, reading
from support.memory_objects import MemoryObjects
from support.scale import scale

pytestmark = oracle.MARKS
CONFIG = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20_000, "maxHashSlotNum": 100}
CONFIG |= {"maxIndexNum": 400}
TABLE = {"Batches": {"topicName": "Batches", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}}
TABLE["Batches"] |= {"attributes": {"queue.type": "BatchCQ"}}


@pytest.mark.scaled(quick=0)
@pytest.mark.parametrize("version", scale(["5.5.0"], ["5.5.0"], ["5.3.3", "5.5.0"]))  # 5.1.0 makes no absent queues
def test_a_broker_starts_on_what_is_made_of_its_store_and_delivers_all(
    version: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, restored, copied, objects = tmp_path / "store", tmp_path / "restored", tmp_path / "copied", MemoryObjects()
    (store / "config").mkdir(parents=True)
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": TABLE}))
    with full_broker.serving(version, store, CONFIG, tmp_path) as broker:
        sent = broker.produce("Batches", 20, "--batch", 5)
        sent += broker.produce("Batches", 3, "--first", 100)
        broker.produce("Plain", 7)
    bodies = sorted(each["bodySha256"] for each in sent)

    snapshot = Snapshot.open(store)
    assert "sent in batches to Batches" in caplog.text
    assert [row["topic"] for row in reading.read(snapshot)].count("Plain") == 7
    assert verify(store).is_sound
    (beside,) = beside_log(snapshot)
    assert (beside.topic, beside.kept.messages, beside.left_out.messages) == ("Batches", 23, 20)
    with pytest.raises(UnsupportedStoreError, match="Batches have batch queues"):
        MessageStore.open(store)
    with pytest.raises(UnsupportedStoreError, match="Batches have batch queues"):
        rebuild_queues(store, tmp_path / "queues")
    push(store, objects)
    pull(objects, restored)
    salvage(store, copied)
    for path in (restored, copied):
        with full_broker.serving(version, path, CONFIG, tmp_path) as broker:
            found = broker.consume("Batches", 23, "--group", "again")
        assert sorted(each["bodySha256"] for each in found) == bodies, path
