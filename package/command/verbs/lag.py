"""Verb ``lag``: lag of a consumer group in messages, bytes and time.

::

    segmentlog lag STORE GROUP             mqadmin: consumerProgress

    bytes that wait  >  40 % of the memory of this host  ──► suggestReplica, and a hint on stderr

A broker sends its consumers the same hint (``suggestPullingFromSlave``).
"""

import argparse

from segmentlog.output import printable

from ..console import Console
from ..output.formats import add_output
from ..parser import Parser, add_store
from ..reading import opened


def add_arguments(parser: Parser) -> None:
    add_store(parser)
    parser.add_argument("group", metavar="GROUP", help="the consumer group")
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from segmentlog.query.metadata import MEMORY_RATIO, memory_bytes

    from ..output.rows import write_table

    with opened(options) as store:
        table = store.lag(options.group).to_arrow()
    rows = zip(table["bytes"].to_pylist(), table["suggestReplica"].to_pylist(), strict=True)
    waiting = sum(size or 0 for size, suggests_replica in rows if suggests_replica)
    if waiting:
        console.stderr.write(
            f"hint: {waiting} bytes wait for {printable(options.group)}, more than {MEMORY_RATIO:.0%} of the "
            f"{memory_bytes()} bytes of memory here; read them from a replica (segmentlog replicate)\n"
        )
    return write_table(table, options, console)
