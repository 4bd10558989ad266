"""Options of the reader for messages between queue offsets."""

import json
from collections.abc import Mapping

from segmentlog.store import QueueKey


def offset_options(spans: Mapping[QueueKey, tuple[int, int]]) -> dict[str, str]:
    """Return the options that read each queue from its first offset to its end, half-open."""
    queues: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, queue_id), (start, end) in spans.items():
        queues.setdefault(topic, []).append(queue_id)
        starts.setdefault(topic, {})[str(queue_id)] = start
        ends.setdefault(topic, {})[str(queue_id)] = end
    return {"assign": json.dumps(queues), "startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends)}
