"""A store of ours whose files are so small that a few hundred messages fill several, to be damaged and looked at."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from segmentlog.store import MessageStore, StoreConfig

CONFIG = StoreConfig(segment_bytes=1 << 14, queue_segment_entries=20, index_slots=20, index_entries=80)
ROWS = 300


def write_small_store(path: Path) -> Path:
    """Write `ROWS` messages into two queues each of ``orders`` and ``refunds``, and close it; return the path."""
    with MessageStore.open(path, CONFIG) as opened:
        opened.append_batch(
            pa.RecordBatch.from_pydict(
                {
                    "topic": ["orders", "refunds", "orders"] * (ROWS // 3),
                    "queueId": pa.array(np.arange(ROWS) % 2, pa.int32()),
                    "body": [f"body {row} {'.' * (row % 60)}".encode() for row in range(ROWS)],
                    "tags": ["t"] * ROWS,
                    "keys": [f"k{row}" for row in range(ROWS)],
                }
            )
        )
    return path
