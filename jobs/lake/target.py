"""Table that a backfill writes part by part, each in one commit.

::

    write(part)   has the table the part? ── yes ─► nothing to add
                      │ no
                  attempt: tasks write files
                      │
                  load the table ─► has it the part? ── yes ─► another job was faster: remove the files
                      ▲                 no
                      │           do its columns, partitions, rules and windows still fit? ── no ─► error
                      │                 yes
                      └── conflict ── commit files and part ──► remove files that tasks left beside them

A ledger names all parts that were ever committed; `query.ledgers` proves which of them the table has. `iceberg` and
`delta` say how a table is created and files are committed. A commit must fail if another run of the job has committed
since the table was loaded.
"""

import contextlib
import hashlib
import json
import logging
import os
import random
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import fs

from segmentlog.query.ledgers import FOLDER, Ledger, attempt_of, first_line, listed
from segmentlog.query.parts import Part, Row, StoreIdentity, Written, ends_of
from segmentlog.store import ConfigError, SegmentLogError

from ..backfill.planning import check_alignment
from ..state_file import sync
from .parquet_files import DataFile, TableLayout, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..backfill.planning import Request

_ABANDONED: Final = timedelta(days=1)  # a run that writes finishes a file in less
_TRIES: Final = 30
_LONGEST_WAIT_S: Final = 5.0
_TUNING: Final = (
    *("maxBytes", "maxRecords", "minPartitions", "batch", "propertyColumns", "corruptRecord"),
    "commitLogPaths",  # belongs to the store
)
_log: Final = logging.getLogger(__name__)


class TargetChangedError(SegmentLogError):
    """Another job has changed the table so that a part cannot be added to it."""

    condition = "SEGMENTLOG_TARGET_CHANGED"


# Attempts


class Attempt:
    """One attempt to write a part: a directory for the files of its tasks, which are removed unless committed."""

    def __init__(self, system: fs.FileSystem, path: str, directory: str) -> None:
        self.id = directory.rsplit("/", 1)[-1]
        self.directory = directory
        self.is_sent = False
        """True after the first try of a commit: from then on the table may have the files."""
        self._system, self._path = system, path

    def finish(self, files: Sequence[DataFile]) -> None:
        """Remove all files but the committed ones. What cannot be removed is no error: the part is as it should be."""
        kept = {f"{self._path}/{each.path}" for each in files}
        with contextlib.suppress(OSError):
            if not kept:
                self._system.delete_dir(self._path)
                return
            for each in self._system.get_file_info(fs.FileSelector(self._path, recursive=True)):
                if each.type == fs.FileType.File and each.path not in kept:
                    self._system.delete_file(each.path)


class Attempts:
    """Attempts of a job to write parts of a table, and the removal of those that killed runs have left.

    ::

        DATA/segmentlog/JOB/ID/…/NAME.parquet      files of an attempt's tasks

    An attempt without a commit whose newest file is older than a day is removed by the next run, as the tools of
    Iceberg and Delta remove files that no snapshot names. JOB is a hash of table and job: tables may share a directory.

    Parameters
    ----------
    location, data
        Places of the table and of its data files, as URIs or paths.
    job
    """

    def __init__(self, location: str, data: str, job: str) -> None:
        folder = f"{FOLDER}/{hashlib.sha256(f'{location} {job}'.encode()).hexdigest()[:12]}"
        try:
            self._system, path = fs.FileSystem.from_uri(data)
        except (OSError, ValueError) as error:
            fix = "Use a path, or a URI of a file system that pyarrow has"
            raise ConfigError(f"location {data} cannot be opened: {error}", fix=fix) from error
        self._path, self._uri = f"{path.rstrip('/')}/{folder}", f"{data.rstrip('/')}/{folder}"

    def start(self) -> Attempt:
        name = uuid.uuid4().hex[:16]
        path = f"{self._path}/{name}"
        self._system.create_dir(path, recursive=True)
        if isinstance(self._system, fs.LocalFileSystem):
            sync(path)
            sync(os.path.dirname(path))
        return Attempt(self._system, path, f"{self._uri}/{name}")

    def clean(self, ledger: Container[str], committed: Callable[[], Container[str | None]]) -> int:
        """Remove the files of killed runs; return how many attempts they were.

        Parameters
        ----------
        ledger
            Names of attempts that are known to be committed.
        committed
            Returns the names of all attempts whose files the table has.
        """
        found = listed(self._system, self._path)
        old = [each for each in found if each.base_name not in ledger and self._is_abandoned(each)]
        known = committed() if old else ()
        gone = [each.path for each in old if each.base_name not in known]
        for path in gone:
            with contextlib.suppress(FileNotFoundError):  # another run removes it, too
                self._system.delete_dir(path)
        return len(gone)

    def _is_abandoned(self, attempt: fs.FileInfo) -> bool:
        files = listed(self._system, attempt.path, recursive=True)
        times = [each.mtime for each in (attempt, *files) if each.mtime is not None]  # S3's directories have none
        return bool(times) and max(times) < datetime.now(UTC) - _ABANDONED


