"""Verb ``archive``: a store copied into object storage, and restored from there.

::

    segmentlog archive push   STORE URL                 incremental, beside a running broker
    segmentlog archive push   STORE URL --every 10m     again and again, until SIGTERM or SIGINT
    segmentlog archive pull   URL DIR [--topic T] [--from TIME] [--to TIME]
    segmentlog archive ls     URL [pieces|queues|files|pushes]      also 's3://bucket/prefix/*'
    segmentlog archive verify URL [--deep]
    segmentlog archive prune  URL [--before TIME | --keep 90d] [--max-bytes 10t] [--dry-run]
"""

import argparse
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from segmentlog.output import json_text, text_table
from segmentlog.query.times import iso, parse_time
from segmentlog.store import ConfigError, SegmentLogError

from ..console import Console, ended_by_signals, log_line
from ..errors import FLAGS, FOUND, UsageError
from ..output.formats import add_json
from ..output.reports import Report, camel_case, print_report
from ..output.scrapes import scraped
from ..parser import Parser, add_commit_log, add_storage_options, duration_ms, size, typed
from ..selection import add_zone, clock_of

if TYPE_CHECKING:
    from segmentlog.store.maintenance import ArchiveContent, PushReport, PushTurns

_DAY_MS: Final = 86_400_000
_LONGEST_MS: Final = 366 * _DAY_MS
_GRACE_S: Final = 20.0  # for the push at work when a signal comes: Kubernetes kills after 30 s, systemd after 90
_METRICS: Final = {
    "archive_push_age_seconds": "Time since the last push that succeeded",
    "archive_pushes_total": "Pushes that succeeded",
    "archive_push_failures_total": "Pushes that failed",
    "archive_pushed_bytes_total": "Bytes of the objects that were sent",
    "archive_pushed_messages_total": "Messages that were added to the archive",
}
_TABLES: Final = ("queues", "pieces", "files", "pushes")
_PLACES: Final = {
    "push": ("STORE", "URL"),
    "pull": ("URL", "DIR"),
    "ls": ("URL",),
    "verify": ("URL",),
    "prune": ("URL",),
}
_FLAGS: Final = {
    "commit_log": ("push",),
    "damaged": ("push",),
    "no_crc": ("push",),
    "every": ("push",),
    "listen": ("push",),
    "orphans_after": ("push", "prune"),
    "topic": ("pull",),
    "start": ("pull",),
    "end": ("pull",),
    "deep": ("verify",),
    "before": ("prune",),
    "keep": ("prune",),
    "max_bytes": ("prune",),
    "dry_run": ("prune",),
}
_NAMES: Final = {"start": "--from", "end": "--to"}


def add_archive(parser: Parser) -> None:
    add = parser.add_argument
    add("action", metavar="ACTION", choices=list(_PLACES), help="push, pull, ls, verify or prune")
    add("places", metavar="STORE|URL|DIR", nargs="+", help="STORE URL for push, URL DIR for pull, else URL")
    add_storage_options(parser, "an option of the object store, such as aws_endpoint=http://localhost:9000; repeatable")
    add("--damaged", choices=["error", "keep"], default="error", help="push: archive damaged bytes as they are")
    add("--no-crc", action="store_true", help="push: do not compare bodies with their CRCs")
    add("--every", metavar="DURATION", type=typed(_every), help="push: again and again, such as each 10m, as a service")
    add("--listen", metavar="HOST:PORT", help="push --every: serve metrics to Prometheus at http://HOST:PORT/metrics")
    add(
        "--orphans-after",
        metavar="DURATION",
        type=duration_ms,
        help="push, prune: age from which objects that no manifest names are deleted, such as 6h (default: 1d)",
    )
    add("--topic", action="append", default=[], help="pull: queues of this topic only; repeatable (default: all)")
    add("--from", dest="start", metavar="TIME", type=typed(parse_time), help="pull: store time of the first messages")
    add("--to", dest="end", metavar="TIME", type=typed(parse_time), help="pull: store time after the last messages")
    add("--deep", action="store_true", help="verify: read all objects, and compare digests, CRCs and packs")
    add("--before", metavar="TIME", type=typed(parse_time), help="prune: segments go whose messages are all older")
    add("--keep", metavar="AGE", type=typed(_age_ms), help="prune: the same, by age: a number of days, or such as 90d")
    add("--max-bytes", metavar="SIZE", type=size, help="prune: the oldest segments beyond such as 10t go")
    add("--dry-run", action="store_true", help="prune: report, and change nothing")
    add_zone(parser)
    add_commit_log(parser)
    add_json(parser)


