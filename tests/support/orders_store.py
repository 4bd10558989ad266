"""Store of 120 messages of the topic Orders in several segments and queue files, and the queue offsets read from it."""

from pathlib import Path
from typing import Any

from segmentlog.store import QueueKey, Snapshot

from . import reading
from .store_builder import Appended, Geometry, StoreBuilder, messages

GEOMETRY = Geometry(segment_bytes=4096, queue_segment_entries=10)
COUNT = 120
KEY = QueueKey("Orders", 0)


def build_orders(path: Path) -> Appended:
    """Write the store, and ten messages of a retry topic after the 120; return where the 120 are."""
    with StoreBuilder(path, geometry=GEOMETRY) as builder:
        appended = builder.append(messages(COUNT))
        builder.append(messages(10, topic="%RETRY%group", queues=1))
    return appended


def offsets(store: Path, queue_id: int = 0, **options: Any) -> list[int]:
    snapshot = Snapshot.open(store, **options)
    found = list(reading.read(snapshot))
    bounds = snapshot.bounds(QueueKey("Orders", queue_id))
    mine = [row["queueOffset"] for row in found if (row["topic"], row["queueId"]) == ("Orders", queue_id)]
    assert mine == list(range(bounds.min_offset, bounds.max_offset))
    return mine
