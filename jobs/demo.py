"""The demonstration: stores that real RocketMQ wrote, read with Spark and printed as tables.

::

    python -m segmentlog.jobs.demo
        store.tar.gz, … ──► unpacked into a temporary directory ──► Spark, local[2] ──► one table a question

The stores are in the repository and not in the package; elsewhere name one with ``--store-archive``, or your own with
``--store``. A machine without Java is fine.
"""

import argparse
import json
import os
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from segmentlog.connector.setup.java import JavaNotFoundError
from segmentlog.output import text_table
from segmentlog.spark import prepare_java, prepare_workers
from segmentlog.store import ConfigError, SegmentLogError

from .command_line import DONE, failed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "conformance" / "fixtures"
"""Directory of the stores in a clone."""
ARCHIVES = tuple(str(FIXTURES / name / "store.tar.gz") for name in ("basic-5.3.3", "time-5.3.3"))

_CELL_CHARS = 48
_TIME = "yyyy-MM-dd HH:mm:ss.SSS"
_EVERYTHING = {"subscribePattern": ".*"}
_QUEUE = ("brokerName", "topic", "queueId")
_Load = Callable[..., "DataFrame"]
"""Loads columns of all stores, with options of the reader by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Args:
    """Arguments of the job.

    Attributes
    ----------
    stores
        Store directories.
    rows
        At most so many rows of each answer.
    """

    stores: tuple[str, ...]
    rows: int = 16


@dataclass(frozen=True, slots=True)
class Table:
    """The answer to one question."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]

    def __str__(self) -> str:
        table = text_table(self.rows, head=self.columns, rule=True, cell_chars=_CELL_CHARS)
        return "\n".join([self.title, "", *(f"  {line}" for line in table.splitlines())])


@dataclass(frozen=True, slots=True)
class Report:
    """All answers."""

    tables: tuple[Table, ...]


def run(spark: "SparkSession", args: Args, show: Callable[[Table], None] = lambda _: None) -> Report:
    """Ask the stores some questions.

    Parameters
    ----------
    spark
        A session that `register` was called with.
    args
        Which stores.
    show
        Called with each answer as it comes.
    """
    tables: list[Table] = []
    for title, answer in _questions(spark, args.stores):
        rows = tuple(tuple(row) for row in answer.limit(args.rows).collect())
        tables.append(Table(title, tuple(answer.columns), rows))
        show(tables[-1])
    return Report(tuple(tables))


