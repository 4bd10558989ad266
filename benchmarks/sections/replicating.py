"""Replication beside RocketMQ's own, on loopback: catching up, steady state, double writes, and idle replicas.

::

    RocketMQ's master ──► our replica | RocketMQ's slave        catching up, steady state, asynchronous puts
    our master        ──► our replica         ┐
    RocketMQ's master ──► RocketMQ's slave    ┘                  synchronous double write
    our master        ──► 100 replicas                           idle
    RocketMQ's master ──► our replica ──► Spark                  a stream on the replica

Each peer is a process, and its CPU time is that of all its threads. Rates depend on other load of the machine. CPU
time per MiB hardly does.
"""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from free_memory import FreeMemory
from harness import MIB, Case, Found, Result, Timed, UnavailableError, Unit, measure, result_of
from peers.replication import OURS as OUR_REPLICAS
from peers.replication import Process, free_port
from peers.rocketmq import RocketMQ
from store_work import made, put_in_flight, put_singles

from sections.streaming import checkpoint, until
from segmentlog.store import Flush, MessageStore, Outgoing, StoreConfig
from segmentlog.store.ha import Attachments, Quorum, ReplicationServer, ServerConfig

if TYPE_CHECKING:
    from bench import Bench
    from pyspark.sql import DataFrame

OURS = "segmentlog"
TOPIC = "BenchTopic"
BODY_BYTES = 1024
LOG_MESSAGES = 600_000  # below 1 GiB of log: a slave of RocketMQ begins at the last segment
LOG_MESSAGES_MIN = 100_000  # a shorter log is replicated before the rest of it can be timed
WARM_SHARE = 0.4  # of the log, after which catching up is timed: a JVM has compiled its loops then
STEADY_RATE, STEADY_SECONDS = 20_000, 10
DOUBLE_WRITES, DOUBLE_THREADS = 40_000, 64
DOUBLE_BATCHES, DOUBLE_BATCH_ROWS = 400, 1024
IDLE_REPLICAS, IDLE_SECONDS = 100, 10
STREAM_RATE, STREAM_SECONDS = 50_000, 10
FIRST_MESSAGES = 1_000  # so that there is a topic to subscribe to

Start = Callable[[Path, int], Process]
CATCHING_UP = "catching up"
CATCHING_UP_INTO_FREE = "catching up, memory that was free"
ASYNC_PUTS = "asynchronous puts until the replica has them, 1024 B"
DOUBLE = f"synchronous double write, {DOUBLE_THREADS} threads"
DOUBLE_IN_FLIGHT = f"synchronous double write, {DOUBLE_THREADS} in flight in one thread"
DOUBLE_IN_BATCHES = f"synchronous double write, batches of {DOUBLE_BATCH_ROWS:,}"


def replication(bench: "Bench") -> Found:
    """Measure everything beside the last release of RocketMQ that is asked for."""
    if "rocketmq" not in bench.peers or not bench.rocketmq:
        raise UnavailableError("replication is measured beside RocketMQ, which is left out")
    version = bench.rocketmq[-1]
    who = RocketMQ(version).name  # says what is missing
    starts: dict[str, Start] = {OURS: Process.replica, who: partial(Process.rocketmq_slave, version)}
    found = [_idle(bench), _steady(bench, version, starts), _catching_up(bench, version, starts)]
    results = [each for part in found for each in part.results]
    figures = {name: value for part in found for name, value in part.figures.items()}
    bench.tell(f"  {figures}")
    results += _double_writes(bench, version, who) + _async_puts(bench, version, starts)
    return Found(results=results, figures=figures)


