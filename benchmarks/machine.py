"""The machine's state around a timing: pages in memory, and the private memory of processes.

A virtual machine may return free memory to its host, and then pays for the first touch of each page. The case that
writes most pays most, whatever its code. So before each timing free memory is filled with clean pages of a sparse
file, the state of a machine that has been up for a while::

    as found    [used][                free                 ]   a page costs the time to get one from the host
    filled      [used][ clean pages of a sparse file   ][fr.]   a page is taken from an unused file

Pages are read one by one, without read-ahead. Such a machine counts a page from a larger block as free memory again,
and returns it to the host before it is used.
"""

import contextlib
import itertools
import os
import platform
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

MIB = 1 << 20
READ_BYTES, READS = 1 << 20, 64
LEFT_FREE_BYTES = 192 << 20
FILLED_BYTES_MAX = 64 << 30
"""More takes too long to fill, and a machine that has so much is another case."""
SAMPLE_SECONDS = 0.02
PACKAGES = ("pyspark", "pyarrow", "numpy", "isal")


def bring_in(folder: Path) -> None:
    """Read the files below a folder, so that the next case finds them in the page cache, whatever ran before."""
    for path in folder.rglob("*"):
        # A broker may delete what it no longer needs meanwhile.
        with contextlib.suppress(FileNotFoundError, IsADirectoryError), path.open("rb", buffering=0) as file:
            stop = 0
            with contextlib.suppress(OSError):  # no data from here on: the rest is a hole
                while True:
                    start = file.seek(stop, os.SEEK_DATA)
                    stop = file.seek(start, os.SEEK_HOLE)
                    file.seek(start)
                    while file.tell() < stop and file.read(READ_BYTES):
                        pass


def memory_filler(path: Path) -> Callable[[], None]:
    """Return a function that fills free memory with pages of a sparse file, which it makes."""
    size = _meminfo("MemTotal") // READ_BYTES * READ_BYTES
    # Each call goes on where the last one ended: what is gone from memory is what was read first.
    offsets = itertools.cycle(range(0, size, READ_BYTES))
    buffer = bytearray(READ_BYTES)
    path.touch()
    os.truncate(path, size)

    def fill() -> None:
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # single pages
            for _ in range(2 * size // (READS * READ_BYTES)):
                if size > FILLED_BYTES_MAX or _meminfo("MemFree") <= LEFT_FREE_BYTES:
                    break
                for offset in itertools.islice(offsets, READS):
                    os.preadv(file.fileno(), [buffer], offset)

    return fill


def _meminfo(name: str) -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


@contextmanager
def peak_memory(processes: Callable[[], Iterable[int]]) -> Iterator[list[int]]:
    """Sample the private memory of processes while the block runs; yield a list with the peak of the largest one.

    Private dirty pages are heap and stacks. Mapped segments and the page cache are clean file pages, which the kernel
    takes back when it needs them, so they are not counted.
    """
    peak, done = [0], threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            peak[0] = max([peak[0], *map(_private_dirty, processes())])

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def this_process() -> list[int]:
    """Return this process alone."""
    return [os.getpid()]


def spark_workers() -> list[int]:
    """List this session's processes that run Spark's Python daemon or were forked from it."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        pid = int(command.parent.name)
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if b"pyspark.daemon" in command.read_bytes() and os.getsid(pid) == os.getsid(0):
                found.append(pid)
    return found


def _private_dirty(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_Dirty:"))


def described() -> dict[str, Any]:
    """Describe the machine and the software, without naming the machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "cpus": os.cpu_count(),
        "cpu": next(models, "unknown"),
        "memory_mib": _meminfo("MemTotal") // MIB,
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }
