"""Our own source and sink: the three schemas of the transport ceiling, and what needs no bodies at all."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness import Case, counts
from page_cache import bring_in
from test_support import support
from workload import TOPIC

from .transport import SCHEMAS, ddl

if TYPE_CHECKING:
    from bench import Bench
    from pyspark.sql import DataFrame

OFFSETS = {"queueId": "int", "queueOffset": "long"}
COUNTED = {"queueOffset": "long"}


def read(bench: "Bench", store: Path, columns: Mapping[str, str], **options: object) -> "DataFrame":
    """Read a store's one topic with exactly these columns."""
    source = bench.spark.read.format("segmentlog").schema(ddl(dict(columns))).option("subscribe", TOPIC)
    return source.options(**options).load(str(store))


def stream(bench: "Bench", store: Path, columns: Mapping[str, str], **options: object) -> "DataFrame":
    """Read a store's one topic from its beginning, as a stream."""
    source = bench.spark.readStream.format("segmentlog").schema(ddl(dict(columns))).option("subscribe", TOPIC)
    return source.option("startingOffsets", "earliest").options(**options).load(str(store))


def spread(folder: Path, rows: int, queues: int) -> Path:
    """Write short rows in turns over so many queues, unless they are there."""
    if not folder.exists():
        build = support("store_builder")
        with build.StoreBuilder(folder) as builder:
            builder.append(build.messages(rows, topic=TOPIC, queues=queues, body_bytes=100))
    return folder


def cases(bench: "Bench") -> list[Case]:
    """Return the reads of all rows."""
    work = bench.workload
    found = []
    for name, columns in {**SCHEMAS, "offsets only": OFFSETS}.items():
        frame = read(bench, work.store, columns)
        found.append(
            Case(
                name=f"segmentlog: {name}",
                peer="segmentlog",
                rows=work.rows,
                action=partial(frame.write.format("noop").mode("overwrite").save),
                check=partial(counts, frame, work.rows),
                before=partial(bring_in, work.store),
            )
        )
    counted = partial(counts, read(bench, work.store, COUNTED), work.rows)
    return [*found, Case(name="segmentlog: count", peer="segmentlog", rows=work.rows, action=counted)]
