"""Replication beside RocketMQ's own, on loopback: catching up, steady state, asynchronous puts, double writes.

::

    RocketMQ's master ──► our replica | RocketMQ's slave        catching up, steady state, asynchronous puts
    our master        ──► our replica         ┐
    RocketMQ's master ──► RocketMQ's slave    ┘                  synchronous double write

Each peer is a process, and its CPU time is that of all its threads. Rates depend on other load of the machine. CPU
time per MiB hardly does.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench import Bench, clear
from harness import OURS, Case, Result, UnavailableError, Unit, until
from machine import MIB
from peers.rocketmq import NAME, Process, check_available, free_port
from store_work import ASYNC, made, put_in_flight, put_singles

from segmentlog.store import MessageStore
from segmentlog.store.ha import Attachments, Quorum, ReplicationServer, ServerConfig

BODY_BYTES = 1024
LOG_MESSAGES = 600_000  # below 1 GiB of log: a slave of RocketMQ begins at the last segment
LOG_MESSAGES_MIN = 100_000  # a shorter log is replicated before the rest of it can be timed
WARM_SHARE = 0.4  # of the log, after which catching up is timed: a JVM has compiled its loops then
STEADY_RATE, STEADY_SECONDS = 20_000, 10
DOUBLE_WRITES, DOUBLE_IN_FLIGHT = 40_000, 64
DOUBLE_BATCHES, DOUBLE_BATCH_ROWS = 400, 1024
STARTS: dict[str, Callable[[Path, int], Process]] = {OURS: Process.replica, NAME: Process.slave}


def replication(bench: Bench) -> list[Result]:
    """Measure everything beside RocketMQ."""
    check_available(bench)
    _steady(bench)
    return [*_catching_up(bench), *_double_writes(bench), *_async_puts(bench)]


def _load(master: Process, count: int, *, rate: int = 0, mark: str = "L") -> int:
    """Let a master put messages; return the physical offset after them."""
    line = master.ask("load", count=count, size=BODY_BYTES, threads=2, window=1024, rate=rate, mark=mark)
    return int(line["maxPhyOffset"])


def _catching_up(bench: Bench) -> list[Result]:
    """Time the last part of a log that a new replica gets."""
    port, path = free_port(), bench.folder / "ha-replica"
    with Process.master(bench.place("ha-master"), port) as master:
        end = _load(master, bench.scaled(LOG_MESSAGES, LOG_MESSAGES_MIN))
        begin = int(end * WARM_SHARE)

        def catch_up(who: str) -> float:
            with STARTS[who](path, port) as replica:
                replica.await_log(begin)
                since, at = time.perf_counter(), replica.end
                seconds = replica.await_log(end) - since
            if end - at < MIB:
                raise UnavailableError("the log is too short to time the rest of it")
            return seconds * (end - begin) / (end - at)

        return bench.measure(
            [
                Case(
                    name=f"{who}: catching up",
                    rows=end - begin,
                    action=partial(catch_up, who),
                    before=partial(clear, path),
                    unit=Unit.BYTES,
                )
                for who in STARTS
            ]
        )


def _steady(bench: Bench) -> None:
    """Compare the CPU time of replicas that follow the same master at the same time."""
    port, cpu, count = free_port(), defaultdict[str, list[float]](list), bench.scaled(STEADY_RATE * STEADY_SECONDS)
    with (
        Process.master(bench.place("ha-master"), port) as master,
        Process.replica(bench.place("ha-replica-0"), port) as ours,
        Process.slave(bench.place("ha-replica-1"), port) as theirs,
    ):
        replicas = {OURS: ours, NAME: theirs}
        for turn in range(1 + bench.rounds):
            begin = master.end
            before = {who: each.cpu_seconds() for who, each in replicas.items()}
            end = _load(master, count, rate=STEADY_RATE, mark=chr(ord("A") + turn))
            for who, each in replicas.items():
                each.await_log(end)
                if turn:  # the first one warms up
                    cpu[who].append((each.cpu_seconds() - before[who]) / (end - begin) * MIB)
    what = f"steady state, {STEADY_RATE:,} messages/s, µs of CPU per MiB"
    bench.figures |= {f"{who}: {what}": statistics.median(took) * 1e6 for who, took in cpu.items()}


def _async_puts(bench: Bench) -> list[Result]:
    """Time puts as fast as the master takes them, alone and until our replica has them."""
    count, alone, replicated = bench.scaled(LOG_MESSAGES), list[float](), list[float]()
    for _ in range(bench.rounds):
        port = free_port()
        with (
            Process.master(bench.place("ha-master"), port) as master,
            Process.replica(bench.place("ha-replica"), port) as replica,
        ):
            replica.await_log(_load(master, count // 10, mark="W"))
            since = time.perf_counter()
            line = master.ask("load", count=count, size=BODY_BYTES, threads=2, window=1024, mark="L")
            replicated.append(replica.await_log(line["maxPhyOffset"]) - since)
            alone.append(line["seconds"])
    names = {"asynchronous puts until the replica has them, 1024 B": replicated, "asynchronous puts alone": alone}
    return [Result(name=f"{OURS}: {name}", rows=count, seconds=took) for name, took in names.items()]


def _double_writes(bench: Bench) -> list[Result]:
    """Time appends that wait for a replica: one in flight per thread, many in one thread, and a batch in flight."""
    many = DOUBLE_IN_FLIGHT
    singles = bench.scaled(DOUBLE_WRITES, many) // many * many
    in_batches = bench.scaled(DOUBLE_BATCHES) * DOUBLE_BATCH_ROWS
    batches = made(BODY_BYTES, in_batches, DOUBLE_BATCH_ROWS, 2)

    def put_batches(store: MessageStore, *, count: int) -> None:
        for batch in batches[: count // DOUBLE_BATCH_ROWS]:
            store.append_batch(batch)

    cases: list[Case] = []
    for name, rows, threads, window, append in (
        (f"{many} threads", singles, many, 1, partial(put_singles, threads=many)),
        (f"{many} in flight in one thread", singles, 1, many, partial(put_in_flight, window=many)),
        (f"batches of {DOUBLE_BATCH_ROWS:,}", in_batches, 1, DOUBLE_BATCH_ROWS, put_batches),
    ):
        sides = {
            OURS: partial(_our_double_writes, bench, rows, append),
            NAME: partial(_their_double_writes, bench, rows, threads, window),
        }
        cases += [
            Case(name=f"{who}: synchronous double write, {name}", rows=rows, action=side) for who, side in sides.items()
        ]
    return bench.measure(cases)


def _their_double_writes(bench: Bench, rows: int, threads: int, window: int) -> float:
    port = free_port()
    with (
        Process.master(bench.place("ha-master"), port, role="SYNC_MASTER", inSyncReplicas=2) as master,
        Process.slave(bench.place("ha-replica"), port) as slave,
    ):
        slave.await_log(0)
        for _ in range(100):  # until the slave is in sync
            if not master.ask("load", count=1, size=BODY_BYTES, threads=1, window=1, mark="V")["failed"]:
                break
        master.ask("load", count=20_000, size=BODY_BYTES, threads=DOUBLE_IN_FLIGHT, window=1, mark="W")
        line = master.ask("load", count=rows, size=BODY_BYTES, threads=threads, window=window, mark="D")
        if line["failed"] or line["retries"]:
            raise UnavailableError(f"RocketMQ refused {line['failed'] + line['retries']} double writes")
        return float(line["seconds"])


def _our_double_writes(bench: Bench, rows: int, append: Callable[..., None]) -> float:
    quorum = Quorum(2, timeout_s=30)
    attached = Attachments(acknowledgers=[quorum], listeners=[quorum])
    with (
        MessageStore.open(bench.place("ha-master"), ASYNC, attached=attached) as store,
        ReplicationServer(store, quorum, ServerConfig(port=0)) as server,
        Process.replica(bench.place("ha-replica"), server.port),
    ):
        until(lambda: any(each is not None for each in server.replicas.values()))
        append(store, count=rows // 20)
        since = time.perf_counter()
        append(store, count=rows)
        return time.perf_counter() - since
