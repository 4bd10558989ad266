"""Frames of messages that RocketMQ keeps in topics of its own, by the name of their kind.

::

    "delayed" │ "transactions" │ "trace" ──► system_batches(kind, store, window) ──► batches of SCHEMAS[kind]
"""

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from segmentlog.store import StoreReader

from .delayed import delayed_batches
from .system_topics import SystemWindow
from .traces import trace_batches
from .transactions import transaction_batches

_FRAMES: Final[dict[str, Callable[[StoreReader, SystemWindow], Iterator[pa.RecordBatch]]]] = {
    "delayed": delayed_batches,
    "transactions": transaction_batches,
    "trace": trace_batches,
}


def system_batches(kind: str, store: StoreReader, window: SystemWindow) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one frame of a store, in bounded memory; no batch is empty."""
    return _FRAMES[kind](store, window)
