"""Planning and scanning one log by queues in files, by queues in RocksDB, and by the log alone.

::

    store     commitlog ══════ files, RocksDB and derived share the segments by hard links
              consumequeue     files             a database, with the same entries             nothing
    cache                                        empty | kept by an earlier plan                 empty | kept
"""

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from harness import Case, Found
from store_work import BATCH_ROWS, DRAIN_COLUMNS, TASK_BYTES, TOPIC, batches

from segmentlog.store import Flush, QueueRange, ScanSpec, StoreReader
from segmentlog.store.format.rocksdb_queues import CHECKPOINT, OFFSET_FAMILY, entry_key, max_key

if TYPE_CHECKING:
    from bench import Bench

ROWS = 800_000
QUEUES = 8
MESSAGE_BYTES = 1024
WRITTEN_AT_ONCE = 1 << 16
FILES, DATABASE, LOG = "files", "RocksDB", "the log alone"


def plans_and_scans(bench: "Bench") -> Found:
    """Plan and scan all messages of the same log by each kind of queues."""
    count = max(BATCH_ROWS, bench.scaled(ROWS) // BATCH_ROWS * BATCH_ROWS)
    folder = bench.place("queue-kinds")
    folder.mkdir()
    stores = {kind: folder / kind.replace(" ", "-") for kind in (FILES, DATABASE, LOG)}
    batches(stores[FILES], size=MESSAGE_BYTES, count=count, rows=BATCH_ROWS, flush=Flush.ASYNC, queues=QUEUES)
    for kind in (DATABASE, LOG):
        shutil.copytree(stores[FILES], stores[kind], copy_function=_link)
        shutil.rmtree(stores[kind] / "consumequeue")
    kinds = [FILES, LOG]
    try:
        _write_database(stores[FILES], stores[DATABASE] / "consumequeue")
        kinds.append(DATABASE)
    except ModuleNotFoundError:
        bench.skipped["queues in RocksDB"] = "the package rocksdict is not installed"
    cases = []
    for kind in kinds:
        first = folder / f"first-{kind}"
        case = partial(_case, stores[kind], count)
        cases.append(case(f"by {kind}", first, before=partial(shutil.rmtree, first, ignore_errors=True)))
        if kind != FILES:
            cases.append(case(f"by {kind}, kept", folder / f"kept-{kind}"))
    results = bench.measure(cases)
    shutil.rmtree(folder)
    return Found(results=results)


def _case(store: Path, count: int, name: str, cache: Path, **more: object) -> Case:
    action = partial(_plan_and_scan, store, cache, count)
    return Case(name=f"segmentlog: plan and scan {name}", peer="segmentlog", rows=count, action=action, **more)


def _plan_and_scan(store: Path, cache: Path, count: int) -> None:
    """Read all messages in this thread."""
    pa.set_cpu_count(1)
    reader = StoreReader.open(store, queue_cache=cache)
    spec = ScanSpec(columns=DRAIN_COLUMNS)
    ranges = [QueueRange(held.key, held.min_offset, held.max_offset) for held in reader.queues(TOPIC)]
    tasks = reader.plan(ranges, max_bytes=TASK_BYTES, spec=spec)
    rows = sum(len(batch) for task in tasks for batch in reader.scan(task, spec))
    assert rows >= count, (rows, count)


def _link(source: str, target: str) -> None:
    """Share segments; a plan writes to no store."""
    if "commitlog" in Path(source).parts:
        Path(target).hardlink_to(source)
    else:
        shutil.copy2(source, target)


def _write_database(store: Path, directory: Path) -> None:
    """Write the entries of a store's queues as a broker with ``storeType=defaultRocksDB`` does."""
    import rocksdict  # noqa: PLC0415 - an extra

    reader = StoreReader.open(store)
    options = rocksdict.Options(raw_mode=True)
    database = rocksdict.Rdict(str(directory), options)
    bounds = database.create_column_family(OFFSET_FAMILY, options)
    end = 0
    for held in reader.queues(TOPIC):
        for start in range(held.min_offset, held.max_offset, WRITTEN_AT_ONCE):
            entries = reader.queue(held.key).entries(start, min(start + WRITTEN_AT_ONCE, held.max_offset))
            batch = rocksdict.WriteBatch(raw_mode=True)
            for row, (physical, size, code) in enumerate(entries[["physical_offset", "size", "tags_code"]].tolist()):
                value = b"".join(
                    number.to_bytes(width, "big", signed=True)
                    for number, width in ((physical, 8), (size, 4), (code, 8), (0, 8))
                )
                batch.put(entry_key(held.key, start + row), value)
                end = max(end, physical + size)
            database.write(batch)
        bounds[max_key(held.key)] = physical.to_bytes(8, "big") + (held.max_offset - 1).to_bytes(8, "big")
    bounds[max_key(CHECKPOINT)] = end.to_bytes(8, "big")
    bounds.flush()
    database.flush()
    bounds.close()
    database.close()
