"""Spark's Kafka source and sink, against a real broker on loopback: the peer that users know.

::

    Maven ── jars ──► cache directory, once ──► one KRaft broker ◄──► Spark's Kafka sink and source

Each queue is a partition of the same number. Topics are made and deleted, and single rows produced, by the client that
Spark has on its class path.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from harness import UnavailableError, tell
from pyspark.sql import DataFrame, SparkSession
from test_support import support
from workload import QUEUES, Workload

POMS = Path(__file__).parent / "kafka_jars"
MAVEN_SECONDS, START_SECONDS = 600, 60
CLUSTER = "c2VnbWVudGxvZy1iZW5jaA"
TOPIC = "bench"
TUNED_SOURCE = {
    "kafka.max.partition.fetch.bytes": 16 << 20,
    "kafka.fetch.max.bytes": 64 << 20,
    "kafka.max.poll.records": 20_000,
    "kafka.receive.buffer.bytes": 1 << 20,
    # A consumer asks for more than there is before it closes, and then waits: by default half a second a partition.
    "kafka.fetch.max.wait.ms": 20,
}
TUNED_SINK = {
    "kafka.batch.size": 1 << 19,
    "kafka.linger.ms": 20,
    "kafka.buffer.memory": 128 << 20,
    "kafka.max.request.size": 8 << 20,
    "kafka.send.buffer.bytes": 1 << 20,
}
DURABLE = {"flush.messages": "1"}
"""Configuration of a topic whose log is synced after each batch that a producer sends."""
NO_CONFIG: Mapping[str, str] = {}
V1_SOURCES = "spark.sql.sources.useV1SourceList"
COLUMNS = ("CAST(keys AS binary) AS key", "body AS value")
HEADERS = "transform(map_entries(properties), p -> struct(p.key AS key, CAST(p.value AS binary) AS value)) AS headers"
SERIALIZER = "org.apache.kafka.common.serialization.ByteArraySerializer"


class Kafka:
    """A running broker. Use `running`.

    Parameters
    ----------
    server
        ``host:port``.
    spark
        Returns the current session.
    log
        Where the broker keeps its topics.
    """

    def __init__(self, server: str, spark: Callable[[], SparkSession], log: Path) -> None:
        self.server = server
        self.log = log
        self._spark = spark
        self._fresh: dict[str, int] = {}
        self._loaded = False
        self._v1_sources = spark().conf.get(V1_SOURCES) or ""

    @classmethod
    @contextmanager
    def running(cls, folder: Path, spark: Callable[[], SparkSession]) -> Iterator[Self]:
        """Start a broker, and stop it in the end."""
        with broker(folder) as server:
            yield cls(server, spark, folder / "log")

    def topic(self, work: Workload) -> str:
        """Return the topic with all rows in their order, properties as headers; loaded on the first call."""
        if not self._loaded:
            tell("  kafka: loading the rows")
            topic = self.fresh(TOPIC, QUEUES)
            frame = self._spark().read.parquet(str(work.parquet))
            self.write(frame.selectExpr("queueId AS partition", *COLUMNS, HEADERS), topic, TUNED_SINK, headers=True)
            self._loaded = True
        return self.newest(TOPIC)

    def read(self, topic: str, *, headers: bool = False, tuned: bool = False) -> DataFrame:
        """Read a topic from its beginning."""
        # Spark keeps the newer of its two scans switched off for batch queries of Kafka.
        newer = ",".join(name for name in self._v1_sources.split(",") if name != "kafka")
        self._spark().conf.set(V1_SOURCES, newer if tuned else self._v1_sources)
        return self._spark().read.format("kafka").options(**self._source(topic, tuned), includeHeaders=headers).load()

    def stream(self, topic: str, *, tuned: bool = False, **options: object) -> DataFrame:
        """Read a topic from its beginning, as a stream."""
        source = self._spark().readStream.format("kafka").options(**self._source(topic, tuned))
        return source.options(**options).load()

    def write(self, frame: DataFrame, topic: str, options: dict[str, int], *, headers: bool = False) -> None:
        """Append a frame of Kafka's columns to a topic."""
        self._spark().conf.set(V1_SOURCES, self._v1_sources)
        # Spark keeps a producer for each set of options. As in a job of a user, each write has one of its own.
        client = {"kafka.bootstrap.servers": self.server, "kafka.client.id": topic, "topic": topic}
        sink = frame.write.format("kafka").mode("append").options(**client)
        sink.options(includeHeaders=headers, **options).save()

    def fresh(self, name: str, partitions: int, config: Mapping[str, str] = NO_CONFIG) -> str:
        """Delete the topic that the last call created for a name, and create an empty one; return its name."""
        last = self._fresh.get(name)
        if last is not None:
            self._admin.deleteTopics([f"{name}-{last}"]).all().get()
        self._fresh[name] = (last or 0) + 1
        optional, new = self._jvm.java.util.Optional, self._jvm.org.apache.kafka.clients.admin.NewTopic
        wanted = new(self.newest(name), optional.of(partitions), optional.empty()).configs(dict(config))
        self._admin.createTopics([wanted]).all().get()
        return self.newest(name)

    def newest(self, name: str) -> str:
        """Return the topic that `fresh` created last for a name."""
        return f"{name}-{self._fresh[name]}"

    def send(self, topic: str, value: bytes) -> None:
        """Produce one row, and wait until the broker has it."""
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord(topic, value)
        self._producer.send(record).get()

    def _source(self, topic: str, tuned: bool) -> dict[str, object]:  # noqa: FBT001 - read and stream name it
        options = {"kafka.bootstrap.servers": self.server, "subscribe": topic, "startingOffsets": "earliest"}
        return {**options, **(TUNED_SOURCE if tuned else {})}

    @property
    def _jvm(self) -> Any:
        return self._spark()._jvm  # noqa: SLF001 - Spark has no other door to the client in its JVM

    @cached_property
    def _admin(self) -> Any:
        return self._jvm.org.apache.kafka.clients.admin.AdminClient.create(self._client)

    @cached_property
    def _producer(self) -> Any:
        return self._jvm.org.apache.kafka.clients.producer.KafkaProducer(self._client)

    @property
    def _client(self) -> dict[str, str]:
        return {"bootstrap.servers": self.server, "key.serializer": SERIALIZER, "value.serializer": SERIALIZER}


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """Run one broker in KRaft mode; yield its address."""
    classes = os.pathsep.join(map(str, _jars("broker")))
    java = [f"{os.environ['JAVA_HOME']}/bin/java", "-Xms1g", "-Xmx1g", "-cp", classes]
    folder.mkdir()
    port, controller_port = (support("ha").free_port() for _ in range(2))
    server = f"127.0.0.1:{port}"
    properties, log = folder / "server.properties", folder / "broker.log"
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://{server},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{server}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "log",
        "offsets.topic.replication.factor": 1,
        "group.initial.rebalance.delay.ms": 0,
        "log.retention.hours": -1,  # the rows are from 2023
        "log.message.timestamp.type": "LogAppendTime",
        "log.segment.delete.delay.ms": 1000,  # what a topic held, once it is deleted; a minute by default
    }
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with log.open("wb") as output:
        storage = ["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", properties]
        subprocess.run([*java, *storage], stdout=output, stderr=output, check=True, timeout=START_SECONDS)
        process = subprocess.Popen(
            [*java, "kafka.Kafka", properties], stdout=output, stderr=output, start_new_session=True
        )
        try:
            _await(port, log)
            yield server
        finally:
            process.kill()  # what it holds is thrown away
            process.wait()


def _await(port: int, log: Path) -> None:
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise UnavailableError(f"the Kafka broker did not start: {log.read_text(errors='replace')[-1000:]}")


def connector_jars() -> list[Path]:
    """Fetch the jars that Spark needs on its class path; they must be known before the session starts."""
    return _jars("connector")


def _jars(which: str) -> list[Path]:
    """Return the jars of ``kafka_jars/{which}.xml``, downloaded by Maven if they are not in the cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "segmentlog-bench" / which
    wanted = (POMS / f"{which}.xml").read_bytes()
    fetched = cache / "fetched.xml"  # written last: what is there is whole, and of these versions
    if not fetched.exists() or fetched.read_bytes() != wanted:
        maven = shutil.which("mvn")
        if maven is None:
            raise UnavailableError("Kafka's jars are fetched with Maven, and there is no mvn on the PATH")
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir(parents=True)
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={cache}"]
        command = [maven, "-q", "-B", "-f", str(POMS / f"{which}.xml"), *goal]
        done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_SECONDS, check=False)
        if done.returncode:
            raise UnavailableError(f"Maven could not fetch Kafka's jars: {(done.stdout + done.stderr)[-1000:]}")
        fetched.write_bytes(wanted)
    return sorted(cache.glob("*.jar"))
