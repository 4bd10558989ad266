"""Verb ``rebuild``: ConsumeQueues, written again from the CommitLog.

::

    segmentlog rebuild STORE             into STORE/consumequeue, which must be missing or empty
    segmentlog rebuild STORE --to DIR    into another new directory; the store is only read

For a store that lost its ConsumeQueues, or that is read repeatedly without them: each such read walks the whole log.
Some releases (5.1.0) never dispatch earlier records again, and show nothing of a store without ConsumeQueues.
"""

import argparse
import os

from ..console import Console
from ..output.formats import add_json
from ..parser import Parser, add_commit_log, add_queue_segment_entries
from ..report import Report, camel_case, print_report
from ..sessions import add_session, spark_of


def add_arguments(parser: Parser) -> None:
    parser.add_argument("store", metavar="STORE", help="the broker's storePathRootDir")
    parser.add_argument("--to", metavar="DIR", help="where they go (default: STORE/consumequeue)")
    add_commit_log(parser)
    add_queue_segment_entries(parser)
    add_session(parser, master=None)
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from segmentlog.jobs.rebuild import rebuilt
    from segmentlog.store import QueueSource, StoreReader

    def work() -> Report:
        reader = StoreReader.open(
            options.store, commit_log_paths=options.commit_log, queue_source=QueueSource.COMMIT_LOG
        )
        to = os.path.abspath(options.to or os.path.join(reader.path, "consumequeue"))
        with spark_of(options) as spark:
            written = rebuilt(
                spark, reader, to, entries_per_segment=options.queue_segment_entries, processes=options.processes
            )
        text = f"{written.queues} queues, {written.entries} entries, {written.files} files of {written.bytes} bytes"
        if written.lost_messages:
            text += f"; {written.lost_messages} messages are lost in damaged parts of the CommitLog (see the warnings)"
        return Report(f"{text}: {to}", {"directory": to, **camel_case(written)}, written.lost_messages > 0)

    return print_report(work, options, console)
