"""Verb ``verify``: CommitLog, ConsumeQueues and index compared with each other.

::

    segmentlog verify STORE [--processes N] [--master URL] [--json]

The store is only read, beside its owner, too.
"""

import argparse
from typing import TYPE_CHECKING, Final

from segmentlog.output import text_table

from ..console import Console
from ..output.formats import add_json
from ..parser import Parser, add_directory
from ..report import Report, camel_case, print_report
from ..sessions import add_session, spark_of

if TYPE_CHECKING:
    from segmentlog.store.maintenance import VerifyReport

_SHOWN: Final = 50


def add_arguments(parser: Parser) -> None:
    add_directory(parser)
    add_session(parser, master=None)
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from segmentlog.jobs.verify import verified

    def work() -> Report:
        with spark_of(options) as spark:
            found = verified(spark, options.store, commit_log_paths=options.commit_log, processes=options.processes)
        return Report(_text(found), camel_case(found), not found.is_sound)

    return print_report(work, options, console)


def _text(found: "VerifyReport") -> str:
    state = "nothing is wrong" if found.is_sound else "damaged"
    head = f"{found.records} records in [{found.log_start}, {found.log_end}), {found.queues} queues"
    lost = f", {found.lost_messages} messages lost" if found.lost_messages else ""
    lines = [f"{head} with {found.entries} entries, {found.keys} keys indexed{lost}: {state}"]
    rows = [(finding.kind.value, f"{finding.text} ({finding.path})") for finding in found.findings[:_SHOWN]]
    lines += [text_table(rows)] if rows else []
    if len(found.findings) > _SHOWN:
        lines.append(f"… and {len(found.findings) - _SHOWN} more; --json lists all")
    return "\n".join(lines)
