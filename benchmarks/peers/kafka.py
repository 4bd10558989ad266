"""Spark's Kafka source and sink, against a real broker on loopback: the peer that users know.

::

    Spark's Kafka sink ──► the broker, each queue a partition of the same number ──► Spark's Kafka source

Topics are made and deleted, and single rows produced, by the client that Spark has on its class path.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from harness import Case, counts
from page_cache import bring_in

from .kafka_broker import broker

if TYPE_CHECKING:
    from bench import Bench
    from pyspark.sql import DataFrame, SparkSession
    from workload import Workload

TOPIC = "bench"
PARTITIONS = 8

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
    tell
        Prints progress.
    log
        Where the broker keeps its topics.
    """

    def __init__(
        self, server: str, spark: Callable[[], "SparkSession"], tell: Callable[[str], None], log: Path
    ) -> None:
        self.server = server
        self.log = log
        self._spark = spark
        self._tell = tell
        self._loaded = ""
        self._fresh: dict[str, int] = {}
        self._v1_sources = spark().conf.get(V1_SOURCES) or ""

    @classmethod
    @contextmanager
    def running(cls, folder: Path, spark: Callable[[], "SparkSession"], tell: Callable[[str], None]) -> Iterator[Self]:
        """Start a broker, and stop it in the end."""
        with broker(folder, PARTITIONS) as server:
            yield cls(server, spark, tell, folder / "log")

    def topic(self, work: "Workload") -> str:
        """Return the topic with all rows in their order, properties as headers; loaded on the first call."""
        if not self._loaded:
            self._tell("  kafka: loading the rows")
            self.make(TOPIC, work.queues)
            frame = self._spark().read.parquet(str(work.parquet))
            self.write(frame.selectExpr("queueId AS partition", *COLUMNS, HEADERS), TOPIC, TUNED_SINK, headers=True)
            self._loaded = TOPIC
        return self._loaded

    def read(self, topic: str, *, headers: bool = False, tuned: bool = False, **options: object) -> "DataFrame":
        """Read a topic from its beginning."""
        # Spark keeps the newer of its two scans switched off for batch queries of Kafka.
        newer = ",".join(name for name in self._v1_sources.split(",") if name != "kafka")
        self._spark().conf.set(V1_SOURCES, newer if tuned else self._v1_sources)
        source = self._spark().read.format("kafka").options(**self._source(topic, tuned=tuned))
        return source.options(includeHeaders=headers, **options).load()

    def stream(self, topic: str, *, tuned: bool = False, **options: object) -> "DataFrame":
        """Read a topic from its beginning, as a stream."""
        source = self._spark().readStream.format("kafka").options(**self._source(topic, tuned=tuned))
        return source.options(**options).load()

    def write(self, frame: "DataFrame", topic: str, options: dict[str, int], *, headers: bool = False) -> None:
        """Append a frame of Kafka's columns to a topic."""
        self._spark().conf.set(V1_SOURCES, self._v1_sources)
        # Spark keeps a producer for each set of options. As in a job of a user, each write has one of its own.
        client = {"kafka.bootstrap.servers": self.server, "kafka.client.id": topic, "topic": topic}
        sink = frame.write.format("kafka").mode("append").options(**client)
        sink.options(includeHeaders=headers, **options).save()

    def make(self, topic: str, partitions: int, config: Mapping[str, str] = NO_CONFIG) -> None:
        """Make a topic with a configuration of its own."""
        java = self._jvm.java.util
        new = self._jvm.org.apache.kafka.clients.admin.NewTopic
        settings = java.HashMap()
        for name, value in config.items():
            settings.put(name, value)
        wanted = new(topic, java.Optional.of(partitions), java.Optional.empty()).configs(settings)
        self._admin.createTopics(java.Collections.singleton(wanted)).all().get()

    def fresh(self, name: str, partitions: int, config: Mapping[str, str] = NO_CONFIG) -> str:
        """Delete the topic that the last call created for a name, and create an empty one; return its name."""
        last = self._fresh.get(name)
        if last is not None:
            self._admin.deleteTopics(self._jvm.java.util.Collections.singleton(f"{name}-{last}")).all().get()
        self._fresh[name] = (last or 0) + 1
        self.make(self.newest(name), partitions, config)
        return self.newest(name)

    def newest(self, name: str) -> str:
        """Return the topic that `fresh` created last for a name."""
        return f"{name}-{self._fresh[name]}"

    def send(self, topic: str, value: bytes) -> None:
        """Produce one row, and wait until the broker has it."""
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord(topic, value)
        self._producer.send(record).get()

    def _source(self, topic: str, *, tuned: bool) -> dict[str, object]:
        options = {"kafka.bootstrap.servers": self.server, "subscribe": topic, "startingOffsets": "earliest"}
        return {**options, **(TUNED_SOURCE if tuned else {})}

    @property
    def _jvm(self) -> Any:
        return self._spark()._jvm  # noqa: SLF001 - Spark has no other door to the client in its JVM

    @cached_property
    def _admin(self) -> Any:
        return self._jvm.org.apache.kafka.clients.admin.AdminClient.create(self._properties())

    @cached_property
    def _producer(self) -> Any:
        return self._jvm.org.apache.kafka.clients.producer.KafkaProducer(self._properties())

    def _properties(self) -> Any:
        properties = self._jvm.java.util.Properties()
        serializers = {f"{which}.serializer": SERIALIZER for which in ("key", "value")}
        for name, value in {"bootstrap.servers": self.server, **serializers}.items():
            properties.setProperty(name, value)
        return properties


def cases(bench: "Bench") -> list[Case]:
    """Return the reads of all rows."""
    kafka, rows = bench.kafka, bench.workload.rows
    topic = kafka.topic(bench.workload)

    def save(*, headers: bool, tuned: bool) -> None:
        kafka.read(topic, headers=headers, tuned=tuned).write.format("noop").mode("overwrite").save()

    def count(*, tuned: bool) -> None:
        counts(kafka.read(topic, tuned=tuned), rows)

    return [
        Case(name=f"kafka: {name}", peer="kafka", rows=rows, action=action, before=partial(bring_in, kafka.log))
        for name, action in {
            "all columns, headers": partial(save, headers=True, tuned=False),
            "all columns, headers, tuned": partial(save, headers=True, tuned=True),
            "all columns": partial(save, headers=False, tuned=False),
            "count": partial(count, tuned=False),
            "count, tuned": partial(count, tuned=True),
        }.items()
    ]
