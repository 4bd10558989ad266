"""Filling of free memory with clean pages of a file, the state of a machine that has been up for a while.

::

    as found    [used][                free                 ]   a page costs the time to get one from the host
    filled      [used][ clean pages of a sparse file   ][fr.]   a page is taken from an unused file

A virtual machine may return free memory to its host, and then pays for the first touch of each page. On the machine of
our figures, such a page costs ten times one from the page cache. The case that writes most pays most, whatever its
code. The limits have both.

Pages are read one by one, without read-ahead. Such a machine counts a page from a larger block as free memory again,
and returns it to the host before it is used.
"""

import os
import time
from pathlib import Path

LEFT_BYTES = 192 << 20
MEMORY_MAX_BYTES = 64 << 30
"""More takes too long to fill, and a machine that has so much is another case."""
READ_BYTES = 1 << 20
STEP_BYTES = 64 << 20
GIVEN_BACK_S = 4.0


class FreeMemory:
    """The free memory of this machine.

    Parameters
    ----------
    path
        Of the file whose pages fill it; it takes no space.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def fill(self) -> None:
        """Fill it, except where there is too much of it; where it is full already nothing is done."""
        size = meminfo("MemTotal")
        if size > MEMORY_MAX_BYTES or meminfo("MemFree") <= LEFT_BYTES:
            return
        buffer = bytearray(READ_BYTES)
        with open(self._path, "ab", buffering=0) as file:
            file.truncate(size)
        with open(self._path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # single pages
            read = 0
            # On from where the last time ended: what is gone from memory is what was read first.
            while read < 2 * size and meminfo("MemFree") > LEFT_BYTES:
                for _ in range(STEP_BYTES // READ_BYTES):
                    read += os.preadv(file.fileno(), [buffer], self._position)
                    self._position = (self._position + READ_BYTES) % (size // READ_BYTES * READ_BYTES)

    def empty(self) -> None:
        """Release the memory of `fill`, and wait until the machine has returned it to its host, if it does."""
        if self._path.exists():
            with open(self._path, "rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        time.sleep(GIVEN_BACK_S)


def meminfo(name: str) -> int:
    """One line of ``/proc/meminfo``, in bytes."""
    with open("/proc/meminfo") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key == name:
                return int(value.split()[0]) * 1024
    raise KeyError(name)
