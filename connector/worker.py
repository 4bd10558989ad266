"""What a task does once for the Python worker that it runs in."""

import ctypes
import gc
import os
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

_POOL_CHOICE: Final = "ARROW_DEFAULT_MEMORY_POOL"
_M_TRIM_THRESHOLD: Final = -1  # as in malloc.h
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES_MAX: Final = 64 << 20  # of free memory that stays with the worker: some batches
_MAPPED_BYTES_MIN: Final = 32 << 20  # larger pieces are mapped, each anew; the most that glibc takes here


@cache
def settle_worker() -> None:
    """Take all that is loaded by now out of garbage collection, in a worker of Spark's; once a process.

    PySpark collects garbage after every task, which looks at every object of every module that the worker has
    imported: on two cores some 40 ms a task, two thirds of what a short task costs. What was imported stays until the
    process ends, so there is nothing to find in it. Objects made later are collected as ever.
    """
    if TaskContext.get() is not None:
        gc.freeze()


@cache
def keep_memory() -> None:
    """Let batches reuse the memory of earlier ones, in a worker of Spark's; once a process.

    Arrow's own allocator gives a batch's pages back, and the kernel zeroes others for the next one, which costs as much
    as filling them. So Arrow allocates with the system's ``malloc``, which is told to keep what a few batches need.
    ``ARROW_DEFAULT_MEMORY_POOL`` still decides where it is set; a system that is not glibc's keeps its own ways.
    """
    if TaskContext.get() is None or _POOL_CHOICE in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES_MIN) == 1:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES_MAX)
        pa.set_memory_pool(pa.system_memory_pool())
