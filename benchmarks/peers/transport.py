"""The ceiling: a Python data source that does nothing but hand prebuilt Arrow batches to Spark.

No Python source can be faster on this machine with this Spark, whatever it reads. It yields one batch again and again,
of the segmentlog source's schema and target size, in as many tasks.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from harness import Case, counts
from workload import as_columns, batches

from .prebuilt import PrebuiltSource, register_prebuilt

if TYPE_CHECKING:
    from bench import Bench

BATCH_BYTES = 8 << 20
TASK_BYTES = 128 << 20

COLUMNS = {
    "topic": "string",
    "queueId": "int",
    "queueOffset": "long",
    "body": "binary",
    "tags": "string",
    "keys": "string",
    "uniqKey": "string",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
}
"""The segmentlog source's default columns; the map of properties comes on demand."""

SCHEMAS = {
    "all columns, properties": {**COLUMNS, "properties": "map<string,string>"},
    "all columns": COLUMNS,
    "body only": {"body": "binary"},
}


def ddl(columns: dict[str, str]) -> str:
    """Return the columns as Spark's schema text."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def prebuilt_options(bench: "Bench", schema: str) -> dict[str, object]:
    """Register the source, prepare its batch of one of the schemas, and return the source's options."""
    register_prebuilt(bench.spark)
    path = bench.folder / f"transport-{list(SCHEMAS).index(schema)}.arrow"
    if not path.exists():
        _write_batch(bench, list(SCHEMAS[schema]), path)
    tasks = max(1, -(-bench.workload.store_bytes // TASK_BYTES))
    return {"batch": str(path), "rows": bench.workload.rows, "tasks": tasks}


def cases(bench: "Bench") -> list[Case]:
    """Prepare one batch for each schema and return the cases that use it."""
    rows = bench.workload.rows
    found = []
    for name, columns in SCHEMAS.items():
        options = prebuilt_options(bench, name)
        frame = bench.spark.read.format(PrebuiltSource.name()).schema(ddl(columns)).options(**options).load()
        found.append(
            Case(
                name=f"transport: {name}",
                peer="transport",
                rows=rows,
                action=partial(frame.write.format("noop").mode("overwrite").save),
                check=partial(counts, frame, rows),
            )
        )
    return found


def _write_batch(bench: "Bench", columns: list[str], path: Path) -> None:
    work = bench.workload
    first, sample = next(batches(rows=work.rows, queues=work.queues, body_bytes=work.body_bytes))
    chosen = as_columns(sample, first, work.queues).select(columns)
    batch = chosen.slice(0, max(1, BATCH_BYTES * len(chosen) // chosen.nbytes))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
