"""Threads that ask for the same kind of work: one of them does it for all who asked, while the next ones gather.

::

    thread 1   ask(a) ── leads: work([a]) ─────► done
    thread 2      ask(b) ───────────────────────── leads: work([b, c, d]) ──────► done
    thread 3         ask(c) ────────────────────────────────────────────────────► done, without work of its own
    thread 4            ask(d) ─────────────────────────────────────────────────► done

Threads that take turns at a lock pay for each turn, the more so in Python, where whoever waits for the disk or a lock
has to get the interpreter back as well. Here each sleeps once and is woken once, however many there are.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Asked = TypeVar("Asked")


class _Waiter(Generic[Asked]):
    """One that waits; the lock is held until somebody has news for it."""

    __slots__ = ("asked", "gathered", "leads", "lock")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.leads = False
        self.gathered: list[_Waiter[Asked]] = []  # those that it works for and has to wake up
        self.lock = threading.Lock()
        self.lock.acquire()

    def wake(self) -> None:
        """End its wait; does nothing if it was woken up before."""
        if self.lock.locked():
            self.lock.release()


class Combiner(Generic[Asked]):
    """Gathers what threads ask for while one of them works.

    Parameters
    ----------
    work
        Does what is asked for: at least one thing, that of the thread that calls it in front. One call at a time.
    """

    def __init__(self, work: Callable[[list[Asked]], None]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._is_led = False
        self._waiting: list[_Waiter[Asked]] = []

    def ask(self, asked: Asked) -> None:
        """Come back when ``work`` was called with this among others, and has ended.

        Whether it succeeded only the thread knows that called it, to which what it raises goes. So who asks has to look
        whether it was done, and to ask again if it was not: sooner or later it is the one that calls.
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
                except BaseException:  # a Ctrl-C, which must not leave the others waiting for ever
                    self._leave(waiter)
                    raise

    def _leave(self, waiter: _Waiter[Asked]) -> None:
        """Forget one that is done or was interrupted: the next one leads, and those it worked for wake up.

        It may be repeated from any point at which it was interrupted: whom it wakes up twice has left by then.
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
