"""Probes of single messages: their store times, and the identity that tells a message from any other at its place.

::

    ConsumeQueue   … [ physical_offset | size | tags ] …
                          │
    CommitLog             └──► [ … store time … ]        identity: (physical offset, store time)

A queue offset whose identity changed holds another message: its topic was recreated, or the store was truncated.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from ..types import MessageIdentity, QueueKey, QueueRange
from .spec import OnCorrupt, OnLoss, ScanSpec
from .store_reader import StoreReader

_NO_LIMIT: Final = 1 << 62
_TIMES: Final = ScanSpec(columns=("topic", "queueId", "storeTimestamp"), on_corrupt=OnCorrupt.SKIP, on_loss=OnLoss.SKIP)


def message_identity(reader: StoreReader, key: QueueKey, queue_offset: int) -> MessageIdentity | None:
    """Identity of the message at a queue offset; None where no message can be read."""
    place = reader.place_of(key, queue_offset)
    time = None if place is None else reader.log.store_time_at(place)  # None also where retention was faster
    return None if place is None or time is None else MessageIdentity(place, time)


def store_times(reader: StoreReader, offsets: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
    """Store time of one message per queue, in ms since 1970; queues whose message cannot be read are missing.

    Parameters
    ----------
    offsets
        A queue offset of each queue, within its bounds.
    """
    found: dict[QueueKey, int] = {}
    for task in reader.plan([QueueRange(key, at, at + 1) for key, at in offsets.items()], max_bytes=_NO_LIMIT):
        for batch in reader.scan(task, _TIMES):
            topics, ids = batch.column(0).to_pylist(), batch.column(1).to_pylist()
            times = batch.column(2).cast(pa.int64()).to_pylist()
            found.update((QueueKey(topic, at), us // 1000) for topic, at, us in zip(topics, ids, times, strict=True))
    return found
