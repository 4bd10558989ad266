"""Report of a stream for Spark's progress: where the queues end, and how many messages wait there.

::

    {"behind": 12,                                          messages that wait, null if one queue is unknown
     "stores": {"broker-a": {"path": "/data/store",
         "topics": {"orders": {"behind": 12,
                               "queues": {"0": 30, "1": 45}}}}},     ends of the queues
     "version": 1}

It is ``sources[].latestOffset`` of ``StreamingQueryProgress``, the only place that Spark leaves to a Python stream.
"""  # prose: allow behind - a key of the report

from collections.abc import Mapping
from typing import Any

from .offsets import StoreOffset, StreamOffset


def progress_report(ends: StreamOffset, reached: StreamOffset, paths: Mapping[str, str]) -> dict[str, Any]:
    """Compare the end of a batch with the ends of all queues that the stream reads; ``paths`` by broker name."""
    report = ends.to_dict()
    total: list[int | None] = []
    for name, store in report["stores"].items():
        store["path"] = paths[name]
        positions = reached.stores.get(name, StoreOffset()).topics
        for topic, each in store["topics"].items():
            queues = positions[topic].queues if topic in positions else {}
            each["behind"] = _sum([_behind(end, queues.get(int(queue_id))) for queue_id, end in each["queues"].items()])
            total.append(each["behind"])
    return report | {"behind": _sum(total)}


def _behind(end: int, position: int | None) -> int | None:
    return None if position is None else max(0, end - position)


def _sum(parts: list[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
