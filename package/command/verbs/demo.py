"""Verb ``demo``: tables of stores that real RocketMQ wrote, read with Spark.

::

    segmentlog demo [--store PATH]         the job segmentlog.jobs.demo
"""

import argparse

from ..console import Console, printable
from ..errors import FOUND, UsageError
from ..parser import Parser


def add_arguments(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--store",
        metavar="PATH",
        action="append",
        help="a store of yours, not those of a clone; repeatable",
    )
    parser.add_argument("--store-archive", metavar="TAR", action="append", help="a packed store; repeatable")


def run(options: argparse.Namespace, console: Console) -> int:
    """Print the tables."""
    import importlib.util

    from segmentlog.connector.setup.java import JavaNotFoundError
    from segmentlog.jobs.demo import Table, demonstrate

    if importlib.util.find_spec("pyspark") is None:
        raise UsageError("the demonstration needs PySpark", fix="Run: pip install 'segmentlog[spark]'")

    def show(table: Table) -> None:
        for line in ("", *str(table).split("\n")):
            console.print(printable(line))
        console.stdout.flush()

    try:
        demonstrate(options, show)
    except JavaNotFoundError as error:
        raise UsageError(str(error), fix="`segmentlog doctor` lists what is missing") from None
    return FOUND
