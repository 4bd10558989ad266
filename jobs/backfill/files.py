"""Files in directories of days or hours: each part is a directory that appears by one rename.

::

    /lake/.orders.backfill/request                     what is asked for; locked by the job that writes
    /lake/.orders.backfill/parts/day=…,part=0.json     the part of a directory; synced before the rename
    /lake/.orders.backfill/staging/7f3a…/spark/…       being written by tasks
    /lake/.orders.backfill/staging/7f3a…/part/…        what the tasks committed
                                        │ rename
                                        ▼
    /lake/orders/day=2026-01-31/part=0/part-00000-….parquet              by day
    /lake/orders/day=2026-01-31/hour=13/part=0/topic=orders/….parquet    by hour and topic

Spark, Arrow, Polars and DuckDB take ``day``, ``hour`` and ``part`` for columns. Polars and DuckDB read hidden files,
too, so that the target has files of messages alone. A part is there if both its directory and its record are. A job
that is killed before the rename leaves a record, which is then without effect, and a staging directory, which the next
job removes.
"""

import errno
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from segmentlog.query.file_parts import FileParts
from segmentlog.query.parts import Part, StoreIdentity, Written
from segmentlog.query.suggestions import did_you_mean
from segmentlog.store import ConfigError, StoreInUseError

from ..state_file import sync, write_whole
from .planning import Length, Request

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ADDED: Final = frozenset({"day", "hour", "part"})
"""Columns that readers take from the names of directories."""
_TUNING: Final = frozenset(
    {"maxBytesPerPartition", "maxRecordsPerPartition", "minPartitions", "batchBytes", "batchRows", "commitLogPaths"}
)
"""Options of the reader that change no message. Where the log is belongs to the store."""
_ESCAPED: Final = "".join(map(chr, range(1, 32))) + "\"#%'*/:=?\\\x7f{[]^"
"""Characters that Spark writes as three in the names of directories."""
_SHOWN: Final = 60
_TASK_COLUMNS: Final = frozenset({"topic", "queueId"})
"""Columns that hardly vary in a task of the reader: its files can be divided by them without a shuffle."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Layout of the files.

    Attributes
    ----------
    output : str
        Name of a file format of Spark.
    by : tuple of str
        Columns whose values are directories, below those of the window.
    """

    output: str = "parquet"
    by: tuple[str, ...] = ()


