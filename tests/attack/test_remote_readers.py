"""Readers of object storage under faults and kills: the rows of an undisturbed reader, or an error; never other rows.

::

    server    archive/…   copy/…                              of one store
    run       scan, find, stream  ×  archive, copy  ×  cache, none  ×  fault at request n, once or from then on
    check     rows are equal, or the error has a code ──► the same reader undisturbed, from the cache: rows are equal
"""

import itertools
import json
import random
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import segmentlog
from segmentlog.store import MessageStore, SegmentLogError, StoreConfig
from segmentlog.store.archive.push import push
from segmentlog.store.objects.opening import open_objects
from support.fault_server import Fault, FaultServer, serving
from support.scale import Report, scale
from support.streams import Stream

pytestmark = [pytest.mark.attack, pytest.mark.scaled, pytest.mark.timeout(scale(600, 1800, 36_000))]
RUNS, KILLS = scale(6, 50, 400), scale(2, 10, 100)
ROWS = 240
RETRIES = {"max_retries": "2", "retry_timeout": "5s"}
COLUMNS = ["topic", "queueId", "queueOffset", "keys", "body"]
FROM_THEN_ON = 1 << 30
Rows = list[tuple[Any, ...]]
FAULTS: dict[str, Callable[[int], Fault]] = {
    "throttled": lambda times: Fault(status=503, code="SlowDown", times=times),
    "broken server": lambda times: Fault(status=500, code="InternalError", times=times),
    "reset": lambda times: Fault(reset_after=100, times=times),
    "lost answer": lambda times: Fault(is_lost=True, times=times),
    "short body": lambda times: Fault(short=100, times=times),
    "slow": lambda times: Fault(stall_after=100, stall_s=0.5, times=times),
    "another etag": lambda times: Fault(etag='"another"', times=times),
    "missing": lambda times: Fault(status=404, code="NoSuchKey", times=times),
    "expired": lambda times: Fault(status=400, code="ExpiredToken", times=times),
    "page of an error": lambda times: Fault(body=b"<Error><Code>InternalError</Code></Error>", times=times),
    "page of a proxy": lambda times: Fault(body=b"<html><body><p>Sign in<br></body></html>", times=times),
    "page without a token": lambda times: Fault(is_tokenless=True, times=times),
}


