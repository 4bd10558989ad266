"""Work spread over parts: by the tasks of a Spark session, else by processes of this machine.

::

    parts ──► spark:  one task per part, in one job ──► results in the order of the parts
          └─► else:   a process per core
"""

import logging
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from segmentlog.store import StoreFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

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
) -> list[Result]:
    """Return the results of some work on parts, in their order.

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
    if not parts:
        return []
    if spark is not None:
        return _by_tasks(work, parts, spark)
    count = min(len(parts), processes or cores())
    if count == 1:
        return [work(part) for part in parts]
    # The caller may have threads, and a fork copies the locks that they hold.
    results: list[Result] = []
    with ProcessPoolExecutor(count, mp_context=get_context("forkserver"), initializer=_end_with_parent) as pool:
        try:
            for result in pool.map(work, parts):
                results.append(result)
                progress = {"done": len(results), "of": len(parts)}
                _log.info("part %d of %d", len(results), len(parts), extra=progress)
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
    return results


def _end_with_parent() -> None:
    """End this process when the caller is killed: it holds both ends of the pool's pipes, and would wait forever."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _by_tasks(work: Callable[[Part], Result], parts: Sequence[Part], spark: "SparkSession") -> list[Result]:
    pickled = [pickle.dumps(part) for part in parts]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                result = pickle.dumps(work(pickle.loads(pickled[number])))  # noqa: S301 - pickled above
                yield pa.record_batch({"part": [number], "result": pa.array([result], pa.large_binary())})

    # `mapInArrow` and not an RDD: a session of Spark Connect has no RDDs.
    ids = spark.range(0, len(parts), 1, numPartitions=len(parts))
    table = ids.mapInArrow(run, _SCHEMA).toArrow().sort_by("part")
    return [pickle.loads(each) for each in table["result"].to_pylist()]  # noqa: S301 - pickled by our tasks
