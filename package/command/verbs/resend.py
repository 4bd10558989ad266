"""Verb ``resend``: messages of a store sent to a live broker, for dead letters and repairs.

::

    segmentlog resend STORE '%DLQ%billing' --broker HOST:10911 --dry-run           what would be sent, and where to
    segmentlog resend STORE '%DLQ%billing' --broker HOST:10911 --state FILE        to the topics they came from
    segmentlog resend STORE '%DLQ%billing' --map-topic '%DLQ%billing=%RETRY%billing' …      to this group alone
    segmentlog resend STORE orders --from -1h --namesrv HOST:9876 --state FILE     a repair, to all masters of a cluster

Messages of one queue are sent in their order. Run again with the same flags after a kill: it continues.
"""

import argparse
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from segmentlog.query.suggestions import listing

from ..console import Console
from ..errors import UsageError
from ..output.formats import add_json
from ..parser import Parser, add_map_topic, chosen, seconds, whole
from ..positions import add_window, asked_window, clock_of
from ..report import Report, print_report, signalled
from ..selection import Selection, add_body_search, add_messages, identity_of

if TYPE_CHECKING:
    from segmentlog.jobs.resending.client import Cluster
    from segmentlog.store import QueueRange


_SEARCH: Final = ("grep", "regex", "ignore_case", "json_path", "equals")


def add_arguments(parser: Parser) -> None:
    add_messages(parser)
    add_body_search(parser)
    add_window(parser)
    add = parser.add_argument
    add("--key", metavar="KEY", action="append", help="messages with one of these keys; repeatable")
    add("--broker", metavar="HOST:PORT", help="send to this broker (its listenPort)")
    add("--namesrv", metavar="HOST:PORT", help="send to all masters that have the topic, by a name server")
    add("--state", metavar="FILE", help="what was acknowledged; a job that was stopped or killed continues from it")
    add_map_topic(parser, "dead letters and retries to their original topic, others to the same")
    add("--rate", metavar="N", type=_rate, help="at most N messages per second")
    add("--timeout", metavar="S", type=seconds, default=10.0, help="seconds to wait for an answer (default: 10)")
    add("--group", metavar="NAME", default="segmentlog-resend", help="producer group (default: %(default)s)")
    add("--again", action="store_true", help="also send what was sent before, by this job or by an earlier one")
    add("--dry-run", action="store_true", help="only count, check the target topics, and show where messages would go")
    add(
        "--on-corrupt",
        metavar="WHAT",
        type=chosen(["fail", "skip"]),
        default="fail",
        help="damaged records: stop their queue, or skip (default: fail)",
    )
    add(
        "--on-loss",
        metavar="WHAT",
        type=chosen(["fail", "skip"]),
        default="fail",
        help="messages that are gone: fail or skip (default: fail)",
    )
    parser.set_defaults(columns=None, properties=())
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    if (options.broker is None) == (options.namesrv is None):
        raise UsageError("the target is missing, or named twice", fix="Pass one of --broker and --namesrv")
    if options.state is None and not options.dry_run:
        fix = "Pass a file that stays, such as --state /data/resend.state, or --dry-run"
        raise UsageError("--state is missing: without it a job that is killed would begin at the start again", fix=fix)
    with signalled() as stop:
        return print_report(lambda: resend(options, stop), options, console)


def resend(options: argparse.Namespace, stop: threading.Event) -> Report:
    """Send until all is acknowledged or ``stop`` is set. Findings are messages that are left."""
    from segmentlog.jobs import resend as job

    window = asked_window(options, clock_of(options))
    selection = Selection(options, ("queueOffset",))
    ranges = selection.scan(*window).ranges
    if options.key is not None:
        ranges = _with_keys(selection, ranges, options.key)
    settings = job.ResendSettings(
        map_topic=dict(options.map_topic),
        group=options.group,
        rate=options.rate,
        timeout_s=options.timeout,
        again=options.again,
    )
    cluster = _cluster(options)
    if options.dry_run:
        found = job.survey(selection.source, ranges, selection.spec, cluster, settings)
    else:
        found = job.run(
            selection.source,
            ranges,
            selection.spec,
            cluster,
            options.state,
            settings=settings,
            asked=identity_of(options, selection, ["broker", "namesrv", *_SEARCH]),
            stop=stop,
        )
    return Report.of(found)


def _cluster(options: argparse.Namespace) -> "Cluster":
    from segmentlog.jobs.resending.client import Cluster
    from segmentlog.store.ha import Address

    broker, name_server = (each and Address.parse(each) for each in (options.broker, options.namesrv))
    return Cluster(broker=broker, name_server=name_server, timeout_s=options.timeout)


def _with_keys(selection: Selection, ranges: "Sequence[QueueRange]", keys: Sequence[str]) -> "tuple[QueueRange, ...]":
    """Return the places of the messages that have one of some keys; a key without one is an error."""
    from segmentlog.store import QueueKey, QueueRange, ScanSpec
    from segmentlog.store.find import Finder, KeyField

    found = Finder(selection.source.open()).by_keys(selection.topics.names, keys, KeyField.KEYS)
    spans: dict[QueueKey, list[QueueRange]] = {}
    for each in ranges:
        spans.setdefault(each.key, []).append(each)
    places, met = set(), set()
    for batch in found.batches(ScanSpec(columns=("topic", "queueId", "queueOffset", "keys"))):
        for row in batch.to_pylist():
            key, offset = QueueKey(row["topic"], row["queueId"]), row["queueOffset"]
            if any(each.start <= offset < each.stop for each in spans.get(key, [])):
                places.add((key, offset))
                met |= {each for each in keys if each in row["keys"].split(" ")}
    missing = [each for each in keys if each not in met]
    if missing:
        raise UsageError(f"--key: no message between start and end has {listing(missing)}", fix="Leave these keys out")
    return tuple(QueueRange(key, offset, offset + 1) for key, offset in sorted(places))


def _rate(text: str) -> int:
    found = whole(text)
    if not found:
        raise argparse.ArgumentTypeError("`0` is not a rate: write at least 1")
    return found
