"""Look-ups by key with `Finder`: one key at a time, and all keys in one call, beside RocketMQ's ``queryMessage``.

::

    store of 100,000 messages, a key each; index files of a broker's size
      ours      one key, one call         each timed; the median is the p50
                all keys, one call        keys per second, the last of three passes, as theirs
      theirs    all keys, one by one      keys per second; the passes before warm the compiler up
                    hashes compared       what ``queryMessage`` returns
                    keys compared         the records decoded, and their keys compared, as RocketMQ's client does
    store of 1 GiB, with --full of 10
      ours      one key, a new process    from the start of the interpreter to its end

One thread each. A hit of ours counts once its record was read and its topic and key compared.
"""

import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from harness import Case, Found, Result, Timed, Unit, environment, nothing, result_of
from peers.rocketmq import PASSES, RocketMQ
from store_work import BATCH_ROWS, TOPIC

from sections.storing import OURS, Side, Storing
from segmentlog.store import Flush, MessageStore, StoreConfig, StoreReader
from segmentlog.store.find import Finder, KeyField

if TYPE_CHECKING:
    from bench import Bench

KEYS, SINGLES = 100_000, 100
FULL_GIB, LARGE_BODY_BYTES = 10, 880
KEYS_COMPARED, ONE_PROCESS = ", keys compared", "look-up of one key in a new process"
ONE_KEY = """
import sys
from segmentlog.store import StoreReader
from segmentlog.store.find import Finder, KeyField

path, topic, key = sys.argv[1:]
assert len(Finder(StoreReader.open(path)).by_keys([topic], [key], KeyField.UNIQUE)) == 1
"""
"""Program of a new process."""
IN_BULK, SINGLE = "look-ups of all keys", "look-up of one key"


def finds(bench: "Bench") -> Found:
    """Measure look-ups in a store that is made for them."""
    storing, source = Storing(bench), bench.place("keyed")
    keys = keyed_store(source, max(BATCH_ROWS, bench.scaled(KEYS)))
    asked = np.random.default_rng(5).permutation(keys).tolist()
    single = Case(name=f"{OURS}: {SINGLE}", peer=OURS, rows=1, action=nothing, unit=Unit.CALLS)
    results = [result_of(single, one_by_one(source, asked[: bench.scaled(SINGLES, 50)]))]

    def ours(_: Path) -> Timed:
        return Timed(all_at_once(source, asked))

    def theirs(peer: RocketMQ, path: Path, *, verify: bool = False) -> Timed:
        shutil.copytree(source, path)
        return peer.query(path, TOPIC, asked, verify=verify)

    sides: dict[str, Side] = {OURS: ours, **{peer.name: partial(theirs, peer) for peer in storing.peers}}
    sides |= {f"{peer.name}{KEYS_COMPARED}": partial(theirs, peer, verify=True) for peer in storing.peers}
    results += storing.compare(IN_BULK, len(asked), sides, unit=Unit.CALLS)
    shutil.rmtree(source, ignore_errors=True)
    return Found(results=[*results, *in_new_processes(bench)])


def in_new_processes(bench: "Bench") -> list[Result]:
    """Measure a process that looks one key up in a large store, from its start to its end."""
    source, size = bench.place("large"), FULL_GIB if bench.full else 1
    keys = keyed_store(source, max(BATCH_ROWS, bench.scaled(size << 20)), LARGE_BODY_BYTES)
    picked = np.random.default_rng(6).permutation(keys).tolist()

    def look_up() -> None:
        command = [sys.executable, "-c", ONE_KEY, str(source), TOPIC, picked.pop()]
        subprocess.run(command, check=True, env=environment())

    case = Case(name=f"{OURS}: {ONE_PROCESS}, {size} GiB", peer=OURS, rows=1, action=look_up, unit=Unit.CALLS)
    results = bench.measure([case])
    shutil.rmtree(source, ignore_errors=True)
    return results


def keyed_store(path: Path, count: int, body_bytes: int = 100) -> list[str]:
    """Append messages with a unique key each; return the keys."""
    keys: list[str] = []
    with MessageStore.open(path, StoreConfig(flush=Flush.ASYNC)) as store:
        for first in range(0, count, BATCH_ROWS):
            some = [f"7F0000012A9F18B4AAC2M0{1_000_000_000 + first + row}" for row in range(BATCH_ROWS)]
            columns = {
                "topic": pa.array([TOPIC] * BATCH_ROWS),
                "queueId": pa.array(np.arange(BATCH_ROWS) % 4, pa.int32()),
                "body": pa.array([bytes(body_bytes)] * BATCH_ROWS, pa.binary()),
                "uniqKey": pa.array(some),
            }
            store.append_batch(pa.RecordBatch.from_pydict(columns))
            keys += some
        store.wait_dispatched()
    return keys


def all_at_once(path: Path, keys: list[str]) -> float:
    """Seconds of the last of a few calls for all keys."""
    finder, column = Finder(StoreReader.open(path)), pa.array(keys)
    took = 0.0
    for _ in range(PASSES):
        started = time.perf_counter()
        found = finder.by_keys([TOPIC], column, KeyField.UNIQUE)
        took = time.perf_counter() - started
        assert len(found) == len(keys), f"{len(found)} of {len(keys)} keys were found"
    return took


def one_by_one(path: Path, keys: list[str]) -> list[float]:
    """Seconds of each look-up of one key, in a process that has looked some up."""
    finder = Finder(StoreReader.open(path))
    for key in keys[:10]:
        finder.by_keys([TOPIC], [key], KeyField.UNIQUE)
    seconds = []
    for key in keys:
        started = time.perf_counter()
        found = finder.by_keys([TOPIC], [key], KeyField.UNIQUE)
        seconds.append(time.perf_counter() - started)
        assert len(found) == 1, key
    return seconds
