"""Verbs for damaged stores: faults found, stores compared, whole records and ConsumeQueues written again."""

import argparse
import os
from functools import partial
from typing import TYPE_CHECKING, Final

from segmentlog.output import text_table

from ..errors import UsageError
from ..output.formats import add_json
from ..output.reports import Report, camel_case, reported
from ..parser import Parser, add_commit_log, add_directory, add_queue_segment_entries, directory, size
from ..sessions import add_session, spark_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from segmentlog.jobs.report import Report as JobReport
    from segmentlog.store.maintenance import VerifyReport

# Verb `verify`

_SHOWN: Final = 50


def add_verify(parser: Parser) -> None:
    """Verb ``verify``: CommitLog, ConsumeQueues and index compared with each other.

    ::

        segmentlog verify STORE [--processes N] [--master URL] [--json]

    The store is only read, beside its owner, too.
    """
    add_directory(parser)
    add_session(parser, master=None)
    add_json(parser)


@reported
def run_verify(options: argparse.Namespace) -> Report:
    from segmentlog.jobs.spread import spread
    from segmentlog.store.maintenance import verify

    with spark_of(options) as spark:
        work = partial(spread, spark=spark, processes=options.processes)
        found = verify(options.store, commit_log_paths=options.commit_log, spread=work)
    return Report(_text(found), camel_case(found), not found.is_sound)


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


# Verb `diff`


def add_diff(parser: Parser) -> None:
    """Verb ``diff``: two stores compared, message by message.

    ::

        segmentlog diff A B                       a replica and its master, a store and its copy
        segmentlog diff STORE ARCHIVE --archive   a store and the archive of its expired files
        segmentlog diff A --digests FILE          digests of A, for a machine that does not see A:
        segmentlog diff B --against FILE

    Both are only read. What differs is a row per run of messages of a queue; the exit code is then 1.
    """
    parser.add_argument("a", metavar="A", help="a store")
    parser.add_argument("b", metavar="B", nargs="?", help="the store that is compared with it")
    parser.add_argument("--digests", metavar="FILE", help="write digests of A into a file, in place of B")
    parser.add_argument(
        "--against", metavar="FILE", help="compare the one store that is named with digests of another one"
    )
    parser.add_argument(
        "--by",
        metavar="LEVEL",
        choices=["auto", "log", "queue"],
        default="auto",
        help="log: bytes at the same physical offset; queue: messages at the same queue offset (default: auto)",
    )
    parser.add_argument("--archive", action="store_true", help="B is the archive of A: what both hold is compared")
    for name in "ab":
        parser.add_argument(
            f"--commit-log-{name}",
            metavar="DIR",
            action="append",
            default=[],
            help=f"a directory of CommitLog segments of {name.upper()}, if not in its commitlog; repeatable",
        )
    add_session(parser, master=None)
    add_json(parser)


@reported
def run_diff(options: argparse.Namespace) -> Report:
    _check(options)
    with spark_of(options) as spark:
        return Report.of(_compared(options, spark))


def _check(options: argparse.Namespace) -> None:
    others = [options.b, options.digests, options.against]
    if sum(each is not None for each in others) != 1:
        raise UsageError("diff needs one store to compare", fix="Pass B, or --digests FILE, or --against FILE")
    if options.b is None and (options.archive or options.commit_log_b):
        raise UsageError("--archive or --commit-log-b is passed without B", fix="Name two stores")
    if options.against is not None and options.by != "auto":
        raise UsageError("--by is passed with --against", fix="Pass --by with --digests: the file has the level")


def _compared(options: argparse.Namespace, spark: "SparkSession | None") -> "JobReport":
    from segmentlog.jobs import diff

    if options.b is not None:
        commit_logs = options.commit_log_a, options.commit_log_b
        how = {"by": options.by, "archive": options.archive, "commit_logs": commit_logs}
        return diff.run(spark, options.a, options.b, **how, processes=options.processes)
    given = {"commit_log_paths": options.commit_log_a, "processes": options.processes}
    if options.against is not None:
        return diff.compare_digests(spark, options.a, options.against, **given)
    by = "log" if options.by == "auto" else options.by
    return diff.write_digests(spark, options.a, options.digests, by=by, **given)


