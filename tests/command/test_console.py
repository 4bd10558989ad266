import io
import sys

import pytest

from segmentlog.command.console import Console


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_a_pipe_has_no_colours_and_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO()))
    console = Console.of_process({"TERM": "xterm"})
    assert (console.is_terminal, console.has_progress, console.has_colour) == (False, False, False)


@pytest.mark.parametrize(
    ("environment", "has_colour"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_has_colours_unless_it_is_asked_not_to(
    environment: dict[str, str], has_colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, Terminal(io.BytesIO()))
    console = Console.of_process(environment)
    assert (console.is_terminal, console.has_progress, console.has_colour) == (True, True, has_colour)


def test_lines_are_bytes() -> None:
    out = io.BytesIO()
    Console(stdin=io.BytesIO(), stdout=out, stderr=io.StringIO()).print("Bücher \udc80")
    assert out.getvalue() == "Bücher \\udc80\n".encode()
