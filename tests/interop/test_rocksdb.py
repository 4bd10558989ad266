import time
from pathlib import Path

import pytest

from segmentlog.store import QueueKey
from segmentlog.store.directory.layout import rocksdb_queues
from segmentlog.store.directory.topics import topic_queues
from segmentlog.store.entries.rocksdb_tables import RocksQueues
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.groups import group_offsets
from support import full_broker, oracle

pytest.importorskip("rocksdict")
MISSING = oracle.available()

pytestmark = [
    pytest.mark.interop,
    pytest.mark.scaled(quick=0),  # `conformance/test_rocksdb_queues.py` and `test_live_stream.py` have its databases
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]

FS = LocalFileSystem()
COUNT = 40


def positions(store: Path) -> dict[int, int]:
    return {key.queue_id: at for key, at in group_offsets(store, "readers").items() if key.topic == "RocksLive"}


@pytest.mark.parametrize("single", [False, True], ids=["a database per table", "one database"])
def test_a_brokers_topics_groups_and_queues_are_read_beside_it(single: bool, tmp_path: Path) -> None:
    config: dict[str, object] = {"storeType": "defaultRocksDB", "mappedFileSizeCommitLog": 1 << 20}
    if single:
        config["broker.useSingleRocksDBForAllConfigs"] = True
    store = tmp_path / "store"
    store.mkdir()
    with full_broker.serving("5.5.0", store, config, tmp_path) as broker:
        sent = broker.produce("RocksLive", COUNT)
        deadline, least = time.monotonic() + 300, COUNT
        while sum((told := broker.progress("RocksLive", "readers")).values()) < COUNT and time.monotonic() < deadline:
            # Its idle time ends it: after a number of messages the last ones may not be acknowledged yet.
            broker.consume("RocksLive", 10 * COUNT, "--push", "--group", "readers", "--least", least, "--idle", 5000)
            least = 0  # all have come
        while (live := positions(store)) != told and time.monotonic() < deadline:
            time.sleep(0.5)  # the broker writes its positions every five seconds
        assert live == told
        assert topic_queues(store)["RocksLive"] == 4
        with RocksQueues.open(FS, str(rocksdb_queues(FS, str(store)))) as queues:  # beside the broker's lock
            assert isinstance(queues.queues(), list)
    ends: dict[QueueKey, int] = {}
    for line in sent:
        key = QueueKey("RocksLive", line["queueId"])
        ends[key] = max(ends.get(key, 0), line["queueOffset"] + 1)
    assert live == positions(store) == {key.queue_id: end for key, end in ends.items()}
    with RocksQueues.open(FS, str(rocksdb_queues(FS, str(store)))) as queues:
        for key, end in ends.items():
            bounds = queues.bounds(key)
            assert bounds is not None
            assert (bounds.start, bounds.stop) == (0, end)
            assert sum(part.entries.size for part in queues.entries(key, 0, end)) == end
