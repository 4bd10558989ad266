"""Job ``rebuild``: ConsumeQueues written again, their entries derived by all cores or by Spark's tasks.

::

    parts of the log ──► tasks: entries of each queue ──► the driver: one writer, a directory that appears whole
"""

import os
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from segmentlog.store import Snapshot
from segmentlog.store.maintenance import rebuild_queues

from .report import Report
from .spread import spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(
    spark: "SparkSession | None",
    store: Snapshot | str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    entries_per_segment: int | None = None,
    processes: int | None = None,
) -> Report:
    """Write the ConsumeQueues of a store into a new directory.

    Parameters
    ----------
    spark
        Whose tasks derive the entries; None for the cores of this machine. This process writes them.
    store, directory, entries_per_segment
        See `segmentlog.admin.rebuild_queues`.
    processes
        How many, without Spark.

    Returns
    -------
    Report
        One row: the numbers of `RebuiltQueues`. Lost messages and records in no queue are findings.
    """
    work = partial(spread, spark=spark, processes=processes)
    found = rebuild_queues(store, directory, entries_per_segment=entries_per_segment, spread=work)
    numbers = asdict(found)
    return Report(
        numbers=numbers, table=pa.Table.from_pylist([numbers]), has_findings=found.lost_messages + found.left_out > 0
    )
