"""Whole RocketMQ brokers on a store directory, and questions of RocketMQ's own admin client to them."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from . import releases
from .oracle import RUN, TIMEOUT_SECONDS, Line, ask

SMALL = "-Xms64m -Xmx768m -XX:MaxDirectMemorySize=512m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a broker and a client beside each other."""


def _cheap(version: str) -> dict[str, object]:
    """Settings of a broker that computes for 3 s instead of 13 s, of which no test asks anything."""
    found: dict[str, object] = {"system.tls.server.mode": "disabled"}  # else it generates RSA keys as it starts
    if releases.TIMERS.holds(version):
        found["timerFlushIntervalMs"] = 10_000  # each flush compares 38 MB byte by byte
    if releases.TRANSACTION_METRICS.holds(version):
        # Until the first interval is over, RocketMQ's thread of these metrics spins. Drop when a release waits there.
        found["broker.transactionMetricFlushInterval"] = 1000
    return found


class FullBroker:
    """A broker that serves. Made by `serving`."""

    def __init__(self, version: str, ready: Line, folder: Path) -> None:
        self._version = version
        self._ready = ready
        self._folder = folder

    @property
    def port(self) -> int:
        port: int = self._ready["port"]
        return port

    @property
    def pid(self) -> int:
        pid: int = self._ready["pid"]
        return pid

    @property
    def ha_port(self) -> int:
        """Its ``haListenPort``."""
        port: int = self._ready["haPort"]
        return port

    @property
    def name_server(self) -> str:
        address: str = self._ready["namesrv"]
        return address

    def create(self, topic: str) -> None:
        """Let the name server know a topic; messages of it may be in the store already."""
        address = f"127.0.0.1:{self._ready['port']}"
        self._client("admin", "create", "--broker", address, "--topic", topic, "--queues", 4)

    def produce(self, topic: str, count: int, *options: object) -> list[Line]:
        """Send messages with RocketMQ's producer; one report for each."""
        lines = self._client("produce", "--topic", topic, "--count", count, *options)
        return [line for line in lines if line["type"] == "sent"]

    def consume(self, topic: str, count: int, *options: object) -> list[Line]:
        """Consume messages with RocketMQ's consumer, at most ``count``; one report for each."""
        lines = self._client("consume", "--topic", topic, "--max", count, "--from", "first", *options)
        return [line for line in lines if line["type"] != "summary"]

    def progress(self, topic: str, group: str) -> dict[int, int]:
        """Next queue offset of a group by queue id, as RocketMQ's admin client reports them."""
        lines = self._client("admin", "progress", "--topic", topic, "--group", group)
        return {line["queueId"]: line["consumerOffset"] for line in lines if line["topic"] == topic}

    def by_keys(self, topic: str, keys: Sequence[str]) -> list[list[int]]:
        """Physical offsets of what the client returns for each key, at most 64; it leaves hash collisions out."""
        return self._answers("keys", topic, keys)

    def by_ids(self, topic: str, ids: Sequence[str]) -> list[list[int]]:
        return self._answers("ids", topic, ids)

    def _answers(self, action: str, topic: str, texts: Sequence[str]) -> list[list[int]]:
        questions = self._folder / "questions"
        questions.write_text("\n".join(texts))
        *answers, _ = self._client("admin", action, "--topic", topic, "--file", questions)
        assert [answer["asked"] for answer in answers] == list(texts)
        return [answer["phyOffsets"] for answer in answers]

    def _client(self, *arguments: object) -> list[Line]:
        return ask(self._version, *arguments, "--namesrv", self._ready["namesrv"], java=SMALL)


@contextmanager
def serving(version: str, store: Path, config: Mapping[str, object], folder: Path) -> Iterator[FullBroker]:
    settings = folder / "broker.json"
    settings.write_text(json.dumps(_cheap(version) | dict(config)))
    command = [str(RUN), "broker", "--store", str(store), "--config", str(settings)]
    env = {"ORACLE_JAVA_OPTS": SMALL, **os.environ, "ROCKETMQ_VERSION": version}
    with (
        (folder / "broker.log").open("w") as log,
        subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            first = process.stdout.readline()
            if not first:
                raise AssertionError(f"no broker of RocketMQ {version}:\n{(folder / 'broker.log').read_text()[-4000:]}")
            yield FullBroker(version, json.loads(first), folder)
        finally:
            with suppress(BrokenPipeError):  # it was killed
                process.stdin.close()  # this is how it is told to end
            process.wait(timeout=TIMEOUT_SECONDS)
