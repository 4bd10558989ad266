"""Verb ``get``: messages by id, key, unique key, queue offset or physical offset.

::

    segmentlog get STORE --key 4711 [--topic T] [--from TIME] [--to TIME]     mqadmin: queryMsgByKey
    segmentlog get STORE --unique-key 7F00… [--topic T]                       mqadmin: queryMsgByUniqueKey
    segmentlog get STORE --id 7F0000010000…                                   mqadmin: queryMsgById
    segmentlog get STORE --topic T -p 3 --offset 1000                         mqadmin: queryMsgByOffset
    segmentlog get STORE --physical-offset 1048576

All of them are complete: there is no limit of 64 messages, and each hit of the index is compared with its message. The
flag may be repeated. Exit code 1 means that nothing was found for one of the values; a terminal shows which.
"""

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Final

from segmentlog.output import printable
from segmentlog.query.suggestions import listing

from ..console import Console
from ..errors import FOUND, NOT_FOUND, UsageError
from ..output.formats import add_output
from ..output.templates import parse_template
from ..parser import Parser, add_store, typed, whole
from ..positions import add_day, asked_window, clock_of, parse_at
from ..reading import known_topics, source_of
from ..selection import add_columns, message_columns, spec_of

if TYPE_CHECKING:
    from segmentlog.store import StoreReader
    from segmentlog.store.find import Found

_KEYS: Final = ("key", "unique_key")
_WAYS: Final = ("id", "key", "unique_key", "offset", "physical_offset")


def add_arguments(parser: Parser) -> None:
    add_store(parser)
    add = parser.add_argument
    add("--id", metavar="ID", action="append", help="offset message id (column msgId)")
    add("--key", metavar="KEY", action="append", help="one of the keys of a message")
    add("--unique-key", "--uniq-key", metavar="KEY", action="append", help="the id that the client made (UNIQ_KEY)")
    add("--offset", metavar="N", type=whole, action="append", help="queue offset, with --topic and -p")
    add("--physical-offset", metavar="N", type=whole, action="append", help="where the record begins in the CommitLog")
    add("--topic", metavar="TOPIC", action="append", help="with --key, --unique-key (default: all topics) and --offset")
    add("-p", "--queue", metavar="N", type=whole, help="with --offset")
    add("--from", dest="start", metavar="TIME", type=typed(parse_at), help="with keys: stored at or after")
    add("--to", dest="end", metavar="TIME", type=typed(parse_at), help="with keys: stored before")
    add_day(parser)
    add("--newest-first", action="store_true", help="with keys: newest first (default: oldest)")
    add("-f", "--format", metavar="TEMPLATE", type=typed(parse_template), help=r"as of `segmentlog cat`: '%%s\n'")
    add_columns(parser)
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    way = _way(options)
    from ..output.rows import write_messages

    spec = spec_of(options, message_columns(options, console))
    found = _found(source_of(options).open(), way, options)
    names = [*spec.columns, *spec.property_columns]
    schema = found.schema(spec)
    rows = schema.empty_table().select(names).schema  # without `asked`
    batches = (batch.select(names) for batch in found.batches(spec))
    code = write_messages(rows, batches, options, console)
    return _report_missing(found, way, console) or code


def _way(options: argparse.Namespace) -> str:
    """Return the one flag that selects messages; none, several, or missing companions are a `UsageError`."""
    flags = {name: f"--{name.replace('_', '-')}" for name in _WAYS}
    given = [name for name in _WAYS if getattr(options, name) is not None]
    if len(given) != 1:
        named = " and ".join(flags[name] for name in given)
        problem = f"{named} are passed together" if given else "no flag says which message is meant"
        raise UsageError(problem, fix=f"Pass one of {listing(list(flags.values()))}")
    (way,) = given
    has_place = way == "offset"
    if has_place and (options.queue is None or options.topic is None or len(options.topic) != 1):
        raise UsageError("--offset needs one --topic and -p", fix="Pass such as --topic orders -p 3 --offset 1000")
    unused = {
        "-p": options.queue is not None and not has_place,
        "--topic": options.topic is not None and way in {"id", "physical_offset"},
        "--from": options.start is not None and way not in _KEYS,
        "--to": options.end is not None and way not in _KEYS,
        "--day": options.day is not None and way not in _KEYS,
        "--newest-first": options.newest_first and way not in _KEYS,
    }
    for flag, is_wrong in unused.items():
        if is_wrong:
            raise UsageError(f"{flag} is passed with {flags[way]}, and has no meaning there", fix="Leave it out")
    return way


def _found(reader: "StoreReader", way: str, options: argparse.Namespace) -> "Found":
    from segmentlog.query.position import AtTime
    from segmentlog.store import QueueKey
    from segmentlog.store.find import Finder, KeyField, Order, Window

    finder, values = Finder(reader), getattr(options, way)
    match way:
        case "id":
            return finder.by_message_ids(values)
        case "physical_offset":
            return finder.by_physical_offsets(values)
        case "offset":
            (topic,) = known_topics(reader, options.topic)
            return finder.by_queue_offsets(QueueKey(topic, options.queue), values)
    window = asked_window(options, clock_of(options))
    start, stop = (each.ms if isinstance(each, AtTime) else None for each in window)
    topics = reader.topics() if options.topic is None else known_topics(reader, options.topic)
    return finder.by_keys(
        topics,
        values,
        KeyField.KEYS if way == "key" else KeyField.UNIQUE,
        window=Window(start, stop),
        order=Order.NEWEST_FIRST if options.newest_first else Order.OLDEST_FIRST,
    )


def _report_missing(found: "Found", way: str, console: Console) -> int:
    """Name the values that found nothing, if a terminal shows stderr; return `NOT_FOUND` if there are any."""
    missing = found.missing()
    without = missing[missing.num_columns - 1].to_pylist()
    if way in _KEYS:  # asked once per topic
        topics = len(found.asked["topic"].unique())
        without = [each for each, count in Counter(without).items() if count == topics]
    if without and console.has_progress:
        names = listing([str(each) for each in without])
        console.stderr.write(printable(f"not found: {names}") + "\n")
    return NOT_FOUND if without else FOUND
