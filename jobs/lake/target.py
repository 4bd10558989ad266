"""Table that a backfill writes part by part, each in one commit.

::

    write(part)   has the table the part? ── yes ─► nothing to add
                      │ no
                  attempt: tasks write files
                      │
                  load the table ─► has it the part? ── yes ─► another job was faster: remove the files
                      ▲                 no
                      └── conflict ── commit files and part ──► remove files that tasks left beside them

`iceberg` and `delta` say how a table is loaded, what it holds and how files are committed. A commit must fail if
another job has committed since the table was loaded.
"""

import hashlib
import json
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from segmentlog.store import ConfigError

from ..backfill.parts import Part, Written
from .attempts import Attempt, Attempts
from .ledger import PartKey, Row, TargetChangedError
from .parquet_files import DataFile, Layout, arrow_type, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..backfill.planning import Request

_TRIES: Final = 30
_LONGEST_WAIT_S: Final = 5.0


class Job:
    """Messages that a job is asked for, as far as it is the same job when they are equal."""

    def __init__(self, request: "Request") -> None:
        # What no message depends on is left out: sizes of tasks, and columns, which a table may get later.
        options = {name: text for name, text in sorted(request.options.items()) if not name.startswith(_TUNING)}
        self.topics = sorted(request.topics)
        self.origin = {"store": request.source.path, "options": options}
        text = json.dumps([self.origin, self.topics], sort_keys=True)
        self.id = hashlib.sha256(text.encode()).hexdigest()[:12]

    def to_json(self) -> str:
        return json.dumps({**self.origin, "topics": self.topics}, sort_keys=True)

    def check(self, others: Mapping[str, str], table: str) -> None:
        """Raise `ConfigError` if another job of the table, by its `to_json`, writes messages of this one."""
        for name, text in others.items():
            other = json.loads(text)
            topics = other.pop("topics")
            if name != self.id and other == self.origin and (both := set(self.topics).intersection(topics)):
                problem = f"{table} gets messages of {', '.join(sorted(both))} from a job for {', '.join(topics)}"
                raise ConfigError(problem, fix="Ask for the topics of that job, or write into another table")


_TUNING: Final = ("maxBytes", "maxRecords", "minPartitions", "batch", "propertyColumns", "corruptRecord")


def columns_of(request: "Request") -> pa.Schema:
    """Return the columns of a request's frames."""
    from segmentlog.connector.options.read_options import parse_read_options
    from segmentlog.connector.read.schema import spark_schema

    asked = {"path": request.source.path, "subscribe": ",".join(request.topics), "columns": ",".join(request.columns)}
    fields = spark_schema(parse_read_options({**request.options, **asked}))
    return pa.schema([pa.field(each.name, arrow_type(each.dataType)) for each in fields])


class LakeTarget(ABC):
    """Table that tasks write files for."""

    name: str
    conflicts: tuple[type[Exception], ...]
    """Errors of a commit that certainly has not been done."""
    attempts: Attempts

    @abstractmethod
    def refresh(self) -> None:
        """Load the table as it is now."""

    @abstractmethod
    def check(self) -> None:
        """Raise `ConfigError` if the frames do not fit into the table."""

    @abstractmethod
    def held(self) -> dict[PartKey, Row]:
        """Return the parts of this job that the loaded table has."""

    @abstractmethod
    def layout(self) -> Layout:
        """Return the layout of files for the loaded table."""

    @abstractmethod
    def commit(self, row: Row, rows: Mapping[PartKey, Row], attempt: Attempt, files: Sequence[DataFile]) -> None:
        """Add files and a part to the loaded table, which holds ``rows``."""

    def parts(self, since_ms: int = 0) -> Sequence[Part]:
        """Return the parts of this job that the table holds, of windows that start at some time or later."""
        self.refresh()
        return [row.part for row in self.held().values() if row.part.window.start_ms >= since_ms]

    def write(self, part: Part, frame: "DataFrame | None") -> Written:
        """Add the messages of a part in one commit, unless the table holds it."""
        self.refresh()
        there = self.held().get((part.window, part.number))
        if there is None:
            there = self._write(part, frame)
        if there.part.offsets != part.offsets:
            problem = f"{self.name} was written by another job: part {part.number} of {part.window} has other offsets"
            raise TargetChangedError(problem, fix="Start the job again: it plans from what the table holds now")
        return there.written

    def _write(self, part: Part, frame: "DataFrame | None") -> Row:
        attempt = self.attempts.start()
        try:
            layout = self.layout()
            files = [] if frame is None else write_files(frame, layout, attempt.directory)
            attempt.list_files(files)
        except BaseException:
            attempt.finish([])
            raise
        written = Written(sum(each.messages for each in files), len(files), sum(each.bytes for each in files))
        try:
            added = self._commit(Row(part, written, attempt.id), layout, attempt, files)
        except BaseException:
            # Whether the commit was done is not known: the next run looks, when the lock is free.
            attempt.release()
            raise
        attempt.finish(files if added.attempt == attempt.id else [])
        return added

    def _commit(self, row: Row, layout: Layout, attempt: Attempt, files: Sequence[DataFile]) -> Row:
        """Return the row that the table has for the part after the commit, which may be that of another job."""
        for count in range(_TRIES):
            self.refresh()
            rows = self.held()
            if (there := rows.get(row.key)) is not None:
                return there
            self.check()
            if self.layout() != layout:
                problem = f"{self.name} got other columns or partitions while a part was written"
                raise TargetChangedError(problem, fix="Start the job again")
            try:
                self.commit(row, rows, attempt, files)
            except self.conflicts:
                time.sleep(min(_LONGEST_WAIT_S, 0.05 * 2**count) * random.uniform(0.5, 1))  # noqa: S311 - no secret
            except Exception:
                self.refresh()
                if (there := self.held().get(row.key)) is not None:
                    return there
                raise
            else:
                return row
        problem = f"{self.name} could not be committed to: {_TRIES} times another writer was faster"
        raise TargetChangedError(problem, fix="Start the job again when fewer jobs write the table")


def first_line(error: Exception) -> str:
    """Return the kind and the first line of an error of a library."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
