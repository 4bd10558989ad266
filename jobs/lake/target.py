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

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import random
import shutil
import time
import uuid
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

import pyarrow as pa
from pyarrow import fs

from segmentlog.store import ConfigError, SegmentLogError

from ..backfill.planning import Part, Window, Written
from .parquet_files import DataFile, Layout, arrow_type, sync, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..backfill.planning import Request

# Ledger


class TargetChangedError(SegmentLogError):
    """Another job has changed the table so that a part cannot be added to it."""

    condition = "SEGMENTLOG_TARGET_CHANGED"


PartKey: TypeAlias = tuple[Window, int]


class Row(NamedTuple):
    """Ledger of a table: the parts that its commits have added, for one job.

    ::

        snapshot, commit    segmentlog.part     {"window": …, "number": …, "offsets": …}      readable, until it expires
        ledger              one text per month  zlib, base64 of a line per part               as long as the table

    A row of the ledger is committed together with the files of its part, or is copied from commits.

    A part that a table holds, and the attempt that wrote its files.
    """

    part: Part
    written: Written
    attempt: str

    @property
    def key(self) -> PartKey:
        return self.part.window, self.part.number

    def to_json(self) -> str:
        return json.dumps([json.loads(self.part.to_json()), list(self.written), self.attempt], separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, where: str) -> Self:
        """Make a row of `to_json`; ``where`` is for the error."""
        try:
            part, written, attempt = json.loads(text)
            return cls(Part.from_json(json.dumps(part)), Written(*written), str(attempt))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{where} is not a part of a backfill: {error}", fix="Use another table") from error


def month_of(part: Part) -> str:
    """Return the month under which a part is kept: ``2026-01``; a text is written again for each part of its month."""
    return datetime.fromtimestamp(part.window.start_ms / 1000, UTC).strftime("%Y-%m")


def pack(rows: Iterable[Row]) -> str:
    lines = "\n".join(row.to_json() for row in sorted(rows, key=lambda each: each.key))
    return base64.b64encode(zlib.compress(lines.encode(), 9)).decode()


def unpack(text: str, where: str) -> list[Row]:
    """Return the rows of `pack`; ``where`` is for the error."""
    try:
        lines = zlib.decompress(base64.b64decode(text, validate=True)).decode()
    except (ValueError, zlib.error) as error:
        raise ConfigError(f"{where} is not a ledger of a backfill: {error}", fix="Use another table") from error
    return [Row.from_json(line, where) for line in lines.splitlines()]


# Attempts

_FOLDER: Final = "segmentlog"


class Attempt:
    """One attempt to write a part."""

    def __init__(self, directory: str, lease: int | None = None, lease_path: str = "", local: str = "") -> None:
        self.id = directory.rsplit("/", 1)[-1]
        self.directory = directory
        self._lease, self._lease_path, self._local = lease, lease_path, local

    def list_files(self, files: Sequence[DataFile]) -> None:
        """Note the files that are going to be committed."""
        if self._lease is not None:
            os.pwrite(self._lease, json.dumps([each.path for each in files]).encode(), 0)
            os.fsync(self._lease)

    def finish(self, files: Sequence[DataFile]) -> None:
        """Remove all files but the committed ones, and the lease."""
        if self._lease is not None:
            _sweep(self._local, {each.path for each in files})
            os.unlink(self._lease_path)
            self.release()

    def release(self) -> None:
        """Free the lock: the next run looks at this attempt if its lease is there."""
        if self._lease is not None:
            os.close(self._lease)
            self._lease = None


class Attempts:
    """Attempts to write a part: their files, and the removal of what killed runs have left.

    ::

        LOCATION/_segmentlog/attempts/JOB/ID lease, locked by the process that writes; lists the files before the commit
        DATA/segmentlog/ID/…/NAME.parquet    files of the attempt's tasks

        lease is       the table names ID     then its run was killed
        locked                                nothing: it runs
        free           no                     before the commit: files and lease are removed
        free           yes                    after the commit: files that it does not list are removed, and the lease

    The kernel frees the lock of a process that dies. Tasks that outlive it fail: the directory of their files is gone.
    Other file systems than that of this machine have no such locks. There the tools of the table remove such files.

    Attempts of a job.

    Parameters
    ----------
    location, data
        Places of the table and of its data files, as URIs or paths.
    job
    """

    def __init__(self, location: str, data: str, job: str) -> None:
        try:
            system, self._location = fs.FileSystem.from_uri(location)
            self._system, self._data = fs.FileSystem.from_uri(data)
        except (OSError, ValueError) as error:
            fix = "Use a path, or a URI of a file system that pyarrow has"
            raise ConfigError(f"location {location} cannot be opened: {error}", fix=fix) from error
        self._uri, self._job = data.rstrip("/"), job
        self._is_local = isinstance(system, fs.LocalFileSystem) and isinstance(self._system, fs.LocalFileSystem)

    def start(self) -> Attempt:
        name = uuid.uuid4().hex[:16]
        uri = f"{self._uri}/{_FOLDER}/{name}"
        path = f"{self._data.rstrip('/')}/{_FOLDER}/{name}"
        if not self._is_local:
            self._system.create_dir(path, recursive=True)
            return Attempt(uri)
        lease_path = os.path.join(self._leases, name)
        os.makedirs(self._leases, exist_ok=True)
        lease = _lock_new(lease_path)
        os.makedirs(path)
        sync(path)
        return Attempt(uri, lease, lease_path, path)

    def clean(self, committed: Callable[[], Container[str]], settled_s: float = 0) -> int:
        """Remove files of killed runs; return how many attempts they were.

        Parameters
        ----------
        committed
            Returns the names of the attempts whose files the table has now.
        settled_s
            How long a commit may still arrive at the catalog after its process has died.
        """
        count = 0
        if not self._is_local or not os.path.isdir(self._leases):
            return count
        for name in sorted(os.listdir(self._leases)):
            path = os.path.join(self._leases, name)
            with contextlib.suppress(FileNotFoundError), _Taken(path) as lease:
                if lease is None or time.time() - os.stat(lease).st_mtime < settled_s:
                    continue
                files = os.path.join(self._data, _FOLDER, name)
                # Asked with the lock: until then the attempt may have been committed.
                if name not in committed():
                    shutil.rmtree(files, ignore_errors=True)
                elif listed := os.pread(lease, os.fstat(lease).st_size, 0):
                    _sweep(files, set(json.loads(listed)))
                os.unlink(path)
                count += 1
        return count

    @property
    def _leases(self) -> str:
        return os.path.join(self._location, "_segmentlog", "attempts", self._job)


class _Taken:
    """A lease that is opened, and locked if its process is gone."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)

    def __enter__(self) -> int | None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        return self._descriptor

    def __exit__(self, *exc: object) -> None:
        os.close(self._descriptor)


def _lock_new(path: str) -> int:
    """Create and lock a lease. Another run may find it in between, and take it for that of a dead one."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def _sweep(directory: str, kept: set[str]) -> None:
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.relpath(path, directory) not in kept:
                os.unlink(path)


# Target

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
    from segmentlog.connector.read import spark_schema

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
