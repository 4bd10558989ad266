"""Replica of a whole broker: real producers write, the broker restarts, and retention deletes what the replica keeps.

::

    producers ──► broker ──► replica         logs are equal byte for byte, after load, a restart and retention
                     └──────► late replica   begins at the first segment that is left
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store import Snapshot
from segmentlog.store.ha import Address, MetadataCopier
from support import full_broker, ha, oracle, releases, replicas
from support.ha import OURS, SEGMENT
from support.reading import read
from support.scale import scale

pytestmark = [
    *oracle.MARKS,
    pytest.mark.scaled(quick=0),  # `test_replication` has RocketMQ's master without a broker
    pytest.mark.timeout(900),
]

TOPIC = "Orders"
CONFIG = ha.CONFIG | {
    "fileReservedTime": 0,
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "deleteCommitLogFilesInterval": 1,
}
COUNT = scale(2_000, 2_000, 20_000)
following = partial(replicas.following, store_config=OURS)
until = partial(replicas.until, seconds=300)


def rows(path: Path) -> list[dict[str, Any]]:
    return [row for row in read(Snapshot.open(path)) if row["topic"] == TOPIC]


def segments(path: Path) -> list[Path]:
    return sorted((path / "commitlog").iterdir())


def assert_equal(master: Path, replica: Path, end: int) -> None:
    kept = [file for file in segments(master) if int(file.name) < end]
    assert kept
    for file in kept:
        size = min(end - int(file.name), SEGMENT)
        assert (replica / "commitlog" / file.name).read_bytes()[:size] == file.read_bytes()[:size], file.name


def assert_complete(copy: Path, sent: list[dict[str, Any]]) -> None:
    """Compare the messages of a replica with what producers were told."""
    assert {line["status"] for line in sent} == {"SEND_OK"}
    found = {(row["queueId"], row["queueOffset"]): row["uniqKey"] for row in rows(copy)}
    assert found == {(line["queueId"], line["queueOffset"]): line["msgId"] for line in sent}


@pytest.mark.parametrize("version", releases.BROKERS)
def test_a_replica_has_the_whole_log_of_a_broker_that_restarts_and_deletes(tmp_path: Path, version: str) -> None:
    first, copy, late = tmp_path / "first", tmp_path / "copy", tmp_path / "late"
    with full_broker.serving(version, first, CONFIG, tmp_path) as broker, following(copy, broker.ha_port):
        sent = broker.produce(TOPIC, 2 * COUNT, "--size", 700, "--keys", "--tags", "a,b")
        until(lambda: len(rows(copy)) == 2 * COUNT)
        until(lambda: int(segments(first)[0].name) > SEGMENT)
        with following(late, broker.ha_port, probe_s=1.0) as replica:
            until(lambda: replica.status.lag_bytes == 0 and replica.status.end > 0)
            end = replica.status.end
        MetadataCopier(str(copy), Address("127.0.0.1", broker.port)).copy()
    assert_equal(first, copy, end)
    assert_equal(first, late, end)
    assert int(segments(late)[0].name) > SEGMENT
    assert TOPIC in json.loads((copy / "config" / "topics.json").read_text())["topicConfigTable"]
    with full_broker.serving(version, first, CONFIG, tmp_path) as broker, following(copy, broker.ha_port) as replica:
        sent += broker.produce(TOPIC, 30, "--first", 2 * COUNT)
        until(lambda: len(rows(copy)) == 2 * COUNT + 30)
        end = replica.status.end
    assert_equal(first, copy, end)
    assert segments(copy)[0].name == f"{0:020d}"
    assert_complete(copy, sent)
