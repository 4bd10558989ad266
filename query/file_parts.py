"""Parts of a backfill in a directory of files: their records, and the directories that hold them.

::

    /lake/.orders.backfill/request                     what is asked for
    /lake/.orders.backfill/parts/day=…,part=0.json     the part of a directory, with the sizes of its files
    /lake/orders/day=2026-01-31/part=0/…               the part is there if both are
"""

import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any, Self

from segmentlog.store import ConfigError

from .parts import Part


class FileParts:
    """Directory of files, with the parts that it holds.

    Parameters
    ----------
    path
    by_hour
        Whether windows are hours and not days.
    zone
        Of days.
    """

    def __init__(self, path: str, *, by_hour: bool, zone: tzinfo = UTC) -> None:
        if not path:
            raise ConfigError("the path of the target is empty", fix="Name a directory, or one to be created")
        self._by_hour, self._zone = by_hour, zone
        self.path = os.path.abspath(os.path.expanduser(path))
        parent, name = os.path.split(self.path)
        self.control = os.path.join(parent, f".{name}.backfill")
        self.records = os.path.join(self.control, "parts")
        self._asked = os.path.join(self.control, "request")

    @classmethod
    def load(cls, path: str) -> tuple[Self, dict[str, Any]]:
        """Open a directory that a backfill wrote; return it with the request."""
        found = cls(path, by_hour=False)
        try:
            with open(found._asked, encoding="utf-8") as file:
                request = json.load(file)
            return cls(path, by_hour=request["window"] == "hour"), request
        except FileNotFoundError:
            fix = "Name the directory that was passed to backfill as --to"
            raise ConfigError("no backfill has written into this directory", path=found.path, fix=fix) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = f"this file is not the request of a backfill ({error})"
            raise ConfigError(problem, path=found._asked, fix="Name another directory") from None

    def names(self, start_ms: int) -> list[str]:
        """Return the directories of a window; they sort as their times do."""
        if not self._by_hour:
            return [f"day={datetime.fromtimestamp(start_ms / 1000, self._zone):%Y-%m-%d}"]
        start = datetime.fromtimestamp(start_ms / 1000, UTC)
        return [f"day={start:%Y-%m-%d}", f"hour={start:%H}"]

    def parts(self, since_ms: int = 0, until_ms: int | None = None) -> list[Part]:
        """Return the parts in the directory; a record without its directory is of a part that did not get there."""
        return [_checked(place, record) for place, record in self._found(since_ms, until_ms)]

    def recorded(self) -> list[Part]:
        """Return the parts in the directory, without a look for their files."""
        return [_read_record(record)[0] for _, record in self._found(0, None)]

    def _found(self, since_ms: int, until_ms: int | None) -> Iterator[tuple[str, str]]:
        """Yield the directory and the record of each part."""
        first = self.names(since_ms)
        last = None if until_ms is None else self.names(until_ms - 1)
        for place in _directories(self.path, len(first) + 1):
            relative = os.path.relpath(place, self.path)
            names = relative.split(os.sep)[: len(first)]
            if relative.startswith("day=") and (names < first or (last is not None and names > last)):
                continue
            record = self.record(relative)
            if not os.path.exists(record):
                fix = "Name another directory, or move this away"
                raise ConfigError("the target holds something that no backfill wrote there", path=place, fix=fix)
            yield place, record

    def record(self, place: str) -> str:
        return os.path.join(self.records, place.replace(os.sep, ",") + ".json")


def _checked(place: str, record: str) -> Part:
    """Return the part of a record; `ConfigError` if the directory lacks a file of the part."""
    part, files = _read_record(record)
    for name, size in files.items():
        path = os.path.join(place, name)
        try:
            found = os.path.getsize(path)
        except FileNotFoundError:
            found = -1
        if found != size:
            state = "is missing" if found < 0 else f"has {found} bytes, and {size} were written"
            fix = f"Restore it, or delete {os.path.dirname(place)}: the next run writes the window again"
            raise ConfigError(f"a file of part {part.number} of {part.window} {state}", path=path, fix=fix)
    return part


def _read_record(record: str) -> tuple[Part, Mapping[str, int]]:
    """Return a part, and the sizes of its files by their names below its directory."""
    try:
        with open(record, encoding="utf-8") as file:
            content = json.load(file)
        return Part.from_json(content["part"]), dict(content.get("files", {}))
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"this is not the record of a part ({error})"
        raise ConfigError(problem, path=record, fix="Name another directory, or restore this file") from None


def _directories(path: str, depth: int) -> Iterator[str]:
    """Yield the directories of parts, and whatever is above that depth without being a directory."""
    if depth == 0 or not os.path.isdir(path):
        yield path
        return
    for name in sorted(os.listdir(path)):
        yield from _directories(os.path.join(path, name), depth - 1)
