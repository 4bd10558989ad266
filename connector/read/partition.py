"""A Spark partition: one task's share of one store, as ints and strings that cross to a worker.

Never a map, an array over a map, or a lock: a view of a map pickles as all the bytes it shows.
"""

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from segmentlog.query.source import StoreSource
from segmentlog.store import ScanSpec, ScanTask


@dataclass(frozen=True, kw_only=True)
class StorePartition(InputPartition):
    """One Spark task: runs of queues of one store, short ones packed together."""

    source: StoreSource
    task: ScanTask
    spec: ScanSpec
    """The columns that are read of each message, and the predicate that its rows are checked against."""
