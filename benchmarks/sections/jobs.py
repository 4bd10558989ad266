"""Jobs on a store: verify, rebuild, diff, replay and resend, each beside its limit or its peer in one run.

::

    verify    one process, all cores      beside  one CRC-32 over the same bytes in this process
    rebuild   all cores                   messages of 1 KiB, and of 100 bytes
    diff      one process                 beside  one comparison of the same bytes
    replay    store ──► store             beside  the sink: the same columns of the same store, in one write
    resend    one message in flight       beside  RocketMQ's producer in one thread, whose JVM is warm
              64 queues, the default

Stores are as a broker writes them by default: with an index, and without ``__CRC32#``; one case has it. The CRC-32 and
the comparison look at each byte once, and at nothing else. A verification also compares queues and index.
"""

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count as numbered
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from bench import settle
from harness import Case, Found, Unit, expect_rows
from isal import isal_zlib
from page_cache import bring_in
from peers.rocketmq import Broker, RocketMQ
from store_work import BATCH_ROWS, TOPIC, made
from workload import TOPIC as ROWS_TOPIC

from segmentlog.jobs import diff, rebuild, replay, resend, verify
from segmentlog.jobs.resending import Cluster
from segmentlog.query.source import StoreSource
from segmentlog.store import Flush, MessageStore, QueueRange, ScanSpec, StoreConfig, StoreReader
from segmentlog.store.ha import Address

if TYPE_CHECKING:
    from bench import Bench

OURS, LIMIT = "segmentlog", "limit"
LARGE, SMALL = 1024, 100  # bytes of a body
MESSAGES = {LARGE: 1_500_000, SMALL: 8_000_000}
RESENT, QUEUES_SENT = 20_000, 64
PIECE_BYTES, SEGMENT_BYTES = 1 << 20, 256 << 20
REPLAYED = ("topic", "queueId", "body", "properties", "bornTimestamp", "flag", "reconsumeTimes")


def maintenance(bench: "Bench") -> Found:
    """Verify, rebuild and compare stores that are made for it."""
    folder = bench.place("jobs")
    folder.mkdir()
    store, small = (_made(bench, folder / f"{size}", size) for size in (LARGE, SMALL))
    sealed, copy = _made(bench, folder / "sealed", LARGE, record_crc=True), folder / "copy"
    subprocess.run(["cp", "-a", "--sparse=always", store, copy], check=True)
    size = StoreReader.open(store).log.data_stop()
    cases = [
        _verify("verify, one process", store, 1),
        _verify("verify, two processes", store, 2),
        _verify("verify, one process, __CRC32#", sealed, 1),
        _bytes(f"{LIMIT}: CRC-32 of the log", size, lambda: _crc(store)),
        _rebuild(store, LARGE, folder / "rebuilt"),
        _rebuild(small, SMALL, folder / "rebuilt"),
        _bytes(f"{OURS}: diff of equal stores, one process", size, lambda: _diff(store, copy)),
        _bytes(f"{LIMIT}: comparison of the logs", size, lambda: _same(store, copy)),
    ]
    results = bench.measure(cases)
    shutil.rmtree(folder)
    return Found(results=results)


def _made(bench: "Bench", path: Path, size: int, *, record_crc: bool = False) -> Path:
    """Append messages with a unique key each, in eight queues."""
    count = max(BATCH_ROWS, bench.scaled(MESSAGES[size]))
    with MessageStore.open(path, StoreConfig(flush=Flush.ASYNC, record_crc=record_crc)) as store:
        for batch in made(size, count, BATCH_ROWS, 8):
            store.append_batch(batch)
        store.wait_dispatched()
    return path


def _bytes(name: str, size: int, action: Callable[[], object]) -> Case:
    return Case(name=name, peer=name.partition(":")[0], rows=size, action=action, unit=Unit.BYTES)


def _verify(name: str, store: Path, processes: int) -> Case:
    def action() -> None:
        assert not verify.run(None, store, processes=processes).has_findings

    return _bytes(f"{OURS}: {name}", StoreReader.open(store).log.data_stop(), action)


def _rebuild(store: Path, size: int, target: Path) -> Case:
    reader = StoreReader.open(store)
    held = sum(each.max_offset for each in reader.queues(TOPIC))

    def action() -> None:
        expect_rows(rebuild.run(None, store, target, processes=2).numbers["entries"], held)

    def before() -> None:
        shutil.rmtree(target, ignore_errors=True)
        settle()

    return Case(name=f"{OURS}: rebuild, {size} B", peer=OURS, rows=held, action=action, before=before)


