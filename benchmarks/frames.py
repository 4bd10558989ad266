"""Frames of our source, and the case that reads all of a frame."""

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from bench import Bench
from harness import Case, expect, nothing
from machine import bring_in
from peers.prebuilt import ddl
from pyspark.sql import DataFrame
from test_support import support
from workload import TOPIC

COUNTED = {"queueOffset": "long"}


def read(bench: Bench, store: Path, columns: Mapping[str, str], **options: object) -> DataFrame:
    """Read a store's one topic with exactly these columns."""
    source = bench.spark.read.format("segmentlog").schema(ddl(dict(columns))).option("subscribe", TOPIC)
    return source.options(**options).load(str(store))


def stream(bench: Bench, store: Path, columns: Mapping[str, str], **options: object) -> DataFrame:
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


def checkpoint(bench: Bench) -> str:
    """Return a folder for a query's checkpoint that no other query had."""
    return tempfile.mkdtemp(dir=bench.folder)


def save(frame: DataFrame) -> None:
    """Read all of a frame."""
    frame.write.format("noop").mode("overwrite").save()


def counts(frame: DataFrame, rows: int) -> None:
    """Count the rows of a frame, and fail if they are not as many as they should be."""
    expect(frame.count(), rows)


def saved(name: str, rows: int, frame: DataFrame, files: Path | None = None) -> Case:
    """Read all of a frame; ``files`` are those that it reads, if they are many."""
    before = partial(bring_in, files) if files else nothing
    return Case(name=name, rows=rows, action=partial(save, frame), check=partial(counts, frame, rows), before=before)
