"""Interrupts a call at a chosen point among those where CPython checks for signals.

::

    run      ──► check point 1 ── check point 2 ── … ── check point n ──► KeyboardInterrupt, as a Ctrl-C there
    count    ──► how many there are

The interpreter checks for signals at the start of a function and of a loop's next turn. It also does at the end of a
call into C, and in a ``with`` that waits for a lock. An exception is raised at exactly that instruction, so
``try`` and ``with`` behave as they would. Only frames of the thread that calls count; service threads are not touched.

Two places are left out, since no program can mend what an interrupt leaves there. `os.open` has returned a descriptor
that is not stored yet. ``Condition.__enter__`` and ``__exit__`` of the standard library hold a lock, and leave it held.
"""

import dis
import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

_CHECKED = frozenset(
    code
    for name, code in dis.opmap.items()
    if name in {"RESUME", "BEFORE_WITH"} or ("JUMP_BACKWARD" in name and "NO_INTERRUPT" not in name)
)
_WEAKREFS = frozenset({weakref.__file__, sys.modules["_weakrefset"].__file__})
_LEAKING = frozenset({threading.Condition.__enter__.__code__, threading.Condition.__exit__.__code__})
_BLOCKING = frozenset({"acquire", "join", "get", "result", "wait", "__enter__"})


class Interrupter:
    """Counts the check points of a call, and raises at number ``at``, from 1; 0 only counts."""

    def __init__(self, at: int = 0) -> None:
        self.at = at
        self.passed = 0
        self.where = ""
        """The function and line that was interrupted."""

    def run(self, act: Callable[[], object]) -> bool:
        """Call a function; tell whether the interrupt came out of it.

        An interrupt within ``Condition.wait`` of the standard library comes out as a RuntimeError of its lock.
        """
        interrupted = False
        sys.setprofile(self._profile)
        sys.settrace(self._trace)
        try:
            act()
        except KeyboardInterrupt:
            interrupted = True
        except Exception:
            if not self.where:
                raise
            interrupted = True
        finally:
            sys.settrace(None)
            sys.setprofile(None)
        return interrupted

    def _point(self, frame: FrameType) -> None:
        self.passed += 1
        if self.passed == self.at and _is_in_finalizer(frame):
            self.at += 1  # Python swallows what is raised there
        if self.passed == self.at:
            self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
            raise KeyboardInterrupt

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Callable[..., Any] | None:
        if event == "call":
            if _is_ours(frame):
                return None
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        elif event == "opcode" and frame.f_code.co_code[frame.f_lasti] in _CHECKED and frame.f_code not in _LEAKING:
            self._point(frame)
        return self._trace

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        if _is_ours(frame) or frame.f_code in _LEAKING or argument is os.open:
            return
        name = getattr(argument, "__name__", "")
        if event == "c_return" or (event == "c_call" and name in _BLOCKING):
            self._point(frame)


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename == __file__


def _is_in_finalizer(frame: FrameType | None) -> bool:
    """Tell whether the garbage collector calls the function of a frame."""
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code.co_filename in _WEAKREFS:
            return True
        if any(frame.f_code is getattr(each, "__code__", None) for each in gc.callbacks):  # Hypothesis has one
            return True
        frame = frame.f_back
    return False


def points_of(act: Callable[[], object]) -> int:
    counting = Interrupter()
    counting.run(act)
    return counting.passed


def own_threads() -> list[threading.Thread]:
    """Threads of stores that are alive.

    `threading` lists a thread that an interrupt kept from starting for ever, in whatever test comes next.
    """
    known = threading.enumerate()
    return [thread for thread in known if thread.name.startswith("segmentlog-") and thread.is_alive()]
