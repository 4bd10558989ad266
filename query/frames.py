"""Frames of messages that RocketMQ keeps in topics of its own, by the name of their kind.

::

    "delayed" │ "deliveries" │ "dead-letters" │ "transactions" │ "trace"
       └──► system_batches(kind, store, window) ──► batches of SCHEMAS[kind]
"""

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from segmentlog.store import Snapshot

from .dead_letters import dead_letter_batches
from .deliveries import delivery_batches
from .system_frames import SystemWindow, delayed_batches, trace_batches, transaction_batches

_FRAMES: Final[dict[str, Callable[[Snapshot, SystemWindow], Iterator[pa.RecordBatch]]]] = {
    "delayed": delayed_batches,
    "deliveries": delivery_batches,
    "dead-letters": dead_letter_batches,
    "transactions": transaction_batches,
    "trace": trace_batches,
}


def system_batches(kind: str, store: Snapshot, window: SystemWindow) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one frame of a store, in bounded memory; no batch is empty."""
    return _FRAMES[kind](store, window)
