"""Resources shared by all sections, each created when a section first requests it.

::

    Bench ── workload   the rows, as a store and as Parquet
          ── spark      a session of two cores, with Kafka's jars if Kafka is a peer
          ── kafka      one broker
"""

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self, TypeVar

import workload
from harness import OURS, Case, Result, UnavailableError, measure, nothing, tell
from machine import memory_filler
from peers.kafka import Kafka, connector_jars
from pyspark.sql import SparkSession

from segmentlog.spark import prepare_java, prepare_workers, register

CORES = 2
KAFKA = "kafka"
Found = TypeVar("Found")
SPARK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "4g",  # with 2 GiB, Kafka's tuned consumers once filled it, and all later sections failed
    # Each write has a Kafka producer of its own, which holds its buffers: let go of it soon, not in ten minutes.
    "spark.kafka.producer.cache.timeout": "5s",
    "spark.kafka.producer.cache.evictorRunInterval": "1s",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@dataclass(kw_only=True)
class Bench:
    """The argument of every section; a context manager that stops what it started.

    Attributes
    ----------
    folder
        Of its own, below which everything is made.
    rows, body_bytes
        The workload.
    rounds
        How often to time each case.
    scale
        What the sizes of sections that do not use the workload are multiplied by.
    peers
        Peers that are measured beside segmentlog.
    memory
        A sparse file that free memory is filled with before each timing; None: memory stays as it is.
    skipped
        Peers and cases that were left out, and why.
    figures
        Single numbers of the section that runs, by name.
    """

    folder: Path
    rows: int
    body_bytes: int
    rounds: int
    scale: float
    peers: Sequence[str]
    memory: Path | None
    skipped: dict[str, str] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _spark: SparkSession | None = None

    def scaled(self, count: int, least: int = 1) -> int:
        """Scale the size of a section."""
        return max(least, int(count * self.scale))

    def place(self, name: str) -> Path:
        """Return the path of a folder or file that does not exist."""
        path = self.folder / name
        clear(path)
        return path

    def measure(self, cases: Sequence[Case]) -> list[Result]:
        """Time cases in turns."""
        return measure(cases, self.rounds, self.fill_memory, tell)

    @cached_property
    def fill_memory(self) -> Callable[[], None]:
        """Make memory what it is for each timing."""
        return memory_filler(self.memory) if self.memory else nothing

    def from_peers(self, **make: Callable[["Bench"], list[Found]]) -> list[Found]:
        """Return the cases of peers, or what they took; nothing of one that is not requested or cannot run here."""
        found = list[Found]()
        for peer in (each for each in make if each in (OURS, *self.peers) and each not in self.skipped):
            try:
                found += make[peer](self)
            except UnavailableError as problem:
                self.skip(peer, str(problem))
        return found

    def skip(self, what: str, why: str) -> None:
        """Note what is left out."""
        self.skipped[what] = why
        tell(f"  {what} is left out: {why}")

    @cached_property
    def workload(self) -> workload.Workload:
        """The rows."""
        tell(f"  writing {self.rows:,} rows")
        return workload.write(self.folder / "rows", rows=self.rows, body_bytes=self.body_bytes)

    @property
    def spark(self) -> SparkSession:
        """The session, of two cores unless `restart_spark` said otherwise."""
        return self._spark or self.restart_spark(CORES)

    def restart_spark(self, cores: int) -> SparkSession:
        """End the session, if there is one, and start one with so many cores."""
        if self._spark is not None:
            self._spark.stop()
        prepare_java()
        prepare_workers()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Workers import the transport peer's source by name.
        os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        folders = {"spark.local.dir": self.folder / "spark", "spark.sql.warehouse.dir": self.folder / "warehouse"}
        builder = SparkSession.builder.master(f"local[{cores}]").config(map={**SPARK, **folders})
        if KAFKA in self.peers:
            try:
                builder = builder.config("spark.jars", ",".join(map(str, connector_jars())))
            except UnavailableError as problem:
                self.skip(KAFKA, str(problem))
        self._spark = builder.getOrCreate()
        register(self._spark)
        return self._spark

    @cached_property
    def kafka(self) -> Kafka:
        """The broker."""
        assert self.spark  # finds a Java as well
        return self._stack.enter_context(Kafka.running(self.place("kafka"), lambda: self.spark))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stack.close()
        if kind is None and self._spark is not None:
            # Not after an error: interrupted in an answer, the session cannot be talked to, and ends with this process.
            self._spark.stop()


def clear(path: Path) -> None:
    """Remove a folder or file, if it is there; its folder exists then."""
    if path.is_file():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(exist_ok=True)
