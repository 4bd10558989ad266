"""Jobs on a store: verify and rebuild.

Stores are as a broker writes them by default: with an index, and without ``__CRC32#``; one case has it. A verification
also compares queues and index.
"""

import os
import shutil
from functools import partial
from pathlib import Path

from bench import Bench, clear
from harness import OURS, Case, Result, Unit, expect
from store_work import BATCH_ROWS, everything, fill, made

from segmentlog.jobs.spread import spread
from segmentlog.store import Flush, Snapshot, StoreConfig
from segmentlog.store.maintenance import rebuild_queues, verify

LARGE, SMALL = 1024, 100  # bytes of a body
MESSAGES = {LARGE: 1_500_000, SMALL: 8_000_000}
QUEUES = 8


def maintenance(bench: Bench) -> list[Result]:
    """Verify and rebuild stores that are made for it."""
    folder = bench.place("jobs")
    folder.mkdir()

    def store(name: str, size: int, *, record_crc: bool = False) -> Path:
        batches = made(size, bench.scaled(MESSAGES[size], BATCH_ROWS), BATCH_ROWS, QUEUES)
        fill(folder / name, batches, StoreConfig(flush=Flush.ASYNC, record_crc=record_crc))
        return folder / name

    large, small, sealed = store("large", LARGE), store("small", SMALL), store("sealed", LARGE, record_crc=True)
    target = folder / "rebuilt"
    results = bench.measure(
        [
            _verify("verify, one process", large, 1),
            _verify("verify, two processes", large, 2),
            _verify("verify, one process, __CRC32#", sealed, 1),
            _rebuild(f"rebuild, {LARGE} B", large, target),
            _rebuild(f"rebuild, {SMALL} B", small, target),
        ]
    )
    shutil.rmtree(folder)
    return results


def _verify(name: str, store: Path, processes: int) -> Case:
    def verify_all() -> None:
        assert verify(store, spread=partial(spread, processes=processes)).is_sound

    size = Snapshot.open(store).log.data_stop()
    return Case(name=f"{OURS}: {name}", rows=size, action=verify_all, unit=Unit.BYTES)


def _rebuild(name: str, store: Path, target: Path) -> Case:
    held = sum(map(len, everything(Snapshot.open(store))))

    def before() -> None:
        clear(target)
        os.sync()

    def rebuild_all() -> None:
        expect(rebuild_queues(store, target, spread=partial(spread, processes=2)).entries, held)

    return Case(name=f"{OURS}: {name}", rows=held, action=rebuild_all, before=before)
