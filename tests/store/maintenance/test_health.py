import os
from pathlib import Path

from segmentlog.store import MessageStore, Outgoing, Snapshot
from segmentlog.store.maintenance import health_of


def test_the_facts_equal_the_files(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        for body in (b"a", b"b"):
            store.append(Outgoing(topic="T", queue_id=0, body=body))
    snapshot = Snapshot.open(tmp_path)
    os.utime(tmp_path / "checkpoint", ns=(0, 1_700_000_000_000_000_000))
    health = health_of(snapshot)
    assert (health.log_start, health.log_stop) == (0, snapshot.readable_stop())
    assert health.checkpoint_ms == 1_700_000_000_000
    last = snapshot.entries.place_of(snapshot.queues("T")[0].key, 1)
    assert last is not None
    assert health.synced_ms == snapshot.log.store_time_at(last)
    assert health.confirmed is None
    assert [disk.free <= disk.total for disk in health.disks] == [True]


def test_a_missing_checkpoint_is_unknown(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path):
        pass
    (tmp_path / "checkpoint").unlink()
    health = health_of(Snapshot.open(tmp_path))
    assert (health.synced_ms, health.checkpoint_ms) == (None, None)
