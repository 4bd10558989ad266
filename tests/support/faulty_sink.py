"""The sink with faults: a task, a commit, or a step between them fails at a planted moment.

::

    faults/before.raise.0 ──► claimed by the first process there ──►   faults/hit.before.raise.0 ──► it happens

    task     before ── rows ── while ── rows ── staged ── after        raise, exit, kill, daemon, zombie
    driver   commit ── the sink's commit ── committed                  kill, flip, cut, longer, gone, swap

Each fault happens once; a moment with two of them is wrong twice. What was claimed is what was hit.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from segmentlog.connector.options.option import Mode
from segmentlog.connector.options.write_options import WriteOptions, parse_write_options
from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.connector.write.writer import (
    BATCH_ID,
    QUERY_ID,
    SegmentLogBatchWriter,
    SegmentLogStreamWriter,
    SinkPlan,
    StagedMessage,
)

from .children import start_zombie


class PlantedError(RuntimeError):
    """The accident of a task."""


class Faults:
    """Accidents that were planted for one store, and those that happened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def plant(self, moment: str, kind: str, times: int = 1) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for serial in range(times):
            (self.folder / f"{moment}.{kind}.{serial}").touch()

    def forget(self, moment: str) -> None:
        """Take back what was planted for a moment and has not happened."""
        for file in self.folder.glob(f"{moment}.*"):
            file.unlink()

    def take_hits(self) -> int:
        """Count what happened since the last time, and make sure that nothing that was planted is left."""
        left = [file.name for file in self.folder.iterdir() if not file.name.startswith(("hit.", "late"))]
        assert left == [], f"these never happened: {left}"
        hits = [file for file in self.folder.iterdir() if file.name.startswith("hit.")]
        for file in hits:
            file.unlink()
        return len(hits)

    def claim(self, moment: str) -> str | None:
        """Take one accident of a moment, if there is one; its kind."""
        for file in sorted(self.folder.glob(f"{moment}.*")):
            try:
                file.rename(file.with_name(f"hit.{file.name}"))
            except FileNotFoundError:
                continue  # another one took it
            return file.name.split(".")[1]
        return None


class _FaultyTasks:
    _faults: Faults
    _plan: SinkPlan
    _job_of: Callable[[str | None, str | None], str]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        self._strike("before")
        message: StagedMessage = super().write(self._midway(iterator))  # type: ignore[misc]
        self._strike("after")
        return message

    def _strike(self, moment: str) -> None:
        kind = self._faults.claim(moment)
        if kind is None:
            return
        if kind == "zombie":
            self._leave_zombie()
        if kind == "exit":
            os._exit(7)
        if kind == "daemon":  # with which all Python workers of the executor are lost
            os.kill(os.getppid(), signal.SIGKILL)
        if kind in {"kill", "daemon"}:
            os.kill(os.getpid(), signal.SIGKILL)
        raise PlantedError(f"planted: {moment}")

    def _midway(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 1:
                self._strike("while")
            yield batch

    def _leave_zombie(self) -> None:
        """Start a process that stages rows for this task when all is over."""
        task = TaskContext.get()
        assert task is not None
        job = self._job_of(task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID))
        path = self._plan.options.path
        start_zombie(path, job, task.partitionId(), self._faults.folder)


def _alter(path: str, messages: Sequence[WriterCommitMessage | None], kind: str) -> None:
    said = [each.staged for each in messages if isinstance(each, StagedMessage) and each.staged is not None]
    folder = Path(path, ".segmentlog", "staging")
    file = folder / said[0].name
    data = bytearray(file.read_bytes())
    if kind == "flip":
        data[max(data.rfind(b"row-"), data.rfind(b"Orders/"), 0)] ^= 0x10  # in what a message says, no header or length
    elif kind == "cut":
        del data[-9:]
    elif kind == "longer":
        data += data[:64]
    elif kind == "swap":
        data = bytearray((folder / said[1].name).read_bytes())
    file.unlink()
    if kind != "gone":
        file.write_bytes(data)


def _strike_commit(faults: Faults, moment: str, path: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    kind = faults.claim(moment)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind is not None:
        _alter(path, messages, kind)


class FaultyBatchWriter(_FaultyTasks, SegmentLogBatchWriter):
    def __init__(self, options: WriteOptions, schema: StructType, faults: Faults) -> None:
        super().__init__(options, schema)
        self._faults = faults

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _strike_commit(self._faults, "commit", self._plan.options.path, messages)
        super().commit(messages)
        _strike_commit(self._faults, "committed", self._plan.options.path, messages)


class FaultyStreamWriter(_FaultyTasks, SegmentLogStreamWriter):
    """The writer of a stream's batches, with accidents."""

    def __init__(self, options: WriteOptions, schema: StructType, faults: Faults) -> None:
        super().__init__(options, schema)
        self._faults = faults

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _strike_commit(self._faults, "commit", self._plan.options.path, messages)
        super().commit(messages, batchId)
        _strike_commit(self._faults, "committed", self._plan.options.path, messages)


class FaultySink(SegmentLogDataSource):
    """The data source, with one more option: the directory of the accidents."""

    @classmethod
    def name(cls) -> str:
        return "faulty"

    def writer(self, schema: StructType, overwrite: bool) -> FaultyBatchWriter:
        given, faults = self._split()
        return FaultyBatchWriter(parse_write_options(given, Mode.BATCH), schema, faults)

    def streamWriter(self, schema: StructType, overwrite: bool) -> FaultyStreamWriter:  # noqa: N802 - Spark's name
        given, faults = self._split()
        return FaultyStreamWriter(parse_write_options(given, Mode.STREAM), schema, faults)

    def _split(self) -> tuple[dict[str, str], Faults]:
        given = dict(self.options)
        return given, Faults(Path(given.pop("faults")))
