"""DLedgerGroup: the stores of one DLedger group, run by the oracle in one process; see ``oracle/run help``."""

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from . import oracle

CONFIG: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 16,
    "mappedFileSizeConsumeQueue": 1200,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
CHECKPOINT_S = 3.5
"""Seconds after which a broker has written what its group agreed on before; it writes every three."""


class DLedgerGroup:
    """Brokers ``n0``, ``n1``, … with stores in one directory. A context manager; at its end they are closed."""

    def __init__(self, version: str, folder: Path, brokers: int = 3, config: Mapping[str, object] = CONFIG) -> None:
        self.folder = folder
        self.names = [f"n{number}" for number in range(brokers)]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the group
        settings = folder.parent / f"{folder.name}.json"
        settings.write_text(json.dumps(config))
        ports = ",".join(map(str, free_ports(brokers)))
        env = {"ORACLE_JAVA_OPTS": oracle.BRIEF, **os.environ, "ROCKETMQ_VERSION": version}
        arguments = [oracle.RUN, "dledger", "--dir", folder, "--ports", ports, "--config", settings]
        self._process = subprocess.Popen(
            [str(each) for each in arguments],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def tell(self, cmd: str, **fields: object) -> dict[str, Any]:
        """Give a command and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"cmd": cmd, **fields}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise AssertionError(f"the group ended at {cmd}: {self._errors.read()[-3000:].decode()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def start(self, names: Sequence[str] | None = None) -> str:
        """Start brokers, all by default; return the leader's name."""
        for name in self.names if names is None else names:
            self.tell("start", node=name)
        return self.leader()

    def leader(self) -> str:
        """Wait for a leader that has dispatched all; return its name."""
        return str(self.tell("leader")["node"])

    def put(self, message: Mapping[str, object]) -> dict[str, Any]:
        """Put a message, as in a plan; return RocketMQ's answer. See ``AGAIN`` in the Makefile."""
        try:
            answer = self.tell("put", **message)
        except AssertionError as error:
            raise AssertionError(f"the group did not answer the put: {error}") from None
        assert answer["status"] == "PUT_OK", f"the group did not answer the put: {answer['status']}"
        return answer

    def crash(self) -> None:
        """Halt all brokers."""
        assert self._process.stdin is not None
        self._process.stdin.write('{"cmd":"crash"}\n')
        self._process.stdin.close()
        self._process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if kind is not None:
            self._process.kill()
        if not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait(120)
        self._process.stdout.close()
        self._errors.close()


def alone(name: str, brokers: int = 3, config: Mapping[str, object] = CONFIG) -> dict[str, object]:
    """Return the configuration with which the oracle opens the store of one broker of a group, without the others."""
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(free_ports(brokers)))
    of_group = {"enableDLegerCommitLog": True, "dLegerGroup": "oracle", "dLegerPeers": peers, "dLegerSelfId": name}
    return {**config, **of_group}


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
