"""Look-ups by key with `Finder`: one key at a time, and all keys in one call, beside RocketMQ's ``queryMessage``.

::

    store of 100,000 messages, a key each; index files of a broker's size
      ours      one key, one call         each timed; the median is the p50
                all keys, one call        keys per second
      theirs    all keys, one by one      keys per second, after a pass that warms the compiler up

One thread each. A hit counts once its record was read and its topic and key compared. RocketMQ compares hashes alone.
"""

import shutil
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from harness import Case, Found, Timed, Unit, nothing, result_of
from peers.rocketmq import RocketMQ
from store_work import BATCH_ROWS, TOPIC

from sections.storing import OURS, Side, Storing
from segmentlog.store import Flush, MessageStore, StoreConfig, StoreReader
from segmentlog.store.find import Finder, KeyField

if TYPE_CHECKING:
    from bench import Bench

KEYS, SINGLES = 100_000, 100
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

    def theirs(peer: RocketMQ, path: Path) -> Timed:
        shutil.copytree(source, path)
        return peer.query(path, TOPIC, asked)

    sides: dict[str, Side] = {OURS: ours, **{peer.name: partial(theirs, peer) for peer in storing.peers}}
    results += storing.compare(IN_BULK, len(asked), sides, unit=Unit.CALLS)
    shutil.rmtree(source, ignore_errors=True)
    return Found(results=results)


def keyed_store(path: Path, count: int) -> list[str]:
    """Append messages of 100 bytes with a unique key each; return the keys."""
    keys: list[str] = []
    with MessageStore.open(path, StoreConfig(flush=Flush.ASYNC)) as store:
        for first in range(0, count, BATCH_ROWS):
            some = [f"7F0000012A9F18B4AAC2M0{1_000_000_000 + first + row}" for row in range(BATCH_ROWS)]
            columns = {
                "topic": pa.array([TOPIC] * BATCH_ROWS),
                "queueId": pa.array(np.arange(BATCH_ROWS) % 4, pa.int32()),
                "body": pa.array([bytes(100)] * BATCH_ROWS, pa.binary()),
                "uniqKey": pa.array(some),
            }
            store.append_batch(pa.RecordBatch.from_pydict(columns))
            keys += some
        store.wait_dispatched()
    return keys


def all_at_once(path: Path, keys: list[str]) -> float:
    """Seconds of one call for all keys, in a process that has looked one up."""
    finder = Finder(StoreReader.open(path))
    finder.by_keys([TOPIC], keys[:1], KeyField.UNIQUE)
    started = time.perf_counter()
    found = finder.by_keys([TOPIC], keys, KeyField.UNIQUE)
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
