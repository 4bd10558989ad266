"""Selection: the store, topics, positions, filters and columns that a command line names.

::

    --from / --to                                 in each queue that is read
    earliest, latest                              its first message, after its last one; also beginning, end
    1234                                          queue offset 1234
    -10, last:10                                  10 messages before its end
    2026-01-31T12:00:00Z, -1h, @1769817600000     the first message stored at or after the time (query/times.py)
    s@1769817600000 (--from), e@… (--to)          the same, as kcat writes it
    group:etl                                     the next message of the consumer group
    table:delta:/lake/orders                      the first message that a table of `backfill` does not have
    {"orders": {"0": 12, "1": "-1h"}}             one of these, but a group, by queue: other queues are not read
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from segmentlog.query import times
from segmentlog.query.selection import Topics, select, topic_pattern, topics_in, topics_of
from segmentlog.query.suggestions import listing
from segmentlog.store import ConfigError

from .console import Console
from .errors import UsageError
from .output.formats import Format, Target
from .parser import Parser, add_store, names, typed

if TYPE_CHECKING:
    import segmentlog
    from segmentlog import Scan
    from segmentlog.query.body_columns import BodyFormat
    from segmentlog.query.body_search import JsonScalar
    from segmentlog.query.position import AtTime, Position, Words
    from segmentlog.query.source import StoreSource
    from segmentlog.query.times import Clock
    from segmentlog.store import BodyFilter, Boundary, QueueBounds, QueueKey, ScanSpec, Snapshot

_FORMS: Final = (
    "Pass a queue offset, -N for the last N messages, earliest, latest, group:NAME, table:KIND:NAME, JSON of queues, "
    "or a time: 2026-01-31T12:00:00Z, a date, now, today, yesterday, -1h (units s, m, h, d, w) or @1769817600000 (ms "
    "since 1970)"
)
_KCAT: Final = {"beginning": "earliest", "end": "latest"}
TABLE_COLUMNS: Final = ("topic", "queueId", "queueOffset", "storeTimestamp", "tags", "keys", "body")
"""Columns of a table, unless ``--columns`` names others."""
MESSAGE_COLUMNS: Final = (
    "topic",
    "queueId",
    "queueOffset",
    "storeTimestamp",
    "bornTimestamp",
    "tags",
    "keys",
    "uniqKey",
    "flag",
    "properties",
    "body",
)
"""Columns of all other formats: a message is complete, so that it can be put again."""


def source_of(options: argparse.Namespace) -> "StoreSource":
    """Return the store or pattern of `add_store`; only verbs that print messages by position have ``--read-from``."""
    from segmentlog.query.source import StoreSource

    return StoreSource.of(
        options.store,
        commit_log_paths=options.commit_log,
        read_from=getattr(options, "read_from", "appended"),
        storage=dict(options.storage),
        cache_dir=options.cache_dir,
    )


def open_stores(options: argparse.Namespace) -> "list[tuple[StoreSource, Snapshot]]":
    """Open the store of `add_store`, or the stores of a pattern."""
    from segmentlog.query.source import open_all

    return open_all(source_of(options).each())


def opened(options: argparse.Namespace) -> "segmentlog.Store | segmentlog.Stores":
    """Open the store of `add_store`, or the stores of a pattern."""
    source = source_of(options)
    if source.is_pattern:
        from segmentlog.api.stores import Stores

        return Stores(source)
    from segmentlog.api.store import Store

    return Store(source)


def no_message(options: argparse.Namespace) -> str:
    """Tell that no message was found, and which messages the topics of a command line have."""
    topics = list(dict.fromkeys(options.topic or ()))
    with opened(options) as store:
        table = store.queues(topics or None).to_arrow()
    who = f"{listing(topics)} {'has' if len(topics) == 1 else 'have'}" if topics else "the store has"
    first, last = (
        [each for each in table[name].to_pylist() if each is not None]
        for name in ("firstStoreTimestamp", "lastStoreTimestamp")
    )
    count = sum(table["messages"].to_pylist())
    if not (first and last):
        return f"no message was found: {who} none"
    start, stop = (times.iso(times.store_ms(each)) for each in (min(first), max(last)))
    return f"no message was found: {who} {count:,} messages, stored from {start} to {stop}"


def held_topics(snapshots: "Sequence[Snapshot]", topics: Sequence[str] | None, path: str) -> "list[tuple[str, ...]]":
    """Return the topics of each store, of some or of all; each of some has to be in one store."""

    def choose(known: Sequence[str]) -> Sequence[str]:
        return topics_of(topics, known, path=path, argument="TOPIC") if topics else known

    return topics_in(snapshots, choose)


def bounds_of(snapshot: "Snapshot", topics: Sequence[str]) -> dict["QueueKey", "QueueBounds"]:
    """Return the bounds of all queues of some topics."""
    ((_, queues),) = select([snapshot], Topics(tuple(dict.fromkeys(topics))), argument="TOPIC")
    return {bounds.key: bounds for bounds in queues}


def read_conf(path: str) -> str:
    """Read the file that ``--config`` names."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(
            f"--config: the broker's configuration cannot be read: {found}",
            path=path,
            fix="Pass the file that the broker was started with (`mqbroker -c FILE`)",
        ) from error


