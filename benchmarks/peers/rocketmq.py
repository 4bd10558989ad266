"""RocketMQ's own storage code and replication, run by the tests' oracle.

Its benchmarks time themselves, without the start of a JVM. Masters and replicas are processes that answer one JSON line
to each command line::

    {"cmd": "status"} ──► {"maxPhyOffset": …, "dispatchBehindBytes": …}       RocketMQ's, and `replica_process.py`
    {"cmd": "load", "count": …, "size": …, "threads": …, "window": …, "rate": …} ──► {"seconds": …}       masters alone
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from bench import Bench
from harness import UnavailableError

VERSION = "5.3.3"
NAME = f"RocketMQ {VERSION}"
KEYS_COMPARED = f"{NAME}, keys compared"
ORACLE = Path(__file__).parents[2] / "tests" / "interop" / "oracle" / "run"
REPLICA = (sys.executable, Path(__file__).parents[1] / "replica_process.py")
ENVIRONMENT = {"ROCKETMQ_VERSION": VERSION}
PROGRAMS = ("java", "mvn", "flock")
PASSES = 3
HEARTBEAT_MS = 200  # a slave of RocketMQ requests its first bytes after so long
POLL_S = 0.005
WAIT_S = 300


def check_available(bench: Bench) -> None:
    """Raise `UnavailableError` if RocketMQ is left out, or cannot run here."""
    if "rocketmq" not in bench.peers:
        raise UnavailableError("RocketMQ is left out")
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise UnavailableError(f"RocketMQ needs {', '.join(missing)}")


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
    command = [str(ORACLE), *map(str, arguments)]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"RocketMQ failed: {done.stderr[-500:]}")
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


class Process:
    """A master or a replica; a context manager that kills it."""

    def __init__(self, *command: object) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [*map(str, command)],
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self.ready = self._line()

    @classmethod
    def master(cls, store: Path, port: int, *options: object, **config: object) -> Self:
        """Start RocketMQ's master."""
        return cls._rocketmq(store, config, "ha-master", "--port", port, *options)

    @classmethod
    def slave(cls, store: Path, port: int) -> Self:
        """Start RocketMQ's slave of a master on loopback."""
        return cls._rocketmq(store, {}, "ha-slave", "--master", f"127.0.0.1:{port}")

    @classmethod
    def _rocketmq(cls, store: Path, config: Mapping[str, object], verb: str, *options: object) -> Self:
        file = store.with_suffix(".json")
        file.write_text(json.dumps({"haSendHeartbeatInterval": HEARTBEAT_MS, **config}))
        return cls(ORACLE, verb, "--store", store, "--config", file, *options)

    @classmethod
    def replica(cls, store: Path, port: int) -> Self:
        """Start our replica of a master on loopback."""
        return cls(*REPLICA, store, port)

    def ask(self, cmd: str, **fields: object) -> dict[str, Any]:
        """Send a command and return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"cmd": cmd, **fields}) + "\n")
        self._process.stdin.flush()
        return self._line()

    @property
    def end(self) -> int:
        """Physical offset at which its log ends."""
        return int(self.ask("status")["maxPhyOffset"])

    def await_log(self, end: int) -> float:
        """Return the time at which its log reached a physical offset, on ``time.perf_counter``; dispatch included."""
        deadline = time.monotonic() + WAIT_S
        while True:
            status = self.ask("status", end=end)
            if status["maxPhyOffset"] >= end and status["dispatchBehindBytes"] <= 0:
                return time.perf_counter()
            if time.monotonic() > deadline:
                raise UnavailableError(f"a replica did not reach {end} within {WAIT_S} s: {status}")
            time.sleep(POLL_S)

    def cpu_seconds(self) -> float:
        """CPU time of the process so far, user and system."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        if not text:
            self._errors.seek(0)
            raise UnavailableError(f"a process of the replication benchmark ended: {self._errors.read()[-500:]}")
        found: dict[str, Any] = json.loads(text)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        with self._process, self._errors:  # closes the pipes
            self._process.wait()
