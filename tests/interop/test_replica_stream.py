"""Spark stream on a replica that follows RocketMQ's master: every message once, in order in each queue.

::

    RocketMQ's master, a paced load ──► replica in a thread ──► store ──► readStream ──► foreachBatch
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segmentlog.store import Flush, StoreConfig
from support import oracle, releases, replicas
from support.ha import Peer, free_port
from support.received import COLUMNS, Received
from support.scale import scale

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.interop,
    pytest.mark.spark,
    pytest.mark.scaled(quick=1),
    pytest.mark.timeout(900),
    pytest.mark.skipif(oracle.available() is not None, reason=str(oracle.available())),
]

QUEUES = 2
COUNT, RATE = scale(20_000, 200_000, 3_000_000), scale(10_000, 20_000, 50_000)
SEGMENT = 4 << 20
CONFIG = {"mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": 20 * 5000, "haSendHeartbeatInterval": 500}
OURS = StoreConfig(segment_bytes=SEGMENT, queue_segment_entries=5000, flush=Flush.ASYNC)


@pytest.mark.parametrize("version", releases.STORES)
def test_a_query_on_a_replica_of_a_live_master(spark: "SparkSession", tmp_path: Path, version: str) -> None:
    received, port, copy = Received(QUEUES), free_port(), tmp_path / "copy"

    def take(frame: "DataFrame", _: int) -> None:
        received.take(frame.toArrow())
        received.batches += 1

    with (
        Peer.master(version, tmp_path / "first", port, CONFIG) as master,
        replicas.following(copy, port, store_config=OURS) as replica,
    ):
        master.put(1, 10)  # of another topic
        replicas.until(lambda: replica.status.end > 0)
        options = {"subscribePattern": "BenchTopic", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10000"}
        frame = spark.readStream.format("segmentlog").options(**options).load(str(copy)).select(*COLUMNS)
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "state")).start()
        try:
            query.processAllAvailable()
            loaded = master.ask("load", count=COUNT, size=200, threads=QUEUES, rate=RATE)
            assert loaded["count"] == COUNT
            replicas.until(lambda: received.rows == COUNT or not query.isActive, seconds=600)
            assert query.exception() is None
            query.processAllAvailable()  # and nothing after it
        finally:
            query.stop()
    assert received.next == [COUNT // QUEUES] * QUEUES
    assert received.batches > 1