# Positions and times


def parse_start(text: str) -> "Position":
    return _parse(text.removeprefix("s") if text.startswith("s@") else text)


def parse_end(text: str) -> "Position":
    return _parse(text.removeprefix("e") if text.startswith("e@") else text)


def _parse(text: str) -> "Position":
    from segmentlog.query.position import Grammar, parse_position  # here: `--help` does not need numpy

    grammar = Grammar(forms=_FORMS, has_offsets=True, has_signs=True, has_times=True)
    return parse_position(_KCAT.get(text, text), "", grammar)


def parse_at(text: str) -> "AtTime":
    """Parse ``--from`` and ``--to`` of a verb that takes times alone."""
    from segmentlog.query.position import AtTime

    return AtTime(times.parse_time(text))


def add_zone(parser: Parser) -> None:
    parser.add_argument(
        "--tz",
        metavar="ZONE",
        type=typed(times.parse_zone),
        help="zone of dates and of times without one, such as Europe/Berlin or +02:00 (default: that of the variable "
        "SEGMENTLOG_TZ; without it UTC for dates)",
    )


def add_window(parser: Parser) -> None:
    """Add ``--from``, ``--to``, ``--day`` and ``--tz``, for `asked_window`."""
    parser.add_argument(
        "--from",
        dest="start",
        metavar="POSITION",
        type=typed(parse_start),
        help="first message of each queue: an offset, -N (last N), a time (also -1h, yesterday), earliest, latest, "
        "group:NAME, table:delta:PATH (after what backfill wrote; also iceberg, files) or JSON by queue (default: "
        "earliest)",
    )
    parser.add_argument(
        "--to",
        dest="end",
        metavar="POSITION",
        type=typed(parse_end),
        help="end of each queue, which is not read, as --from (default: latest)",
    )
    add_day(parser)


def add_boundary(parser: Parser) -> None:
    """Add ``--boundary`` and ``--tz``, to a parser with a time."""
    add_zone(parser)
    parser.add_argument(
        "--boundary",
        metavar="WHICH",
        choices=["lower", "upper"],
        help="of the time: lower is the first message at or after, upper the last at or before (default: lower)",
    )


def boundary_of(options: argparse.Namespace) -> "Boundary":
    """Return the boundary that ``--boundary`` names."""
    from segmentlog.store import Boundary

    return Boundary[(options.boundary or "lower").upper()]


def add_day(parser: Parser) -> None:
    """Add ``--day`` and ``--tz``, to a parser with ``--from`` and ``--to``."""
    parser.add_argument(
        "--day",
        metavar="DATE",
        type=typed(times.parse_day),
        help="messages stored on a day, such as 2026-01-31 or yesterday; instead of --from and --to",
    )
    add_zone(parser)


