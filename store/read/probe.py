"""What a queue says of single messages without reading them: how large they are, and how to know one again.

::

    ConsumeQueue   … [ physical_offset | size | tags ] …         20 bytes a message: sizes
                          │
    CommitLog             └──► [ … store time … ]                a mark: where the record lies, and since when

Where queues are derived from the log, a scan says the same.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..format.consume_queue import is_plausible
from ..format.message import Ints
from ..types import Mark, QueueKey, QueueRange
from .spec import OnCorrupt, OnLoss, ScanSpec
from .store_reader import StoreReader

_ALL: Final = 1 << 62


def record_sizes(reader: StoreReader, wanted: QueueRange) -> Ints:
    """Bytes of the records of a range within its queue's bounds; 0 where there is none, or nothing says how many.

    Returns
    -------
    (len(wanted),) int64
    """
    if reader.goes_by_queues:
        entries = reader.queue(wanted.key).entries(wanted.start, wanted.stop)
        return np.where(is_plausible(entries), entries["size"], 0).astype(np.int64)
    offsets, sizes = _scanned(reader, wanted, ("queueOffset", "storeSize"))
    found = np.zeros(len(wanted), np.int64)
    found[offsets - wanted.start] = sizes
    return found


def mark_of(reader: StoreReader, key: QueueKey, queue_offset: int) -> Mark | None:
    """What tells a message within its queue's bounds from any other; None where there is none to read."""
    if not reader.goes_by_queues:
        physical, times = _scanned(
            reader, QueueRange(key, queue_offset, queue_offset + 1), ("physicalOffset", "storeTimestamp")
        )
        return Mark(int(physical[0]), int(times[0]) // 1000) if physical.size else None
    entry = reader.queue(key).entries(queue_offset, queue_offset + 1)
    if not is_plausible(entry)[0]:
        return None
    offset = int(entry["physical_offset"][0])
    time = reader.log.store_time_at(offset)  # None also where retention was faster
    return None if time is None else Mark(offset, time)


def _scanned(reader: StoreReader, wanted: QueueRange, columns: Sequence[str]) -> list[Ints]:
    spec = ScanSpec(columns=tuple(columns), on_corrupt=OnCorrupt.SKIP, on_loss=OnLoss.SKIP)
    tasks = reader.plan([wanted], max_bytes=_ALL)
    batches = [batch for task in tasks for batch in reader.scan(task, spec)]
    return [
        np.concatenate([np.zeros(0, np.int64), *(batch.column(at).cast("int64").to_numpy() for batch in batches)])
        for at in range(len(columns))
    ]
