"""A store of ours whose messages are stored at times that a test names."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from segmentlog.store import MessageStore, StoreConfig

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
START_MS = 1_769_817_600_000
"""2026-01-31T00:00:00Z."""
CONFIG = StoreConfig(segment_bytes=1 << 15, queue_segment_entries=100, index_slots=100, index_entries=400)


def append_at(
    path: Path, times_ms: Iterable[int], topic: str = "orders", first: int = 0, tags: str | None = None
) -> None:
    """Append a message at each time, into two queues by turns; bodies are ``TOPIC NUMBER TIME``."""
    clock = _Clock()
    with MessageStore.open(path, CONFIG, clock=clock) as store:
        for number, ms in enumerate(times_ms, first):
            clock.ms = ms
            body = f"{topic} {number} {ms}".encode()
            row = {
                "topic": [topic],
                "queueId": pa.array([number % 2], pa.int32()),
                "body": [body],
                "keys": [f"k{number}"],
                "tags": pa.array([tags], pa.string()),
            }
            store.append_batch(pa.RecordBatch.from_pydict(row))


def spread_over(days: int, messages: int) -> Iterator[int]:
    """Yield times at equal distances, from `START_MS` on."""
    return (START_MS + number * days * DAY_MS // messages for number in range(messages))


class _Clock:
    def __init__(self) -> None:
        self.ms = START_MS

    def __call__(self) -> int:
        return self.ms


def append_bodies(path: Path, bodies: Iterable[bytes], topic: str = "orders") -> None:
    with MessageStore.open(path, CONFIG, clock=_Clock()) as store:
        rows = list(bodies)
        columns = {"topic": [topic] * len(rows), "queueId": pa.array([0] * len(rows), pa.int32()), "body": rows}
        store.append_batch(pa.RecordBatch.from_pydict(columns))
