"""RocketMQ's own storage code and replication, run by the tests' oracle.

Its benchmarks time themselves, without the start of a JVM. Masters and replicas are processes that answer one JSON line
to each command line::

    {"cmd": "status"} ──► {"maxPhyOffset": …, "dispatchBehindBytes": …}       RocketMQ's, and `replica_process.py`
    {"cmd": "load", "count": …, "size": …, "threads": …, "window": …, "rate": …} ──► {"seconds": …}       masters alone
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from bench import Bench
from harness import UnavailableError, until
from test_support import support

VERSION = "5.3.3"
NAME = f"RocketMQ {VERSION}"
KEYS_COMPARED = f"{NAME}, keys compared"
ORACLE, HA = support("oracle"), support("ha")
COMPILED = ""  # the oracle's own options of the JVM; those of tests are for one that lives for a second
PASSES = 3
free_port = HA.free_port
HEARTBEAT = {"haSendHeartbeatInterval": 200}  # ms after which a slave of RocketMQ requests its first bytes
POLL_S = 0.005
WAIT_S = 300


def check_available(bench: Bench) -> None:
    """Raise `UnavailableError` if RocketMQ is left out, or cannot run here."""
    if "rocketmq" not in bench.peers:
        raise UnavailableError("RocketMQ is left out")
    missing = ORACLE.available()
    if missing:
        raise UnavailableError(missing)


def side(bench: Bench, run: Callable[[Path], float], name: str = NAME) -> dict[str, Callable[[Path], float]]:
    """Return RocketMQ's side of a comparison; empty if it is left out."""
    try:
        check_available(bench)
    except UnavailableError as problem:
        bench.skip("rocketmq", str(problem))
        return {}
    return {name: run}


def put(store: Path, *, count: int, options: Sequence[object], dispatched: bool = True) -> float:
    """Append ``count`` messages until the last is acknowledged, and dispatched."""
    report = _run("bench-put", "--store", store, "--count", count, *options)
    return count / float(report["messagesPerSecondWithDispatch" if dispatched else "messagesPerSecond"])


def get(store: Path, count: int) -> float:
    """Read and decode ``count`` messages in one thread; the second of two passes."""
    report = _run("bench-get", "--store", store, "--threads", 1, "--mode", "decode", "--passes", 2)
    return count / float(report["messagesPerSecond"])


def query(store: Path, topic: str, keys: Sequence[str]) -> float:
    """Ask for all keys one after the other in one thread; the last of three passes over them.

    RocketMQ compares hashes. So the records are decoded and their keys compared, as its client does.
    """
    questions = store.with_suffix(".keys")
    questions.write_text("\n".join(keys))
    where = ("--store", store, "--topic", topic, "--keys", questions)
    report = _run("bench-query", *where, "--passes", PASSES, "--verify")
    if report["found"] < len(keys):
        raise UnavailableError(f"RocketMQ found {report['found']} of {len(keys)} keys")
    return float(report["seconds"])


def _run(*arguments: object) -> dict[str, Any]:
    """Return the last line of a sub-command."""
    report: dict[str, Any] = ORACLE.ask(VERSION, *arguments, java=COMPILED)[-1]
    return report


class Process(HA.Peer):
    """A master or a replica; a context manager that kills it."""

    java = COMPILED

    @classmethod
    def master(cls, store: Path, port: int, role: str = "ASYNC_MASTER", **config: object) -> Self:
        """Start RocketMQ's master."""
        return super().master(VERSION, store, port, HEARTBEAT | config, role=role)

    @classmethod
    def slave(cls, store: Path, port: int) -> Self:
        """Start RocketMQ's slave of a master on loopback."""
        return super().slave(VERSION, store, port, HEARTBEAT)

    @staticmethod
    def replica(store: Path, port: int) -> "Process":
        """Start our replica of a master on loopback."""
        return Replica(VERSION, str(store), str(port))

    @property
    def end(self) -> int:
        """Physical offset at which its log ends."""
        return int(self.ask("status")["maxPhyOffset"])

    def await_log(self, end: int) -> float:
        """Return the time at which its log reached a physical offset, on ``time.perf_counter``; dispatch included."""

        def is_there() -> bool:
            status = self.ask("status", end=end)
            return bool(status["maxPhyOffset"] >= end and status["dispatchBehindBytes"] <= 0)

        until(is_there, seconds=WAIT_S, pause_s=POLL_S)
        return time.perf_counter()

    def cpu_seconds(self) -> float:
        """CPU time of the process so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Replica(Process):
    """Our replica of a master on loopback, which answers as RocketMQ's does."""

    command = (sys.executable, Path(__file__).parents[1] / "replica_process.py")
