"""A standalone Spark cluster on this machine: one master and two workers, each a process, on ports that are free.

::

    StandaloneCluster ──► Master  127.0.0.1:any ◄── Worker 1 (one core)
                                                ◄── Worker 2 (one core)      `master_url` is for spark-submit
"""

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Self

import pyspark

from . import spark_session
from .processes import members

_START_SECONDS_MAX = 120


class StandaloneCluster:
    """A context manager that has the cluster; no process of it is left afterwards."""

    def __init__(self, scratch: Path) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self._scratch = scratch
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master_url = ""

    def __enter__(self) -> Self:
        try:
            master = self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.master_url = self._wait_for(master, r"Starting Spark master at (spark://\S+)")
            workers = [self._start_worker(number) for number in (1, 2)]
            for worker in workers:
                self._wait_for(worker, r"(Successfully registered with master)")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def kill_executor(self, chance: random.Random) -> int:
        """Kill the JVM of one executor, if there is one; its worker starts another. Return how many were killed."""
        living = [each for worker in self._processes[1:] for each in members(worker.pid) if _is_executor(each)]
        if living:
            os.kill(chance.choice(living), signal.SIGKILL)
        return min(len(living), 1)

    def _start_worker(self, number: int) -> Path:
        folder = str(self._scratch / f"worker-{number}")
        at = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", folder)
        return self._start(f"worker-{number}", "worker.Worker", *at, self.master_url)

    def _start(self, name: str, main: str, *arguments: str) -> Path:
        """Start a daemon; return its log. Each has a session of its own, which its executors share."""
        log = self._scratch / f"{name}.log"
        spark = Path(pyspark.__file__).parent
        environ = os.environ | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._scratch / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": spark_session.BRIEF,
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [spark / "bin" / "spark-class", f"org.apache.spark.deploy.{main}", *arguments],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._processes.append(process)
        return log

    def _wait_for(self, log: Path, pattern: str) -> str:
        until = time.monotonic() + _START_SECONDS_MAX
        while time.monotonic() < until:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found is not None:
                return found[1]
            assert all(process.poll() is None for process in self._processes), log.read_text(errors="replace")[-2_000:]
            time.sleep(0.05)
        raise TimeoutError(f"{log.name} does not say {pattern}: {log.read_text(errors='replace')[-2_000:]}")

    def _stop(self) -> None:
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes = []


def _is_executor(process: int) -> bool:
    try:
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
