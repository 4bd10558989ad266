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

    __slots__ = ("asked", "leads", "lock")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.leads = False
        self.lock = threading.Lock()
        self.lock.acquire()


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
        try:
            with self._lock:
                self._waiting.append(waiter)
                waiter.leads = not self._is_led
                self._is_led = True
            if not waiter.leads:
                waiter.lock.acquire()
            if waiter.leads:
                self._lead()
        except BaseException:
            self._leave(waiter)
            raise

    def _lead(self) -> None:
        gathered: list[_Waiter[Asked]] = []
        try:
            with self._lock:
                gathered, self._waiting = self._waiting, []
            self._work([waiter.asked for waiter in gathered])
        finally:
            with self._lock:
                self._hand_on()
            for waiter in gathered[1:]:  # the first is the one that leads
                waiter.lock.release()

    def _leave(self, waiter: _Waiter[Asked]) -> None:
        """Forget one that a Ctrl-C took away while it waited, or was about to lead."""
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                if waiter.leads:
                    self._hand_on()

    def _hand_on(self) -> None:
        """Let the first of those who came meanwhile lead, before all others wake up; needs the lock."""
        self._is_led = bool(self._waiting)
        if self._waiting:
            self._waiting[0].leads = True
            self._waiting[0].lock.release()
