"""Verbs of the set-up: checks, a demonstration, and the completion of shells."""

import argparse
import json
import os
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from segmentlog.output import printable, text_table
from segmentlog.store import ConfigError

from ..console import Console
from ..errors import FOUND
from ..output.formats import add_json
from ..output.reports import Report, reported
from ..parser import Parser
from ..sessions import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ARCHIVES: Final = tuple(
    str(Path(__file__).resolve().parents[1] / "stores" / f"{name}.tar.gz") for name in ("basic-5.3.3", "time-5.3.3")
)
_ROWS: Final = 16
_CELL_CHARS: Final = 48
_TIME: Final = "yyyy-MM-dd HH:mm:ss.SSS"
_EVERYTHING: Final = {"subscribePattern": ".*"}
_QUEUE: Final = ("brokerName", "topic", "queueId")
SHELLS: Final = ("bash", "zsh", "fish")

# Verb `doctor`


def add_doctor(parser: Parser) -> None:
    """Verb ``doctor``: what a set-up has, what it lacks, and what to do about it.

    ::

        segmentlog doctor [STORE] [--start]        python -m segmentlog.connector.doctor
    """
    parser.add_argument("store", metavar="STORE", nargs="?", help="also open this store, and look for its owner")
    parser.add_argument("--start", action="store_true", help="also start Spark, and show on what it runs")
    parser.add_argument("--master", metavar="URL", help="start Spark on this master, and ask the workers there")
    add_json(parser)


@reported
def run_doctor(options: argparse.Namespace) -> Report:
    from segmentlog.connector.doctor import document, examine, has_failed, render

    checks = examine(store=options.store, start=options.start, master=options.master)
    return Report(render(checks), document(checks), has_failed(checks))


# Verb `demo`


_Load = Callable[..., "DataFrame"]  # loads columns of all stores, with options of the reader by name


class AnswerTable(NamedTuple):
    """The answer to one question."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]

    def __str__(self) -> str:
        table = text_table(self.rows, head=self.columns, rule=True, cell_chars=_CELL_CHARS)
        return "\n".join([printable(self.title), "", *(f"  {line}" for line in table.splitlines())])


def add_demo(parser: Parser) -> None:
    """Verb ``demo``: stores that real RocketMQ wrote, read with Spark and printed as tables.

    ::

        segmentlog demo [--store PATH]
            basic-5.3.3.tar.gz, … ──► unpacked into a temporary directory ──► Spark, local[2] ──► one table per question
        segmentlog demo --unpack DIRECTORY
            basic-5.3.3.tar.gz, … ──► DIRECTORY/basic-5.3.3, …                without Spark

    The stores are in the package.
    """
    parser.add_argument(
        "--store", metavar="PATH", action="append", help="a store of yours, not those of the package; repeatable"
    )
    parser.add_argument("--store-archive", metavar="TAR", action="append", help="a packed store; repeatable")
    parser.add_argument(
        "--unpack", metavar="DIRECTORY", help="only unpack the packed stores there, and print their paths"
    )


def run_demo(options: argparse.Namespace, console: Console) -> int:
    if options.unpack is not None:
        for archive in options.store_archive or ARCHIVES:
            console.print(_unpack_to(archive, options.unpack))
        return FOUND
    with tempfile.TemporaryDirectory(prefix="segmentlog-demo-") as scratch:
        archives = options.store_archive or (() if options.store else ARCHIVES)
        stores = [*(options.store or ()), *(_unpack_to(archive, scratch) for archive in archives)]
        with session("local[2]", {"spark.sql.shuffle.partitions": "2"}) as spark:
            for table in answers(spark, stores):
                console.print(f"\n{table}")
                console.stdout.flush()
    return FOUND


def _unpack_to(archive: str, directory: str) -> str:
    """Unpack a store into a new directory with the name of its archive."""
    target = os.path.join(directory, os.path.basename(archive).partition(".tar")[0])
    if os.path.lexists(target):
        raise ConfigError("a store is unpacked into a new directory", path=target, fix="Remove it, or name another one")
    os.makedirs(directory, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=directory) as aside:
        os.rename(unpack(archive, aside), target)
    return target


def unpack(archive: str, to: str) -> str:
    """Unpack an archive of one store, and return the path of the store; `ConfigError` if it is missing or not one."""
    if not os.path.isfile(archive):
        raise ConfigError(
            "there is no archive of a store here",
            path=archive,
            fix="Name an archive with --store-archive, or a store directory with --store",
        )
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(to, filter="data")
        else:  # Drop when Python 3.11.4 is the oldest: 3.11.0 to 3.11.3 have no filter.
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


def answers(spark: "SparkSession", stores: Sequence[str], rows: int = _ROWS) -> Iterator[AnswerTable]:
    """Ask the stores some questions, and yield at most ``rows`` rows of each answer."""
    for title, answer in _questions(spark, stores):
        yield AnswerTable(title, tuple(answer.columns), tuple(tuple(row) for row in answer.limit(rows).collect()))


def _questions(spark: "SparkSession", stores: Sequence[str]) -> Iterator[tuple[str, "DataFrame"]]:
    """Yield titles and answers. A later answer needs the earlier ones; without messages or tags some are left out."""
    from pyspark.sql import functions as sf

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
    from pyspark.sql import functions as sf

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
    from pyspark.sql import functions as sf

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
    from pyspark.sql import functions as sf

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


# Verb `completion`


def add_completion(parser: Parser) -> None:
    """Verb ``completion``: a script by which a shell completes verbs, flags, choices and files.

    ::

        source <(segmentlog completion bash)                                        in ~/.bashrc
        segmentlog completion zsh  > ~/.zfunc/_segmentlog                           in a directory of fpath
        segmentlog completion fish > ~/.config/fish/completions/segmentlog.fish

    `shtab` writes it from the parsers of all verbs.
    """
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=" or ".join(SHELLS))


def run_completion(options: argparse.Namespace, console: Console) -> int:
    import shtab

    from ..catalogue import VERBS

    root = argparse.ArgumentParser("segmentlog", add_help=False)
    verbs = root.add_subparsers()
    for verb in VERBS:
        parser = verb.parser()
        for action in parser.actions:
            if action.nargs != 0 and action.choices is None:
                action.complete = shtab.FILE  # type: ignore[attr-defined] # where shtab looks for it
        verbs.add_parser(verb.name, help=verb.summary, parents=[parser], add_help=False)
    console.print(shtab.complete(root, options.shell))
    return FOUND
