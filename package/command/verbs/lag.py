"""Verb ``lag``: lag of a consumer group in messages, bytes and time.

::

    segmentlog lag STORE GROUP             mqadmin: consumerProgress
"""

import argparse

from ..console import Console
from ..output.formats import add_output
from ..parser import Parser, add_store
from ..reading import opened


def add_arguments(parser: Parser) -> None:
    """Add the arguments."""
    add_store(parser)
    parser.add_argument("group", metavar="GROUP", help="the consumer group")
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print the rows."""
    from ..output.rows import write_table

    with opened(options) as store:
        table = store.lag(options.group)
    return write_table(table, options, console)
