"""Packs of an archive: the queue entries of one piece of the log, as one object.

::

    piece of the log   [A0][B0][A1][A2][B1]
    pack               │ header │ A0  A1  A2 │ B0  B1 │     an `ENTRY` of 32 bytes per record: by queue, then by place
    runs                 A: rows 0–2  B: rows 3–4   a `RUN` per queue, for the manifest

Entries are derived from the records, as for queues that have no files. Equal records result in equal bytes.
"""

from typing import NamedTuple

import numpy as np

from ..dispatch.derive import all_entries_of, by_queue
from ..format.archive_part import ENTRY, RUN, Runs, pack_header
from ..format.message import Bytes
from ..log.commit_log import FoundRecords
from ..types import QueueKey
from .walked import in_runs


class Pack(NamedTuple):
    """Entries of a piece."""

    data: Bytes  # header and rows of `ENTRY`; empty without records
    queues: tuple[QueueKey, ...]  # of each run, ascending
    runs: Runs  # `queue` counts in `queues`, `piece` is 0


def made_pack(found: FoundRecords) -> Pack:
    """Make the pack of the records of a piece, whose positions are within ``found.segment``."""
    base, records = found.segment.base, found.records
    entries = by_queue(all_entries_of(found))
    queues = tuple(sorted(entries))
    runs, rows = np.zeros(len(queues), RUN), np.empty(0, ENTRY)
    if queues:
        kept, columns = in_runs(base, {key: entries[key] for key in queues})
        rows = np.empty(columns.size.size, ENTRY)
        for name, column in zip(columns._fields, columns, strict=True):
            rows[name] = column
        times = records.field("store_timestamp")
        rows["store_time"] = times[np.searchsorted(records.positions, columns.position)]
        found_runs = [kept[key] for key in queues]
        runs["queue"] = np.arange(len(queues))
        runs["row"] = [run.start for run in found_runs]
        runs["rows"] = [run.rows for run in found_runs]
        runs["first"] = [run.first for run in found_runs]
        runs["last"] = [run.last for run in found_runs]
        runs["first_offset"] = [base + run.first_position for run in found_runs]
        runs["last_offset"] = [base + run.last_position for run in found_runs]
        runs["bytes"] = np.add.reduceat(columns.size.astype(np.int64), runs["row"])
        runs["rises"] = [run.rises for run in found_runs]
        runs["first_time"] = rows["store_time"][runs["row"]]
        runs["last_time"] = rows["store_time"][runs["row"] + runs["rows"] - 1]
    header = np.frombuffer(pack_header(rows.size, base) if rows.size else b"", np.uint8)
    return Pack(np.concatenate([header, rows.view(np.uint8)]), queues, runs)
