"""Verb ``segments``: segments of the CommitLog with their physical offsets and sizes.

::

    segmentlog segments STORE
"""

import argparse

from ..console import Console
from ..output.formats import add_output
from ..parser import Parser, add_store
from ..reading import opened


def add_arguments(parser: Parser) -> None:
    add_store(parser)
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from ..output.rows import write_table

    with opened(options) as store:
        table = store.segments().to_arrow()
    return write_table(table, options, console)
