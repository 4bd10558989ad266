import argparse
import io
from typing import Any

import pytest

from segmentlog.command.console import Console
from segmentlog.command.errors import UsageError
from segmentlog.command.output.formats import Format, Target, add_json, add_output


def target(*flags: str, terminal: bool = False) -> Target:
    parser = argparse.ArgumentParser()
    add_output(parser)
    streams: dict[str, Any] = {"stdin": io.BytesIO(), "stdout": io.BytesIO(), "stderr": io.StringIO()}
    return Target.of(parser.parse_args(flags), Console(is_terminal=terminal, **streams))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], Target(Format.TABLE)),
        (["--json"], Target(Format.JSON_LINES)),
        (["--json", "-o", "jsonl"], Target(Format.JSON_LINES)),
        (["-o", "json"], Target(Format.JSON)),
        (["-o", "arrow"], Target(Format.ARROW_STREAM)),
        (["-w", "a.parquet"], Target(Format.PARQUET, "a.parquet")),
        (["-w", "a.ARROW"], Target(Format.ARROW_FILE, "a.ARROW")),
        (["-w", "a.dat", "-o", "csv"], Target(Format.CSV, "a.dat")),
        (["-w", "a.csv", "-o", "table"], Target(Format.TABLE, "a.csv")),
    ],
)
def test_flags(flags: list[str], expected: Target) -> None:
    assert target(*flags) == expected


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--json", "-o", "csv"], "--json and -o csv are passed together"),
        (["--json", "-o", "json"], "--json and -o json are passed together"),
        (["-w", "a.xlsx"], "-w: the suffix of `a.xlsx` names no format"),
        (["-w", "rows"], "-w: the suffix of `rows` names no format"),
    ],
)
def test_contradictions(flags: list[str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        target(*flags)


@pytest.mark.parametrize("format_", ["arrow", "arrow-file", "parquet"])
def test_a_terminal_gets_no_bytes_that_it_cannot_show(format_: str) -> None:
    with pytest.raises(UsageError, match=f"-o {format_}: stdout is a terminal"):
        target("-o", format_, terminal=True)
    assert target("-o", format_, "-w", "x", terminal=True).file == "x"


def test_reports_have_json_alone() -> None:
    parser = argparse.ArgumentParser()
    add_json(parser)
    assert parser.parse_args(["--json"]).json
    assert not parser.parse_args([]).json
