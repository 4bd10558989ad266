"""Files into the page cache and out of it, and how much of them is there; the rest of the machine is left be.

A page that is dirty or mapped somewhere stays, so files are synced first, and what was dropped is counted.
"""

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

LEFT_SHARE = 0.05
READ_BYTES = 1 << 20
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


def drop(folder: Path) -> bool:
    """Take the files below a folder out of the page cache; whether it worked."""
    os.sync()
    kept = size = 0
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_size:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                kept += resident_bytes(descriptor)
            finally:
                os.close(descriptor)
            size += path.stat().st_blocks * 512
    return kept <= LEFT_SHARE * size


def bring_in(folder: Path) -> None:
    """Read the files below a folder, so that the next case finds them in the page cache, whatever ran before."""
    for path in folder.rglob("*"):
        # A broker may delete what it no longer needs meanwhile.
        with contextlib.suppress(FileNotFoundError, IsADirectoryError), path.open("rb", buffering=0) as file:
            for start, stop in _written(file.fileno()):
                file.seek(start)
                while file.tell() < stop and file.read(min(READ_BYTES, stop - file.tell())):
                    pass


def _written(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that are no holes."""
    stop = 0
    while True:
        try:
            start = os.lseek(descriptor, stop, os.SEEK_DATA)
        except OSError:  # no data from here on
            return
        stop = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, stop


def resident_bytes(descriptor: int) -> int:
    """Count how much of a file is in the page cache; the file is not empty."""
    size = os.fstat(descriptor).st_size
    pages = -(-size // mmap.PAGESIZE)
    found = np.zeros(pages, np.uint8)
    with mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        failed = _libc.mincore(view.ctypes.data, size, found.ctypes.data)
        del view
    if failed:
        raise OSError(ctypes.get_errno(), "mincore failed")
    return int((found & 1).sum()) * mmap.PAGESIZE
