"""Replication in the benchmark: processes answer, idle replicas connect, and the targets read the right results."""

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


@pytest.mark.parametrize(("ours", "expected"), [(99.0, ("0.99 times", True)), (100.0, ("1.00 times", False))])
def test_a_replica_needs_less_cpu(load, judge, ours, expected):
    rule = load("targets").less_cpu("steady")
    names = [f"{who}: steady, µs of CPU per MiB" for who in ("segmentlog", "RocketMQ 5.3.3")]
    assert judge(rule, **dict(zip(names, (ours, 100.0), strict=True))) == expected


@pytest.mark.parametrize(("ppm", "expected"), [(9_900.0, ("0.99 %", True)), (10_000.0, ("1.00 %", False))])
def test_idle_replicas_cost_little(load, judge, ppm, expected):
    figures = {"CPU of a master with 100 idle replicas, ppm of a core": ppm}
    assert judge(load("targets").idle_replicas, **figures) == expected


@pytest.mark.parametrize(("rate", "expected"), [(90, ("0.90 times", True)), (89, ("0.89 times", False))])
def test_a_replica_keeps_up(load, result, judge, rate, expected):
    targets = load("targets")
    found = result(f"segmentlog: {targets.ASYNC_REPLICA}", rate), result("segmentlog: asynchronous puts alone", 100)
    assert judge(targets.keeps_up, *found) == expected


def test_the_targets_name_the_cases_of_the_section(load):
    targets, replicating = load("targets"), load("sections.replicating")
    assert (targets.CATCHING_UP, targets.DOUBLE_WRITE) == (replicating.CATCHING_UP, replicating.DOUBLE)
    assert targets.DOUBLE_IN_FLIGHT == replicating.DOUBLE_IN_FLIGHT
    assert targets.DOUBLE_BATCHES == replicating.DOUBLE_IN_BATCHES
    assert targets.ASYNC_REPLICA == replicating.ASYNC_PUTS
    assert f"{replicating.STEADY_RATE:,}" == "20,000"
    assert {"store-replication"} <= set(load("catalogue").STORE)
    assert {"replicated-stream"} <= set(load("catalogue").SPARK)