def run_archive(options: argparse.Namespace, console: Console) -> int:
    places = _PLACES[options.action]
    count, most = len(options.places), len(places) + (options.action == "ls")
    if not len(places) <= count <= most:
        fix = f"segmentlog archive {options.action} {' '.join(places)}"
        got = f"{count} argument{'s' * (count != 1)}"
        raise UsageError(f"{options.action} takes {' and '.join(places)}, got {got}", fix=f"Pass `{fix}`")
    for name, actions in _FLAGS.items():
        if options.action not in actions and getattr(options, name) not in (None, False, [], "error"):
            flag = _NAMES.get(name, "--" + name.replace("_", "-"))
            problem = f"{flag} is a flag of {' and '.join(actions)}, not of {options.action}"
            raise UsageError(problem, fix="Leave it out")
    for place in options.places if options.action != "ls" else ():
        if _is_pattern(place):
            problem = f"{options.action} takes one archive, and `{place}` is a pattern"
            raise UsageError(problem, fix="Name one of those that `segmentlog archive ls PATTERN` lists")
    if options.listen is not None and options.every is None:
        raise UsageError("--listen is passed without --every", fix="Pass --every, such as --every 10m")
    if options.every is not None:
        return _push_in_turns(options, console)
    return print_report(lambda: _ACTIONS[options.action](options), options, console)


def _is_pattern(place: str) -> bool:
    from segmentlog.query.patterns import is_pattern
    from segmentlog.store import place_of

    return "*" in place and is_pattern(place_of(place))


def _every(text: str) -> float:
    found = duration_ms(text)
    if not 0 < found <= _LONGEST_MS:
        raise ConfigError(f"`{text}` is not an interval of up to a year", fix="Write such as 10m")
    return found / 1000


def _age_ms(text: str) -> int:
    try:
        found = duration_ms(f"{text}d" if text[-1:].isdigit() else text)
    except argparse.ArgumentTypeError:
        found = 0
    if not found:
        raise ConfigError(f"`{text}` is not an age above 0", fix="Write a number of days, or such as 90d or 12h")
    return found


def _push(options: argparse.Namespace) -> Report:
    found = _pushed(options)
    return Report(_push_text(found), camel_case(found), not found.is_complete)


def _pushed(options: argparse.Namespace) -> "PushReport":
    from segmentlog.store.maintenance import archive_push

    store, url = options.places
    return archive_push(
        store,
        url,
        options=dict(options.storage),
        commit_log_paths=options.commit_log,
        keep_damage=options.damaged == "keep",
        check_crcs=not options.no_crc,
        orphans_after_s=options.orphans_after and options.orphans_after / 1000,
    )


def _push_in_turns(options: argparse.Namespace, console: Console) -> int:
    """Push again and again, with a line of log for each push, until a signal or an error that would stay."""
    from segmentlog.store.maintenance import PushTurns

    store, url = options.places

    def done(found: "PushReport", seconds: float) -> None:
        if options.json:
            console.print(json_text(camel_case(found)))
            console.stdout.flush()
        added = f"{found.records} messages, {found.sent_bytes} bytes sent" if found.sent_bytes else "nothing new"
        log_line(console, f"pushed {store} to {url} in {seconds:.1f} s: {added}; manifest {found.manifest}")

    def failed(error: SegmentLogError | OSError, wait_s: float) -> None:
        if isinstance(error, SegmentLogError):
            error.reword(FLAGS)
        log_line(console, f"push failed, and is tried again in {wait_s:.0f} s: {error}", logging.ERROR)

    turns = PushTurns(lambda: _pushed(options), options.every, done, failed)

    def stop() -> bool:
        turns.stop()
        return turns.is_pushing

    name = os.path.basename(os.path.abspath(store))
    rows = partial(_push_metrics, turns, name)
    served = nullcontext() if options.listen is None else scraped(options.listen, rows, _METRICS, console)
    with served:
        try:
            with ended_by_signals(stop, _GRACE_S):
                turns.run()
        except KeyboardInterrupt:
            if turns.is_pushing:
                log_line(console, "the push was interrupted: the next one uses the objects that it has sent")
    log_line(console, f"stopped; pushes: {turns.pushes}, failures: {turns.failures}")
    return FOUND


def _push_metrics(turns: "PushTurns", name: str) -> list[dict[str, object]]:
    values = (turns.age_s, turns.pushes, turns.failures, turns.sent_bytes, turns.records)
    return [
        {"metric": metric, "brokerName": name, "value": value}
        for metric, value in zip(_METRICS, values, strict=True)
        if value is not None
    ]


def _push_text(found: "PushReport") -> str:
    added = f"{found.pieces} pieces with {found.records} records added, {found.sent_bytes} bytes sent"
    lines = [f"manifest {found.manifest}: the log [{found.start}, {found.stop}); {added}"]
    lines += [f"{found.reused} objects of an interrupted push were used"] if found.reused else []
    lines += [f"{found.removed} objects that no manifest names were deleted"] if found.removed else []
    return "\n".join([*lines, *found.warnings])


def _pull(options: argparse.Namespace) -> Report:
    from segmentlog.store.maintenance import archive_pull

    url, directory = options.places
    clock = clock_of(options)
    found = archive_pull(
        url,
        directory,
        options=dict(options.storage),
        topics=options.topic or None,
        start_ms=None if options.start is None else clock.ms(options.start),
        stop_ms=None if options.end is None else clock.ms(options.end),
    )
    text = (
        f"{found.segments} segments of the log [{found.start}, {found.stop}) restored from manifest {found.manifest}: "
        f"{found.queues} queues with {found.entries} entries, {found.keys} keys indexed; "
        f"{found.fetched_bytes} bytes fetched"
    )
    return Report(text, camel_case(found))


