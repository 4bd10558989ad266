"""Masters and replicas as processes: each answers one JSON line to each command line.

::

    {"cmd": "status"} ──► {"maxPhyOffset": …, "dispatchBehindBytes": …}       RocketMQ's, and `replica_process.py`
    {"cmd": "load", "count": …, "size": …, "threads": …, "window": …, "rate": …} ──► {"seconds": …}       masters alone

RocketMQ's are ``ha-master`` and ``ha-slave`` of the tests' oracle.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness import UnavailableError

from peers.rocketmq import ORACLE

OURS = (sys.executable, Path(__file__).parents[1] / "replica_process.py")
HEARTBEAT_MS = 200  # a slave of RocketMQ requests its first bytes after so long
POLL_S = 0.005
WAIT_S = 300


class Process:
    """One process that is asked by lines; a context manager that kills it."""

    def __init__(self, command: Sequence[object], environment: Mapping[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [*map(str, command)],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        try:
            self.ready = self._line()
        except UnavailableError:
            self.close()
            raise

    @classmethod
    def rocketmq_master(cls, version: str, store: Path, port: int, **config: object) -> Self:
        """Start RocketMQ's master."""
        return cls._rocketmq(version, store, config, "ha-master", "--port", port)

    @classmethod
    def rocketmq_slave(cls, version: str, store: Path, port: int) -> Self:
        """Start RocketMQ's slave of a master on loopback."""
        return cls._rocketmq(version, store, {}, "ha-slave", "--master", f"127.0.0.1:{port}")

    @classmethod
    def _rocketmq(cls, version: str, store: Path, config: Mapping[str, object], verb: str, *options: object) -> Self:
        role = ["--role", config["brokerRole"]] if "brokerRole" in config else []
        file = store.with_suffix(".json")
        kept = {name: value for name, value in config.items() if name != "brokerRole"}
        file.write_text(json.dumps({"haSendHeartbeatInterval": HEARTBEAT_MS, **kept}))
        command = [ORACLE, verb, "--store", store, "--config", file, *options, *role]
        return cls(command, {"ROCKETMQ_VERSION": version})

    @classmethod
    def replica(cls, store: Path, port: int) -> Self:
        """Start our replica of a master on loopback."""
        return cls([*OURS, store, port])

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill it."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                pipe.close()


def free_port() -> int:
    """Return a port of loopback on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
