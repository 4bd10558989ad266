"""Common behaviour of the jobs' command lines."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from segmentlog.jobs.command_line import (
    DONE,
    FAILED,
    FINDINGS,
    add_commit_log,
    add_queue_segment_entries,
    command_line,
    failed,
    finished,
)
from segmentlog.store import ConfigError


@dataclass
class Report:
    """A report that says which form was asked for."""

    has_findings: bool = False

    def as_dict(self) -> dict[str, object]:
        return {"form": "json"}

    def __str__(self) -> str:
        return "text"


def fails(error: Exception) -> Callable[[], Report]:
    def job() -> Report:
        raise error

    return job


def error_of(out: str) -> dict[str, Any]:
    """The one JSON object of an error."""
    (line,) = out.splitlines()
    (only,) = json.loads(line).items()
    assert only[0] == "error"
    found = only[1]
    assert isinstance(found, dict)
    assert set(found) == {"code", "what", "where", "remedy"}
    return found


def test_the_exit_codes_are_these() -> None:
    assert (DONE, FINDINGS, FAILED) == (0, 1, 2)


def test_options_that_are_not_given_have_defaults() -> None:
    parser = command_line("rebuild", "Say what it does.")
    add_commit_log(parser)
    add_queue_segment_entries(parser)
    given = parser.parse_args([])
    assert (given.json, given.commit_log, given.queue_segment_entries) == (False, [], None)
    given = parser.parse_args(["--commit-log", "a", "--json", "--commit-log", "b", "--queue-segment-entries", "7"])
    assert (given.json, given.commit_log, given.queue_segment_entries) == (True, ["a", "b"], 7)
    assert parser.parse_args([]).commit_log == []


def test_help_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line("rebuild", "Say what it does.").parse_args(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: python -m segmentlog.jobs.rebuild ")
    assert "Say what it does." in out


@pytest.mark.parametrize(("found", "code"), [(False, 0), (True, 1)])
@pytest.mark.parametrize(("arguments", "shown"), [([], "text\n"), (["--json"], '{"form": "json"}\n')])
def test_a_report_is_printed(
    arguments: list[str], shown: str, found: bool, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert finished(command_line("rebuild", "").parse_args(arguments), lambda: Report(found)) == code
    assert capsys.readouterr() == (shown, "")


@pytest.mark.parametrize("error", [ConfigError("it makes no sense", fix="Ask again"), OSError("the disk is gone")])
def test_an_error_is_told_and_nothing_printed(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert finished(command_line("rebuild", "").parse_args([]), fails(error)) == 2
    assert capsys.readouterr() == ("", f"{error}\n")


@pytest.mark.parametrize(
    ("error", "described"),
    [
        (
            ConfigError("it makes no sense", path="/s", offset=7, fix="Ask again"),
            ("SEGMENTLOG_BAD_OPTION", "it makes no sense", {"path": "/s", "offset": 7}, "Ask again"),
        ),
        (
            PermissionError(13, "Permission denied", "/s/lock"),
            ("OS_ERROR", "Permission denied", {"path": "/s/lock", "offset": None}, None),
        ),
        (OSError("the disk is gone"), ("OS_ERROR", "the disk is gone", {"path": None, "offset": None}, None)),
    ],
)
def test_an_error_as_json(error: Exception, described: tuple[object, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert finished(command_line("verify", "").parse_args(["--json"]), fails(error)) == 2
    out, err = capsys.readouterr()
    assert tuple(error_of(out).values()) == described
    assert err == f"{error}\n"


def test_wrong_options_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    parser = command_line("rebuild", "")
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--json", "--colour"])
    assert ended.value.code == FAILED
    out, err = capsys.readouterr()
    found = error_of(out)
    assert (found["code"], found["what"]) == ("SEGMENTLOG_USAGE", "unrecognized arguments: --colour")
    assert "--help" in found["remedy"]
    assert "usage:" in err
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--colour"])
    assert ended.value.code == FAILED
    assert capsys.readouterr().out == ""


def test_an_error_of_another_library_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert failed(RuntimeError("no Java"), as_json=True) == 2
    assert error_of(capsys.readouterr().out)["code"] == "RuntimeError"


def test_other_errors_are_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        finished(command_line("rebuild", "").parse_args([]), fails(ZeroDivisionError()))
