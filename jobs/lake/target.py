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

A ledger names all parts that were ever committed. Whether the table has one is proven by its current content:

::

    the current snapshot names all files of the part      it has it, whatever became of the commit
    it names none, or some; in files of other writers
        all rows of the part, each once                   it has it: the files were compacted
        no row of it                                      it lacks it: rolled back, or deleted
        some rows, or none can be told from others        an error that asks the user

`iceberg` and `delta` say how a table is loaded, which files it names, how rows are read and files are committed. A
commit must fail if another run of the job has committed since the table was loaded.
"""

import base64
import contextlib
import hashlib
import json
import logging
import os
import random
import re
import time
import uuid
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from segmentlog.store import ConfigError, QueueKey, SegmentLogError

from ..backfill.planning import Part, StoreIdentity, Window, Written, check_alignment, ends_of
from ..state_file import sync
from .parquet_files import TIME, DataFile, TableLayout, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..backfill.planning import Request

T = TypeVar("T")
_FOLDER: Final = "segmentlog"
_ABANDONED: Final = timedelta(days=1)  # a run that writes finishes a file in less
_TRIES: Final = 30
_LONGEST_WAIT_S: Final = 5.0
_TUNING: Final = (
    *("maxBytes", "maxRecords", "minPartitions", "batch", "propertyColumns", "corruptRecord"),
    "commitLogPaths",  # belongs to the store
)
KEYS: Final = ("topic", "queueId", "queueOffset")
"""Columns that tell messages of a store from each other."""
_ATTEMPT: Final = re.compile(rf"(?:^|/){_FOLDER}/[0-9a-f]{{12}}/([0-9a-f]{{16}})/")
_OFFSET: Final = KEYS[-1]
_KEY_TYPES: Final = pa.schema([("topic", pa.string()), ("queueId", pa.int64()), (_OFFSET, pa.int64())])

_log: Final = logging.getLogger(__name__)

# Ledger


class TargetChangedError(SegmentLogError):
    """Another job has changed the table so that a part cannot be added to it."""

    condition = "SEGMENTLOG_TARGET_CHANGED"


class TargetUnclearError(SegmentLogError):
    """Whether a table has the messages of a part cannot be told."""

    condition = "SEGMENTLOG_TARGET_UNCLEAR"


PartKey: TypeAlias = tuple[Window, int]


class Row(NamedTuple):
    """Row of a table's ledger: a part that the table holds, and the attempt that wrote its files.

    ::

        snapshot, commit    segmentlog.part     {"window": …, "number": …, "offsets": …}      readable, until it expires
        ledger              one text per month  zlib, base64 of a line per part               as long as the table

    A row of the ledger is committed together with the files of its part, or is copied from commits. Rows stay when a
    table is rolled back: a part may have several, of which the current snapshot has one at most.
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
    lines = "\n".join(row.to_json() for row in sorted(rows, key=lambda each: (each.key, each.attempt)))
    return base64.b64encode(zlib.compress(lines.encode(), 9)).decode()


def unpack(text: str, where: str) -> list[Row]:
    """Return the rows of `pack`; ``where`` is for the error."""
    try:
        lines = zlib.decompress(base64.b64decode(text, validate=True)).decode()
    except (ValueError, zlib.error) as error:
        raise ConfigError(f"{where} is not a ledger of a backfill: {error}", fix="Use another table") from error
    return [Row.from_json(line, where) for line in lines.splitlines()]


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
        folder = f"{_FOLDER}/{hashlib.sha256(f'{location} {job}'.encode()).hexdigest()[:12]}"
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
        found = self._system.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        old = [each for each in found if each.base_name not in ledger and self._is_abandoned(each)]
        known = committed() if old else ()
        gone = [each.path for each in old if each.base_name not in known]
        for path in gone:
            self._system.delete_dir(path)
        return len(gone)

    def _is_abandoned(self, attempt: fs.FileInfo) -> bool:
        files = self._system.get_file_info(fs.FileSelector(attempt.path, allow_not_found=True, recursive=True))
        times = [each.mtime for each in (attempt, *files) if each.mtime is not None]  # S3's directories have none
        return bool(times) and max(times) < datetime.now(UTC) - _ABANDONED


# Target


