"""Verb ``trace``: entries of message traces.

::

    segmentlog trace STORE [TOPIC …] --from -1h -o jsonl
"""

import argparse

from ..console import Console
from ..parser import Parser
from ..system_rows import add_system_rows, print_system_rows


def add_arguments(parser: Parser) -> None:
    """Add the arguments."""
    add_system_rows(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print the rows."""
    return print_system_rows("trace", options, console)