def _diff(one: Path, two: Path) -> None:
    assert not diff.run(None, one, two, processes=1).has_findings


def _segments(store: Path) -> Iterator[np.memmap]:
    log = StoreReader.open(store).log
    for each in log.segments:
        yield np.memmap(each.path, np.uint8, "r")[: max(0, log.data_stop() - each.base)]


def _crc(store: Path) -> None:
    for data in _segments(store):
        for at in range(0, data.size, PIECE_BYTES):
            isal_zlib.crc32(data[at : at + PIECE_BYTES].data)


def _same(one: Path, two: Path) -> None:
    for a, b in zip(_segments(one), _segments(two), strict=True):
        for at in range(0, a.size, PIECE_BYTES):
            assert np.array_equal(a[at : at + PIECE_BYTES], b[at : at + PIECE_BYTES])


def replays(bench: "Bench") -> Found:
    """Append all rows of a store to another one: by the job, and by one write of the sink."""
    work, folder = bench.workload, bench.place("replayed")
    source, number = StoreSource(path=str(work.store)), numbered()

    def ours() -> None:
        found = replay.run(
            bench.spark,
            source,
            _all(source.open(), ROWS_TOPIC),
            str(folder / "store"),
            str(folder / "state"),
            settings=replay.ReplaySettings(),
            asked={"run": next(number)},
            stop=threading.Event(),
        )
        expect_rows(found.numbers["messages"], work.rows)

    def sink() -> None:
        read = {"subscribe": ROWS_TOPIC, "checkCrc": "true", "columns": ",".join(REPLAYED)}
        frame = bench.spark.read.format("segmentlog").options(**read).load(source.path)
        once = {"queueSelector": "column", "txnAppId": "sink", "txnVersion": "0"}
        frame.write.format("segmentlog").mode("append").options(**once).save(str(folder / "store"))

    def before() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        bring_in(work.store)
        settle()

    cases = [
        Case(name=f"{OURS}: {name}", peer=OURS, rows=work.rows, action=action, before=before)
        for name, action in (("replay", ours), ("sink, from a store", sink))
    ]
    results = bench.measure(cases)
    shutil.rmtree(folder, ignore_errors=True)
    return Found(results=results)


def resends(bench: "Bench") -> Found:
    """Send messages to a broker of RocketMQ, in turns with its own producer."""
    folder = bench.place("resent")
    folder.mkdir()
    with ExitStack() as held:

        def started(bench: "Bench") -> list[Case]:
            broker = held.enter_context(Broker.running(RocketMQ(bench.rocketmq[-1]), folder / "broker"))
            return _resends(broker, folder, bench.scaled(RESENT, 1_000))

        results = bench.measure(bench.from_peer("rocketmq", started))
    shutil.rmtree(folder)
    return Found(results=results)


def _resends(broker: Broker, folder: Path, count: int) -> list[Case]:
    broker.create(TOPIC)
    number = numbered()

    def send(store: Path) -> None:
        source = StoreSource(path=str(store))
        found = resend.run(
            source,
            _all(source.open(), TOPIC),
            ScanSpec(columns=("queueOffset",)),
            Cluster(broker=None, name_server=Address.parse(broker.name_server), timeout_s=10),
            str(folder / f"state-{next(number)}"),
            settings=resend.ResendSettings(),
            asked={},
            stop=threading.Event(),
        )
        assert not found.has_findings, found.numbers

    cases = []
    for queues, name in ((1, "one in flight"), (QUEUES_SENT, f"{QUEUES_SENT} queues")):
        store = folder / f"{queues}-queues"
        (batch,) = made(LARGE, count, count, queues)
        with MessageStore.open(store, StoreConfig(flush=Flush.ASYNC, segment_bytes=SEGMENT_BYTES)) as target:
            target.append_batch(batch)
        cases.append(Case(name=f"{OURS}: resend, {name}", peer=OURS, rows=count, action=partial(send, store)))
    produce = partial(broker.produce, TOPIC, count, LARGE)
    return [*cases, Case(name=f"{broker.name}: send, one thread", peer=broker.name, rows=count, action=produce)]


def _all(reader: StoreReader, topic: str) -> list[QueueRange]:
    return [QueueRange(each.key, each.min_offset, each.max_offset) for each in reader.queues(topic)]
