"""Log records on stderr while a verb runs: progress as a bar if a terminal shows it, else as lines.

::

    store ──► log record (done=2, of=10) ──► stderr is a terminal:  ━━━━━━━━━━╸────────  2/10  CommitLog segment 000…
                                        └──► else:                  2026-01-31 12:00:00,000 INFO    CommitLog segment …
    store ──► WARNING                    ──► a line, above the bar

The store logs in the same way for all of its users; only this module knows of terminals.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from .console import Console, printable

if TYPE_CHECKING:
    from rich.progress import Progress

_FORMAT: Final = "%(asctime)s %(levelname)-7s %(message)s"
_LOGGER: Final = "segmentlog"


@contextmanager
def logged(console: Console, level: int = logging.INFO) -> Iterator[None]:
    """Write what segmentlog logs to stderr, until the block ends. Not thread-safe: loggers are of the process.

    The command writes warnings of all verbs. A verb that shows progress replaces that handler by its own for a while.
    """
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


class _Lines(logging.Handler):
    """A line per log record, as the jobs write them; no control character is in it."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._stderr = console.stderr
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line."""
        lines = self.format(record).splitlines()
        self._stderr.write("".join(printable(line) + "\n" for line in lines))
        self._stderr.flush()


class _Bar(_Lines):
    """A bar by rich for records that state ``done`` and ``of``, and lines for warnings."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._console = console
        self._progress: Progress | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Move the bar, or write a line above it."""
        done, of = getattr(record, "done", None), getattr(record, "of", None)
        if done is not None and of is not None:
            self._show(printable(record.getMessage()), done, of)
        elif record.levelno >= logging.WARNING:
            self._hide()
            super().emit(record)

    def close(self) -> None:
        """Remove the bar."""
        self._hide()
        super().close()

    def _show(self, text: str, done: int, of: int) -> None:
        if self._progress is None:
            self._progress = _bar(self._console)
            self._progress.start()
            self._progress.add_task("", text="", total=of)
        (task,) = self._progress.task_ids
        self._progress.update(task, completed=done, total=of, text=text)

    def _hide(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _bar(console: Console) -> "Progress":
    from rich.console import Console as Terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    terminal = Terminal(
        file=console.stderr,
        force_terminal=True,
        color_system="standard" if console.has_colour else None,
        width=console.width,
    )
    columns = BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn()
    text = TextColumn("{task.fields[text]}", markup=False)
    return Progress(*columns, text, console=terminal, transient=True, redirect_stdout=False, redirect_stderr=False)
