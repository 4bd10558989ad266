"""Tables and directories that a backfill wrote, as positions: where each queue continues after what they hold.

::

    table:delta:/lake/orders                   parts of the job that reads this store
    table:iceberg:lake.orders        ──────►     windows   [ day 30 )[ day 31 )[ day 1 … now
    table:files:/lake/orders                     orders/0  [0, 140)  [140, 200)[200, 231)      ──► 231

The position of a queue is the end of its offsets in the last window. Every message before it is in the table, and none
from it on. Anything else is an error: offsets that no part has, such as those of a window that was left out; late
messages after the end; and messages that were stored before the end because a clock was set back.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from segmentlog.store import ConfigError, QueueKey, StoreLocation

from .file_parts import FileParts
from .parts import Part, StoreIdentity, Window, ends_of, held
from .suggestions import listing
from .table_names import TableName
from .times import iso

if TYPE_CHECKING:
    from .ledgers import Ledger


class TableEnd(NamedTuple):
    """End of a table, for one store."""

    offsets: Mapping[QueueKey, int]
    """The offset from which each queue continues."""
    topics: frozenset[str]
    """Topics that the table gets; a queue of them without an offset was created later."""
    end_ms: Mapping[QueueKey, int]
    """End of the last window of each queue."""
    gaps: Mapping[QueueKey, tuple[int, int]]
    """Last offsets before the end that no part has, half-open; of queues without them nothing."""


def table_end(table: TableName, location: StoreLocation) -> TableEnd:
    """Return where a table ends for the store at a location.

    `ConfigError` if the table is not there, holds nothing of this store, or has no single end;
    `SEGMENTLOG_TARGET_UNCLEAR` if what it holds cannot be told.
    """
    store = StoreIdentity.at(location)
    found = TableEnd({}, frozenset(), {}, {})
    others = set()
    for job, parts in _jobs(table):
        identity = StoreIdentity(job["store"], job["storeId"])
        if not store.is_same(identity):
            others.add(identity.path)
            continue
        topics = frozenset(job["topics"])
        if both := found.topics & topics:
            problem = f"{table} gets messages of {listing(sorted(both))} from several jobs, with different filters"
            raise ConfigError(problem, fix="Pass offsets, or a time")
        there = parts()
        ends, last = _end_of(there, table)
        found = TableEnd(
            {**found.offsets, **ends},
            found.topics | topics,
            {**found.end_ms, **dict.fromkeys(ends, last.end_ms)},
            {**found.gaps, **_gaps(there, ends)},
        )
    if not found.topics:
        problem = f"{table} holds no messages of the store {store.path}"
        held_of = f"It holds those of {listing(sorted(others))}; name the store as the backfill did" if others else ""
        raise ConfigError(problem, fix=held_of or "Name a table that segmentlog backfill wrote")
    return found


def _jobs(table: TableName) -> Iterator[tuple[dict[str, Any], Callable[[], Sequence[Part]]]]:
    """Yield what each job of a table was asked for, and a function that returns the parts that the table holds."""
    if table.kind == "files":
        directory, request = FileParts.load(table.place)
        yield request, directory.parts
        return
    ledger = _ledger(table)
    try:
        for job_id, text in ledger.jobs().items():
            ledger.job_id = job_id
            yield json.loads(text), partial(_parts_of, ledger)
            ledger.forget()
    finally:
        ledger.close()


def _parts_of(ledger: "Ledger") -> list[Part]:
    """Return the parts that a table holds, up to the last window with messages.

    Windows without messages leave no trace in a table: of one that was rolled back, nothing tells whether it has them.
    """
    rows = list(ledger.held(0, None).values())
    last = max((row.part.window for row in rows if row.written.messages), default=None)
    if last is None and any(row.written.messages for row in ledger.ledger()):
        return []
    return [row.part for row in rows if last is None or row.part.window <= last]


def _ledger(table: TableName) -> "Ledger":
    if table.kind == "delta":
        from .delta_ledger import DeltaLedger  # noqa: PLC0415 - an extra

        delta = DeltaLedger(table.place)
        delta.load()
        return delta
    from .iceberg_ledger import IcebergLedger  # noqa: PLC0415 - an extra

    iceberg = IcebergLedger(table.place, catalog=table.catalog)
    iceberg.load()
    return iceberg


def _end_of(parts: Sequence[Part], table: TableName) -> tuple[dict[QueueKey, int], Window]:
    """Return where each queue ends in the parts of one job, and the last window."""
    windows = sorted(held(parts).items())
    if not windows:
        raise ConfigError(f"{table} holds no window of this store", fix="Run its backfill first, or pass a time")
    last, there = windows[-1]
    on_time = next((number for number, part in enumerate(there) if part.finishes), len(there)) + 1
    ends = ends_of([part for window, some in windows if window != last for part in some])
    ends |= ends_of(there[:on_time])
    for part in parts:
        for key, (first, stop) in part.offsets.items():
            if first < stop and stop > ends.get(key, 0):
                problem = f"{table} holds late messages of {part.window} after its end, up to offset {stop} of {key}"
                fix = f"Run its backfill for the time after {iso(last.start_ms)} first, or pass offsets"
                raise ConfigError(problem, fix=fix)
    return ends, last


def _gaps(parts: Sequence[Part], ends: Mapping[QueueKey, int]) -> dict[QueueKey, tuple[int, int]]:
    """Return the last gap between the offsets of parts of each queue, before its end."""
    spans: dict[QueueKey, list[tuple[int, int]]] = {}
    for part in parts:
        for key, (first, stop) in part.offsets.items():
            if first < stop:
                spans.setdefault(key, []).append((first, stop))
    found = {}
    for key, some in spans.items():
        reached = None
        for first, stop in sorted(some):
            if reached is not None and reached < first < ends[key]:
                found[key] = reached, first
            reached = stop if reached is None else max(reached, stop)
    return found
