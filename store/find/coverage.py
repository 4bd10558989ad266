"""Coverage of a look-up: the spans of the log that an index answered for, and those that were scanned.

::

    log      [ ······· ════════ ═══════════ ·· ════════ ······ )        ═ by the index   · by a scan
              expired  file 1    file 2     no  file 4   not indexed yet
              file     1..1      1..2     entry
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ..format.message import Ints


class Source(Enum):
    """Method by which a span of the log was searched."""

    INDEX = "index"
    """Through an index file whose chains are whole."""
    SCAN = "scan"
    """By reading each of its records."""


@dataclass(frozen=True, slots=True)
class CoveredRange:
    """A span of the log, half-open, and how it was searched."""

    start: int
    stop: int
    source: Source
    reason: str
    """The index file, or why none answers for the span."""

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Coverage:
    """All of the log that could be read, in order and without gaps."""

    ranges: tuple[CoveredRange, ...]

    @property
    def indexed_bytes(self) -> int:
        """Bytes of log that an index answered for."""
        return sum(len(each) for each in self.ranges if each.source is Source.INDEX)

    @property
    def scanned_bytes(self) -> int:
        """Bytes of log that were scanned."""
        return sum(len(each) for each in self.ranges if each.source is Source.SCAN)

    def scanned(self) -> Iterator[CoveredRange]:
        """The spans that were scanned."""
        return (each for each in self.ranges if each.source is Source.SCAN)


class Span(NamedTuple):
    """A span of the log that one index file answers for."""

    start: int
    stop: int
    path: str


def cover(start: int, stop: int, spans: Iterable[Span], reasons: Sequence[str]) -> Coverage:
    """Cut a log into what index files answer for and what has to be scanned.

    Parameters
    ----------
    start, stop
        The log.
    spans
        What index files answer for; they may overlap.
    reasons
        Why files that are there answer for nothing.
    """
    ranges: list[CoveredRange] = []
    at = start
    last = ""
    for span in sorted(spans):
        lo, hi = max(span.start, at), min(span.stop, stop)
        if lo >= hi:
            continue
        if lo > at:
            why = "before the first index file" if not last else "between indexed records"
            ranges.append(CoveredRange(at, lo, Source.SCAN, _because(why, reasons)))
        ranges.append(CoveredRange(lo, hi, Source.INDEX, span.path))
        at, last = hi, span.path
    if at < stop:
        why = "after the last indexed record" if last else "no index file answers for this log"
        ranges.append(CoveredRange(at, stop, Source.SCAN, _because(why, reasons)))
    return Coverage(tuple(ranges))


def _because(why: str, reasons: Sequence[str]) -> str:
    return f"{why}; {'; '.join(reasons)}" if reasons else why


def without(span: Span, holes: Iterable[tuple[int, int]]) -> Iterator[Span]:
    """Cut ascending holes out of a span."""
    at = span.start
    for start, stop in holes:
        if at < start:
            yield span._replace(start=at, stop=start)
        at = max(at, stop)
    if at < span.stop:
        yield span._replace(start=at)


class Hits(NamedTuple):
    """Records that were found, and what they were asked by.

    Attributes
    ----------
    physical_offset
        (n,) int64.
    asked
        (n,) int64, an index into what was asked for.
    """

    physical_offset: Ints
    asked: Ints
