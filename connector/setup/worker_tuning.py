"""What a task does once for the Python worker that it runs in."""

import contextlib
import ctypes
import gc
import os
import socket
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


def answer_at_once() -> None:
    """Let Spark hand this worker its next task without a pause of 40 ms, in a worker of Spark's.

    Spark's JVM sends a task in two small pieces, and the second only when the first was acknowledged (Nagle's rule). A
    kernel that has seen the worker answer acknowledges late, hoping to do so with the answer, which waits for the
    second piece. So before each task the kernel is told to acknowledge at once; it forgets that when the worker
    answers. The moment is the garbage collection that PySpark does when a task is done, and all of it sent.
    """
    if TaskContext.get() is None or not hasattr(socket, "TCP_QUICKACK"):
        return
    if _acknowledge_at_once not in gc.callbacks:
        gc.callbacks.append(_acknowledge_at_once)


def _acknowledge_at_once(phase: str, info: dict[str, int]) -> None:
    if phase != "stop" or info["generation"] < 2:
        return
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # a file, or another kind of socket
            connection = socket.socket(fileno=int(name))
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            finally:
                connection.detach()