def clock_of(options: argparse.Namespace) -> "Clock":
    """Return the present moment, and the zone of ``--tz``."""
    return times.Clock.system(options.tz, "--tz")


def words() -> "Words":
    """Return the names of the flags, for errors."""
    from segmentlog.query.position import Words

    return Words(start="--from", end="--to")


def asked_window(options: argparse.Namespace, clock: "Clock") -> "tuple[Position, Position]":
    """Return start and end of ``--from``, ``--to`` and ``--day``, times resolved; `ConfigError` if they conflict."""
    from segmentlog.query.position import AtTime, Earliest, Latest, check_order, settled

    if options.day is not None:
        other = "--from" if options.start is not None else "--to" if options.end is not None else None
        if other is not None:
            raise UsageError(f"--day is passed with {other}", fix="Pass one of them: a day has a start and an end")
        first, stop = clock.day(options.day)
        return AtTime(times.Instant(first)), AtTime(times.Instant(stop))
    start = settled(options.start or Earliest(), clock)
    end = settled(options.end or Latest(), clock)
    check_order(start, end, words())
    return start, end


def asked_times(options: argparse.Namespace) -> tuple[int | None, int | None]:
    """Return start and end of a verb that takes times alone, in ms since 1970; None where no flag names one."""
    if options.start is options.end is options.day is None:
        return None, None
    from segmentlog.query.position import AtTime

    start, end = (each.ms if isinstance(each, AtTime) else None for each in asked_window(options, clock_of(options)))
    return start, end


# Messages


def add_selection(parser: Parser, *, or_pattern: bool = False) -> None:
    """Add the flags for `Selection` and `selected_spec`."""
    add_messages(parser, or_pattern=or_pattern)
    add_body_search(parser)
    add_columns(parser)


def add_messages(parser: Parser, *, to: str | None = None, or_pattern: bool = False) -> None:
    """Add the flags of `Selection` that choose messages, without those that choose columns.

    ``to`` is the help of an argument TO after STORE; without it there is no such argument.
    """
    add_store(parser, or_pattern=or_pattern)
    if to is not None:
        parser.add_argument("to", metavar="TO", help=to)
    parser.add_argument("topic", metavar="TOPIC", nargs="+", help="topics, or one regular expression such as ^order")
    parser.add_argument("-p", "--queue", metavar="N,…", type=_queues, help="queues by number (default: all)")
    parser.add_argument("--tag", metavar="'A || B'", help="messages with one of these tags")
    parser.add_argument("--sql", metavar="FILTER", help="messages that a SQL92 filter of RocketMQ accepts")
    parser.add_argument(
        "--read-from",
        metavar="WHAT",
        choices=["appended", "confirmed"],
        default="appended",
        help="confirmed: only messages that enough replicas hold (default: appended)",
    )


def add_body_search(parser: Parser) -> None:
    """Add the flags for `body_filters_of`."""
    parser.add_argument("--grep", metavar="TEXT", help="messages with this text in their bodies, which are inflated")
    parser.add_argument(
        "--regex", metavar="RE", help="messages with a match of this regular expression in their bodies"
    )
    parser.add_argument("--ignore-case", action="store_true", help="--grep and --regex ignore the case of letters")
    parser.add_argument(
        "--json-path", metavar="PATH", help="messages whose bodies have, at a path such as '$.orderId' …"
    )
    parser.add_argument("--equals", metavar="VALUE", help="… this text, or this number, true, false or null")


def add_bodies(parser: Parser) -> None:
    """Add the flags for `bodies_of`."""
    parser.add_argument(
        "--body",
        metavar="FORMAT",
        choices=["json", "avro", "protobuf", "csv", "text"],
        help="columns of bodies in place of them: json, avro, protobuf, csv or text",
    )
    parser.add_argument(
        "--schema",
        metavar="SCHEMA",
        help="for json and csv: columns such as 'id string, total double', or a file with them. For avro: a schema "
        "file. For protobuf: FILE#package.Message, with a descriptor set",
    )


