"""RocketMQ's own master and slave as processes: commands go in as JSON lines, answers come out."""

import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from segmentlog.store import Flush, StoreConfig

from . import oracle

_SECONDS: Final = 120
SEGMENT: Final = 64 << 10
CONFIG: Final = {
    "mappedFileSizeCommitLog": SEGMENT,
    "mappedFileSizeConsumeQueue": 20 * 100,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
"""Sizes of RocketMQ's stores, and of ours."""
OURS: Final = StoreConfig(
    segment_bytes=SEGMENT, queue_segment_entries=100, index_slots=100, index_entries=400, flush=Flush.ASYNC
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Peer:
    """A store with RocketMQ's replication service; a context manager that kills it in the end."""

    command: Sequence[str | Path] = (oracle.RUN,)
    java = oracle.BRIEF

    def __init__(self, version: str, *arguments: str | Path) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [*self.command, *arguments],
            env={"ORACLE_JAVA_OPTS": self.java, **os.environ, "ROCKETMQ_VERSION": version},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self.ready = self._line()

    @classmethod
    def master(cls, version: str, store: Path, port: int, config: Mapping[str, object], **options: str) -> Self:
        flags = [part for name, value in options.items() for part in (f"--{name}", value)]
        return cls(
            version, "ha-master", "--store", store, "--port", str(port), "--config", _file(store, config), *flags
        )

    @classmethod
    def slave(cls, version: str, store: Path, port: int, config: Mapping[str, object]) -> Self:
        address = f"127.0.0.1:{port}"
        return cls(version, "ha-slave", "--store", store, "--master", address, "--config", _file(store, config))

    def ask(self, cmd: str, **fields: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"cmd": cmd, **fields}) + "\n")
        self._process.stdin.flush()
        return self._line()

    def put(self, count: int, size: int, first: int = 0, **fields: object) -> list[dict[str, Any]]:
        return [
            self.ask(
                "put", topic="T", queueId=each % 3, size=size, seed=f"s{each}", tags="a", keys=f"k{each}", **fields
            )
            for each in range(first, first + count)
        ]

    @property
    def pid(self) -> int:
        return self._process.pid

    def quit(self) -> None:
        assert self.ask("quit")["event"] == "closed"
        self._process.wait(_SECONDS)

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_SECONDS)

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        if not text:
            ended = self._process.wait(_SECONDS)
            self._errors.seek(0)
            raise AssertionError(f"{self.command[-1]} ended ({ended}): {self._errors.read()[-4000:]}")
        found: dict[str, Any] = json.loads(text)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._process, self._errors:  # closes the pipes
            self.kill()


def _file(store: Path, config: Mapping[str, object]) -> Path:
    path = store.parent / f"{store.name}.config.json"
    path.write_text(json.dumps(dict(config)), encoding="utf-8")
    return path
