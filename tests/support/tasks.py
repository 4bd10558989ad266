"""A session without a JVM for `segmentlog.jobs.spread`: its tasks run here, and what they get goes through pickle."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Tasks:
    def range(self, start: int, stop: int, step: int, *, numPartitions: int) -> "Tasks":  # noqa: N803 - Spark's
        assert numPartitions == stop
        self._ids = range(start, stop, step)
        return self

    def mapInArrow(self, work: Work, schema: str) -> "Tasks":  # noqa: N802 - Spark's
        del schema
        self._work = cloudpickle.dumps(work)
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's
        found = [each for number in self._ids for each in self._run(number)]
        return pa.Table.from_batches(found[::-1])  # tasks end in any order

    def _run(self, number: int) -> Any:
        return cloudpickle.loads(self._work)(iter([pa.record_batch({"id": [number]})]))
