"""Waiting for the device: which tests do, when a store of theirs is flushed.

::

    flush ──► os.fsync, os.fdatasync ──┬──►  the device           tests of the calls, and attacks of make soak
                                       └──►  EBADF or nothing     all other tests

A flush makes no difference unless a power cut follows. Power cuts are tests of their own: on a disk in memory, and with
the calls that other processes make. Everywhere else waiting costs one third of the CPU time of a writing test, and most
of its wall time on a busy device. Processes that a test starts always wait.
"""

import os
from pathlib import Path

import pytest

from .scale import SCALE, Scale

_FILES = Path(__file__).parent.parent / "files"
"""The folder of the tests of these calls."""
_CALLS = {"fsync": os.fsync, "fdatasync": os.fdatasync}


def _returned_at_once(fd: int) -> None:
    os.fstat(fd)  # fails for a closed descriptor, as a flush does


def waits(item: pytest.Item) -> bool:
    is_soak = SCALE is Scale.SOAK
    return (is_soak and item.get_closest_marker("attack") is not None) or _FILES in item.path.parents


def prepare(item: pytest.Item) -> None:
    """Let flushes of this process wait for the device, or return at once, as a test needs it."""
    for name, call in _CALLS.items():
        setattr(os, name, call if waits(item) else _returned_at_once)
