"""Entries of a database that are surely all entries of the records of a segment, without a walk over the segment.

::

    CommitLog   [A0][B0][A1][A2][B1] … [A7][??][B4]
    entries      ├───┼───┼───┼───┼── … ──┤     │            physical offset + size = physical offset of the next entry
                base                     └ covered: a record without an entry follows
    looked at    ▲           ▲           ▲                  some records: they state what their entries do

Light queues are further entries of the same records, so nothing tells that none of them is missing.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from ..dispatch.derive import DerivedQueue, all_entries_of, joined
from ..errors import DataLossError
from ..files.segments import SegmentFile
from ..format.message import Problem, Records
from ..format.naming import LMQ_PREFIX
from ..format.walk import ends_segment
from ..log.commit_log import CommitLog, FoundRecords
from ..types import QueueKey

_LOOKS: Final = 256
"""Records of a segment that are compared with their entries: one page each."""


class ProvenEntries(NamedTuple):
    """Entries of all queues from the records of a segment before ``covered``."""

    queues: dict[QueueKey, DerivedQueue]
    covered: int  # physical offset
    last: int  # physical offset of the last record
    newest: int  # store time of the last record in ms


def prove_entries(
    log: CommitLog, segment: SegmentFile, stop: int, queues: Mapping[QueueKey, DerivedQueue]
) -> ProvenEntries | None:
    """Return entries that are proven to be those of all records before ``covered``; None if there are none."""
    if any(key.topic.startswith(LMQ_PREFIX) for key in queues):
        return None
    parts = {key: each for key, entries in queues.items() if (each := part_of(entries, segment.base, stop)).size.size}
    every = joined([*parts.values()])
    order = np.argsort(every.physical_offset)
    physical = every.physical_offset[order]
    ends = physical + every.size[order]
    breaks = np.flatnonzero(physical - segment.lead != np.concatenate([[segment.base], ends[:-1]]))
    count = int(breaks[0]) if breaks.size else physical.size
    if not count:
        return None
    covered = int(ends[count - 1])
    if count < physical.size:
        parts = {key: each for key, all_of in parts.items() if (each := part_of(all_of, 0, covered)).size.size}
    looked = physical[np.unique(np.linspace(0, count - 1, _LOOKS).astype(np.int64))]
    try:
        view = log.view(segment)
    except DataLossError:
        return None
    records = Records(view, looked - segment.base)
    if (records.problem != Problem.OK).any() or not _agree(FoundRecords(segment, records), parts):
        return None
    if segment.stop <= stop and ends_segment(view, covered - segment.base, segment.lead):
        covered = segment.stop
    return ProvenEntries(parts, covered, int(looked[-1]), int(records.field("store_timestamp")[-1]))


def part_of(entries: DerivedQueue, start: int, stop: int) -> DerivedQueue:
    """Entries of records that begin in ``[start, stop)``; ``entries`` are in the order of the log."""
    first, last = np.searchsorted(entries.physical_offset, [start, stop]).tolist()
    return entries.take(slice(first, last))


def _agree(looked: FoundRecords, parts: Mapping[QueueKey, DerivedQueue]) -> bool:
    """Return whether each record is at the place that it states, and has the entry that dispatch makes."""
    positions = looked.segment.base + looked.records.positions
    if (looked.records.field("physical_offset") != positions).any():
        return False
    found = 0
    for key, stated in all_entries_of(looked):
        entries = parts.get(key)
        if entries is None:
            return False
        at = np.minimum(np.searchsorted(entries.physical_offset, stated.physical_offset), entries.size.size - 1)
        if any((mine[at] != theirs).any() for mine, theirs in zip(entries, stated, strict=True)):
            return False
        found += stated.size.size
    return found == positions.size