class Job:
    """Messages that a job is asked for, as far as it is the same job when they are equal.

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
        self._store = StoreIdentity.of(request.source)
        self._is_new = is_new
        text = json.dumps([self._store.id or self._store.path, self._options, self.topics])
        self.id = hashlib.sha256(text.encode()).hexdigest()[:12]

    def to_json(self) -> str:
        found = {"store": self._store.path, "storeId": self._store.id, "options": self._options, "topics": self.topics}
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
            if self._store.is_same(stores[name]) and job["topics"] == self.topics:
                return name
        for name, job in jobs.items():
            if not (both := ", ".join(sorted(set(self.topics).intersection(job["topics"])))):
                continue
            if self._store.is_same(stores[name]):
                problem = f"{table} gets messages of {both} from a job for {', '.join(job['topics'])}"
                raise ConfigError(problem, fix="Ask for the topics of that job, or write into another table")
            if not self._is_new:
                problem = f"{table} gets messages of {both} from a job that reads {stores[name].path}"
                fix = "Name the store as that job does, or pass --new-job if it is the store of another broker"
                raise ConfigError(problem, fix=fix)
        return self.id

    def shares(self, others: Mapping[str, str]) -> bool:
        """Tell whether other jobs write messages of the same topics."""
        return any(set(self.topics).intersection(json.loads(text)["topics"]) for text in others.values())


def columns_of(request: "Request") -> pa.Schema:
    """Return the columns of a request's frames."""
    from segmentlog.connector.options.read_options import parse_read_options
    from segmentlog.connector.read import spark_schema
    from segmentlog.connector.setup.spark_versions import to_arrow_schema

    asked = {"path": request.source.path, "subscribe": ",".join(request.topics), "columns": ",".join(request.columns)}
    return to_arrow_schema(spark_schema(parse_read_options({**request.options, **asked})))


Bounds: TypeAlias = Mapping[str, tuple[Any, Any]]
"""Lowest value of some columns, and the one after the highest."""


class LakeTarget(ABC):
    """Table that tasks write files for."""

    name: str
    job: Job
    conflicts: tuple[type[Exception], ...]
    """Errors of a commit that certainly has not been done."""
    attempts: Attempts
    job_id: str
    """Of the job, as the table knows it."""
    _state: object = None
    _rows: Sequence[Row] = ()
    _held: dict[Window, list[Row]]
    """Parts that the table holds by window, valid for `_state`."""

    @abstractmethod
    def refresh(self) -> None:
        """Load the table as it is now."""

    @abstractmethod
    def state(self) -> object:
        """Return what changes with each change of the table."""

    @abstractmethod
    def check(self) -> None:
        """Raise `ConfigError` if the frames do not fit into the table, or it asks of writers what is not done here."""

    @abstractmethod
    def jobs(self) -> Mapping[str, str]:
        """Return the `Job.to_json` of the jobs of the loaded table, by their ids."""

    @abstractmethod
    def ledger(self) -> list[Row]:
        """Return the parts of this job that were ever committed to the loaded table."""

    @abstractmethod
    def files(self, bounds: Bounds) -> Sequence[str]:
        """Return the paths of the loaded table's files, at least of those with rows within some bounds."""

    @abstractmethod
    def keys(self, bounds: Bounds, reads: Callable[[str], bool]) -> pa.Table:
        """Return the `KEYS` of rows within some bounds, or with a null there, of files whose paths it reads."""

    @abstractmethod
    def columns(self) -> Sequence[str]:
        """Return the names of the loaded table's columns that this job writes."""

    @abstractmethod
    def layout(self) -> TableLayout:
        """Return the layout of files for the loaded table."""

    @abstractmethod
    def commit(self, row: Row, rows: Sequence[Row], attempt: Attempt, files: Sequence[DataFile]) -> bool:
        """Add files and a part to the loaded table, whose ledger is ``rows``; tell that nothing came in between."""

    def recorded(self) -> Sequence[Part]:
        """Return the parts of this job that were ever committed."""
        self.refresh()
        return [row.part for row in self.ledger()]

    def clean(self) -> None:
        """Remove files of killed runs, as far as the file system allows it."""
        try:
            self.attempts.clean({row.attempt for row in self.ledger()}, self._named)
        except Exception as error:  # noqa: BLE001 - of any library; the files take space, and do no harm
            _log.warning("%s: files of killed runs are not removed: %s", self.name, first_line(error))

    def _named(self) -> set[str | None]:
        self.refresh()
        return {*map(_attempt_of, self.files({})), *(row.attempt for row in self.ledger())}  # the ledger may be lost

    def parts(self, since_ms: int = 0, until_ms: int | None = None) -> Sequence[Part]:
        """Return the parts of this job that the table holds, of windows that overlap with a period."""
        self.refresh()
        return [row.part for row in self.held(since_ms, until_ms).values()]

    def held(self, since_ms: int, until_ms: int | None) -> dict[PartKey, Row]:
        """Return what the loaded table holds of windows that overlap with a period."""
        if self._state is None or self._state != self.state():
            self._state, self._rows, self._held = self.state(), self.ledger(), {}
        windows: dict[Window, list[Row]] = {}
        for row in self._rows:
            if row.part.window.end_ms > since_ms and (until_ms is None or row.part.window.start_ms < until_ms):
                windows.setdefault(row.part.window, []).append(row)
        if new := sorted(windows.keys() - self._held.keys()):
            proof = _Proof(self, Window(new[0].start_ms, max(each.end_ms for each in new)))
            self._held |= {window: proof.held(window, windows[window]) for window in new}
        return {row.key: row for window in sorted(windows) for row in self._held[window]}

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


