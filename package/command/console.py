"""Console: the standard streams of one run, and what a verb writes on them.

::

    stdout    rows (output/), or the report of a maintenance verb (output/reports), as text or as JSON: data only
    stderr    log records of the store and of verbs; a terminal shows progress in place, else each is a line

    store ──► log record (done=2, of=10) ──► stderr is a terminal:  ━━━━━━━━━━╸────────  2/10  CommitLog segment 000…
    verb  ──► log record (of=None)       ──►                        812,000 rows, 1,204,018 per second
                                        └──► else:                  2026-01-31 12:00:00,000 INFO    CommitLog segment …
    both  ──► WARNING                    ──► a line, above the bar
"""

import logging
import os
import signal
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, Self, TextIO

from segmentlog.output import printable

if TYPE_CHECKING:
    from rich.progress import Progress

_FORMAT: Final = "%(asctime)s %(levelname)-7s %(message)s"
_LOGGER: Final = "segmentlog"
_TERMINAL_S: Final = 0.5
_LINES_S: Final = 10.0
_ENDING: Final = (signal.SIGINT, signal.SIGTERM)
_IN_PLACE: Final = {"of": None}  # attributes of a record that a terminal shows in place, without a bar


class Console(NamedTuple):
    """Streams of one run; ``stdout`` takes bytes. Not thread-safe, as its streams are not."""

    # `is_terminal` is of `stdout`, `has_progress` of `stderr`. `has_colour` is a terminal without `NO_COLOR` that is
    # not `dumb`. `width` is in columns.

    stdin: BinaryIO
    stdout: BinaryIO
    stderr: TextIO
    is_terminal: bool = False
    has_progress: bool = False
    has_colour: bool = False
    width: int = 80

    @classmethod
    def of_process(cls, environment: Mapping[str, str] = os.environ) -> Self:
        is_terminal, has_progress = sys.stdout.isatty(), sys.stderr.isatty()
        return cls(
            stdin=sys.stdin.buffer,
            stdout=sys.stdout.buffer,
            stderr=sys.stderr,
            is_terminal=is_terminal,
            has_progress=has_progress,
            has_colour=is_terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb",
            width=_columns() if is_terminal or has_progress else 80,
        )

    def print(self, text: str) -> None:
        """Write a line of text to ``stdout``."""
        self.stdout.write(text.encode("utf-8", "backslashreplace") + b"\n")


def _columns() -> int:
    import shutil  # loads compression, and most runs have no terminal

    return shutil.get_terminal_size().columns


# Log records on stderr


_log = logging.getLogger(__name__)


@contextmanager
def logged(console: Console, level: int = logging.INFO) -> Iterator[None]:
    """Write what segmentlog logs to stderr, until the block ends. Not thread-safe: loggers are of the process."""
    # The command writes warnings of all verbs. A verb that shows progress replaces that handler by its own for a while.
    log = logging.getLogger(_LOGGER)
    handler: _Lines | _Bar = _Bar(console) if console.has_progress and level < logging.WARNING else _Lines(console)
    before, outer = log.level, [each for each in log.handlers if isinstance(each, _Lines)]
    for each in outer:
        log.removeHandler(each)
    log.addHandler(handler)
    log.setLevel(level)
    try:
        yield
    finally:
        log.setLevel(before)
        log.removeHandler(handler)
        handler.close()
        for each in outer:
            log.addHandler(each)


def log_line(console: Console, text: str, level: int = logging.INFO) -> None:
    """Write one log line to stderr, also to a terminal."""
    _Lines(console).emit(logging.LogRecord(_LOGGER, level, __file__, 0, text, None, None))


@contextmanager
def watched(status: Callable[[], str], console: Console, *, is_on: bool) -> Iterator[None]:
    """Log a status from a thread, again and again until the block ends, if ``is_on``."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_TERMINAL_S if console.has_progress else _LINES_S):
            _log.info("%s", status(), extra=_IN_PLACE)

    thread = threading.Thread(target=watch, daemon=True)
    if is_on:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if is_on:
            thread.join()


@contextmanager
def counted(console: Console) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of rows so far; a terminal on stderr shows it every half second."""
    if not console.has_progress:
        yield lambda _: None
        return
    start = shown = time.monotonic()

    def show(count: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= _TERMINAL_S:
            shown = now
            _log.info("%s rows, %s per second", f"{count:,}", f"{count / (now - start):,.0f}", extra=_IN_PLACE)

    with logged(console):
        yield show


class _Lines(logging.Handler):
    """A line per log record; no control character is in it."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._stderr = console.stderr
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        lines = self.format(record).splitlines()
        self._stderr.write("".join(printable(line) + "\n" for line in lines))
        self._stderr.flush()


class _Bar(_Lines):
    """A line by rich for records with an attribute ``of``, with a bar if it is a number; lines for warnings."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._console = console
        self._progress: Progress | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Move the bar, or write a line above it."""
        if hasattr(record, "of"):
            self._show(printable(record.getMessage()), getattr(record, "done", None), record.of)
        elif record.levelno >= logging.WARNING:
            self._hide()
            super().emit(record)

    def close(self) -> None:
        self._hide()
        super().close()

    def _show(self, text: str, done: int | None, of: int | None) -> None:
        if self._progress is None:
            self._progress = _bar(self._console, has_total=of is not None)
            self._progress.start()
            self._progress.add_task("", text="", rate="", total=of)
        (task,) = self._progress.tasks
        rate = f"{task.speed:,.1f}/s" if task.speed else ""
        self._progress.update(task.id, completed=done, total=of, text=text, rate=rate)

    def _hide(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _bar(console: Console, *, has_total: bool) -> "Progress":
    from rich.console import Console as Terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    terminal = Terminal(
        file=console.stderr,
        force_terminal=True,
        color_system="standard" if console.has_colour else None,
        width=console.width,
    )
    rate = TextColumn("{task.fields[rate]}", markup=False)
    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), rate, TimeRemainingColumn()) if has_total else ()
    text = TextColumn("{task.fields[text]}", markup=False)
    return Progress(*columns, text, console=terminal, transient=True, redirect_stdout=False, redirect_stderr=False)


@contextmanager
def signalled() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set, until the block ends. For the main thread."""
    stop = threading.Event()

    def end(*_: object) -> None:
        # Not here: the main thread may wait for the event, and hold the lock that setting it takes.
        start_new_thread(stop.set, ())

    former = [(each, signal.signal(each, end)) for each in _ENDING]
    try:
        yield stop
    finally:
        for number, handler in former:
            signal.signal(number, handler)


@contextmanager
def ended_by_signals(stop: Callable[[], bool], grace_s: float) -> Iterator[None]:
    """Interrupt the block on SIGINT and SIGTERM as Ctrl-C does: at once, unless ``stop`` returns True.

    True means that the block ends by itself: it is interrupted after ``grace_s``, or by a second signal. For the main
    thread.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def ask(*_: object) -> None:
        if not stop():
            raise KeyboardInterrupt
        for number in _ENDING:
            signal.signal(number, interrupt)
        signal.setitimer(signal.ITIMER_REAL, grace_s)

    handlers = {**dict.fromkeys(_ENDING, ask), signal.SIGALRM: interrupt}
    former = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in former.items():
            signal.signal(number, handler)
