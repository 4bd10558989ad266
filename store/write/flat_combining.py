"""Flat combining: of threads that ask for the same kind of work, one does it for all, while the next ones gather.

::

    thread 1   ask(a) ── leads: work([a]) ─────► done
    thread 2      ask(b) ───────────────────────── leads: work([b, c, d]) ──────► done
    thread 3         ask(c) ────────────────────────────────────────────────────► done, without work of its own
    thread 4            ask(d) ─────────────────────────────────────────────────► done

Threads that take turns at a lock pay for each turn. In Python they pay more: a thread that waited for the disk or a
lock has to get the interpreter back as well. Here each thread sleeps once and is woken once, however many there are.
The technique is described by Hendler, Incze, Shavit and Tzafrir, "Flat Combining", SPAA 2010.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Asked = TypeVar("Asked")


class _Waiter(Generic[Asked]):
    """A thread that waits; its lock is held until another thread wakes it."""

    __slots__ = ("asked", "gathered", "leads", "lock")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.leads = False
        self.gathered: list[_Waiter[Asked]] = []  # the threads that it works for and has to wake
        self.lock = threading.Lock()
        self.lock.acquire()

    def wake(self) -> None:
        """End its wait; does nothing if that was done before."""
        if self.lock.locked():
            self.lock.release()


class Combiner(Generic[Asked]):
    """Gathers what threads ask for while one of them works."""

    def __init__(self, work: Callable[[list[Asked]], None]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._is_led = False
        self._waiting: list[_Waiter[Asked]] = []

    def ask(self, asked: Asked) -> None:
        """Return when ``work`` was called with this among others, and has ended.

        Only the thread that calls ``work`` gets its error. So the caller has to look whether its work was done, and to
        ask again if it was not. Sooner or later it is the thread that calls ``work``.
        """
        waiter = _Waiter(asked)
        is_over = False
        try:
            with self._lock:
                self._waiting.append(waiter)
                waiter.leads = not self._is_led
                self._is_led = True
            if not waiter.leads:
                waiter.lock.acquire()
            if waiter.leads:
                with self._lock:
                    waiter.gathered, self._waiting = self._waiting, []
                self._work([each.asked for each in waiter.gathered])
            is_over = not waiter.leads
        finally:
            if not is_over:
                try:
                    self._leave(waiter)
                except BaseException:  # a Ctrl-C, which must not leave the other threads waiting for ever
                    self._leave(waiter)
                    raise

    def _leave(self, waiter: _Waiter[Asked]) -> None:
        """Remove a thread that is done or was interrupted: the next one leads, and those it worked for wake up.

        It may be repeated from any point at which it was interrupted: a thread that is woken twice has left by then.
        """
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            if waiter.leads:
                waiter.leads = False
                if self._waiting:
                    self._waiting[0].leads = True
                else:
                    self._is_led = False
            if self._waiting and self._waiting[0].leads:  # before all others wake up
                self._waiting[0].wake()
        for each in waiter.gathered:
            each.wake()
