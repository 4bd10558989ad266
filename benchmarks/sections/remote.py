"""An archive in S3 on loopback, beside its limits in one run: raw gets of the same bytes, and the local store.

::

    store ── push ──► versitygw, one process, on this machine's disk
    limit   the library's ranged gets of all bytes of the log, 16 MiB each, 8 in flight, as a scan has them:
            dropped at once, so that their memory is used again; and kept until the next one has come, as by any reader
    scan    every body, without a cache; two tasks at a time, as on two cores of Spark, here and below
    window  1 % of the store times: plan, then scan; bytes are counted at the object store
    cache   a second scan, from cached blocks      beside   the same scan of the directory

The client, the server and the decoder share the cores. So CPU time of this process is a figure beside each rate.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import obstore
from harness import Case, Found, Result, UnavailableError, Unit, expect_rows
from memory import peak_memory, this_process
from store_work import TOPIC, made
from test_support import support

from segmentlog.api.scan import read_in_order
from segmentlog.store import Boundary, Flush, MessageStore, QueueRange, ScanSpec, ScanTask, StoreConfig, StoreReader
from segmentlog.store.archive.push import push
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.objects.access import NO_CACHE, RemoteAccess
from segmentlog.store.objects.opening import open_objects

if TYPE_CHECKING:
    from bench import Bench

    from segmentlog.store.format.message import Bytes
    from segmentlog.store.objects.object_store import ObjectStore

OURS, LIMIT = "segmentlog", "limit"
MINUTE_ROWS = 1024
MESSAGES, BODY_BYTES, QUEUES = 512 * MINUTE_ROWS, 1024, 8
SEGMENT_BYTES, REQUEST_BYTES, IN_FLIGHT = 256 << 20, 16 << 20, 8
THREADS = 2
TASK_BYTES = 128 << 20
START_MS, STEP_MS = 1_767_225_600_000, 60_000
SCAN, RAW, KEPT, WINDOW, PLAN, AGAIN, LOCAL = (
    f"{OURS}: scan of an archive",
    f"{LIMIT}: ranged gets, dropped at once",
    f"{LIMIT}: ranged gets, kept until the next",
    f"{OURS}: 1 % time window of an archive",
    f"{OURS}: plan a 1 % time window of an archive",
    f"{OURS}: scan of an archive from the cache",
    f"{LIMIT}: scan of the directory",
)
TASK_MEMORY = "private memory of a task of an archive, bytes"
WINDOW_BYTES = "bytes that a 1 % time window of an archive reads, ppm of the log"
SPEC = ScanSpec(columns=("topic", "queueId", "queueOffset", "body"))


class Archive(NamedTuple):
    """A store, and where it was pushed."""

    path: Path
    url: str
    options: dict[str, str]
    rows: int

    def objects(self) -> "ObjectStore":
        """Open the object store."""
        return open_objects(self.url, self.options)

    def reader(self, cache: Path | None = None) -> StoreReader:
        """Open the archive."""
        access = RemoteAccess.of(self.options, NO_CACHE if cache is None else str(cache))
        return StoreReader.open(self.url, access=access)

    def raw(self, *, keep: bool = False) -> None:
        """Get all bytes of the log with the library alone; each thread keeps an answer until the next has come."""
        objects: Any = self.objects()
        client, base = objects._client, objects._base  # noqa: SLF001 - the same connection, without our code
        spans = [
            (each.key, start, min(start + REQUEST_BYTES, each.size))
            for each in objects.list("log/")
            for start in range(0, each.size, REQUEST_BYTES)
        ]

        kept: dict[int, object] = {}

        def get(span: tuple[str, int, int]) -> int:
            key, start, stop = span
            answer = obstore.get_range(client, base + key, start=start, end=stop)
            if keep:
                kept[threading.get_ident()] = answer
            return len(answer)

        with ThreadPoolExecutor(IN_FLIGHT) as threads:
            sum(threads.map(get, spans))


def scan(opened: Callable[[], StoreReader], wanted: Callable[[StoreReader], Sequence[ScanTask]], rows: int) -> None:
    """Read every body of some tasks, two at a time."""
    batches = read_in_order(opened, wanted(opened()), SPEC, THREADS)
    expect_rows(sum(batch.num_rows for batch in batches), rows)


def whole(reader: StoreReader) -> list[ScanTask]:
    """Plan everything."""
    ranges = [QueueRange(each.key, each.min_offset, each.max_offset) for each in reader.queues(TOPIC)]
    return reader.plan(ranges, max_bytes=TASK_BYTES, spec=SPEC)


def window(rows: int) -> Callable[[StoreReader], list[ScanTask]]:
    """Plan the 1 % of the store times in the middle."""
    batches = rows // MINUTE_ROWS
    start = START_MS + batches // 2 * STEP_MS
    stop = start + max(1, batches // 100) * STEP_MS

    def planned(reader: StoreReader) -> list[ScanTask]:
        first, last = (
            [reader.offset_at(each.key, time_ms, Boundary.LOWER) for each in reader.queues(TOPIC)]
            for time_ms in (start, stop)
        )
        ranges = [
            QueueRange(each.key, *span)
            for each, span in zip(reader.queues(TOPIC), zip(first, last, strict=True), strict=True)
        ]
        return reader.plan(ranges, max_bytes=TASK_BYTES, spec=SPEC)

    return planned


def written(path: Path, rows: int) -> int:
    """Write batches of messages, each a minute after the one before; return how many messages."""
    now = START_MS
    config = StoreConfig(flush=Flush.ASYNC, segment_bytes=SEGMENT_BYTES)
    with MessageStore.open(path, config, clock=lambda: now) as store:
        for batch in made(BODY_BYTES, rows, MINUTE_ROWS, QUEUES):
            store.append_batch(batch)
            now += STEP_MS
        store.wait_dispatched()
    return rows // MINUTE_ROWS * MINUTE_ROWS


def archives(bench: "Bench") -> Found:
    """Measure reads of one archive; `UnavailableError` without versitygw."""
    servers = support("s3_servers")
    if servers.versitygw_program() is None:
        raise UnavailableError("versitygw is not installed")
    with bench.briefly("store", "server", "cache") as (path, server, cache), servers.versitygw(server) as s3:
        rows = written(path, bench.scaled(MESSAGES, 100 * MINUTE_ROWS))
        archive = Archive(path, s3.url(), s3.options, rows)
        push(path, archive.objects())
        return _measured(bench, archive, cache)


def _measured(bench: "Bench", archive: Archive, cache: Path) -> Found:
    cpu: dict[str, list[float]] = defaultdict(list)
    size, rows = StoreReader.open(archive.path).log.data_stop(), archive.rows
    some, part = window(rows), max(1, rows // MINUTE_ROWS // 100) * MINUTE_ROWS

    def case(name: str, moved: int, action: Callable[[], object], unit: Unit = Unit.BYTES) -> Case:
        def timed() -> None:
            began = time.process_time()
            action()
            cpu[name].append(time.process_time() - began)

        return Case(name=name, peer=name.partition(":")[0], rows=moved, action=timed, unit=unit)

    with peak_memory(this_process) as peak:
        scan(archive.reader, lambda reader: whole(reader)[:1], rows=_first_rows(archive))
    figures: dict[str, float] = {TASK_MEMORY: peak[0], WINDOW_BYTES: 1e6 * _bytes_of(archive, some, part) / size}
    results: list[Result] = []
    for cases in (
        [
            case(RAW, size, archive.raw),
            case(KEPT, size, lambda: archive.raw(keep=True)),
            case(SCAN, size, lambda: scan(archive.reader, whole, rows)),
        ],
        [
            case(PLAN, 1, lambda: some(archive.reader()), Unit.CALLS),
            case(WINDOW, 1, lambda: scan(archive.reader, some, part), Unit.CALLS),
        ],
        [
            case(AGAIN, size, lambda: scan(lambda: archive.reader(cache), whole, rows)),  # its warm-up fills the cache
            case(LOCAL, size, lambda: scan(lambda: StoreReader.open(archive.path), whole, rows)),
        ],
    ):
        results += bench.measure(cases)
    figures |= {f"{name}, ms of CPU": 1000 * median(found[1:]) for name, found in cpu.items()}  # not of the warm-up
    bench.tell(f"  {figures}")
    return Found(results=results, figures=figures)


def _first_rows(archive: Archive) -> int:
    return whole(archive.reader())[0].rows


def _bytes_of(archive: Archive, wanted: Callable[[StoreReader], Sequence[ScanTask]], rows: int) -> int:
    """Return the bytes that a plan and its scan get from the object store, the manifest among them."""
    objects, found = archive.objects(), []
    get = objects.get

    def counted(key: str, start: int, stop: int, etag: str | None = None) -> "Bytes":
        found.append(stop - start)
        return get(key, start, stop, etag)

    objects.get = counted  # type: ignore[method-assign]
    reader = StoreReader.open(StoreLocation.on_objects(objects))
    expect_rows(sum(batch.num_rows for task in wanted(reader) for batch in reader.scan(task, SPEC)), rows)
    return sum(found)
