"""What a task does once for the Python worker that it runs in."""

import gc
from functools import cache

from pyspark import TaskContext


@cache
def settle_worker() -> None:
    """Take all that is loaded by now out of garbage collection, in a worker of Spark's; once a process.

    PySpark collects garbage after every task, which looks at every object of every module that the worker has
    imported: on two cores some 40 ms a task, two thirds of what a short task costs. What was imported stays until the
    process ends, so there is nothing to find in it. Objects made later are collected as ever.
    """
    if TaskContext.get() is not None:
        gc.freeze()
