"""Spark's own Parquet source, over the same rows, uncompressed: what a format that Spark decodes in Java reaches."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from harness import Bench, Case, counts

from peers.transport import SCHEMAS


@contextmanager
def cases(bench: Bench) -> Iterator[list[Case]]:
    """Give one case for each schema that the transport ceiling is measured with."""
    frame = bench.spark.read.parquet(str(bench.workload.parquet))
    rows = bench.workload.rows
    yield [
        Case(
            name=f"parquet: {name}",
            peer="parquet",
            rows=rows,
            action=partial(frame.select(*columns).write.format("noop").mode("overwrite").save),
            check=partial(counts, frame, rows),
        )
        for name, columns in SCHEMAS.items()
    ]
