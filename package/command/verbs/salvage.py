"""Verb ``salvage``: all whole records of a damaged store, copied to a new one that a broker can continue.

::

    segmentlog salvage STORE TO

The damaged store is only read. A broker started on the copy must have the same file sizes.
"""

import argparse

from ..console import Console
from ..output.formats import add_json
from ..parser import Parser, add_queue_segment_entries
from ..report import Report, camel_case, print_report


def add_arguments(parser: Parser) -> None:
    parser.add_argument("store", metavar="STORE", help="the damaged store")
    parser.add_argument("to", metavar="TO", help="a path that is not there, or an empty directory")
    parser.add_argument(
        "--segment-bytes", metavar="N", type=int, help="size of the segments (default: the store's own)"
    )
    add_queue_segment_entries(parser)
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from segmentlog.store.maintenance import salvage

    def work() -> Report:
        copied = salvage(
            options.store,
            options.to,
            segment_bytes=options.segment_bytes,
            queue_segment_entries=options.queue_segment_entries,
        )
        text = (
            f"{copied.records} records, {copied.queues} queues with {copied.entries} entries; "
            f"{copied.keys} keys indexed; "
            f"{copied.lost_bytes} bytes in {copied.lost_spans} places were no whole records; "
            f"{copied.lost_messages} messages are lost, {copied.dropped} more records were dropped beside damage: "
            f"{options.to}"
        )
        has_findings = copied.lost_spans + copied.dropped + copied.lost_messages > 0
        return Report(text, {"to": options.to, **camel_case(copied)}, has_findings)

    return print_report(work, options, console)
