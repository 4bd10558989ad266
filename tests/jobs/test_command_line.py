"""What the command lines of the jobs have in common."""

from collections.abc import Callable

import pytest

from segmentlog.jobs.command_line import add_commit_log, add_queue_segment_entries, command_line, printed
from segmentlog.store import QUEUE_SEGMENT_ENTRIES, ConfigError


class Report:
    """A report that says which form was asked for."""

    def as_json(self) -> str:
        return '{"form": "json"}'

    def __str__(self) -> str:
        return "text"


def fails(error: Exception) -> Callable[[], Report]:
    def job() -> Report:
        raise error

    return job


def test_options_that_are_not_given_have_defaults() -> None:
    parser = command_line("rebuild", "Say what it does.")
    add_commit_log(parser)
    add_queue_segment_entries(parser)
    given = parser.parse_args([])
    assert (given.json, given.commit_log, given.queue_segment_entries) == (False, [], QUEUE_SEGMENT_ENTRIES)
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


@pytest.mark.parametrize(("arguments", "shown"), [([], "text\n"), (["--json"], '{"form": "json"}\n')])
def test_a_report_is_printed(arguments: list[str], shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    assert printed(command_line("rebuild", "").parse_args(arguments), lambda: report) is report
    assert capsys.readouterr() == (shown, "")


@pytest.mark.parametrize("error", [ConfigError("it makes no sense", fix="Ask again"), OSError("the disk is gone")])
def test_an_error_is_told_and_nothing_printed(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(command_line("rebuild", "").parse_args([]), fails(error)) is None
    assert capsys.readouterr() == ("", f"{error}\n")


def test_other_errors_are_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        printed(command_line("rebuild", "").parse_args([]), fails(ZeroDivisionError()))
