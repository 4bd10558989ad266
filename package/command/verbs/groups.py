"""Verb ``groups``: positions of consumer groups, a row for each queue.

::

    segmentlog groups STORE [GROUP]
"""

import argparse

from segmentlog.query.selection import group_progress

from ..console import Console
from ..output.formats import add_output
from ..parser import Parser, add_store
from ..reading import opened


def add_arguments(parser: Parser) -> None:
    add_store(parser)
    parser.add_argument("group", metavar="GROUP", nargs="?", help="one group (default: all)")
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from ..output.rows import write_table

    with opened(options) as store:
        table = store.groups().to_arrow()
        if options.group is not None:
            import pyarrow.compute as pc

            group_progress([store.path], options.group)  # an unknown group is an error
            table = table.filter(pc.equal(table["group"], options.group))
    return write_table(table, options, console)
