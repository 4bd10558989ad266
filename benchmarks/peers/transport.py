"""The ceiling: a Python data source that does nothing but hand prebuilt Arrow batches to Spark.

No Python source can be faster on this machine with this Spark, whatever it reads. It yields one batch again and again,
of the segmentlog source's schema and target size, in as many tasks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
from harness import Bench, Case, counts
from workload import as_columns, batches

from peers.prebuilt import PrebuiltSource

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
    """Give the columns as Spark's schema text."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


@contextmanager
def cases(bench: Bench) -> Iterator[list[Case]]:
    """Prepare one batch for each schema and give the cases that hand it over."""
    bench.spark.dataSource.register(PrebuiltSource)
    work = bench.workload
    tasks = max(1, -(-work.store_bytes // TASK_BYTES))
    first, sample = next(batches(rows=work.rows, queues=work.queues, body_bytes=work.body_bytes))
    whole = as_columns(sample, first, work.queues)
    found = []
    for name, columns in SCHEMAS.items():
        chosen = whole.select(list(columns))
        batch = chosen.slice(0, max(1, BATCH_BYTES * len(chosen) // chosen.nbytes))
        path = bench.folder / f"transport-{len(found)}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        frame = (
            bench.spark.read.format(PrebuiltSource.name())
            .schema(ddl(columns))
            .options(batch=str(path), rows=work.rows, tasks=tasks)
            .load()
        )
        found.append(
            Case(
                name=f"transport: {name}",
                peer="transport",
                rows=work.rows,
                action=partial(frame.write.format("noop").mode("overwrite").save),
                check=partial(counts, frame, work.rows),
            )
        )
    yield found
