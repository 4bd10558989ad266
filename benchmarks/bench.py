"""Resources shared by all sections, each created when a section first requests it.

::

    Bench ── workload   the rows, as a store and as Parquet
          ── spark      a session of two cores, with Kafka's jars if Kafka is a peer
          ── kafka      one broker; `kafka.topic` holds the rows
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import workload
from free_memory import FreeMemory
from harness import Case, Result, UnavailableError, measure
from peers.kafka import Kafka
from peers.kafka_broker import connector_jars
from session import CORES, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KAFKA = "kafka"


class Bench:
    """The argument of every section; a context manager that stops what it started.

    Parameters
    ----------
    folder
        Of its own, below which everything is made.
    rows, body_bytes, queues
        The workload.
    rounds
        How often to time each case.
    scale
        What the sizes of sections that do not use the workload are multiplied by.
    full
        Whether the sizes that need much disk and time are measured, too.
    peers
        Peers that are measured beside segmentlog.
    rocketmq
        Releases of RocketMQ to compare with.
    fills_memory
        Whether free memory is filled before each timing, see `FreeMemory`.
    tell
        Says what is going on.
    """

    def __init__(
        self,
        folder: Path,
        *,
        rows: int,
        body_bytes: int,
        queues: int,
        rounds: int,
        scale: float,
        full: bool,
        peers: Sequence[str],
        rocketmq: Sequence[str],
        fills_memory: bool,
        tell: Callable[[str], None],
    ) -> None:
        self.folder = folder
        self.rows = rows
        self.body_bytes = body_bytes
        self.queues = queues
        self.rounds = rounds
        self.scale = scale
        self.full = full
        self.peers = peers
        self.rocketmq = rocketmq
        self.memory = FreeMemory(folder / "memory") if fills_memory else None
        self.tell = tell
        self.skipped: dict[str, str] = {}
        self._stack = ExitStack()
        self._spark: SparkSession | None = None
        self._spark_stack = ExitStack()

    def scaled(self, count: int, least: int = 1) -> int:
        """Scale the size of a section."""
        return max(least, int(count * self.scale))

    def place(self, name: str) -> Path:
        """Return the path of a folder that does not exist."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        return path

    @contextmanager
    def briefly(self, *names: str) -> Iterator[list[Path]]:
        """Yield the paths of folders, and remove them at the end: not after memory was filled for the next timing."""
        try:
            yield [self.place(name) for name in names]
        finally:
            for name in names:
                self.place(name)

    def fill_memory(self) -> None:
        """Make memory what it is for each timing, see `FreeMemory`."""
        if self.memory is not None:
            self.memory.fill()

    def measure(self, cases: Sequence[Case]) -> list[Result]:
        """Time cases in turns."""
        return measure(cases, self.rounds, self.tell, self.fill_memory)

    def from_peer(self, peer: str, make: Callable[["Bench"], list[Case]], *, tool: str = "") -> list[Case]:
        """Return the cases of a peer; an empty list if it is not requested or cannot be measured here.

        Parameters
        ----------
        peer
            Name of the peer.
        make
            Makes the cases, or raises `UnavailableError`.
        tool
            Program that these cases need beside the peer. Where it is missing, other sections measure the peer.
        """
        if peer not in self.peers:
            return []
        try:
            return make(self)
        except UnavailableError as problem:
            self.skipped[tool or peer] = str(problem)
            self.tell(f"  {tool or peer} is left out: {problem}")
            return []

    @cached_property
    def workload(self) -> workload.Workload:
        """The rows."""
        self.tell(f"  writing {self.rows:,} rows")
        return workload.write(self.folder / "rows", rows=self.rows, queues=self.queues, body_bytes=self.body_bytes)

    @property
    def spark(self) -> "SparkSession":
        """The session, of two cores unless `restart_spark` said otherwise."""
        return self._spark or self.restart_spark(CORES)

    def restart_spark(self, cores: int) -> "SparkSession":
        """End the session, if there is one, and start one with so many cores."""
        self._spark_stack.close()
        self._spark = None
        jars: list[Path] = []
        if KAFKA in self.peers:
            try:
                jars = connector_jars()
            except UnavailableError as problem:
                self.skipped[KAFKA] = str(problem)
        self._spark = self._spark_stack.enter_context(session(self.folder, jars, cores))
        return self._spark

    @property
    def kafka(self) -> Kafka:
        """The broker; raises `UnavailableError` where there is none, each time for the same reason."""
        if KAFKA in self.skipped:
            raise UnavailableError(self.skipped[KAFKA])
        return self._kafka

    @cached_property
    def _kafka(self) -> Kafka:
        spark = self.spark  # finds a Java as well
        return self._stack.enter_context(Kafka.running(self.place("kafka"), lambda: self._spark or spark, self.tell))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if kind is None:
            # Not after an error: interrupted in an answer, the session cannot be talked to, and ends with this process.
            self._spark_stack.close()


def settle() -> None:
    """Write all dirty pages, so that no case pays for what the one before left behind."""
    os.sync()