def _ls(options: argparse.Namespace) -> Report:
    from segmentlog.query.patterns import matches
    from segmentlog.store import RemoteAccess, is_remote, place_of

    url, *table = options.places
    shown = table[0] if table else _TABLES[0]
    if shown not in _TABLES:
        raise UsageError(f"there is no table `{shown}`", fix=f"The tables are {', '.join(_TABLES)}")
    if not _is_pattern(url):
        return _content(url, shown, options)
    found = [
        (name, path if is_remote(path) else f"file://{quote(path)}")
        for path, name in matches(place_of(url), RemoteAccess.of(dict(options.storage)))
    ]
    reports = {name: (each, _content(each, shown, options)) for name, each in found}
    text = "\n\n".join(f"{each}\n{report.text}" for each, report in reports.values())
    return Report(text, {"archives": {name: report.document for name, (_, report) in reports.items()}})


def _content(url: str, shown: str, options: argparse.Namespace) -> Report:
    from segmentlog.store.maintenance import archive_content

    found = archive_content(url, options=dict(options.storage))
    tables = _tables(found)
    state = f"manifest {found.manifest}: the log [{found.start}, {found.stop}) of {found.store.get('path', 'no store')}"
    lines = [state, *(f"the archive lacks [{start}, {stop})" for start, stop in found.gaps)]
    head, rows = tables[shown]
    document = {
        "manifest": found.manifest,
        "store": {name: found.store.get(name) for name in ("id", "path", "pushed_ms")},
        "minPhysicalOffset": found.start,
        "maxPhysicalOffset": found.stop,
        "gaps": found.gaps,
        **{name: [dict(zip(head, row, strict=True)) for row in rows] for name, (head, rows) in tables.items()},
    }
    are_times = [name.lower().endswith("time") for name in head]
    cells = [[iso(each) if is_time else each for each, is_time in zip(row, are_times, strict=True)] for row in rows]
    return Report("\n".join([*lines, text_table(cells, head=head)]), document)


def _tables(found: "ArchiveContent") -> dict[str, tuple[Sequence[str], list[Sequence[Any]]]]:
    """Return head and rows of each table."""
    pieces = [
        (piece.segment, piece.start, piece.stop, piece.records, piece.first_time, piece.last_time, piece.pack_size)
        for piece in found.pieces
    ]
    return {
        "queues": (("topic", "queueId", "minOffset", "maxOffset", "messages", "bytes"), [*found.queues]),
        "pieces": (("segment", "start", "stop", "records", "firstTime", "lastTime", "packBytes"), [*pieces]),
        "files": (("path", "bytes"), [(file.path, file.size) for file in found.files]),
        "pushes": (("manifest", "time", "bytes"), [*found.pushes]),
    }


def _verify(options: argparse.Namespace) -> Report:
    from segmentlog.store.maintenance import archive_verify

    found = archive_verify(options.places[0], options=dict(options.storage), deep=options.deep)
    state = "nothing is wrong" if found.is_sound else "damaged"
    read = f", {found.records} records read" if options.deep else ""
    lines = [f"manifest {found.manifest}: {found.objects} objects of {found.bytes} bytes{read}: {state}"]
    lines += [text_table([(finding.text, finding.key) for finding in found.findings])] if found.findings else []
    document = {**camel_case(found), "findings": [finding._asdict() for finding in found.findings]}
    return Report("\n".join(lines), document, not found.is_sound)


def _prune(options: argparse.Namespace) -> Report:
    from segmentlog.store.maintenance import archive_prune

    limits = (options.before, options.keep, options.max_bytes)
    if limits == (None, None, None) or None not in limits[:2]:
        problem = "prune takes --before TIME or --keep AGE, --max-bytes SIZE, or a time and a size"
        raise UsageError(problem, fix="Pass one of them" if None in limits[:2] else "Leave --before or --keep out")
    before_ms = None
    if options.before is not None:
        before_ms = clock_of(options).ms(options.before)
    elif options.keep is not None:
        before_ms = time.time_ns() // 1_000_000 - options.keep
    grace: dict[str, Any] = {} if options.orphans_after is None else {"grace_s": options.orphans_after / 1000}
    found = archive_prune(
        options.places[0],
        before_ms,
        max_bytes=options.max_bytes,
        options=dict(options.storage),
        dry_run=options.dry_run,
        **grace,
    )
    would = "would be " if options.dry_run else ""
    text = (
        f"manifest {found.manifest}: {found.pieces} pieces with objects of {found.bytes} bytes {would}left out, "
        f"{found.removed} objects {would}deleted; the log begins at {found.start}"
    )
    return Report(text, camel_case(found))


_ACTIONS: Final[dict[str, Callable[[argparse.Namespace], Report]]] = {
    "push": _push,
    "pull": _pull,
    "ls": _ls,
    "verify": _verify,
    "prune": _prune,
}
