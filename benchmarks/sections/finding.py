"""Look-ups by key with `Finder`: one key at a time, and all keys in one call, beside RocketMQ's ``queryMessage``.

::

    store of 100,000 messages, a key each; index files of a broker's size
      ours      one key, one call         each timed; the median is the p50
                all keys, one call        keys per second, the last of three passes, as theirs
      theirs    all keys, one by one      keys per second; the passes before warm the compiler up.
                                          The records decoded, and their keys compared, as RocketMQ's client does
    store of 1 GiB
      ours      one key, a new process    from the start of the interpreter to its end

One thread each. A hit of ours counts once its record was read and its topic and key compared.
"""

import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from bench import Bench
from harness import OURS, Case, Result, Unit, expect, run_program
from peers import rocketmq
from peers.rocketmq import PASSES
from store_work import BATCH_ROWS, TOPIC, fill, key, messages

from sections.storing import compare
from segmentlog.store import Snapshot
from segmentlog.store.find import Finder, KeyField

KEYS, SINGLES, WARM = 100_000, 100, 10
LARGE, LARGE_BODY_BYTES = 1 << 20, 880  # messages: 1 GiB
ONE_KEY = """
import sys
from segmentlog.store import Snapshot
from segmentlog.store.find import Finder, KeyField

path, topic, key = sys.argv[1:]
assert len(Finder(Snapshot.open(path)).by_keys([topic], [key], KeyField.UNIQUE)) == 1
"""
"""Program of a new process."""


def finds(bench: Bench) -> list[Result]:
    """Measure look-ups in stores that are made for them."""
    small, large = bench.place("keyed"), bench.place("large")
    keys = keyed_store(small, bench.scaled(KEYS, BATCH_ROWS), 100)
    single = one_by_one(small, keys[: WARM + bench.scaled(SINGLES, 50)])
    results = [Result(name=f"{OURS}: look-up of one key", rows=1, seconds=single, unit=Unit.CALLS)]

    def theirs(path: Path) -> float:
        shutil.copytree(small, path)
        return rocketmq.query(path, TOPIC, keys)

    sides = {OURS: lambda _: all_at_once(small, keys), **rocketmq.side(bench, theirs, rocketmq.KEYS_COMPARED)}
    results += compare(bench, "look-ups of all keys", len(keys), sides, Unit.CALLS)

    some = keyed_store(large, bench.scaled(LARGE, BATCH_ROWS), LARGE_BODY_BYTES)

    def look_up() -> None:
        run_program(sys.executable, "-c", ONE_KEY, large, TOPIC, some.pop())

    results += bench.measure(
        [Case(name=f"{OURS}: look-up of one key in a new process", action=look_up, unit=Unit.CALLS)]
    )
    shutil.rmtree(large)
    return results


def keyed_store(path: Path, count: int, body_bytes: int) -> list[str]:
    """Append messages with a unique key each, in whole batches; return the keys, shuffled."""
    numbers = range(0, count, BATCH_ROWS)
    fill(path, (messages(first, body_bytes, BATCH_ROWS, 4) for first in numbers))
    return [key(row) for row in np.random.default_rng(5).permutation(len(numbers) * BATCH_ROWS).tolist()]


def all_at_once(path: Path, keys: list[str]) -> float:
    """Seconds of the last of a few calls for all keys."""
    finder, column, took = Finder(Snapshot.open(path)), pa.array(keys), 0.0
    for _ in range(PASSES):
        started = time.perf_counter()
        found = finder.by_keys([TOPIC], column, KeyField.UNIQUE)
        took = time.perf_counter() - started
        expect(len(found), len(keys))
    return took


def one_by_one(path: Path, keys: list[str]) -> list[float]:
    """Seconds of each look-up of one key, in a process that has looked some up."""
    finder, seconds = Finder(Snapshot.open(path)), []
    for asked in keys:
        started = time.perf_counter()
        found = finder.by_keys([TOPIC], [asked], KeyField.UNIQUE)
        seconds.append(time.perf_counter() - started)
        expect(len(found), 1)
    return seconds[WARM:]