class Files(FileParts):
    """Target of a backfill on a file system that the driver and all tasks see."""

    def __init__(self, path: str, request: Request, layout: Layout) -> None:
        if "://" in path:
            problem = f"the target `{path}` is a URL"
            raise ConfigError(problem, fix="Name a directory that the driver and all tasks see")
        super().__init__(path, by_hour=request.length is Length.HOUR, zone=request.zone)
        if not os.path.basename(self.path):
            raise ConfigError("the target is the root directory", path=self.path, fix="Name a directory below it")
        self._staging = os.path.join(self.control, "staging")
        self._layout = layout
        self._store = StoreIdentity.of(request.source)
        self._store.check_target(self.path)
        self._identity = {
            "store": self._store.path,
            "storeId": self._store.id,
            "topics": sorted(request.topics),
            "window": request.length.value,
            "zone": str(request.zone),
            "columns": list(request.columns),
            "options": {name: text for name, text in sorted(request.options.items()) if name not in _TUNING},
            "body": request.body,
            "output": layout.output,
            "by": list(layout.by),
        }
        self._lock: int | None = None
        _check_columns(request.columns, layout.by)

    def open(self) -> None:
        """Make the directories, or check that they are of the same request; lock them, and remove leftovers."""
        place = self._asked
        try:
            if not os.path.exists(place) and os.path.exists(self.path) and (other := sorted(os.listdir(self.path))):
                problem = f"the target holds something else already: `{other[0]}`"
                raise ConfigError(problem, path=self.path, fix="Name a directory that is empty or does not exist")
            for each in (self.path, self.control, self.records):
                os.makedirs(each, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            problem = "the target is not a directory"
            raise ConfigError(problem, path=error.filename, fix="Name a directory, or one to be created") from None
        if os.stat(self.path).st_dev != os.stat(self.control).st_dev:
            problem = f"the target is another file system than `{self.control}`, so that no rename publishes files"
            raise ConfigError(problem, path=self.path, fix="Name a directory below it")
        lock = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take(lock, place)
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock
        shutil.rmtree(self._staging, ignore_errors=True)

    def _take(self, lock: int, place: str) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = "another job writes into this target"
            raise StoreInUseError(problem, path=self.path, fix="Wait for its end, or stop it") from None
        if not os.listdir(self.path):  # nothing is written so far
            self._write_request(lock)
            return
        try:
            former = json.loads(os.pread(lock, 1 << 20, 0))
        except ValueError:
            problem = "this file is not the request of a backfill"
            raise ConfigError(problem, path=place, fix="Name another directory") from None
        if self._store.is_same(StoreIdentity(former.get("store"), former.get("storeId"))):
            former |= {"store": self._store.path, "storeId": self._store.id}
        for name, value in self._identity.items():
            if former.get(name) != value:
                problem = f"the target was written with {name} {former.get(name)!r}, and {value!r} is asked for"
                raise ConfigError(problem, path=place, fix="Ask for the same, or name another directory")

    def _write_request(self, lock: int) -> None:
        # In place and not by a rename, since the lock is of this file: a torn one is written again.
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps(self._identity, indent=1).encode(), 0)
        os.fsync(lock)
        for changed in (self.control, os.path.dirname(self.control)):
            sync(changed)

    def close(self) -> None:
        """Unlock the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, part: Part, frame: "DataFrame | None") -> Written:
        """Write the files of a part aside, and move them in by one rename."""
        place = os.path.join(self.path, *self.names(part.window.start_ms), f"part={part.number}")
        if os.path.lexists(place):  # a rename would replace it if it is empty
            raise FileExistsError(errno.EEXIST, "the target has this part already", place)
        name = uuid.uuid4().hex
        staged = os.path.join(self._staging, name)
        ready = os.path.join(staged, "part")
        os.makedirs(ready)
        messages = 0 if frame is None else self._write_files(frame, os.path.join(staged, "spark"), ready)
        files = _settle(ready)
        self._write_record(part, os.path.relpath(place, self.path), files)
        self._publish(ready, place)
        shutil.rmtree(staged, ignore_errors=True)
        return Written(messages, len(files), sum(files.values()))

    def _publish(self, ready: str, place: str) -> None:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.rename(ready, place)
        while place != self.path:
            place = os.path.dirname(place)
            sync(place)

    def _write_record(self, part: Part, place: str, files: Mapping[str, int]) -> None:
        document = {"place": place, "part": part.to_json(), "files": files}
        write_whole(self.record(place), document, os.path.join(self._staging, "record"))

    def _write_files(self, frame: "DataFrame", written: str, ready: str) -> int:
        from pyspark.sql import Observation
        from pyspark.sql import functions as sf
        from pyspark.sql.types import StringType

        from ..lake.parquet_files import NAME_BYTES, NULL_DIRECTORY

        counted = Observation()
        rows = frame
        if not _TASK_COLUMNS.issuperset(self._layout.by):
            rows = rows.repartition(*self._layout.by)  # else each task has a file for each value
        # Observed after the shuffle: rows of a task that runs again are counted once there.
        wrong = {each: _wrong_name(each) for each in self._layout.by if rows.schema[each].dataType == StringType()}
        values = [sf.max(sf.when(test, sf.substring(each, 1, _SHOWN))).alias(each) for each, test in wrong.items()]
        rows = rows.observe(counted, sf.count(sf.lit(1)).alias("messages"), *values)
        # A null has a directory in any case: the write ends, and is thrown away below.
        rows = rows.withColumns({each: sf.when(~test, sf.col(each)) for each, test in wrong.items()})
        writer = _as_text(rows).write.option("header", "true") if self._layout.output == "csv" else rows.write
        with _typed_times(frame.sparkSession):
            writer.format(self._layout.output).partitionBy(*self._layout.by).save(f"file://{written}")
        for column in wrong:
            if (value := counted.get[column]) is not None:
                problem = f"the files are divided by `{column}`, which has a value that no directory has: {value!r}"
                fix = f"Leave {column} out: names have {NAME_BYTES} bytes at most, and {NULL_DIRECTORY} is for null"
                raise ConfigError(problem, fix=fix)
        # A speculative task may write beside the committed files, below `_temporary`, for a while longer.
        for name in os.listdir(written):
            if not name.startswith(("_", ".")):
                os.rename(os.path.join(written, name), os.path.join(ready, name))
        return int(counted.get["messages"])


def _wrong_name(column: str) -> "Column":
    """Return the condition that Spark makes no directory of a text, or one that readers take for null."""
    from pyspark.sql import functions as sf

    from ..lake.parquet_files import NAME_BYTES, NULL_DIRECTORY

    text = sf.col(column)
    escaped = sf.char_length(text) - sf.char_length(sf.translate(text, _ESCAPED, ""))
    size = sf.octet_length(text) + 2 * escaped + len(f"{column}=".encode())
    return sf.coalesce((size > NAME_BYTES) | (text == NULL_DIRECTORY), sf.lit(False))  # noqa: FBT003 - a value


@contextmanager
def _typed_times(spark: "SparkSession") -> Iterator[None]:
    """Write times to Parquet as microseconds of UTC, unless the session asks for milliseconds."""
    # Spark's default is INT96, which has neither a zone nor the statistics by which readers skip row groups.
    name = "spark.sql.parquet.outputTimestampType"
    former = str(spark.conf.get(name))
    if former == "INT96":
        spark.conf.set(name, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(name, former)


def _as_text(rows: "DataFrame") -> "DataFrame":
    """Return columns that CSV can hold: bytes as base64, maps as JSON."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import BinaryType, MapType

    def base64(name: str) -> "Column":
        return sf.translate(sf.base64(name), "\r\n", "")  # Spark breaks lines: a row of CSV is a line here

    convert: dict[type, Callable[[str], Column]] = {BinaryType: base64, MapType: sf.to_json}
    texts = {
        each.name: convert[type(each.dataType)](each.name) for each in rows.schema if type(each.dataType) in convert
    }
    return rows.withColumns(texts)


def _check_columns(columns: Sequence[str], by: Sequence[str]) -> None:
    for column in by:
        if column not in columns:
            fix = f"{did_you_mean(column, columns)}Name a column that is read"
            raise ConfigError(f"the files are divided by `{column}`, which is not among the columns", fix=fix)
    if set(columns) <= set(by):
        raise ConfigError("the files are divided by all columns", fix="Leave one out, or read a column more")
    if taken := [each for each in columns if each.lower() in _ADDED]:
        problem = f"the column `{taken[0]}` has the name of a directory of the target"
        raise ConfigError(problem, fix="Read other columns: days, hours and parts are columns of the files")


def _settle(path: str) -> dict[str, int]:
    """Remove what only Spark needs, sync the rest, and return the bytes of each file by its name."""
    files = {}
    for directory, _, names in os.walk(path):
        for name in names:
            place = os.path.join(directory, name)
            if name.startswith(("_", ".")):  # _SUCCESS, and checksums that are beside each file
                os.unlink(place)
                continue
            sync(place)
            files[os.path.relpath(place, path)] = os.path.getsize(place)
        sync(directory)
    return files