def _questions(spark: "SparkSession", stores: Sequence[str]) -> Iterator[tuple[str, "DataFrame"]]:
    """Titles and answers. A later answer needs the ones before; those that need messages or tags may be left out."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 - importing a job must not import PySpark

    def load(columns: str, **options: object) -> "DataFrame":
        reader = spark.read.format("segmentlog").option("columns", columns)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load(list(stores))

    headers = load("brokerName,topic,tags,storeSize,storeTimestamp", **_EVERYTHING)
    by_tag = headers.where("tags IS NOT NULL").groupBy("topic", "tags").agg(sf.count("*").alias("messages"))
    by_tag = by_tag.orderBy("topic", sf.desc("messages"), "tags")
    yield from _summaries(load, headers)
    yield "Messages of each tag", by_tag
    times = headers.agg(sf.percentile(sf.unix_millis("storeTimestamp"), [0.5, 0.8])).first()
    assert times is not None
    if times[0] is None:
        return  # not one message
    yield _range_of_time(load, *times[0])
    counts = by_tag.where("NOT contains(tags, '||')").limit(1000).collect()  # where tags are asked for, that is "or"
    if not counts:
        return  # no message has tags
    varied, _ = Counter(row["topic"] for row in counts).most_common(1)[0]
    yield from _single_messages(load, varied, next(row["tags"] for row in counts if row["topic"] == varied))


def _summaries(load: _Load, headers: "DataFrame") -> Iterator[tuple[str, "DataFrame"]]:
    from pyspark.sql import functions as sf  # noqa: PLC0415 - as above

    messages = sf.count("*").alias("messages")
    yield (
        "Queues, and the offsets that they hold: read from the ConsumeQueues alone",
        load("brokerName,topic,queueId,queueOffset", **_EVERYTHING)
        .groupBy(*_QUEUE)
        .agg(sf.min("queueOffset").alias("first"), (sf.max("queueOffset") + 1).alias("end"), messages)
        .orderBy(*_QUEUE),
    )
    yield (
        "Topics: no body is read",
        headers.groupBy("brokerName", "topic")
        .agg(
            messages,
            sf.count_distinct("tags").alias("tags"),
            sf.sum("storeSize").alias("bytes"),
            sf.date_format(sf.min("storeTimestamp"), _TIME).alias("first stored"),
            sf.date_format(sf.max("storeTimestamp"), _TIME).alias("last stored"),
        )
        .orderBy("brokerName", "topic"),
    )


def _range_of_time(load: _Load, *times: float) -> tuple[str, "DataFrame"]:
    from pyspark.sql import functions as sf  # noqa: PLC0415 - as above

    start, stop = (datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds") for time in times)
    return (
        f"A range of time, from {start} to {stop}: found in the queues by binary search",
        load(
            "brokerName,topic,queueId,queueOffset",
            **_EVERYTHING,
            startingTimestamp=start,
            endingTimestamp=stop,
            startingOffsetsByTimestampStrategy="latest",  # nothing of a queue that ends before
        )
        .groupBy(*_QUEUE)
        .agg(
            sf.min("queueOffset").alias("from offset"),
            sf.max("queueOffset").alias("to offset"),
            sf.count("*").alias("messages"),
        )
        .orderBy(*_QUEUE),
    )


def _single_messages(load: _Load, topic: str, tag: str) -> Iterator[tuple[str, "DataFrame"]]:
    from pyspark.sql import functions as sf  # noqa: PLC0415 - as above

    tagged = load("topic,queueId,queueOffset,tags,keys,body", subscribe=topic, tags=tag)
    text = sf.regexp_replace(sf.substring(sf.col("body").cast("string"), 1, 60), r"\s+", " ")
    yield (
        f"One tag, {tag}: found in the queues by its hash, then compared",
        tagged.withColumn("body", text).orderBy("queueId", "queueOffset"),
    )
    one = tagged.orderBy("queueId", "queueOffset").first()  # in order: it reads all, and cuts no worker short
    assert one is not None
    queue_id, offset = one["queueId"], one["queueOffset"]
    yield (
        f"One message by its offset, {offset} of queue {queue_id} of {topic}",
        load(
            "topic,queueId,queueOffset,msgId,bornHost,physicalOffset,storeSize,properties",
            assign=json.dumps({topic: [queue_id]}),
            startingOffsets=json.dumps({topic: {queue_id: offset}}),
            endingOffsets=json.dumps({topic: {queue_id: offset + 1}}),
        ),
    )


def unpack(archive: str, to: str) -> str:
    """Unpack an archive of one store, and return the path of the store.

    Raises
    ------
    ConfigError
        If there is no such archive, or it holds something else.
    """
    if not os.path.isfile(archive):
        raise ConfigError(
            "there is no archive of a store here",
            path=archive,
            fix="The demonstration's stores are in a clone of the repository, not in the package: run it there, or "
            "name an archive with --store-archive, or a store directory with --store",
        )
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(to, filter="data")
        else:  # Python 3.11.0 to 3.11.3
            for member in tar.getmembers():
                if not (member.isfile() or member.isdir()) or not _stays_inside(member.name):
                    raise ConfigError(f"the archive holds {member.name!r}, which no store has", path=archive)
            tar.extractall(to)  # noqa: S202 - checked above
    store = os.path.join(to, "store")
    if not os.path.isdir(store):
        raise ConfigError("this archive does not hold a directory `store`", path=archive)
    return store


def _stays_inside(name: str) -> bool:
    return not os.path.isabs(name) and ".." not in name.split("/")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    parser.add_argument("--store", metavar="PATH", action="append", help="a store directory of yours; once for each")
    parser.add_argument("--store-archive", metavar="TAR", action="append", help="a packed one; once for each")


def demonstrate(options: argparse.Namespace, show: Callable[[Table], None]) -> None:
    """Start Spark and show all tables.

    Parameters
    ----------
    options
        With what `add_arguments` added.
    show
        Called with each answer as it comes.

    Raises
    ------
    SegmentLogError
        If a store or an archive cannot be read.
    JavaNotFoundError
        If no Java can run Spark.
    """
    with tempfile.TemporaryDirectory(prefix="segmentlog-demo-") as scratch:
        stores = tuple(options.store or ())
        for archive in options.store_archive or (() if stores else ARCHIVES):
            name = os.path.basename(os.path.dirname(os.path.abspath(archive)))
            stores += (unpack(archive, os.path.join(scratch, name)),)
        prepare_java()
        prepare_workers()
        _show_all(Args(stores=stores), scratch, show)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code, see `command_line`."""
    parser = argparse.ArgumentParser(
        prog="python -m segmentlog.jobs.demo", description="Read stores of real RocketMQ and print them as tables."
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        demonstrate(options, lambda table: print(f"\n{table}", flush=True))  # noqa: T201 - that is what it is for
    except (SegmentLogError, JavaNotFoundError) as error:
        return failed(error, as_json=False)
    return DONE


def _show_all(args: Args, scratch: str, show: Callable[[Table], None]) -> None:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - after prepare_java, and see above

    from segmentlog.spark import register  # noqa: PLC0415 - loads PySpark, too

    # Spark asks for the machine's own name, which many containers cannot resolve.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": scratch,
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("segmentlog demo")
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        register(spark)
        run(spark, args, show)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
