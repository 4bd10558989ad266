"""Verb ``archive``: a store copied into object storage, and restored from there.

::

    segmentlog archive push   STORE URL                 incremental, beside a running broker
    segmentlog archive pull   URL DIR [--topic T] [--from TIME] [--to TIME]
    segmentlog archive ls     URL [pieces|queues|files|pushes]
    segmentlog archive verify URL [--deep]
    segmentlog archive prune  URL --before TIME | --keep DAYS [--dry-run]
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from segmentlog.connector.options.values import duration_ms
from segmentlog.output import text_table
from segmentlog.query.times import iso

from ..console import Console
from ..errors import UsageError
from ..output.formats import add_json
from ..output.reports import Report, camel_case, print_report
from ..parser import Parser, above_zero, add_commit_log, add_storage_options, chosen, typed
from ..selection import add_zone, clock_of, parse_time

if TYPE_CHECKING:
    from segmentlog.store.maintenance import ArchiveContent, PushReport

_DAY_MS: Final = 86_400_000
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
    "orphans_after": ("push", "prune"),
    "topic": ("pull",),
    "start": ("pull",),
    "end": ("pull",),
    "deep": ("verify",),
    "before": ("prune",),
    "keep": ("prune",),
    "dry_run": ("prune",),
}
_NAMES: Final = {"start": "--from", "end": "--to"}


def add_archive(parser: Parser) -> None:
    add = parser.add_argument
    add("action", metavar="ACTION", type=chosen(_PLACES), help="push, pull, ls, verify or prune")
    add("places", metavar="STORE|URL|DIR", nargs="+", help="STORE URL for push, URL DIR for pull, else URL")
    add_storage_options(parser, "an option of the object store, such as aws_endpoint=http://localhost:9000; repeatable")
    add("--damaged", choices=["error", "keep"], default="error", help="push: archive damaged bytes as they are")
    add("--no-crc", action="store_true", help="push: do not compare bodies with their CRCs")
    add(
        "--orphans-after",
        metavar="DURATION",
        help="push, prune: age from which objects that no manifest names are deleted, such as 6h (default: 1d)",
    )
    add("--topic", action="append", default=[], help="pull: queues of this topic only; repeatable (default: all)")
    add("--from", dest="start", metavar="TIME", type=typed(parse_time), help="pull: store time of the first messages")
    add("--to", dest="end", metavar="TIME", type=typed(parse_time), help="pull: store time after the last messages")
    add("--deep", action="store_true", help="verify: read all objects, and compare digests, CRCs and packs")
    add("--before", metavar="TIME", type=typed(parse_time), help="prune: segments go whose messages are all older")
    add("--keep", metavar="DAYS", type=above_zero("a number of days"), help="prune: the same, in days before now")
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
    return print_report(lambda: _ACTIONS[options.action](options), options, console)


def _age_s(options: argparse.Namespace) -> float | None:
    return None if options.orphans_after is None else duration_ms("--orphans-after", options.orphans_after) / 1000


def _push(options: argparse.Namespace) -> Report:
    from segmentlog.store.maintenance import archive_push

    store, url = options.places
    found = archive_push(
        store,
        url,
        options=dict(options.storage),
        commit_log_paths=options.commit_log,
        keep_damage=options.damaged == "keep",
        check_crcs=not options.no_crc,
        orphans_after_s=_age_s(options),
    )
    return Report(_push_text(found), camel_case(found), not found.is_complete)


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
    from segmentlog.store.maintenance import archive_content

    url, *table = options.places
    shown = table[0] if table else _TABLES[0]
    if shown not in _TABLES:
        raise UsageError(f"there is no table `{shown}`", fix=f"The tables are {', '.join(_TABLES)}")
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

    if (options.before is None) == (options.keep is None):
        raise UsageError("prune takes --before TIME or --keep DAYS", fix="Pass one of them")
    if options.before is not None:
        before_ms = clock_of(options).ms(options.before)
    else:
        before_ms = time.time_ns() // 1_000_000 - round(options.keep * _DAY_MS)
    age = _age_s(options)
    grace: dict[str, Any] = {} if age is None else {"grace_s": age}
    found = archive_prune(options.places[0], before_ms, options=dict(options.storage), dry_run=options.dry_run, **grace)
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
