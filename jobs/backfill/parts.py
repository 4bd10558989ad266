"""Windows of store time, and the parts in which their messages are written to a target.

::

    asked      2026-01-30 ─────────────── 2026-02-02         half-open, whole days or hours
    windows    [ day 30 )[ day 31 )[ day 1  )
    parts      0         0, 1      0                          1: messages that came later than part 0

    offsets of a part      orders/0 [100, 240)   orders/1 [97, 205)     the window's messages are there, with others

A part has the messages of these queue offsets whose store time is in its window. It is written as a whole or not at
all, together with its offsets: what a target holds says what is left.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self, TypeAlias

from segmentlog.query.times import iso
from segmentlog.store import QueueKey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Offsets: TypeAlias = Mapping[QueueKey, tuple[int, int]]
"""First queue offset and end of each queue, half-open."""

_HOUR_MS: Final = 3_600_000


class Length(Enum):
    """Length of windows: a day of the time zone, or an hour of UTC."""

    DAY = "day"
    HOUR = "hour"


class Window(NamedTuple):
    """A half-open range of store times, in milliseconds since 1970."""

    start_ms: int
    end_ms: int

    def __str__(self) -> str:
        return f"[{iso(self.start_ms)}, {iso(self.end_ms)})"


@dataclass(frozen=True, kw_only=True)
class Part:
    """Messages of a window that are written together.

    Attributes
    ----------
    window : Window
    number : int
        0 is the first part of a window.
    offsets : Offsets
        Only queues that may have messages of the part.
    planned_ms : int
        When the store was looked at. A window is finished if one of its parts was planned after its end.
    """

    window: Window
    number: int
    offsets: Offsets
    planned_ms: int

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


class Target(Protocol):
    """Files or a table. A job holds it from `open` to `close`; one job at a time."""

    def open(self) -> None:
        """Check it, take it, and finish or remove what a killed run has left."""

    def close(self) -> None:
        """Let other jobs have it."""

    def parts(self, since_ms: int = 0) -> Sequence[Part]:
        """Return the parts that it holds, of windows that start at some time or later."""

    def write(self, part: Part, frame: "DataFrame | None") -> Written:
        """Add a part as a whole, or not at all; ``frame`` has its messages, None if there are none."""


def windows(start_ms: int, end_ms: int, length: Length, zone: tzinfo = UTC) -> Iterator[Window]:
    """Yield the windows that cover a period; the first and the last may reach out of it."""
    if length is Length.HOUR:
        for first in range(start_ms // _HOUR_MS * _HOUR_MS, end_ms, _HOUR_MS):
            yield Window(first, first + _HOUR_MS)
        return
    day = datetime.fromtimestamp(start_ms / 1000, zone).date()
    while (first := _midnight_ms(day, zone)) < end_ms:
        day += timedelta(days=1)
        yield Window(first, _midnight_ms(day, zone))


def _midnight_ms(day: date, zone: tzinfo) -> int:
    found = datetime.combine(day, datetime.min.time(), zone)
    return round(found.timestamp() * 1000)


def held(parts: Sequence[Part]) -> dict[Window, list[Part]]:
    """Group parts by window, in the order of their numbers."""
    found: dict[Window, list[Part]] = {}
    for part in sorted(parts, key=lambda each: (each.window, each.number)):
        found.setdefault(part.window, []).append(part)
    return found


def ends_of(parts: Sequence[Part]) -> dict[QueueKey, int]:
    """Return the offset after the last one that parts have of each queue."""
    found: dict[QueueKey, int] = {}
    for part in parts:
        for key, (_, end) in part.offsets.items():
            found[key] = max(end, found.get(key, 0))
    return found