class Place(NamedTuple):
    """A server with an archive of a store, and a plain copy of it."""

    server: FaultServer
    path: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    path = tmp_path_factory.mktemp("remote") / "store"
    config = StoreConfig(segment_bytes=1 << 20, queue_segment_entries=50, index_slots=20, index_entries=100)
    with MessageStore.open(path, config) as store:
        columns = {
            "topic": ["orders", "refunds", "orders"] * (ROWS // 3),
            "queueId": pa.array(np.arange(ROWS) % 2, pa.int32()),
            "body": [np.random.default_rng(row).bytes(12_000) for row in range(ROWS)],
            "keys": [f"k{row}" for row in range(ROWS)],
        }
        store.append_batch(pa.RecordBatch.from_pydict(columns))
    with serving() as server:
        server.page = 7  # so that lists of a small store have several
        push(path, open_objects("s3://b/archive", server.options()))
        for each in path.rglob("*"):
            if each.is_file():
                server.store(f"b/copy/{each.relative_to(path).as_posix()}", each.read_bytes())
        yield Place(server, path)


def scan(url: str, storage: dict[str, str], cache: str) -> Rows:
    with segmentlog.open(url, storage=storage, cache_dir=cache) as store:
        return told(store.scan(["orders", "refunds"], columns=COLUMNS).to_arrow())


def find(url: str, storage: dict[str, str], cache: str) -> Rows:
    with segmentlog.open(url, storage=storage, cache_dir=cache) as store:
        return told(store.find("orders", keys=["k3", "k120", "k239", "none"], columns=COLUMNS).to_arrow())


def stream(url: str, storage: dict[str, str], cache: str) -> Rows:
    options = {f"storage.{name}": value for name, value in storage.items()}
    step = Stream(url, subscribe="orders,refunds", startingOffsets="earliest", cacheDir=cache, **options)
    return told(pa.Table.from_batches(step.batches() or []).select(COLUMNS))


def told(table: pa.Table) -> Rows:
    rows = (tuple(row[name] for name in COLUMNS) for row in table.to_pylist())
    return sorted((*row[:3], str(row[3]), zlib.crc32(row[4])) for row in rows)


DOORS = (scan, find, stream)


@pytest.fixture(scope="module")
def expected(place: Place) -> dict[tuple[Any, str], Rows]:
    options = place.server.options()
    found = {(door, at): door(f"s3://b/{at}", options, "none") for door in DOORS for at in ("archive", "copy")}
    assert len(found[scan, "archive"]) == len(found[stream, "copy"]) == ROWS
    assert all(found[door, "archive"] == found[door, "copy"] for door in DOORS)
    return found


def test_a_fault_at_any_request_of_a_reader_is_an_error_or_nothing(
    place: Place, expected: dict[tuple[Any, str], Rows], tmp_path: Path, report: Report
) -> None:
    counted: Counter[str] = Counter()
    for seed in range(RUNS):
        draw = random.Random(seed)
        door, at = DOORS[seed % 3], draw.choice(["archive", "copy"])
        name = [*FAULTS, "replaced"][seed % (len(FAULTS) + 1)]
        if name == "replaced":
            at = "copy"  # objects of an archive have names that state their content
        cache = str(tmp_path / f"cache-{seed // 7}") if draw.random() < 0.7 else "none"
        times = draw.choice([1, 2, FROM_THEN_ON])
        options = place.server.options(**RETRIES) | ({"read_timeout": "0.2s"} if name == "slow" else {})
        with faulty(place.server, name, draw.randrange(12), times) as fired:
            try:
                rows = door(f"s3://b/{at}", options, cache)
            except SegmentLogError:
                if not fired:
                    raise
                counted["errors"] += 1
            else:
                assert rows == expected[door, at], f"seed {seed}: {door.__name__} of {at}, {name}"
                counted["equal after a fault" if fired else "equal, no fault came"] += 1
        again = door(f"s3://b/{at}", place.server.options(), cache)
        assert again == expected[door, at], f"seed {seed}: after {name}, from the cache"
    report("readers of object storage under faults", dict(counted))


@contextmanager
def faulty(server: FaultServer, name: str, at: int, times: int) -> Iterator[list[str]]:
    """Plant faults at request ``at`` and those after it; yield the keys that had one.

    With ``replaced`` an object has other bytes until the end.
    """
    fired: list[str] = []
    numbers, objects = itertools.count(), dict(server.objects)

    def fault_of(method: str, key: str) -> Fault | None:
        with server.lock:
            if not at <= next(numbers) < at + times:
                return None
            if name != "replaced":
                fired.append(key)
                return FAULTS[name](1)
            data = server.objects.get(f"b/{key}", (b"",))[0]
            if method == "GET" and data and not fired:
                server.store(f"b/{key}", bytes(len(data)))
                fired.append(key)
            return None

    try:
        with asking(server, fault_of):
            yield fired
    finally:
        server.objects.update(objects)


@contextmanager
def asking(server: FaultServer, fault_of: Callable[[str, str], Fault | None]) -> Iterator[None]:
    """Let the server ask for the fault of each request here."""
    server.fault_of = fault_of  # type: ignore[method-assign]
    try:
        yield
    finally:
        del server.fault_of  # type: ignore[misc] - the method of the class again


@contextmanager
def reached(server: FaultServer, count: int) -> Iterator[threading.Event]:
    """Yield an event that is set by request number ``count``."""
    event, numbers = threading.Event(), itertools.count(1)

    def counted(_method: str, _key: str) -> Fault | None:
        if next(numbers) == count:
            event.set()
        return None

    with asking(server, counted):
        yield event


_READER = """
import json, sys
import segmentlog
with segmentlog.open(sys.argv[1], storage=json.loads(sys.argv[2]), cache_dir=sys.argv[3]) as store:
    store.scan(["orders", "refunds"]).to_arrow()
"""


def test_a_reader_finds_whole_blocks_in_a_cache_that_killed_readers_filled(
    place: Place, expected: dict[tuple[Any, str], Rows], tmp_path: Path, report: Report
) -> None:
    killed = 0
    for seed in range(KILLS):
        draw = random.Random(seed)
        at, cache = draw.choice(["archive", "copy"]), str(tmp_path / f"cache-{seed // 3}")
        arguments = [f"s3://b/{at}", json.dumps(place.server.options()), cache]
        with reached(place.server, draw.randrange(3, 14)) as event:
            reader = subprocess.Popen([sys.executable, "-c", _READER, *arguments])
            threading.Thread(target=lambda reader=reader, event=event: (reader.wait(), event.set())).start()
            event.wait()
            time.sleep(draw.uniform(0, 0.01))  # until some of its blocks are written
            reader.kill()
            killed += reader.wait() < 0
        assert scan(f"s3://b/{at}", place.server.options(), cache) == expected[scan, at], f"seed {seed}"
    report("readers that were killed while they filled a cache", f"{killed} of {KILLS}")
