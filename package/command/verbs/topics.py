"""Verb ``topics``: topics with their queues, messages, bytes and times.

::

    segmentlog topics STORE [--all]        mqadmin: topicList
"""

import argparse

from ..console import Console
from ..output.formats import add_output
from ..parser import Parser, add_store
from ..reading import opened


def add_arguments(parser: Parser) -> None:
    add_store(parser)
    parser.add_argument("--all", action="store_true", help="RocketMQ's own topics, too, such as retry topics")
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from ..output.rows import write_table

    with opened(options) as store:
        table = store.topics().to_arrow()
    if not options.all:
        import pyarrow.compute as pc

        table = table.filter(pc.invert(table["isSystem"]))
    return write_table(table, options, console)