# Target


class Job:
    """Identity of a job: requests with the same store, topics and options are the same job.

    Parameters
    ----------
    request
    is_new
        Whether the table may have a job of equal topics and filters that reads another store.
    """

    def __init__(self, request: "Request", *, is_new: bool = False) -> None:
        # What no message depends on is left out: sizes of tasks, and columns, which a table may get later.
        self._options = {name: text for name, text in sorted(request.options.items()) if not name.startswith(_TUNING)}
        self.topics = sorted(request.topics)
        self.store = StoreIdentity.of(request.source)
        self._is_new = is_new
        text = json.dumps([self.store.id or self.store.path, self._options, self.topics])
        self.id = hashlib.sha256(text.encode()).hexdigest()[:12]

    def to_json(self) -> str:
        found = {"store": self.store.path, "storeId": self.store.id, "options": self._options, "topics": self.topics}
        return json.dumps(found, sort_keys=True)

    def find(self, others: Mapping[str, str], table: str) -> str:
        """Return the id that this job has in a table, by the `to_json` of the jobs there.

        Raises
        ------
        ConfigError
            If another job of the table writes messages of this one, or of a store that may be this one.
        """
        jobs = {name: json.loads(text) for name, text in others.items()}
        jobs = {name: job for name, job in jobs.items() if job["options"] == self._options}
        stores = {name: StoreIdentity(job["store"], job["storeId"]) for name, job in jobs.items()}
        for name, job in jobs.items():
            if self.store.is_same(stores[name]) and job["topics"] == self.topics:
                return name
        for name, job in jobs.items():
            if not (both := ", ".join(sorted(set(self.topics).intersection(job["topics"])))):
                continue
            if self.store.is_same(stores[name]):
                problem = f"{table} gets messages of {both} from a job for {', '.join(job['topics'])}"
                raise ConfigError(problem, fix="Ask for the topics of that job, or write into another table")
            if not self._is_new:
                problem = f"{table} gets messages of {both} from a job that reads {stores[name].path}"
                fix = "Name the store as that job does, or pass --new-job if it is the store of another broker"
                raise ConfigError(problem, fix=fix)
        return self.id


def columns_of(request: "Request") -> pa.Schema:
    """Return the columns of a request's frames."""
    from segmentlog.connector.options.read_options import parse_read_options
    from segmentlog.connector.read import spark_schema
    from segmentlog.connector.setup.spark_versions import to_arrow_schema

    asked = {"path": request.source.path, "subscribe": ",".join(request.topics), "columns": ",".join(request.columns)}
    return to_arrow_schema(spark_schema(parse_read_options({**request.options, **asked})))