def bodies_of(options: argparse.Namespace) -> "BodyFormat | None":
    """Return the format of `add_bodies`, None without ``--body``."""
    from segmentlog.query.request import body_format_of

    return body_format_of(options.body, options.schema, named=lambda name: f"--{name.removesuffix('_as')}")


def body_filters_of(options: argparse.Namespace) -> "tuple[BodyFilter, ...]":
    """Return the conditions of `add_body_search`."""
    from segmentlog.query.body_search import body_filters

    return body_filters(
        contains=_bytes_unless_text(options.grep),
        regex=_bytes_unless_text(options.regex),
        json_path=options.json_path,
        equals=... if options.equals is None else _values(options.equals),
        ignore_case=options.ignore_case,
        named=lambda name: "--grep" if name == "contains" else f"--{name.replace('_', '-')}",
    )


def _bytes_unless_text(argument: str | None) -> str | bytes | None:
    """Return an argument as the bytes that the shell passed, if they are not UTF-8."""
    if argument is None or not any("\udc80" <= each <= "\udcff" for each in argument):
        return argument
    return os.fsencode(argument)


def _values(text: str) -> "tuple[JsonScalar, ...]":
    """Return the values that an argument may mean: its text, and its value as JSON."""
    try:
        value = json.loads(text, parse_constant=str)
    except ValueError:
        return (text,)
    return (text,) if isinstance(value, str | list | dict) else (text, value)


def add_columns(parser: Parser) -> None:
    """Add the flags for `spec_of`."""
    parser.add_argument("--columns", metavar="C,…", type=names, help="columns, in order")
    parser.add_argument(
        "--properties", metavar="P,…", type=names, default=(), help="properties of messages as further columns"
    )
    parser.add_argument(
        "--on-corrupt",
        metavar="WHAT",
        choices=["fail", "skip", "null"],
        default="fail",
        help="damaged records: fail, skip or null (default: fail)",
    )
    parser.add_argument(
        "--on-loss",
        metavar="WHAT",
        choices=["fail", "skip"],
        default="fail",
        help="messages that are gone: fail or skip (default: fail)",
    )
    parser.add_argument("--check-crc", action="store_true", help="compare every body that is read with its CRC-32")


def _queues(text: str) -> tuple[int, ...]:
    found = names(text)
    if not all(each.isascii() and each.isdigit() for each in found):
        raise argparse.ArgumentTypeError(f"`{text}` is not a list of queue numbers: write such as 0,3")
    return tuple(map(int, found))


def spec_of(options: argparse.Namespace, columns: Sequence[str], **filters: str | None) -> "ScanSpec":
    """Return the request of `add_columns`, with filters of `scan_spec`; ``columns`` are those without ``--columns``."""
    from segmentlog.query.request import scan_spec

    return scan_spec(
        columns=options.columns or columns,
        properties=options.properties,
        on_corrupt=options.on_corrupt,
        on_loss=options.on_loss,
        check_crc=options.check_crc,
        **filters,
    )


def selected_spec(options: argparse.Namespace, columns: Sequence[str]) -> "ScanSpec":
    """Return the request of `add_selection`."""
    return searching(options, spec_of(options, columns, tags=options.tag, sql=options.sql))


def searching(options: argparse.Namespace, spec: "ScanSpec") -> "ScanSpec":
    """Return a request with the conditions of `add_body_search`."""
    return replace(spec, predicate=replace(spec.predicate, bodies=body_filters_of(options)))


