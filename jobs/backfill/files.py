"""Files in directories of days or hours: each part is a directory that appears by one rename.

::

    TARGET/_backfill                                   what is asked for; locked by the job that writes
    TARGET/_staging/7f3a…/part-00000-….parquet         being written; `_` hides it from readers of directories
                      │ rename
                      ▼
    TARGET/day=2026-01-31/part=0/part-00000-….parquet              by day
    TARGET/day=2026-01-31/hour=13/part=0/topic=orders/….parquet    by hour and topic
                                 part=0/_part                      the part: its offsets appear with its files

Spark, Arrow, Polars and DuckDB take ``day``, ``hour`` and ``part`` for columns. A job that is killed leaves nothing but
its staging directory, which the next one removes.
"""

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from segmentlog.query.selection import did_you_mean
from segmentlog.store import ConfigError, StoreInUseError

from .parts import Length, Part, Window, Written
from .planning import Request

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMATS: Final = ("parquet", "orc", "json", "csv")
_REQUEST: Final = "_backfill"
_STAGING: Final = "_staging"
_RECORD: Final = "_part"
_TUNING: Final = frozenset(
    {"maxBytesPerPartition", "maxRecordsPerPartition", "minPartitions", "batchBytes", "batchRows"}
)
"""Options of the reader that change no message."""
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


class Files:
    """Target of a backfill on a file system that the driver and all tasks see."""

    def __init__(self, path: str, request: Request, layout: Layout) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        self._layout = layout
        self._length, self._zone = request.length, request.zone
        self._identity = {
            "store": request.source.path,
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
        for column in layout.by:
            if column not in request.columns:
                fix = f"{did_you_mean(column, request.columns)}Name a column that is read"
                raise ConfigError(f"the files are divided by `{column}`, which is not among the columns", fix=fix)

    def open(self) -> None:
        """Make the directory, or check that it is one of the same request; lock it, and remove leftovers."""
        os.makedirs(self.path, exist_ok=True)
        place = os.path.join(self.path, _REQUEST)
        if not os.path.exists(place) and (other := _visible(self.path)):
            problem = f"the target holds something else already: `{other}`"
            raise ConfigError(problem, path=self.path, fix="Name a directory that is empty or does not exist")
        lock = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take(lock, place)
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock
        shutil.rmtree(os.path.join(self.path, _STAGING), ignore_errors=True)

    def _take(self, lock: int, place: str) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = "another job writes into this target"
            raise StoreInUseError(problem, path=self.path, fix="Wait for its end, or stop it") from None
        found = os.pread(lock, 1 << 20, 0)
        try:
            former = json.loads(found or b"{}")
        except ValueError:
            raise ConfigError("this file is not one of a backfill", path=place, fix="Name another directory") from None
        if next(_directories(self.path, 1), None) is None:  # no part yet: an earlier run may have ended by an error
            os.ftruncate(lock, 0)
            os.pwrite(lock, json.dumps(self._identity, indent=1).encode(), 0)
            os.fsync(lock)
            return
        for name, value in self._identity.items():
            if former.get(name) != value:
                problem = f"the target was written with {name} {former.get(name)!r}, and {value!r} is asked for"
                raise ConfigError(problem, path=place, fix="Ask for the same, or name another directory")

    def close(self) -> None:
        """Unlock the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def parts(self) -> list[Part]:
        """Return the parts in the directory."""
        found = []
        for place in _directories(self.path, 2 if self._length is Length.DAY else 3):
            record = os.path.join(place, _RECORD)
            try:
                with open(record, encoding="utf-8") as file:
                    found.append(Part.from_json(file.read()))
            except (OSError, ValueError, KeyError, TypeError) as error:
                problem = f"this part has no record of its messages ({error})"
                raise ConfigError(problem, path=record, fix="Name another directory, or remove this part") from None
        return found

    def write(self, part: Part, frame: "DataFrame | None") -> Written:
        """Write the files of a part aside, and move them in by one rename."""
        staged = os.path.join(self.path, _STAGING, uuid.uuid4().hex)
        messages = 0
        if frame is None:
            os.makedirs(staged)
        else:
            messages = self._write_files(frame, staged)
        files, size = _settle(staged)
        with open(os.path.join(staged, _RECORD), "x", encoding="utf-8") as record:
            record.write(part.to_json())
            record.flush()
            os.fsync(record.fileno())
        place = self._place(part.window, part.number)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.rename(staged, place)
        for changed in (place, os.path.dirname(place), self.path):
            _sync(changed)
        return Written(messages, files, size)

    def _write_files(self, frame: "DataFrame", staged: str) -> int:
        from pyspark.sql import Observation
        from pyspark.sql import functions as sf

        counted = Observation()
        rows = frame.observe(counted, sf.count(sf.lit(1)).alias("messages"))
        if not _TASK_COLUMNS.issuperset(self._layout.by):
            rows = rows.repartition(*self._layout.by)  # else each task has a file for each value
        writer = rows.write
        if self._layout.output == "csv":
            writer = _as_text(rows).write.option("header", "true")
        writer.format(self._layout.output).partitionBy(*self._layout.by).save(staged)
        return int(counted.get["messages"])

    def _place(self, window: Window, number: int) -> str:
        names = [f"day={datetime.fromtimestamp(window.start_ms / 1000, self._zone):%Y-%m-%d}"]
        if self._length is Length.HOUR:
            start = datetime.fromtimestamp(window.start_ms / 1000, UTC)
            names = [f"day={start:%Y-%m-%d}", f"hour={start:%H}"]
        return os.path.join(self.path, *names, f"part={number}")


def _as_text(rows: "DataFrame") -> "DataFrame":
    """Return columns that CSV can hold: bytes as base64, maps as JSON."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import BinaryType, MapType

    convert = {BinaryType: sf.base64, MapType: sf.to_json}
    texts = {
        each.name: convert[type(each.dataType)](each.name) for each in rows.schema if type(each.dataType) in convert
    }
    return rows.withColumns(texts)


def _visible(path: str) -> str | None:
    return next((name for name in sorted(os.listdir(path)) if not name.startswith(("_", "."))), None)


def _directories(path: str, depth: int) -> Iterator[str]:
    if depth == 0:
        yield path
        return
    for name in sorted(os.listdir(path)):
        if not name.startswith(("_", ".")):
            yield from _directories(os.path.join(path, name), depth - 1)


def _settle(path: str) -> tuple[int, int]:
    """Remove what only Spark needs, sync the rest, and return the number of files and their bytes."""
    files = size = 0
    for directory, _, names in os.walk(path):
        for name in names:
            place = os.path.join(directory, name)
            if name.startswith(("_", ".")):  # _SUCCESS, and checksums that are beside each file
                os.unlink(place)
                continue
            _sync(place)
            files, size = files + 1, size + os.path.getsize(place)
        _sync(directory)
    return files, size


def _sync(path: str) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