def _catching_up(bench: "Bench", version: str, starts: dict[str, Start]) -> Found:
    """Time the last part of a log that a new replica gets."""
    cpu: dict[str, list[float]] = {who: [] for who in starts}
    port = free_port()
    with Process.rocketmq_master(version, bench.place("ha-master"), port) as master:
        end = _loaded(master, bench.scaled(LOG_MESSAGES, LOG_MESSAGES_MIN))
        begin = int(end * WARM_SHARE)

        def catch_up(who: str, start: Start, emptied: FreeMemory | None) -> Timed:
            if emptied is not None:
                emptied.empty()
            with bench.briefly("ha-replica") as (path,), start(path, port) as replica:
                replica.await_log(begin)
                since, used, at = time.perf_counter(), replica.cpu_seconds(), replica.end
                seconds = replica.await_log(end) - since
                if end - at < MIB:
                    raise UnavailableError("the log is too short to time the rest of it")
                if emptied is None:
                    cpu[who].append((replica.cpu_seconds() - used) / (end - at) * MIB)
                return Timed(seconds * (end - begin) / (end - at))

        def cases(name: str, emptied: FreeMemory | None) -> list[Case]:
            return [
                Case(
                    name=f"{who}: {name}",
                    peer=who,
                    rows=end - begin,
                    action=partial(catch_up, who, start, emptied),
                    unit=Unit.BYTES,
                )
                for who, start in starts.items()
            ]

        results = bench.measure(cases(CATCHING_UP, None))
        if bench.memory is not None:  # else nothing says what state it is in
            results += measure(cases(CATCHING_UP_INTO_FREE, bench.memory), bench.rounds, bench.tell)
    return Found(results=results, figures=_per_mib("catching up", cpu))


def _steady(bench: "Bench", version: str, starts: dict[str, Start]) -> Found:
    """Compare the CPU time of replicas that follow the same master at the same time."""
    port, cpu = free_port(), dict[str, list[float]]()
    count = bench.scaled(STEADY_RATE * STEADY_SECONDS)
    with (
        Process.rocketmq_master(version, bench.place("ha-master"), port) as master,
        _following(bench, starts, port) as replicas,
    ):
        for turn in range(1 + bench.rounds):
            begin = master.end
            before = {who: each.cpu_seconds() for who, each in replicas.items()}
            end = _loaded(master, count, rate=STEADY_RATE, mark=chr(ord("A") + turn))
            for who, each in replicas.items():
                each.await_log(end)
                if turn:  # the first one warms up
                    cpu.setdefault(who, []).append((each.cpu_seconds() - before[who]) / (end - begin) * MIB)
    return Found(figures=_per_mib(f"steady state, {STEADY_RATE:,} messages/s", cpu))


