"""A store whose older files are in an archive, and the same store before that.

::

    whole     commitlog [ 0 ][ 1 ][ 2 ] … [ n ]
    store     commitlog              [ 8 ] … [ n ]         retention kept the newest segments
    archive   commitlog [ 0 ][ 1 ] … [ 7 ]                 and archived the others
"""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from segmentlog.store import MessageStore, RetentionSettings, ScanSpec, Services, Snapshot, StoreConfig
from segmentlog.store.maintenance import Conditions, Retained, apply_retention

from .reading import whole_queues
from .small_store import copied

CONFIG = StoreConfig(
    segment_bytes=4 << 10, queue_segment_entries=20, index_slots=40, index_entries=80, services=Services.ON_CALL
)
START_MS = 1_763_700_000_000
STEP_MS = 1000
ROWS = 900
SPEC = ScanSpec(columns=("topic", "queueId", "queueOffset", "physicalOffset", "keys", "body"))


class Archived(NamedTuple):
    """Paths of the store, of its archive, and of the store before retention."""

    store: Path
    archive: Path
    whole: Path


def append_rows(store: MessageStore, first: int, count: int) -> None:
    """Append messages to two queues of orders and one of refunds, each with a key of its own."""
    numbers = range(first, first + count)
    store.append_batch(
        pa.RecordBatch.from_pydict(
            {
                "topic": ["refunds" if number % 5 == 4 else "orders" for number in numbers],
                "queueId": pa.array([0 if number % 5 == 4 else number % 2 for number in numbers], pa.int32()),
                "body": [b"body %d" % number for number in numbers],
                "keys": [f"k{number}" for number in numbers],
            }
        )
    )


def _write_rows(path: Path, rows: int) -> None:
    now = START_MS
    with MessageStore.open(path, CONFIG, clock=lambda: now) as store:
        for first in range(0, rows, 10):
            append_rows(store, first, 10)
            now += STEP_MS


def write_whole(path: Path, rows: int = ROWS) -> Path:
    """Make a closed store with a store time of its own for every ten messages."""
    return copied(_write_rows, path, rows)


def settings(archive: Path | None, segments_kept: int = 4, **more: Any) -> RetentionSettings:
    return RetentionSettings(
        log_bytes_max=segments_kept * CONFIG.segment_bytes,
        archive=None if archive is None else str(archive),
        files_per_run=1000,
        log_pause_ms=0,
        queue_pause_ms=0,
        start_ms=0,
        interval_ms=0,
        **more,
    )


def archive_some(path: Path, archive: Path | None, segments_kept: int = 4) -> Retained:
    conditions = Conditions(hour=5, log_used=10, queues_used=10)
    return apply_retention(path, settings(archive, segments_kept), conditions)


def write_archived(root: Path) -> Archived:
    whole = write_whole(root / "whole")
    shutil.copytree(whole, root / "store")
    found = archive_some(root / "store", root / "archive")
    assert found.archived > 20
    assert found.failures == 0
    return Archived(root / "store", root / "archive", whole)


def all_rows(snapshot: Snapshot, spec: ScanSpec = SPEC, max_bytes: int = 1 << 20) -> list[dict[str, Any]]:
    tasks = snapshot.plan(whole_queues(snapshot), max_bytes=max_bytes)
    rows = [row for task in tasks for batch in snapshot.scan(task, spec) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))
