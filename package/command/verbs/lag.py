"""Verb ``lag``: lag of a consumer group in messages, bytes and time.

::

    segmentlog lag STORE GROUP             mqadmin: consumerProgress

    bytes that wait  >  40 % of the memory of this host  ──► hint on stderr: read them from a replica

A broker sends its consumers the same hint (``suggestPullingFromSlave``, ``accessMessageInMemoryMaxRatio``). Reads of so
old messages come from the disk. They push the newest ones out of the page cache.
"""

import argparse
import os
from typing import Final

from ..console import Console, printable
from ..output.formats import add_output
from ..parser import Parser, add_store
from ..reading import opened

_IN_MEMORY_RATIO: Final = 0.4


def add_arguments(parser: Parser) -> None:
    """Add the arguments."""
    add_store(parser)
    parser.add_argument("group", metavar="GROUP", help="the consumer group")
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print the rows."""
    from ..output.rows import write_table

    with opened(options) as store:
        table = store.lag(options.group).to_arrow()
    waiting = sum(size for size in table["bytes"].to_pylist() if size)
    memory = _memory_bytes()
    if waiting > _IN_MEMORY_RATIO * memory:
        console.stderr.write(
            f"hint: {waiting} bytes wait for {printable(options.group)}, more than {_IN_MEMORY_RATIO:.0%} of the "
            f"{memory} bytes of memory here; read them from a replica (segmentlog replicate)\n"
        )
    return write_table(table, options, console)


def _memory_bytes() -> int:
    """Return the size of this host's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