def _async_puts(bench: "Bench", version: str, starts: dict[str, Start]) -> list[Result]:
    """Time puts as fast as the master takes them, alone and until a replica has them."""
    count = bench.scaled(LOG_MESSAGES)
    seconds: dict[str, list[float]] = {}
    for _ in range(bench.rounds):
        for who, start in starts.items():
            port = free_port()
            with (
                Process.rocketmq_master(version, bench.place("ha-master"), port) as master,
                _following(bench, {who: start}, port) as replicas,
            ):
                replicas[who].await_log(_loaded(master, count // 10, mark="W"))
                since = time.perf_counter()
                line = master.ask("load", count=count, size=BODY_BYTES, threads=2, window=1024, mark="L")
                seconds.setdefault(f"{who}: {ASYNC_PUTS}", []).append(
                    replicas[who].await_log(line["maxPhyOffset"]) - since
                )
                seconds.setdefault(f"{who}: asynchronous puts alone", []).append(line["seconds"])
    return [
        result_of(Case(name=name, peer=name.partition(":")[0], rows=count, action=lambda: None), took)
        for name, took in seconds.items()
    ]


@dataclass(frozen=True, slots=True)
class _DoubleWrites:
    """Appends that wait for a replica.

    Attributes
    ----------
    name, rows
        Name of the case, and messages that it appends.
    threads, window
        RocketMQ's threads, and the puts that each has in flight.
    append
        Appends ``count`` of the rows to our store.
    """

    name: str
    rows: int
    threads: int
    window: int
    append: Callable[..., None]


def _double_writes(bench: "Bench", version: str, who: str) -> list[Result]:
    """Time appends that wait for a replica: one in flight per thread, many in one thread, and a batch in flight."""
    singles = bench.scaled(DOUBLE_WRITES, DOUBLE_THREADS) // DOUBLE_THREADS * DOUBLE_THREADS
    in_batches = bench.scaled(DOUBLE_BATCHES) * DOUBLE_BATCH_ROWS
    batches = made(BODY_BYTES, in_batches, DOUBLE_BATCH_ROWS, 2)

    def put_batches(store: MessageStore, *, count: int) -> None:
        for batch in batches[: count // DOUBLE_BATCH_ROWS]:
            store.append_batch(batch)

    cases: list[Case] = []
    for work in (
        _DoubleWrites(DOUBLE, singles, DOUBLE_THREADS, 1, partial(put_singles, threads=DOUBLE_THREADS)),
        _DoubleWrites(DOUBLE_IN_FLIGHT, singles, 1, DOUBLE_THREADS, partial(put_in_flight, window=DOUBLE_THREADS)),
        _DoubleWrites(DOUBLE_IN_BATCHES, in_batches, 1, DOUBLE_BATCH_ROWS, put_batches),
    ):
        sides = {
            OURS: partial(_our_double_writes, bench, work),
            who: partial(_their_double_writes, bench, version, work),
        }
        cases += [
            Case(name=f"{each}: {work.name}", peer=each, rows=work.rows, action=side) for each, side in sides.items()
        ]
    return bench.measure(cases)


def _their_double_writes(bench: "Bench", version: str, work: _DoubleWrites) -> Timed:
    sync = {"brokerRole": "SYNC_MASTER"} | ({} if version.startswith("4") else {"inSyncReplicas": 2})
    port = free_port()
    with (
        bench.briefly("ha-master", "ha-replica") as (path, copy),
        Process.rocketmq_master(version, path, port, **sync) as master,
        Process.rocketmq_slave(version, copy, port) as slave,
    ):
        _load_until_in_sync(master, slave)
        line = master.ask("load", count=work.rows, size=BODY_BYTES, threads=work.threads, window=work.window, mark="D")
        if line["failed"] or line["retries"]:
            raise UnavailableError(f"RocketMQ refused {line['failed'] + line['retries']} double writes")
        return Timed(line["seconds"])


def _load_until_in_sync(master: Process, slave: Process) -> None:
    """Put until a double write succeeds, then warm the JVMs up."""
    slave.await_log(0)
    for _ in range(100):
        if not master.ask("load", count=1, size=BODY_BYTES, threads=1, window=1, mark="V")["failed"]:
            break
    master.ask("load", count=20_000, size=BODY_BYTES, threads=DOUBLE_THREADS, window=1, mark="W")


def _our_double_writes(bench: "Bench", work: _DoubleWrites) -> Timed:
    quorum = Quorum(2, timeout_s=30)
    attached = Attachments(acknowledgers=[quorum], listeners=[quorum])
    with (
        bench.briefly("ha-master", "ha-replica") as (path, copy),
        MessageStore.open(path, StoreConfig(flush=Flush.ASYNC), attached=attached) as store,
        ReplicationServer(store, quorum, ServerConfig(port=0)) as server,
        Process.replica(copy, server.port),
    ):
        while not any(each is not None for each in server.replicas.values()):
            time.sleep(0.01)
        work.append(store, count=work.rows // 20)
        since = time.perf_counter()
        work.append(store, count=work.rows)
        return Timed(time.perf_counter() - since)


def _idle(bench: "Bench") -> Found:
    """Return the CPU time of a master with idle replicas, and of those, in percent of one core."""
    quorum, copies = Quorum(), bench.scaled(IDLE_REPLICAS, 10)
    config = StoreConfig(flush=Flush.ASYNC, segment_bytes=1 << 20, index=False)
    with (
        MessageStore.open(bench.place("ha-master"), config, attached=Attachments(listeners=[quorum])) as store,
        ReplicationServer(store, quorum, ServerConfig(port=0)) as server,
    ):
        store.append(Outgoing(topic=TOPIC, body=b"first"))
        store.flush()
        with Process([*OUR_REPLICAS, bench.place("ha-replica"), server.port, copies]) as replicas:
            deadline = time.monotonic() + 120
            while list(server.replicas.values()).count(store.end_offset) < copies:
                if time.monotonic() > deadline:
                    raise UnavailableError("the replicas did not connect")
                time.sleep(0.1)
            time.sleep(2)  # what follows the connection
            used, theirs = time.process_time(), replicas.cpu_seconds()
            time.sleep(IDLE_SECONDS)
            used, theirs = time.process_time() - used, replicas.cpu_seconds() - theirs
    return Found(
        figures={
            f"CPU of a master with {copies} idle replicas, ppm of a core": used / IDLE_SECONDS * 1e6,
            f"CPU of {copies} idle replicas, ppm of a core": theirs / IDLE_SECONDS * 1e6,
        }
    )


def streams(bench: "Bench") -> Found:
    """Stream from a replica while RocketMQ's master writes; the latency of each message, from its put."""
    if not bench.rocketmq:
        raise UnavailableError("a replica is streamed beside RocketMQ, which is left out")
    version, port, rate = bench.rocketmq[-1], free_port(), STREAM_RATE
    count = bench.scaled(rate * STREAM_SECONDS)
    store, latencies, seen = bench.place("ha-replica"), list[np.ndarray](), dict[int, int]()
    done = threading.Event()

    def receive(batch: "DataFrame", number: int) -> None:
        del number
        rows = batch.select("queueId", "queueOffset", "storeTimestamp").toArrow()
        now = time.time()
        queues, offsets = (np.asarray(rows.column(name)) for name in ("queueId", "queueOffset"))
        for queue in np.unique(queues).tolist():
            found, next_one = offsets[queues == queue], seen.get(queue, 0)
            assert (found == np.arange(next_one, next_one + found.size)).all(), f"queue {queue}"
            seen[queue] = next_one + found.size
        stored = np.asarray(rows.column("storeTimestamp").cast("int64")) / 1e6  # from µs
        latencies.append(now - stored)
        if sum(seen.values()) >= FIRST_MESSAGES + count * 2:
            done.set()

    with (
        Process.rocketmq_master(version, bench.place("ha-master"), port) as master,
        Process.replica(store, port) as replica,
    ):
        replica.await_log(_loaded(master, FIRST_MESSAGES, mark="V"))
        options = {"subscribe": TOPIC, "startingOffsets": "earliest"}
        frame = bench.spark.readStream.format("segmentlog").options(**options).load(str(store))
        query = frame.writeStream.foreachBatch(receive).option("checkpointLocation", checkpoint(bench)).start()
        try:
            _loaded(master, count, rate=rate, mark="W")
            until(lambda: sum(seen.values()) >= FIRST_MESSAGES + count or not query.isActive)  # it is warm
            line = master.ask("load", count=count, size=BODY_BYTES, threads=2, window=1024, rate=rate, mark="L")
            if not done.wait(300):
                raise UnavailableError(f"the stream has {seen}")
        finally:
            query.stop()
    late = np.sort(np.concatenate(latencies)[-line["count"] :]) * 1000
    reached = line["count"] / line["seconds"]
    return Found(
        figures={
            "messages/s that the master put while a stream followed the replica": reached,
            **{f"ms from the put to foreachBatch's rows, p{p}": float(np.percentile(late, p)) for p in (50, 95, 99)},
        }
    )


@contextmanager
def _following(bench: "Bench", starts: dict[str, Start], port: int) -> Iterator[dict[str, Process]]:
    """Start replicas beside each other."""
    replicas: dict[str, Process] = {}
    try:
        for number, (who, start) in enumerate(starts.items()):
            replicas[who] = start(bench.place(f"ha-replica-{number}"), port)
        yield replicas
    finally:
        for each in replicas.values():
            each.close()


def _loaded(master: Process, count: int, *, rate: int = 0, mark: str = "L") -> int:
    """Let a master put messages; return the physical offset after them."""
    line = master.ask("load", count=count, size=BODY_BYTES, threads=2, window=1024, rate=rate, mark=mark)
    return int(line["maxPhyOffset"])


def _per_mib(what: str, cpu: dict[str, list[float]]) -> dict[str, float]:
    return {f"{who}: {what}, µs of CPU per MiB": statistics.median(each) * 1e6 for who, each in cpu.items()}
