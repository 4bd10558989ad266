"""Teardown of a store: the steps that undo its opening, in reverse order, even if a Ctrl-C comes in between.

::

    open       lock ──► files ──► appender ──► upkeep ──► service threads
    teardown   lock ◄── files ◄── appender ◄── upkeep ◄── service threads      a step begins when the one before is over

So no thread of a store runs without its files and its lock. An ``ExitStack`` goes on with the next step when an
interrupt ends one, and forgets a step when the interrupt comes just before it.
"""

import _thread
import os
from collections.abc import Callable
from contextlib import suppress


class Teardown:
    """Steps to be taken once, last first. Call `run` from one thread at a time."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], None]] = []
        self._pid = os.getpid()

    def add(self, step: Callable[[], None]) -> None:
        """Add a step that undoes what was just done; it must be harmless to repeat."""
        self._steps.append(step)

    def run(self) -> None:
        """Take all steps that were not taken yet; none in a forked child, whose parent still needs them.

        An ordinary error of a step is raised after the last one. An interrupt is raised at the end, too: the step in
        which it came is repeated. A second interrupt is raised at once, and the rest is left for the next call.
        """
        if self._pid != os.getpid():
            return
        try:
            self._run()
        except BaseException:
            self._run()
            raise

    def leave(self) -> None:
        """Take the steps in a thread of its own: for finalizers, which run in any thread, whatever locks it holds."""
        if self._steps and self._pid == os.getpid():
            with suppress(RuntimeError):  # the interpreter is about to end, and the kernel closes everything
                _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        failed: Exception | None = None
        while self._steps:
            try:
                self._steps[-1]()
            except Exception as error:  # noqa: BLE001 - raised below
                failed = failed or error
            with suppress(IndexError):
                self._steps.pop()
        if failed is not None:
            raise failed