class LakeTarget(Ledger):
    """Table that tasks write files for."""

    job: Job
    conflicts: tuple[type[Exception], ...]
    """Errors of a commit that certainly has not been done."""
    attempts: Attempts

    @abstractmethod
    def check(self) -> None:
        """Raise `ConfigError` if the frames do not fit into the table, or it has rules that are not followed here."""

    @abstractmethod
    def layout(self) -> TableLayout:
        """Return the layout of files for the loaded table."""

    @abstractmethod
    def commit(self, row: Row, rows: Sequence[Row], attempt: Attempt, files: Sequence[DataFile]) -> bool:
        """Add files and a part to the table, whose ledger is ``rows``; return False if another was in between."""

    def clean(self) -> None:
        """Remove files of killed runs, as far as the file system allows it."""
        try:
            self.attempts.clean({row.attempt for row in self.ledger()}, self._named)
        except Exception as error:  # noqa: BLE001 - of any library; the files take space, and do no harm
            _log.warning("%s: files of killed runs are not removed: %s", self.name, first_line(error))

    def _named(self) -> set[str | None]:
        self.refresh()
        return {*map(attempt_of, self.files({})), *(row.attempt for row in self.ledger())}  # the ledger may be lost

    def write(self, part: Part, frame: "DataFrame | None") -> Written:
        """Add the messages of a part in one commit, unless the table holds it."""
        self.refresh()
        there = self._there(part)
        if there is None:
            there = self._write(part, frame)
        if there.part.offsets != part.offsets:
            problem = f"{self.name} was written by another job: part {part.number} of {part.window} has other offsets"
            raise TargetChangedError(problem, fix="Start the job again: it plans from what the table holds now")
        return there.written

    def _there(self, part: Part) -> Row | None:
        """Return the part as the loaded table holds it, None if it can be added; raise if it does not fit any more."""
        rows = self.held(*part.window)
        if (there := rows.get((part.window, part.number))) is not None:
            return there
        check_alignment(part.window, sorted({window for window, _ in rows}))
        if ends_of([row.part for row in rows.values() if row.part.window == part.window]) != part.after:
            problem = f"{self.name} got or lost messages of {part.window} since part {part.number} was planned"
            raise TargetChangedError(problem, fix="Start the job again: it plans from what the table holds now")
        return None

    def _write(self, part: Part, frame: "DataFrame | None") -> Row:
        attempt = self.attempts.start()
        try:
            layout = self.layout()
            files = [] if frame is None else write_files(frame, layout, attempt.directory)
        except BaseException:
            attempt.finish([])
            raise
        written = Written(sum(each.messages for each in files), len(files), sum(each.bytes for each in files))
        try:
            added = self._commit(Row(part, written, attempt.id), layout, attempt, files)
        except BaseException:
            if not attempt.is_sent:  # else the commit may have been done: a later run looks
                attempt.finish([])
            raise
        attempt.finish(files if added.attempt == attempt.id else [])
        return added

    def _commit(self, row: Row, layout: TableLayout, attempt: Attempt, files: Sequence[DataFile]) -> Row:
        """Return the row that the table has for the part after the commit, which may be that of another job."""
        for count in range(_TRIES):
            self.refresh()
            # All that was looked at before is looked at again, in the table that the commit is based on.
            if (there := self._there(row.part)) is not None:
                return there
            self._check_again(layout)
            before, attempt.is_sent = self.state(), True
            try:
                if self.commit(row, self._rows, attempt, files):
                    self._add(row)
            except self.conflicts as error:
                self.refresh()
                if self.state() == before:
                    problem = f"{self.name} cannot be committed to: {first_line(error)}"
                    raise ConfigError(problem, fix="Write into another table") from error
                time.sleep(min(_LONGEST_WAIT_S, 0.05 * 2**count) * random.uniform(0.5, 1))  # noqa: S311 - no secret
            except Exception:
                self.refresh()
                if (there := self.held(*row.part.window).get(row.key)) is not None:
                    return there
                raise
            else:
                return row
        problem = f"{self.name} could not be committed to: {_TRIES} times another writer was faster"
        raise TargetChangedError(problem, fix="Start the job again when fewer jobs write the table")

    def _check_again(self, layout: TableLayout) -> None:
        self.check()
        if self.job.find(self.jobs(), self.name) != self.job_id:
            raise TargetChangedError(f"{self.name} got another job of these messages", fix="Start the job again")
        if self.layout() != layout:
            problem = f"{self.name} got other columns or partitions while a part was written"
            raise TargetChangedError(problem, fix="Start the job again")

    def _add(self, row: Row) -> None:
        """Note a part that was committed to what was held."""
        self._held.setdefault(row.part.window, []).append(row)
        self._state, self._rows = self.state(), [*self._rows, row]
