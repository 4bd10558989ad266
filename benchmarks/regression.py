"""Check for slower reading and writing, by figures that hardly depend on the load of the machine.

::

    rows decoded, or encoded, in a second of CPU
    ────────────────────────────────────────────  =  rows for each GiB that memory copies in the same time
    GiB copied in a second of CPU

All of it happens in this process, in turns; of each the least time of several counts. ``baseline.json`` holds the
figures of an earlier state of the code. What is 25 % below is warned of; nothing fails, for a number is no proof.

    python benchmarks/regression.py            compare
    python benchmarks/regression.py --write    make what is measured now the baseline
"""

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path

import harness
import numpy as np
import pyarrow as pa
import workload
from harness import Case, cpu_seconds, nothing
from store_work import DRAIN_COLUMNS, everything, scanned
from test_support import support

from segmentlog.store import ScanSpec, Snapshot, StoreConfig
from segmentlog.store.encode.batch import encode_batch

BASELINE = Path(__file__).parent / "baseline.json"
TOLERANCE = 0.25
ROUNDS = 9
TRIES = 3
"""Number of measurements before a warning: a busy neighbour passes, slower code does not."""
ROWS, BODY_BYTES = 32_768, 1024
COPY_BYTES, COPIES = 8 << 20, 16
GIB = 1 << 30
WRITTEN = ("topic", "queueId", "body", "tags", "keys", "uniqKey", "properties")


def main() -> None:
    """Measure, print, warn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="make what is measured now the baseline")
    pa.set_cpu_count(1)
    found = measure()
    if parser.parse_args().write:
        BASELINE.write_text(json.dumps(found, indent=2) + "\n")
        return
    baseline: dict[str, float] = json.loads(BASELINE.read_text())
    least = {name: (1 - TOLERANCE) * value for name, value in baseline.items()}
    for _ in range(TRIES - 1):
        if all(found[name] >= least[name] for name in baseline):
            break
        found = {name: max(value, found[name]) for name, value in measure().items()}
    for name, value in found.items():
        print(f"{name}: {value:,.0f}, was {baseline[name]:,.0f}")
        if value < least[name]:
            print(f"warning: {name}: more than {TOLERANCE:.0%} less than it was")


def measure() -> dict[str, float]:
    """Measure all figures: rows for each GiB that memory copies in the same time."""
    source = np.random.default_rng(1).integers(0, 256, COPY_BYTES, np.uint8)
    target = np.empty_like(source)
    _, made = next(workload.batches(rows=ROWS, body_bytes=BODY_BYTES))
    outgoing, config = made.select(WRITTEN), StoreConfig()

    def copy() -> None:
        for _ in range(COPIES):
            np.copyto(target, source)

    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        with support("store_builder").StoreBuilder(store) as builder:
            builder.append(made)
        snapshot = Snapshot.open(store)
        actions = {
            "copy": copy,
            "rows decoded": lambda: scan(snapshot, DRAIN_COLUMNS),
            "rows decoded, with properties": lambda: scan(snapshot, (*DRAIN_COLUMNS, "properties")),
            "rows encoded": lambda: encode_batch(outgoing, config),
        }
        cases = [Case(name=name, action=partial(cpu_seconds, action)) for name, action in actions.items()]
        timed = harness.measure(cases, ROUNDS, ready=nothing, tell=lambda _: None)
        least = {each.name: min(each.seconds) for each in timed}
    copied = COPIES * COPY_BYTES / GIB / least.pop("copy")
    return {f"{name} for each GiB copied": round(ROWS / seconds / copied) for name, seconds in least.items()}


def scan(snapshot: Snapshot, columns: tuple[str, ...]) -> None:
    """Read all rows."""
    spec = ScanSpec(columns=columns)
    tasks = snapshot.plan(everything(snapshot, workload.TOPIC), max_bytes=GIB, spec=spec)
    assert scanned(snapshot, tasks, spec) == ROWS


if __name__ == "__main__":
    main()
