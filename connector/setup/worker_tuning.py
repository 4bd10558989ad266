"""Tuning of the Python worker that a task runs in: garbage collection, allocator, and acknowledgement of tasks.

::

    task       SentToWorkers.__setstate__ ─► keep_memory ─► read or write ─► settle_worker
                  │                             │                               │
    process    TCP_QUICKACK on the           malloc keeps                    gc.freeze: what was imported
               connection to the JVM         64 MiB                          is not looked at again

A worker process is shared: Spark runs other queries in it, too. So all of it is off where the environment of the worker
says ``SEGMENTLOG_WORKER_TUNING=off`` (docs/deployment.md, docs/adr/0016). Processes other than workers of a task, such
as drivers, are never changed.
"""

import contextlib
import ctypes
import gc
import inspect
import os
import socket
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

SWITCH: Final = "SEGMENTLOG_WORKER_TUNING"
"""The environment variable; ``off``, ``false`` or ``0`` in any case leaves the worker as it is."""

_OFF: Final = {"off", "false", "0"}
_POOL_CHOICE: Final = "ARROW_DEFAULT_MEMORY_POOL"
_M_TRIM_THRESHOLD: Final = -1  # as in malloc.h
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES_MAX: Final = 64 << 20  # of free memory that stays with the worker: some batches
_MAPPED_BYTES_MIN: Final = 32 << 20  # larger pieces are mapped, each by itself; the most that glibc takes here


def is_tuned() -> bool:
    """Return whether this process is a worker of a task, and may be tuned."""
    return TaskContext.get() is not None and os.environ.get(SWITCH, "").strip().lower() not in _OFF


@cache
def settle_worker() -> None:
    """Take everything that is loaded by now out of garbage collection; once per process."""
    # PySpark collects garbage after every task, and the collection visits every object of every imported module. On two
    # cores that is some 40 ms per task, two thirds of what a short task costs. Imported modules stay until the process
    # ends, so there is nothing to find in them. Objects made later are collected as before.
    if is_tuned():
        gc.freeze()


@cache
def keep_memory() -> None:
    """Let batches reuse the memory of earlier ones; once per process."""
    # Arrow's own allocator returns a batch's pages, and the kernel zeroes others for the next batch, which costs as
    # much as filling them. So Arrow allocates with the system's ``malloc``, which is told to keep what a few batches
    # need. `ARROW_DEFAULT_MEMORY_POOL` still decides where it is set. A libc without `mallopt` keeps Arrow's allocator.
    if not is_tuned() or _POOL_CHOICE in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES_MIN) == 1:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES_MAX)
        pa.set_memory_pool(pa.system_memory_pool())


class SentToWorkers:
    """Base of the readers and writers that Spark sends to a worker with each task: it acknowledges the task at once."""

    # Spark's JVM sends a task in two small pieces, and the second only after the first was acknowledged (Nagle's rule).
    # The kernel of a worker that has answered before delays an acknowledgement by 40 ms, to send it with the next
    # answer. That answer waits for the second piece. A reader or writer is in the first piece, so it is unpickled while
    # an acknowledgement is due. Asking the kernel earlier, when the task before has ended, did not always help.

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        _acknowledge_at_once()


def _acknowledge_at_once() -> None:
    """Make the kernel acknowledge what came from Spark's JVM, on the connection that PySpark's ``main`` writes to."""
    if not is_tuned() or not hasattr(socket, "TCP_QUICKACK"):
        return
    frame = inspect.currentframe()  # the only way to Spark's descriptor
    while frame is not None and not (frame.f_code.co_name == "main" and "outfile" in frame.f_code.co_varnames):
        frame = frame.f_back
    # PySpark opens its files again for each task, over one connection for as long as the worker lives. A file, a pipe
    # or a Unix socket refuses the option, and needs none.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        descriptor = frame.f_locals["outfile"].fileno()  # type: ignore[union-attr] # suppressed
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=descriptor)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        finally:
            connection.detach()  # it is Spark's
