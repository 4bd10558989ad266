"""Spark's own Parquet source, over the same rows, uncompressed: what a format that Spark decodes in Java reaches."""

from functools import partial
from typing import TYPE_CHECKING

from harness import Case, counts
from page_cache import bring_in

from .transport import SCHEMAS

if TYPE_CHECKING:
    from bench import Bench


def cases(bench: "Bench") -> list[Case]:
    """Return one case for each schema of the transport ceiling."""
    frame = bench.spark.read.parquet(str(bench.workload.parquet))
    rows = bench.workload.rows
    return [
        Case(
            name=f"parquet: {name}",
            peer="parquet",
            rows=rows,
            action=partial(frame.select(*columns).write.format("noop").mode("overwrite").save),
            check=partial(counts, frame, rows),
            before=partial(bring_in, bench.workload.parquet),
        )
        for name, columns in SCHEMAS.items()
    ]