# Verb `salvage`


def add_salvage(parser: Parser) -> None:
    """Verb ``salvage``: all whole records of a damaged store, copied to a new one that a broker can continue.

    ::

        segmentlog salvage STORE TO

    The damaged store is only read. A broker started on the copy must have the same file sizes.
    """
    parser.add_argument("store", metavar="STORE", type=directory, help="the damaged store")
    parser.add_argument("to", metavar="TO", help="a path that is not there, or an empty directory")
    parser.add_argument(
        "--segment-bytes",
        metavar="SIZE",
        type=size,
        help="size of the segments, if all of them were cut short (default: the store's own)",
    )
    add_commit_log(parser)
    add_queue_segment_entries(parser)
    add_json(parser)


@reported
def run_salvage(options: argparse.Namespace) -> Report:
    from segmentlog.store.maintenance import salvage

    copied = salvage(
        options.store,
        options.to,
        segment_bytes=options.segment_bytes,
        queue_segment_entries=options.queue_segment_entries,
        commit_log_paths=options.commit_log,
    )
    text = (
        f"{copied.records} records, {copied.queues} queues with {copied.entries} entries; "
        f"{copied.keys} keys indexed; "
        f"{copied.lost_bytes} bytes in {copied.lost_spans} places were no whole records; "
        f"{copied.lost_messages} messages are lost, {copied.dropped} older records after the end were dropped, "
        f"{copied.left_out} records are in no queue, {copied.corrected} queue offsets were corrected: "
        f"{options.to}"
    )
    findings = (copied.lost_spans, copied.lost_messages, copied.dropped, copied.left_out, copied.corrected)
    return Report(text, {"to": options.to, **camel_case(copied)}, any(findings))


# Verb `rebuild`


def add_rebuild(parser: Parser) -> None:
    """Verb ``rebuild``: ConsumeQueues, written again from the CommitLog.

    ::

        segmentlog rebuild STORE             into STORE/consumequeue, which must be missing or empty
        segmentlog rebuild STORE --to DIR    into another new directory; the store is only read

    For a store that lost its ConsumeQueues, or that is read repeatedly without them: each such read walks the whole
    log. Some releases (5.1.0) never dispatch earlier records again, and show nothing of a store without ConsumeQueues.
    """
    parser.add_argument("store", metavar="STORE", type=directory, help="the broker's storePathRootDir")
    parser.add_argument("--to", metavar="DIR", help="where they go (default: STORE/consumequeue)")
    add_commit_log(parser)
    add_queue_segment_entries(parser)
    add_session(parser, master=None)
    add_json(parser)


@reported
def run_rebuild(options: argparse.Namespace) -> Report:
    from segmentlog.jobs.spread import spread
    from segmentlog.store import QueueSource, Snapshot
    from segmentlog.store.maintenance import rebuild_queues

    snapshot = Snapshot.open(options.store, commit_log_paths=options.commit_log, queue_source=QueueSource.COMMIT_LOG)
    to = os.path.abspath(options.to or os.path.join(snapshot.path, "consumequeue"))
    with spark_of(options) as spark:
        work = partial(spread, spark=spark, processes=options.processes)
        written = rebuild_queues(snapshot, to, entries_per_segment=options.queue_segment_entries, spread=work)
    text = f"{written.queues} queues, {written.entries} entries, {written.files} files of {written.bytes} bytes"
    if written.lost_messages:
        text += f"; {written.lost_messages} messages are lost in damaged parts of the CommitLog (see the warnings)"
    if written.left_out:
        text += f"; {written.left_out} records are in no queue (see the warnings)"
    has_findings = written.lost_messages + written.left_out > 0
    return Report(f"{text}: {to}", {"directory": to, **camel_case(written)}, has_findings)
