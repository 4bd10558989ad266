"""S14: one writes and deletes expired files, four read; every row is right, or its loss is said.

::

    writer ──► store ◄── its retention, every 50 ms: the first segments, and older files
                 ▲
      4 readers ─┘                                each row tells by its place what it should be (`support.telling`)

A message is lost only if its segment is in the history.
"""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from segmentlog.store import QueueKey, QueueRange, ScanSpec, Snapshot
from segmentlog.store.maintenance import verify
from support.scale import Report, scale
from support.soak_worker import CONFIG, Counted, HistoryWatch, SoakProcess, log_start
from support.telling import COLUMNS, check

pytestmark = [pytest.mark.attack, pytest.mark.scaled(quick=0)]

SECONDS = scale(2, 15, 3600)
SETTLED_S = 5
ROWS_PER_SECOND = 8000
ROWS_READ_MIN = 34_000 * SECONDS  # a million in thirty seconds
READERS = 4
MEMORY_KIB_MAX = 512 << 10
GROWTH_KIB_MAX = 192 << 10
MAPS_MAX = 17


def let_run(processes: list[SoakProcess], history: HistoryWatch) -> None:
    """Wait for the seconds of the soak; raise what ended too early."""
    over = time.monotonic() + SECONDS
    while time.monotonic() < over:
        for process in processes:
            if not process.runs:
                process.end()  # says why
                raise AssertionError(f"the {process.role} ended by itself")
        history.look()
        time.sleep(0.1)


def look_at_readers(counted: list[Counted]) -> None:
    for each in counted:
        assert each["memory"] < MEMORY_KIB_MAX, each
        assert each["memory"] < each["settled"]["memory"] + GROWTH_KIB_MAX, each
        assert each["maps"] <= MAPS_MAX, each
        assert each["descriptors"] <= each["settled"]["descriptors"] + MAPS_MAX, each


def judge(store: Path, written: Counted, history: HistoryWatch) -> int:
    """Compare a store with what was written to it and what its history has; return the number of messages left.

    Queues and log agree, so a message is missing only if its segment is; and each missing segment is in the history.
    """
    start = log_start(store)
    assert set(history.reasons) == set(range(0, start, CONFIG.segment_bytes)), "other segments are gone"
    assert set(history.reasons.values()) == {"above log_bytes_max"}
    assert len(history.reasons) == written["deleted"]["commitlog"]
    assert written["failures"] == 0
    assert verify(store).findings == ()
    snapshot = Snapshot.open(store)
    spec = ScanSpec(columns=(*COLUMNS, "physicalOffset"), check_crc=True)
    left = 0
    for name, (kept_from, end) in written["kept"].items():
        topic, _, queue_id = name.rpartition("/")
        bounds = snapshot.bounds(QueueKey(topic, int(queue_id)))
        assert bounds.min_offset <= kept_from, f"{name} begins at {bounds.min_offset}, {kept_from} is in the log"
        assert bounds.max_offset == end
        tasks = snapshot.plan([QueueRange(bounds.key, bounds.min_offset, end)], max_bytes=16 << 20)
        batches = [batch for task in tasks for batch in snapshot.scan(task, spec)]
        offsets: list[int] = []
        for batch in batches:
            check(batch)
            offsets += batch.column("queueOffset").to_pylist()
            assert min(batch.column("physicalOffset").to_pylist()) >= start
        assert offsets == list(range(bounds.min_offset, end)), name
        left += len(offsets)
    return left


@pytest.mark.timeout(SECONDS + 600)
def test_a_store_deletes_its_own_files_under_readers(tmp_path: Path, report: Report) -> None:
    store = tmp_path / "store"
    asked = {"path": str(store), "rows_min": ROWS_READ_MIN // READERS, "settle_s": SETTLED_S}
    history = HistoryWatch(store)
    with ExitStack() as running:
        writer = running.enter_context(SoakProcess("writer", path=str(store), rows_per_second=ROWS_PER_SECOND))
        readers = [running.enter_context(SoakProcess("reader", seed=seed, **asked)) for seed in range(READERS)]
        let_run([writer, *readers], history)
        read = [reader.end() for reader in readers]
        written = writer.end()
    history.look()
    left = judge(store, written, history)
    report("soak: written", {name: found for name, found in written.items() if name != "kept"})
    report("soak: left", {"messages": left, "deleted segments": len(history.reasons)})
    for each in read:
        report("soak: read", each)
    look_at_readers(read)
    assert sum(each["rows"] for each in read) >= ROWS_READ_MIN
    assert len(history.reasons) > SECONDS
    assert any(each["errors"] or each["skipped"] for each in read), "no reader was late"
