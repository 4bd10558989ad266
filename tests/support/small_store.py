"""A store of ours whose files are so small that a few hundred messages fill several, to be damaged and looked at."""

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa

from segmentlog.store import MessageStore, StoreConfig

CONFIG = StoreConfig(segment_bytes=1 << 14, queue_segment_entries=20, index_slots=20, index_entries=80)
ROWS = 300


@cache
def _template(write: Callable[..., object], *arguments: object) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="template-"))
    atexit.register(shutil.rmtree, folder)
    write(folder / "store", *arguments)
    return folder / "store"


def copied(write: Callable[..., object], path: Path, *arguments: object) -> Path:
    """Return the path of a copy, with an id of its own, of a store that is written once per process."""
    shutil.copytree(_template(write, *arguments), path)
    (path / ".segmentlog" / "id").write_text(uuid4().hex)
    return path


def write_small_store(path: Path) -> Path:
    """Make a closed store of `ROWS` messages in two queues each of ``orders`` and ``refunds``; return the path."""
    return copied(_write, path)


def _write(path: Path) -> None:
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
