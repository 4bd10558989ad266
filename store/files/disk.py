"""Disk space of a path, as the operating system counts it.

::

    total ├────────── used ──────────┤── free ───────────────────┤
                                     ├── usable ──┤─ for root ───┤

RocketMQ asks the same of ``java.io.File`` (``UtilAll.getDiskPartitionSpaceUsedPercent``).
"""

import os
from typing import NamedTuple

from .os_errors import ABSENT, read_error


class Space(NamedTuple):
    """Bytes of a file system: all, free, and free for this user."""

    total: int
    free: int
    usable: int


def space_of(path: str) -> Space | None:
    """Return the space of the file system that holds a path; None if the path does not exist.

    Raises
    ------
    StoreIOError, UnreadableError
        If the file system does not say.
    """
    try:
        found = os.statvfs(path)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise read_error(error, "asking for the space", path) from error
    return Space(found.f_blocks * found.f_frsize, found.f_bfree * found.f_frsize, found.f_bavail * found.f_frsize)
