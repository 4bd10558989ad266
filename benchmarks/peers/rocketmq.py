"""RocketMQ's own storage code, run by the tests' oracle; its benchmarks time themselves, without the start of a JVM."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from harness import Timed, UnavailableError

ORACLE = Path(__file__).parents[2] / "tests" / "interop" / "oracle" / "run"
PASSES = 3
ASKED_TIMES = 120
STARTS = 3
PROGRAMS = ("java", "mvn", "flock")


class RocketMQ:
    """One release.

    Parameters
    ----------
    version
        Which.
    """

    def __init__(self, version: str) -> None:
        missing = [program for program in PROGRAMS if shutil.which(program) is None]
        if missing:
            raise UnavailableError(f"RocketMQ needs {', '.join(missing)}")
        self.name = f"RocketMQ {version}"
        self._environment = {**os.environ, "ROCKETMQ_VERSION": version}

    def put(self, store: Path, count: int, *arguments: object, dispatched: bool = True) -> Timed:
        """Append ``count`` messages until the last is acknowledged, and dispatched."""
        report = self.run("bench-put", "--store", store, "--count", count, *arguments)
        return Timed(count / float(report["messagesPerSecondWithDispatch" if dispatched else "messagesPerSecond"]))

    def get(self, store: Path, count: int) -> Timed:
        """Read and decode ``count`` messages in one thread; the second of two passes."""
        report = self.run("bench-get", "--store", store, "--threads", 1, "--mode", "decode", "--passes", 2)
        return Timed(count / float(report["messagesPerSecond"]))

    def look_up(self, store: Path, topic: str, keys: Sequence[str]) -> Timed:
        """Ask for all keys, often enough that the start, which is timed with one question and taken off, is small."""
        many = list(keys) * ASKED_TIMES
        # The quickest of a few starts: one that was slow would make the answers look quick.
        one = min(self._asked(store, topic, many[:1]) for _ in range(STARTS))
        all_keys = self._asked(store, topic, many)
        if all_keys <= one:
            raise UnavailableError("RocketMQ answers faster than its start can be told apart")
        return Timed((all_keys - one) / ASKED_TIMES)

    def query(self, store: Path, topic: str, keys: Sequence[str], *, verify: bool = False) -> Timed:
        """Ask for all keys one after the other in one thread; the last of three passes over them.

        RocketMQ compares hashes. With ``verify`` the records are decoded and their keys compared, as its client does.
        """
        questions = store.with_suffix(".keys")
        questions.write_text("\n".join(keys))
        verified = ["--verify"] if verify else []
        arguments = ("--store", store, "--topic", topic, "--keys", questions, "--passes", PASSES, *verified)
        report = self.run("bench-query", *arguments)
        if report["found"] < len(keys):
            raise UnavailableError(f"RocketMQ found {report['found']} of {len(keys)} keys")
        return Timed(float(report["seconds"]))

    @contextmanager
    def process(self, *arguments: object) -> Iterator[dict[str, Any]]:
        """Run a sub-command until the block ends; yield its first line."""
        command = [str(ORACLE), *map(str, arguments)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, env=self._environment, text=True, **pipes) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            try:
                line = process.stdout.readline()
                if not line:
                    raise UnavailableError(f"{self.name} does not start: {arguments[0]}")
                yield json.loads(line)
            finally:
                process.stdin.close()  # this is how it is told to end

    def _asked(self, store: Path, topic: str, keys: Sequence[str]) -> float:
        questions = store.with_suffix(".json")
        asked = [{"query": "messageByKey", "topic": topic, "key": key, "maxNum": 32} for key in keys]
        questions.write_text(json.dumps({"queries": asked}))
        started = time.perf_counter()
        answers = self._lines("query", "--store", store, "--queries", questions)
        took = time.perf_counter() - started
        found = [line for line in answers if json.loads(line).get("answer", {}).get("phyOffsets")]
        if len(found) != len(keys):
            raise UnavailableError(f"RocketMQ found {len(found)} of {len(keys)} keys")
        return took

    def run(self, *arguments: object) -> dict[str, Any]:
        """Return the last line of a sub-command."""
        report: dict[str, Any] = json.loads(self._lines(*arguments)[-1])
        return report

    def _lines(self, *arguments: object) -> list[str]:
        command = [str(ORACLE), *map(str, arguments)]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnavailableError(f"RocketMQ failed: {done.stderr[-500:]}")
        return done.stdout.splitlines()


class Broker:
    """A broker with its default settings, and a name server. Made by `running`."""

    def __init__(self, peer: RocketMQ, ready: dict[str, Any]) -> None:
        self.name = peer.name
        self.name_server: str = ready["namesrv"]
        self._peer = peer
        self._address = f"127.0.0.1:{ready['port']}"

    @classmethod
    @contextmanager
    def running(cls, peer: RocketMQ, folder: Path) -> Iterator[Self]:
        """Start it on a new store, and end it with the block."""
        folder.mkdir()
        (folder / "broker.json").write_text("{}")
        with peer.process("broker", "--store", folder / "store", "--config", folder / "broker.json") as ready:
            yield cls(peer, ready)

    def create(self, topic: str) -> None:
        """Make a topic of four queues."""
        where = ("--broker", self._address, "--namesrv", self.name_server)
        self._peer.run("admin", "create", "--topic", topic, "--queues", 4, *where)

    def produce(self, topic: str, count: int, size: int) -> Timed:
        """Send messages one after the other, each once the one before is acknowledged; twice, the second is timed."""
        shape = ("--topic", topic, "--count", count, "--size", size)
        report = self._peer.run("produce", *shape, "--timed", "--namesrv", self.name_server)
        return Timed(float(report["seconds"]))