class _Proof:
    """Proof of the parts that a table holds in a period, from its current content."""

    def __init__(self, target: LakeTarget, period: Window) -> None:
        self._target, self._window = target, period
        self._files = Counter(map(_attempt_of, self._read(lambda: target.files(self._bounds()))))
        """Files by the attempt that wrote them; None for those of other writers."""

    def held(self, window: Window, rows: Sequence[Row]) -> list[Row]:
        """Return one row for each part of a window that the table holds."""
        self._window = window
        found: list[Row] = []
        lost = None
        for number in sorted({row.part.number for row in rows}):
            ends = ends_of([row.part for row in found])
            there = self._choose([row for row in rows if row.part.number == number], ends)
            if there is None:
                lost = number if lost is None else lost
            elif lost is None:
                found.append(there)
            elif there.written.messages:
                raise self._unclear(number, f"it is there, and part {lost} is not")
        return found

    def _bounds(self) -> Bounds:
        start, end = (datetime.fromtimestamp(ms / 1000, UTC) for ms in self._window)
        return {TIME: (start, end)} if TIME in self._target.columns() else {}

    def _choose(self, rows: Sequence[Row], ends: Mapping[QueueKey, int]) -> Row | None:
        """Return the row of a part that the table has, of those of one number."""
        named = [row for row in rows if row.written.files and self._is_named(row)]
        following = [row for row in named or rows if all(s >= ends.get(k, 0) for k, (s, _) in row.part.offsets.items())]
        if len(named) > 1 or len(following) < len(named):
            raise self._unclear(rows[0].part.number, "some of its messages are there twice")
        if named:
            return named[0]
        counts = [(row, self._count(row) if row.written.messages else 0) for row in following]
        # After a rollback the part was written again, maybe with more messages: the larger one has those of the other.
        whole = [row for row, count in counts if count == row.written.messages]
        best = max(whole, key=lambda row: row.written.messages, default=None)
        partial = [(row, count) for row, count in counts if 0 < count < row.written.messages]
        if partial and (best is None or not best.written.messages):
            row, count = partial[0]
            raise self._unclear(row.part.number, f"{count} of its {row.written.messages} messages are there")
        return best

    def _is_named(self, row: Row) -> bool:
        count = self._files[row.attempt]
        if count > row.written.files:
            raise self._unclear(row.part.number, f"the table names {count} files of its {row.written.files}")
        return count == row.written.files

    def _count(self, row: Row) -> int:
        """Return how many messages of a part are in files that no other attempt has written."""
        sources = {None, row.attempt}.intersection(self._files)
        if not sources:
            return 0
        part, target = row.part, self._target
        if lacking := set(KEYS).difference(target.columns()):
            raise self._unclear(part.number, f"its files were rewritten without `{', '.join(sorted(lacking))}`")
        spans = _spans(part)
        bounds = {**self._bounds(), _OFFSET: (pc.min(spans["first"]).as_py(), pc.max(spans["end"]).as_py())}
        rows = self._read(lambda: target.keys(bounds, lambda path: _attempt_of(path) in sources))
        rows = rows.select(KEYS).cast(_KEY_TYPES)
        there = rows.join(spans, list(KEYS[:2]), join_type="inner")
        there = there.filter((pc.field(_OFFSET) >= pc.field("first")) & (pc.field(_OFFSET) < pc.field("end")))
        count = int(there.group_by(list(KEYS)).aggregate([]).num_rows)
        if count != there.num_rows:
            raise self._unclear(part.number, "some of its messages are there twice")
        if count and target.job.shares({name: text for name, text in target.jobs().items() if name != target.job_id}):
            raise self._unclear(part.number, "its files were rewritten, and other jobs write the same topics")
        if count < row.written.messages and sum(rows[name].null_count for name in KEYS):
            raise self._unclear(part.number, f"the table has rows in which one of `{', '.join(KEYS)}` is null")
        return count

    def _read(self, work: Callable[[], T]) -> T:
        """Return what a library reads from the table."""
        try:
            return work()
        except Exception as error:
            raise self._unclear(None, f"its files cannot be read: {first_line(error)}") from error

    def _unclear(self, number: int | None, reason: str) -> TargetUnclearError:
        part = "" if number is None else f"part {number} of "
        problem = f"{self._target.name}: whether {part}{self._window} was written cannot be told: {reason}"
        fix = "Leave the window out, or delete its rows from the table: then the next run writes it again"
        return TargetUnclearError(problem, fix=fix)


def _attempt_of(path: str) -> str | None:
    found = _ATTEMPT.search(path)
    return found[1] if found else None


def _spans(part: Part) -> pa.Table:
    """Return the offsets of a part, with a row per queue."""
    found = [(key.topic, key.queue_id, first, end) for key, (first, end) in part.offsets.items()]
    kinds = [*_KEY_TYPES.types, pa.int64()]
    columns = [pa.array(values, kind) for values, kind in zip(zip(*found, strict=True), kinds, strict=True)]
    return pa.table(columns, ["topic", "queueId", "first", "end"])


def first_line(error: Exception) -> str:
    """Return the kind and the first line of an error of a library."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
