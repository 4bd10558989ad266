import subprocess
import sys

import pytest

from segmentlog.store import Flush, MessageStore, Outgoing, StoreConfig
from segmentlog.store.ha import Attachments, Quorum, ReplicationServer, ServerConfig


def test_a_replica_in_a_process_says_how_far_it_is(load, tmp_path):
    replication = load("peers.replication")
    quorum, config = Quorum(), StoreConfig(flush=Flush.ASYNC, segment_bytes=1 << 20)
    with (
        MessageStore.open(tmp_path / "first", config, attached=Attachments(listeners=[quorum])) as store,
        ReplicationServer(store, quorum, ServerConfig(port=0)) as server,
    ):
        placed = store.append(Outgoing(topic="T", body=b"body"))
        with replication.Process([*replication.OURS, tmp_path / "copy", server.port, 2]) as replicas:
            assert replicas.await_log(placed.size) > 0
            assert replicas.end == placed.size
            assert replicas.cpu_seconds() > 0
    assert (tmp_path / "copy-0" / "commitlog").is_dir()


def test_a_process_that_ends_is_named_with_its_error(load):
    replication, harness = load("peers.replication"), load("harness")
    with pytest.raises(harness.UnavailableError, match="ended: no such store"):
        replication.Process([sys.executable, "-c", "import sys; sys.exit('no such store')"])
    assert subprocess.run([*map(str, replication.OURS)], capture_output=True, check=False).returncode == 1
