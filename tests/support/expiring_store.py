"""Processes of a soak whose store deletes its own expired files; every loss is compared with the history of deletions.

::

    test ──► writer    MessageStore with retention, every 50 ms: single messages, batches, staged batches of a sink
             reader    StoreReader, at random places and often too late: an error with the deletion, or a warning
             stream    the connector's planner and tasks, as Spark drives them, without a JVM

A message may be lost only if its segment was deleted, and the first offset of its queue says so afterwards.
Run as a program: ``python -m support.expiring_store ROLE OPTIONS``, see `soak_worker`.
"""

import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa

from segmentlog.connector.stream.offsets import StreamOffset
from segmentlog.store import (
    DataLossError,
    MessageStore,
    OffsetOutOfRangeError,
    OnLoss,
    QueueKey,
    QueueRange,
    RetentionSettings,
    ScanSpec,
    SegmentLogError,
    StoreReader,
)
from segmentlog.store.directory.retention_history import deletions
from segmentlog.store.files.fs import LocalFileSystem, Space
from segmentlog.store.retention.state import Kind
from segmentlog.store.write import retention_service

from .soak_worker import CONFIG, Report, SoakProcess, Warnings, Writing, goes_on, ready, run
from .streams import Stream
from .telling import COLUMNS, check

SEGMENTS_KEPT = 6
EVERY_MS = 50
SETTINGS = RetentionSettings(
    log_bytes_max=SEGMENTS_KEPT * CONFIG.segment_bytes,
    start_ms=0,
    interval_ms=EVERY_MS,
    log_pause_ms=0,
    queue_pause_ms=0,
)
NOTE = "; retention deleted commitlog/"
_LATE_SECONDS = 0.7
_STREAM_LATE_SECONDS = 2.5  # more messages than a store of so few segments keeps
_STREAM_LATE_EVERY = 20


class ExpiringProcess(SoakProcess):
    """One process of this soak: ``writer``, ``reader`` or ``stream``."""

    program = "support.expiring_store"


def write(path: str, rows_per_second: int) -> Report:
    """Append to a store that deletes its oldest segments; return what is left of it in ``kept``.

    ``kept``: by queue, the first offset that has to be there, and its end; calls that a segment divides are left out.
    """
    retention_service.space_of = lambda _: Space(100, 90, 90)  # type: ignore[assignment] # not the real disk
    with MessageStore.open(path, CONFIG, retention=SETTINGS) as store:
        writing = Writing(store, path)
        writing.go_on(rows_per_second)
        assert store.retention is not None
        counts = store.retention.counts
    start = log_start(path)
    kept: dict[str, tuple[int, int]] = {f"{key.topic}/{key.queue_id}": (end, end) for key, end in writing.ends.items()}
    for key, first, physical in writing.placed:
        name = f"{key.topic}/{key.queue_id}"
        if physical >= start:
            kept[name] = min(kept[name][0], first), kept[name][1]
    assert min(physical for _, _, physical in writing.placed) < start, "the calls that are known begin too late"
    deleted = {kind.value: counts.files[kind] for kind in Kind}
    return {"written": dict(writing.written), "kept": kept, "deleted": deleted, "failures": counts.failures}


def log_start(path: str | Path) -> int:
    return min(int(name) for name in os.listdir(Path(path, "commitlog")))


def read(path: str, seed: int) -> Report:
    """Plan, be late now and then, and scan; each missing message has to be before the first offset of its queue."""
    os.nice(5)
    rng, warnings = random.Random(seed), Warnings()
    rows = lost = 0
    errors: Counter[str] = Counter()
    ready()
    while goes_on():
        reader = StoreReader.open(path)
        on_loss = rng.choice(list(OnLoss))
        wanted = [
            QueueRange(bounds.key, *sorted(rng.randint(bounds.min_offset, bounds.max_offset) for _ in range(2)))
            for topic in reader.topics()
            for bounds in reader.queues(topic)
        ]
        found: dict[QueueKey, list[np.ndarray]] = {each.key: [] for each in wanted}
        spec = ScanSpec(columns=COLUMNS, check_crc=True, on_loss=on_loss)
        warnings.said.clear()
        late: SegmentLogError | None = None
        try:
            tasks = reader.plan(wanted, max_bytes=rng.choice([1 << 18, 16 << 20]))
            time.sleep(rng.choice([0.0, 0.0, _LATE_SECONDS]))
            for task in tasks:
                for batch in reader.scan(task, spec):
                    check(batch)
                    rows += batch.num_rows
                    _note(batch, found)
        except (DataLossError, OffsetOutOfRangeError) as error:
            late = error
        if late is not None:
            errors[type(late).__name__] += 1
            _look_at_late(late, on_loss, path, wanted)
            continue
        missed = _missed(path, wanted, found)
        assert on_loss is OnLoss.SKIP or not missed, f"{missed} messages are missing, and nothing was raised"
        assert not missed or any(NOTE in text for text in warnings.said), f"{missed} are missing: {warnings.said}"
        lost += missed
    return {"rows": rows, "lost": lost, "errors": dict(errors)}


