"""Parts of a backfill, and the ledger of those that a table ever got.

::

    window   [ day 30 )[ day 31 )[ day 1  )          half-open, in store times
    parts    0         0, 1      0                   1: messages that came later than part 0

A ledger is written by jobs, and read by `query.ledgers`. Parts of a directory of files have a record each.
"""

import base64
import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple, Self, TypeAlias

from segmentlog.store import ConfigError, QueueKey, StoreLocation
from segmentlog.store.follow import store_id
from segmentlog.store.maintenance import check_beside

from .source import StoreSource
from .times import iso

Offsets: TypeAlias = Mapping[QueueKey, tuple[int, int]]
"""First queue offset and end of each queue, half-open."""


class Window(NamedTuple):
    """A half-open range of store times, in milliseconds since 1970."""

    start_ms: int
    end_ms: int

    def __str__(self) -> str:
        return f"[{iso(self.start_ms)}, {iso(self.end_ms)})"


@dataclass(frozen=True, kw_only=True)
class Part:
    """Messages of a window of store time that are written to a target together.

    ::

        asked      2026-01-30 ─────────────── 2026-02-02         half-open, whole days or hours
        windows    [ day 30 )[ day 31 )[ day 1  )
        parts      0         0, 1      0                          1: messages that came later than part 0

        offsets of a part      orders/0 [100, 240)   orders/1 [97, 205)     the window's messages are there, with others

    A part has the messages of these queue offsets whose store time is in its window. It is written as a whole or not at
    all, together with its offsets: what a target holds says what is left.

    Attributes
    ----------
    window : Window
    number : int
        0 is the first part of a window.
    offsets : Offsets
        Only queues that may have messages of the part.
    planned_ms : int
        When the store was looked at. A window is finished if one of its parts was planned after its end.
    after : Mapping of QueueKey to int
        Ends of the window's earlier parts, from which this one was planned: a target that has others refuses it.
    """

    window: Window
    number: int
    offsets: Offsets
    planned_ms: int
    after: Mapping[QueueKey, int] = field(default_factory=dict, compare=False)

    @property
    def finishes(self) -> bool:
        """Tell whether the window had ended when the part was planned."""
        return self.planned_ms >= self.window.end_ms

    def to_json(self) -> str:
        """Return the part as text, from which `from_json` makes it again."""
        queues = [[key.topic, key.queue_id, *span] for key, span in sorted(self.offsets.items())]
        return json.dumps(
            {"window": list(self.window), "number": self.number, "plannedMs": self.planned_ms, "offsets": queues}
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Make a part of `to_json`; `ValueError`, `KeyError` or `TypeError` if the text is something else."""
        found = json.loads(text)
        offsets = {QueueKey(topic, queue): (first, end) for topic, queue, first, end in found["offsets"]}
        start, end = found["window"]
        return cls(window=Window(start, end), number=found["number"], offsets=offsets, planned_ms=found["plannedMs"])


class Written(NamedTuple):
    """Size of what a target wrote for a part."""

    messages: int
    files: int
    bytes: int


def held(parts: Sequence[Part]) -> dict[Window, list[Part]]:
    """Group parts by window, in the order of their numbers; `ConfigError` if one before another is missing."""
    found: dict[Window, list[Part]] = {}
    for part in sorted(parts, key=lambda each: (each.window, each.number)):
        there = found.setdefault(part.window, [])
        if part.number != len(there):
            problem = f"the target lacks part {len(there)} of {part.window}, and has part {part.number}"
            fix = "Delete the later parts, too: the next run writes the window again"
            raise ConfigError(problem, fix=fix)
        there.append(part)
    return found


def ends_of(parts: Sequence[Part]) -> dict[QueueKey, int]:
    """Return the offset after the last one that parts have of each queue."""
    found: dict[QueueKey, int] = {}
    for part in parts:
        for key, (_, end) in part.offsets.items():
            found[key] = max(end, found.get(key, 0))
    return found


class StoreIdentity(NamedTuple):
    """Identity of the store of a job: its id, which it keeps when it is moved, else its path."""

    path: str
    """Without symbolic links; a URL as it is."""
    id: str | None
    """None for a store that only brokers have written."""

    @classmethod
    def of(cls, source: StoreSource) -> Self:
        if "://" in source.path:
            return cls.at(source.open().location)._replace(path=source.path)
        return cls.at(StoreLocation.of(source.path))

    @classmethod
    def at(cls, location: StoreLocation) -> Self:
        path = location.root if "://" in location.root else os.path.realpath(location.root)
        return cls(path, store_id(path, location.fs))

    def check_target(self, target: str) -> None:
        """Raise `ConfigError` if a target is a directory in that of the store, or around it."""
        if "://" not in self.path and "://" not in target:
            check_beside(target, self.path, "target")

    def is_same(self, other: "StoreIdentity") -> bool:
        if self.id is None or other.id is None:
            return self.path == other.path
        return self.id == other.id


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
