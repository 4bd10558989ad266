"""Job ``verify``: log, queues and index of a store compared with each other, by all cores or by Spark's tasks."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from segmentlog.store.maintenance import verify

from .report import Report
from .spread import spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA: Final = pa.schema(
    [("kind", pa.string()), ("path", pa.string()), ("offset", pa.int64()), ("count", pa.int64()), ("text", pa.string())]
)


def run(
    spark: "SparkSession | None",
    store: str | os.PathLike[str],
    *,
    commit_log_paths: Sequence[str | os.PathLike[str]] = (),
    processes: int | None = None,
) -> Report:
    """Look for faults of a store.

    Parameters
    ----------
    spark
        Whose tasks examine parts of the log; None for the cores of this machine.
    store, commit_log_paths
        See `segmentlog.admin.verify`.
    processes
        How many, without Spark.

    Returns
    -------
    Report
        A row per finding.
    """
    work = partial(spread, spark=spark, processes=processes)
    found = verify(store, commit_log_paths=commit_log_paths, spread=work)
    rows = [{**asdict(each), "kind": each.kind.value} for each in found.findings]
    numbers = {name: value for name, value in asdict(found).items() if name != "findings"}
    return Report(numbers=numbers, table=pa.Table.from_pylist(rows, _SCHEMA), has_findings=not found.is_sound)
