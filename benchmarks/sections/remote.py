"""An archive in S3 on loopback, beside its limits in one run: raw gets of the same bytes, and the local store.

::

    store ── push ──► versitygw, one process, on this machine's disk
    limit   the library's ranged gets of all bytes of the log, 16 MiB each, 8 in flight, as a scan has them:
            dropped at once, so that their memory is used again; and kept until the next one has come, as by any reader
    scan    every body, without a cache; two tasks at a time, as on two cores of Spark, here and below
    window  1 % of the store times: plan; bytes are counted at the object store
    cache   a second scan, from cached blocks      beside   the same scan of the directory

The client, the server and the decoder share the cores. So CPU time of this process is a figure beside each rate.
"""

import shutil
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import obstore
from bench import Bench
from harness import OURS, Case, Result, UnavailableError, Unit, cpu_seconds, expect
from machine import peak_memory, this_process
from remote_planning import Counting
from store_work import TASK_BYTES, TOPIC, everything, made
from test_support import support

from segmentlog.api.scan import read_in_order
from segmentlog.store import Boundary, Flush, MessageStore, QueueRange, ScanSpec, ScanTask, Snapshot, StoreConfig
from segmentlog.store.archive.push import push
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.objects.access import NO_CACHE, RemoteAccess
from segmentlog.store.objects.object_store import ObjectStore
from segmentlog.store.objects.opening import open_objects

MINUTE_ROWS = 1024
MINUTES, BODY_BYTES, QUEUES = 512, 1024, 8
SEGMENT_BYTES, REQUEST_BYTES, IN_FLIGHT = 256 << 20, 16 << 20, 8
THREADS = 2
START_MS, MINUTE_MS = 1_767_225_600_000, 60_000
TASK_MEMORY = "private memory of a task of an archive, bytes"
WINDOW_BYTES = "bytes that a 1 % time window of an archive reads, ppm of the log"
SPEC = ScanSpec(columns=("topic", "queueId", "queueOffset", "body"))


class Archive(NamedTuple):
    """A store of one batch per minute, and where it was pushed."""

    path: Path
    url: str
    options: dict[str, str]
    minutes: int

    def objects(self) -> ObjectStore:
        """Open the object store."""
        return open_objects(self.url, self.options)

    def snapshot(self, cache: Path | None = None) -> Snapshot:
        """Open the archive."""
        access = RemoteAccess.of(self.options, NO_CACHE if cache is None else str(cache))
        return Snapshot.open(self.url, access=access)

    def scan(self, opened: Callable[[], Snapshot]) -> None:
        """Read every body, two tasks at a time."""
        batches = read_in_order(opened, planned(opened()), SPEC, THREADS)
        expect(sum(batch.num_rows for batch in batches), self.minutes * MINUTE_ROWS)

    def plan_window(self, snapshot: Snapshot) -> list[ScanTask]:
        """Plan the 1 % of the store times in the middle."""
        start = START_MS + self.minutes // 2 * MINUTE_MS
        stop = start + self.minutes // 100 * MINUTE_MS
        ranges = [
            QueueRange(each.key, *(snapshot.offset_at(each.key, time_ms, Boundary.LOWER) for time_ms in (start, stop)))
            for each in snapshot.queues(TOPIC)
        ]
        return snapshot.plan(ranges, max_bytes=TASK_BYTES, spec=SPEC)

    def raw(self, *, keep: bool) -> None:
        """Get all bytes of the log with the library alone; each thread keeps an answer until the next has come."""
        objects: Any = self.objects()
        client, base = objects._client, objects._base  # noqa: SLF001 - the same connection, without our code
        pieces = [(each, start) for each in objects.list("log/") for start in range(0, each.size, REQUEST_BYTES)]
        kept: dict[int, object] = {}

        def get(each: Any, start: int) -> None:
            stop = min(start + REQUEST_BYTES, each.size)
            answer = obstore.get_range(client, base + each.key, start=start, end=stop)
            if keep:
                kept[threading.get_ident()] = answer

        with ThreadPoolExecutor(IN_FLIGHT) as threads:
            list(threads.map(get, *zip(*pieces, strict=True)))


def planned(snapshot: Snapshot) -> list[ScanTask]:
    """Plan everything."""
    return snapshot.plan(everything(snapshot), max_bytes=TASK_BYTES, spec=SPEC)


def archives(bench: Bench) -> list[Result]:
    """Measure reads of one archive; `UnavailableError` without versitygw."""
    servers = support("s3_servers")
    if servers.versitygw_program() is None:
        raise UnavailableError("versitygw is not installed")
    path, minutes = bench.place("archived"), bench.scaled(MINUTES, 100)
    _write(path, minutes)
    with servers.versitygw(bench.place("server")) as s3:
        archive = Archive(path, s3.url(), s3.options, minutes)
        push(path, archive.objects())
        results = _measured(bench, archive)
    shutil.rmtree(path)
    return results


def _write(path: Path, minutes: int) -> None:
    now = START_MS
    config = StoreConfig(flush=Flush.ASYNC, segment_bytes=SEGMENT_BYTES)
    with MessageStore.open(path, config, clock=lambda: now) as store:
        for batch in made(BODY_BYTES, minutes * MINUTE_ROWS, MINUTE_ROWS, QUEUES):
            store.append_batch(batch)
            now += MINUTE_MS
        store.wait_dispatched()


def _measured(bench: Bench, archive: Archive) -> list[Result]:
    cpu: dict[str, list[float]] = defaultdict(list)
    size = Snapshot.open(archive.path).log.data_stop()
    cache = bench.place("cache")

    def case(name: str, action: Callable[[], object], unit: Unit = Unit.BYTES) -> Case:
        def timed() -> None:
            cpu[name].append(cpu_seconds(action))

        return Case(name=name, rows=size if unit == Unit.BYTES else 1, action=timed, unit=unit)

    snapshot = archive.snapshot()
    with peak_memory(this_process) as peak:
        list(read_in_order(archive.snapshot, planned(snapshot)[:1], SPEC, THREADS))
    bench.figures |= {TASK_MEMORY: peak[0], WINDOW_BYTES: 1e6 * _bytes_of_window(archive) / size}
    results = bench.measure(
        [
            case("limit: ranged gets, dropped at once", lambda: archive.raw(keep=False)),
            case("limit: ranged gets, kept until the next", lambda: archive.raw(keep=True)),
            case(f"{OURS}: scan of an archive", lambda: archive.scan(archive.snapshot)),
        ]
    )
    plan = f"{OURS}: plan a 1 % time window of an archive"
    results += bench.measure([case(plan, lambda: archive.plan_window(archive.snapshot()), Unit.CALLS)])
    cached = f"{OURS}: scan of an archive from the cache"
    results += bench.measure(
        [
            case(cached, lambda: archive.scan(lambda: archive.snapshot(cache))),  # its warm-up fills the cache
            case("limit: scan of the directory", lambda: archive.scan(lambda: Snapshot.open(archive.path))),
        ]
    )
    bench.figures |= {f"{name}, ms of CPU": 1000 * median(took[1:]) for name, took in cpu.items()}  # not of the warm-up
    return results


def _bytes_of_window(archive: Archive) -> int:
    """Return the bytes that a plan and its scan get from the object store, the manifest among them."""
    objects = Counting(archive.objects())
    snapshot = Snapshot.open(StoreLocation.on_objects(objects))
    rows = sum(batch.num_rows for task in archive.plan_window(snapshot) for batch in snapshot.scan(task, SPEC))
    expect(rows, archive.minutes // 100 * MINUTE_ROWS)
    return objects.bytes_read