def _look_at_late(late: SegmentLogError, on_loss: OnLoss, path: str, wanted: list[QueueRange]) -> None:
    """A reader that is too late is told of the deletion, and messages that it wanted are gone."""
    if isinstance(late, DataLossError):
        assert on_loss is OnLoss.FAIL, late
        assert NOTE in str(late), late
    now = StoreReader.open(path)
    assert any(now.bounds(each.key).min_offset > each.start for each in wanted), late


def _note(batch: pa.RecordBatch, found: dict[QueueKey, list[np.ndarray]]) -> None:
    topics, ids, offsets = (batch.column(name) for name in COLUMNS[:3])
    coded = topics.cast(pa.string()).dictionary_encode()
    numbers, queue_ids, places = coded.indices.to_numpy(), ids.to_numpy(), offsets.to_numpy()
    for number, topic in enumerate(coded.dictionary.to_pylist()):
        for queue_id in np.unique(queue_ids[numbers == number]).tolist():
            chosen = (numbers == number) & (queue_ids == queue_id)
            found[QueueKey(topic, queue_id)].append(places[chosen])


def _missed(path: str, wanted: list[QueueRange], found: dict[QueueKey, list[np.ndarray]]) -> int:
    """Count the messages that were not found; each has to be before the first offset that its queue has now."""
    now, missed = StoreReader.open(path), 0
    for each in wanted:
        offsets = np.concatenate([np.empty(0, np.int64), *found[each.key]])
        assert (np.diff(offsets) > 0).all(), f"{each.key} is not in order"
        assert not offsets.size or (each.start <= offsets[0] and offsets[-1] < each.stop), f"{each} has others"
        absent = np.setdiff1d(np.arange(each.start, each.stop), offsets, assume_unique=True)
        if absent.size:
            assert absent[-1] < now.bounds(each.key).min_offset, f"{each.key} lost offset {absent[-1]}, which is there"
            missed += absent.size
    return missed


def stream(path: str) -> Report:
    os.nice(5)
    rng, warnings = random.Random(5), Warnings()
    query = Stream(path, startingOffsets="earliest", failOnDataLoss="false", subscribePattern=".*")
    begun = StreamOffset.from_json(query.offset).positions()
    nexts = Counter({(key.topic, key.queue_id): begin for (_, key), begin in begun.items()})
    heard: Counter[tuple[str, int]] = Counter()  # warnings before the batch in which a queue last had rows
    rows = missed = batches = 0
    ready()
    while goes_on(_STREAM_LATE_SECONDS if batches % _STREAM_LATE_EVERY == 2 else rng.choice([0.0, 0.0, 0.1])):
        told, lost, read_now = len(warnings.said), Counter[tuple[str, int]](), set()
        for batch in query.batches() or []:
            check(batch)
            rows += batch.num_rows
            columns = (batch.column(name).to_pylist() for name in COLUMNS[:3])
            for topic, queue_id, offset in zip(*columns, strict=True):
                key = topic, queue_id
                after = nexts[key]
                assert offset >= after, f"{topic}/{queue_id}: {offset} again, or too late: {after} was next"
                lost[key] += offset - after
                nexts[key] = offset + 1
                read_now.add(key)
        for key in +lost:  # the warning came with a batch that had no row of the queue, or comes with this one
            said = warnings.said[heard[key] :]
            assert any(NOTE in text for text in said), f"{key}: {lost[key]} are missing: {said}"
        heard |= Counter(dict.fromkeys(read_now, told))
        missed += lost.total()
        batches += 1
    counted = sum(
        topic.get("lost", 0)
        for store in json.loads(query.offset)["stores"].values()
        for topic in store["topics"].values()
    )
    return {"rows": rows, "batches": batches, "missed": missed, "counted as lost": counted}


class HistoryWatch:
    """Collects the history of a store while it is written; old lines leave it."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self.reasons: dict[int, str] = {}

    def look(self) -> None:
        for each in deletions(LocalFileSystem(), self._path):
            if each.log_base is not None:
                self.reasons[each.log_base] = each.reason


if __name__ == "__main__":
    run({"writer": write, "reader": read, "stream": stream}, sys.argv[1], json.loads(sys.argv[2]))
