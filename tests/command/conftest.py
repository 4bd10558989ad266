"""A store of known messages, for all verbs that only read."""

from pathlib import Path

import pytest

from segmentlog.store import QueueKey
from segmentlog.store.groups import commit_offsets
from support.store_builder import Geometry, StoreBuilder, messages

START_MS = 1_769_817_600_000  # 2026-01-31T00:00:00Z


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topics ``orders`` and ``payments``: 400 messages each in 4 queues, one per second; group ``etl`` at offset 20."""
    made = tmp_path_factory.mktemp("command") / "broker-a"
    with StoreBuilder(made, geometry=Geometry(segment_bytes=1 << 15, queue_segment_entries=50)) as builder:
        for topic in ("orders", "payments"):
            builder.append(messages(400, topic=topic, store_time_start=START_MS, step_ms=1000))
        builder.append(messages(3, topic="%RETRY%etl", queues=1, store_time_start=START_MS + 400_000, step_ms=1000))
    commit_offsets(made, "etl", {QueueKey("orders", queue): 20 for queue in range(4)})
    return made
