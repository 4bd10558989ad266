"""Formats of rows, and the flags that choose one: ``-o``, ``--json``, the suffix of ``-w``; else a table. No Arrow."""

import argparse
import os
from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from segmentlog.query.suggestions import listing

from ..console import Console
from ..errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa


class Format(Enum):
    """Format of rows."""

    TABLE = "table"
    JSON = "json"
    JSON_LINES = "jsonl"
    CSV = "csv"
    ARROW_STREAM = "arrow"
    ARROW_FILE = "arrow-file"
    PARQUET = "parquet"

    @property
    def is_binary(self) -> bool:
        """Return whether a terminal cannot show it."""
        return self in {Format.ARROW_STREAM, Format.ARROW_FILE, Format.PARQUET}


class Pace(Enum):
    """Arrival of rows."""

    BULK = "bulk"  # as fast as they are read
    LIVE = "live"  # one by one, as they are appended


_SUFFIXES: Final = {
    ".txt": Format.TABLE,
    ".json": Format.JSON,
    ".jsonl": Format.JSON_LINES,
    ".ndjson": Format.JSON_LINES,
    ".csv": Format.CSV,
    ".arrows": Format.ARROW_STREAM,
    ".arrow": Format.ARROW_FILE,
    ".feather": Format.ARROW_FILE,
    ".parquet": Format.PARQUET,
}


class Writer(ABC):
    """Rows of one schema, written in one format to a sink, which stays open. Not thread-safe."""

    @abstractmethod
    def write(self, batch: "pa.RecordBatch") -> None:
        """Write the rows of a batch."""

    def close(self) -> None:  # noqa: B027 - most formats have no end
        """Write what follows the last row."""

    def abandon(self) -> None:  # noqa: B027 - most formats buffer nothing
        """Free what is open after an error, and write nothing: what was written shows that it is incomplete."""


class Target(NamedTuple):
    """Format of rows, and the new file for them; None for stdout."""

    format: Format
    file: str | None = None

    @classmethod
    def of(cls, options: argparse.Namespace, console: Console) -> Self:
        """Read the flags of `add_output`; `UsageError` if they conflict, or a terminal cannot show the format."""
        file: str | None = options.write
        named = None if options.output is None else Format(options.output)
        if options.json:
            if named not in {None, Format.JSON_LINES}:
                raise UsageError(f"--json and -o {options.output} are passed together", fix="Leave one of them out")
            named = Format.JSON_LINES
        if file is None:
            format_ = named or Format.TABLE
            if format_.is_binary and console.is_terminal:
                problem = f"-o {format_.value}: stdout is a terminal, which cannot show it"
                raise UsageError(problem, fix="Add -w FILE, or redirect stdout")
            return cls(format_)
        suffix = os.path.splitext(file)[1].lower()
        if named is None and suffix not in _SUFFIXES:
            known = listing(list(_SUFFIXES))
            raise UsageError(f"-w: the suffix of `{file}` names no format", fix=f"Add -o FORMAT, or use one of {known}")
        return cls(named or _SUFFIXES[suffix], file)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add ``-o``, ``--json`` and ``-w``, for `Target.of`."""
    every = [each.value for each in Format]
    parser.add_argument(
        "-o",
        "--output",
        metavar="FORMAT",
        choices=every,
        help=f"one of {', '.join(every)} (default: by the suffix of -w, else table)",
    )
    parser.add_argument("--json", action="store_true", help="the same as -o jsonl: one JSON object per row")
    parser.add_argument("-w", "--write", metavar="FILE", help="write a new file instead of stdout")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json`` alone, for verbs that print one report."""
    parser.add_argument("--json", action="store_true", help="print the report, or the error, as one JSON object")
