import io
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable

import pytest

from segmentlog.command import console as module
from segmentlog.command.console import Console, logged, signalled, watched


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


LOG = logging.getLogger("segmentlog.store.maintenance.verification")


def written(work: Callable[[], None], *, terminal: bool) -> str:
    err = io.StringIO()
    console = Console(
        stdin=io.BytesIO(), stdout=io.BytesIO(), stderr=err, has_progress=terminal, has_colour=terminal, width=120
    )
    with logged(console):
        work()
    return err.getvalue()


def work() -> None:
    LOG.info("segment %s", "a", extra={"done": 1, "of": 3})
    LOG.warning("file \x1b[31m is odd")
    LOG.info("no number")
    LOG.info("segment %s", "\x1b]0;b", extra={"done": 2, "of": 3})
    LOG.debug("detail")


def test_lines_where_no_terminal_is() -> None:
    lines = written(work, terminal=False).splitlines()
    assert [line[24:] for line in lines] == [
        "INFO    segment a",
        "WARNING file \\x1b[31m is odd",
        "INFO    no number",
        "INFO    segment \\x1b]0;b",
    ]


def test_a_bar_on_a_terminal_and_lines_for_warnings() -> None:
    assert written(lambda: None, terminal=True) == ""
    shown = written(work, terminal=True)
    assert "2/3" in shown
    assert "WARNING file \\x1b[31m is odd\n" in shown
    assert "segment \\x1b]0;b" in shown
    assert "\x1b]0" not in shown
    assert "\x1b[31m is" not in shown
    assert "no number" not in shown
    assert shown.endswith("\x1b[2K")  # the line of the bar is erased


def test_a_bar_shows_its_rate_and_what_is_left() -> None:
    def steps() -> None:
        for done in range(4):
            LOG.info("segment", extra={"done": done, "of": 9})
            time.sleep(0.05)

    assert re.search(r"3/9\x1b\S* \d+\.\d/s \x1b\S*0:00:0", written(steps, terminal=True))


def test_an_error_erases_the_bar_and_loggers_are_as_before() -> None:
    level, handlers = logging.getLogger("segmentlog").level, list(logging.getLogger("segmentlog").handlers)

    def fails() -> None:
        work()
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        written(fails, terminal=True)
    assert logging.getLogger("segmentlog").level == level
    assert logging.getLogger("segmentlog").handlers == handlers


def test_a_status_is_shown_in_place_until_the_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TERMINAL_S", 0.01)
    err, asked = io.StringIO(), threading.Event()
    console = Console(stdin=io.BytesIO(), stdout=io.BytesIO(), stderr=err, has_progress=True, width=120)

    def status() -> str:
        asked.set()
        return "lag \x1b]0;7"

    with logged(console), watched(status, console, is_on=True):
        assert asked.wait(10)
    assert "lag \\x1b]0;7" in err.getvalue()
    assert err.getvalue().endswith("\x1b[2K")
    with watched(lambda: 1 // 0, console, is_on=False):  # not asked for
        pass


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_sets_the_event_and_handlers_come_back(sign: signal.Signals) -> None:
    former = signal.getsignal(sign)
    with signalled() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), sign)
        assert stop.wait(10)
    assert signal.getsignal(sign) is former


def test_a_signal_that_interrupts_a_wait_for_the_event_sets_it() -> None:
    with signalled() as stop:
        with stop._cond:  # type: ignore[attr-defined] # as `stop.wait` has it for some instructions
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
        assert stop.wait(30)
