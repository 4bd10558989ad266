"""The store of known messages that the tests of the three doors read."""

from pathlib import Path

from segmentlog.store import QueueKey
from segmentlog.store.groups import commit_offsets

from .store_builder import Geometry, StoreBuilder, messages

START_MS = 1_769_817_600_000  # 2026-01-31T00:00:00Z


def build_known_store(path: Path, *, has_retries: bool = True) -> Path:
    """Write topics ``orders`` and ``payments``: 400 messages each in 4 queues, one per second; group ``etl`` at 20."""
    with StoreBuilder(path, geometry=Geometry(segment_bytes=1 << 15, queue_segment_entries=50)) as builder:
        for topic in ("orders", "payments"):
            builder.append(messages(400, topic=topic, store_time_start=START_MS, step_ms=1000))
        if has_retries:
            builder.append(messages(3, topic="%RETRY%etl", queues=1, store_time_start=START_MS + 400_000, step_ms=1000))
    commit_offsets(path, "etl", {QueueKey("orders", queue): 20 for queue in range(4)})
    return path
