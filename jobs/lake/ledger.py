"""Ledger of a table: the parts that its commits have added, for one job.

::

    snapshot, commit    segmentlog.part     {"window": …, "number": …, "offsets": …}      readable, until it expires
    ledger              one text per month  zlib, base64 of a line per part               as long as the table

A row of the ledger is committed together with the files of its part, or is copied from commits.
"""

import base64
import json
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple, Self, TypeAlias

from segmentlog.store import ConfigError, SegmentLogError

from ..backfill.parts import Part, Window, Written


class TargetChangedError(SegmentLogError):
    """Another job has changed the table so that a part cannot be added to it."""

    condition = "SEGMENTLOG_TARGET_CHANGED"


PartKey: TypeAlias = tuple[Window, int]


class Row(NamedTuple):
    """A part that a table holds, and the attempt that wrote its files."""

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