def message_columns(options: argparse.Namespace, console: Console, made: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the columns that a format of messages needs, unless ``--columns`` names others.

    Columns that are ``made`` of bodies are left out. An unknown column of a template has all others beside it, so that
    the error of its writer can name them.
    """
    if options.format is not None:
        from segmentlog.store import NATIVE_SCHEMA

        known = tuple(NATIVE_SCHEMA.names)
        names = tuple(each for each in options.format.columns if each not in {*options.properties, *made})
        columns = (names or ("queueOffset",)) if {*names} <= {*known} else known
    else:
        columns = TABLE_COLUMNS if Target.of(options, console).format is Format.TABLE else MESSAGE_COLUMNS
        columns = ("brokerName", *columns) if source_of(options).is_pattern else columns
    return tuple(each for each in columns if each not in made)


def identity_of(options: argparse.Namespace, selection: "Selection", flags: Sequence[str]) -> dict[str, object]:
    """Return the flags that identify a job, as values of JSON."""
    names = ("topic", "queue", "tag", "sql", "key", "read_from", "map_topic", *flags)
    times = {name: getattr(options, name) for name in ("start", "end", "day", "tz")}
    return {
        "store": selection.source.path,
        **{name: getattr(options, name) for name in names},
        **{name: None if value is None else repr(value) for name, value in times.items()},
    }


class Selection:
    """The messages that a command line names by `add_messages`. Not thread-safe."""

    def __init__(
        self,
        options: argparse.Namespace,
        spec: "ScanSpec",
        opened: "tuple[StoreSource, Snapshot] | None" = None,
        topics: Topics | None = None,
    ) -> None:
        self.spec = spec
        source = source_of(options)
        self.source, self._snapshot = opened or (source, source.open())
        if topics is None:
            names = topics_of(options.topic, self._snapshot.topics(), path=self._snapshot.path, argument="TOPIC")
            topics = Topics(names, options.queue)
        self.topics = topics
        self.followed = topic_pattern(options.topic) or self.topics

    @classmethod
    def each(cls, options: argparse.Namespace, spec: "ScanSpec") -> "list[Self]":
        """Return a selection for each store of a pattern that has some of the topics and queues; one for a store."""
        if not source_of(options).is_pattern:
            return [cls(options, spec)]
        snapshots = open_stores(options)
        names = held_topics([each for _, each in snapshots], options.topic, options.store)
        wanted = Topics(tuple(dict.fromkeys(chain(*names))), options.queue)
        held = select([each for _, each in snapshots], wanted, argument="TOPIC")
        found = []
        for opened, (_, queues) in zip(snapshots, held, strict=True):
            topics = tuple(dict.fromkeys(bounds.key.topic for bounds in queues))
            ids = None if options.queue is None else tuple(sorted({bounds.key.queue_id for bounds in queues}))
            if queues:
                found.append(cls(options, spec, opened, Topics(topics, ids)))
        return found

    @cached_property
    def queues(self) -> "dict[QueueKey, QueueBounds]":
        """The queues that are read, with their bounds."""
        ((_, queues),) = select([self._snapshot], self.topics, argument="TOPIC")
        return {bounds.key: bounds for bounds in queues}

    def scan(self, start: "Position", end: "Position", bodies: "BodyFormat | None" = None) -> "Scan":
        """Return the messages between two positions, with columns of their bodies if a format is passed."""
        from segmentlog.api.scan import settled_scan
        from segmentlog.query.position import Fallback, Rules

        rules = Rules(
            unlisted=Fallback.EARLIEST, unmatched_time=Fallback.LATEST, on_loss=self.spec.on_loss, is_lenient=True
        )
        return settled_scan(
            self.source,
            self._snapshot,
            lambda _: self.topics,
            (start, end),
            self.spec,
            bodies=bodies,
            rules=rules,
            words=words(),
        )

    def between(
        self, starts: "Mapping[QueueKey, int]", stops: "Mapping[QueueKey, int]", columns: Sequence[str]
    ) -> "Scan":
        """Return some columns of the messages between queue offsets, which have the same queues."""
        from segmentlog.api.scan import Scan
        from segmentlog.query.source import OpenedSource
        from segmentlog.store import QueueRange

        ranges = [QueueRange(key, first, stops[key]) for key, first in starts.items() if first < stops[key]]
        return Scan(OpenedSource(self.source), ranges, replace(self.spec, columns=tuple(columns)))
