"""A store of known messages, and the store again as ``segmentlog.open`` returns it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import segmentlog
from segmentlog.store import QueueKey
from segmentlog.store.groups import commit_offsets
from support.store_builder import Geometry, StoreBuilder, messages

START_MS = 1_769_817_600_000  # 2026-01-31T00:00:00Z


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Topics ``orders`` and ``payments``: 400 messages each in 4 queues, one per second, in small segments."""
    made = tmp_path / "broker-a"
    with StoreBuilder(made, geometry=Geometry(segment_bytes=1 << 15, queue_segment_entries=50)) as builder:
        for topic in ("orders", "payments"):
            builder.append(messages(400, topic=topic, store_time_start=START_MS, step_ms=1000))
    commit_offsets(made, "etl", {QueueKey("orders", queue): 20 for queue in range(4)})
    return made


@pytest.fixture
def store(path: Path) -> Iterator[segmentlog.Store]:
    with segmentlog.open(path) as opened:
        yield opened
