"""Work spread over parts: by the tasks of a Spark session, else by processes of this machine.

::

    parts ──► spark:  one task per part, in one job ──► results in the order of the parts
          └─► else:   a process per core, each with some parts ahead of the result that the caller waits for

A result is yielded as soon as all results before it were: other processes work on while the caller uses it.
"""

import logging
import os
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from segmentlog.query.extras import check_tasks_run_functions
from segmentlog.store import StoreFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_AHEAD: Final = 4  # parts of each process that have begun or wait: results in their order may be late
_SCHEMA: Final = "part bigint, result binary"

Part = TypeVar("Part")
Result = TypeVar("Result")


def cores() -> int:
    """Return how many cores this process may use; of the machine where the system does not tell, as on macOS."""
    # Drop when Python 3.13 is the oldest: os.process_cpu_count.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(
    work: Callable[[Part], Result],
    parts: Sequence[Part],
    spark: "SparkSession | None" = None,
    *,
    processes: int | None = None,
) -> Iterator[Result]:
    """Yield the results of some work on parts, in their order.

    Spark repeats tasks that fail. With speculation it runs some twice at once. So the work is the same each time, and
    each file that it writes has a new name. An error ends the whole.

    Parameters
    ----------
    work
        A function of a module, and not a lambda; parts and results can be pickled.
    spark
        Whose tasks do the work; None for processes of this machine.
    processes
        How many; by default one per core. With 1 the caller's process does the work.
    """
    count = min(len(parts), processes or cores())
    if spark is not None and parts:
        yield from _by_tasks(work, parts, spark)
    elif count <= 1:
        yield from map(work, parts)
    else:
        yield from _by_processes(work, parts, count)


def _by_processes(work: Callable[[Part], Result], parts: Sequence[Part], count: int) -> Iterator[Result]:
    context = get_context("forkserver")  # the caller may have threads, and a fork copies the locks that they hold
    # Imported once, not by each process of each pool. Without effect if the caller has started the server before.
    context.set_forkserver_preload(["__main__", work.__module__])
    with ProcessPoolExecutor(count, mp_context=context, initializer=_end_with_parent) as pool:
        begun: deque[Future[Result]] = deque()
        left = iter(parts)
        try:
            for number in range(1, len(parts) + 1):
                begun.extend(pool.submit(work, part) for part in islice(left, count * _AHEAD - len(begun)))
                result = begun.popleft().result()
                _log.info("part %d of %d", number, len(parts), extra={"done": number, "of": len(parts)})
                yield result
        except BrokenProcessPool as error:
            problem = "a process that worked on a part ended before its result"
            fix = (
                'A script calls this below `if __name__ == "__main__":`, since each process imports it. A process that '
                "lacked memory was killed: pass fewer processes"
            )
            raise StoreFailedError(problem, fix=fix) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _end_with_parent() -> None:
    """End this process when the caller is killed: it holds both ends of the pool's pipes, and would wait forever."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _by_tasks(work: Callable[[Part], Result], parts: Sequence[Part], spark: "SparkSession") -> Iterator[Result]:
    pickled = [pickle.dumps(part) for part in parts]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                result = pickle.dumps(work(pickle.loads(pickled[number])))  # noqa: S301 - pickled above
                yield pa.record_batch({"part": [number], "result": pa.array([result], pa.large_binary())})

    check_tasks_run_functions()
    # `mapInArrow` and not an RDD: a session of Spark Connect has no RDDs.
    ids = spark.range(0, len(parts), 1, numPartitions=len(parts))
    table = ids.mapInArrow(run, _SCHEMA).toArrow().sort_by("part")
    for each in table["result"]:
        yield pickle.loads(each.as_buffer())  # noqa: S301 - pickled by our tasks
