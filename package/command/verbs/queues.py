"""Verb ``queues``: queues with their first and last offset, messages, bytes and times.

::

    segmentlog queues STORE [TOPIC …]      mqadmin: topicStatus
"""

import argparse

from ..console import Console
from ..output.formats import add_output
from ..parser import Parser, add_store
from ..reading import opened


def add_arguments(parser: Parser) -> None:
    add_store(parser)
    parser.add_argument("topic", metavar="TOPIC", nargs="*", help="topics (default: all)")
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from ..output.rows import write_table

    with opened(options) as store:
        table = store.queues(options.topic or None).to_arrow()
    return write_table(table, options, console)
