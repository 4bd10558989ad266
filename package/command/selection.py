"""Selection of messages: the flags that ``cat`` and ``tail`` share, as ranges of queue offsets and a `ScanSpec`."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from segmentlog.query.selection import Topics, select

from .console import Console
from .output.formats import Format, Target
from .parser import Parser, add_store, chosen, names
from .positions import words
from .reading import source_of

if TYPE_CHECKING:
    from segmentlog import Scan
    from segmentlog.query.position import Position
    from segmentlog.store import QueueKey, ScanSpec

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


def add_selection(parser: Parser) -> None:
    """Add the flags for `Selection`."""
    add_messages(parser)
    add_columns(parser)


def add_messages(parser: Parser, *, to: str | None = None) -> None:
    """Add the flags of `Selection` that choose messages, without those that choose columns.

    ``to`` is the help of an argument TO after STORE, which is not there without it.
    """
    add_store(parser)
    if to is not None:
        parser.add_argument("to", metavar="TO", help=to)
    parser.add_argument("topic", metavar="TOPIC", nargs="+", help="topics")
    parser.add_argument("-p", "--queue", metavar="N,…", type=_queues, help="queues by number (default: all)")
    parser.add_argument("--tag", metavar="'A || B'", help="messages with one of these tags")
    parser.add_argument("--sql", metavar="FILTER", help="messages that a SQL92 filter of RocketMQ accepts")
    parser.add_argument(
        "--read-from",
        metavar="WHAT",
        type=chosen(["appended", "confirmed"]),
        default="appended",
        help="confirmed: only messages that enough replicas hold (default: appended)",
    )


def add_columns(parser: Parser) -> None:
    """Add the flags for `spec_of`."""
    parser.add_argument("--columns", metavar="C,…", type=names, help="columns, in order")
    parser.add_argument(
        "--properties", metavar="P,…", type=names, default=(), help="properties of messages as further columns"
    )
    parser.add_argument(
        "--on-corrupt",
        metavar="WHAT",
        type=chosen(["fail", "skip", "null"]),
        default="fail",
        help="damaged records: fail, skip or null (default: fail)",
    )
    parser.add_argument(
        "--on-loss",
        metavar="WHAT",
        type=chosen(["fail", "skip"]),
        default="fail",
        help="messages that are gone: fail or skip (default: fail)",
    )


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
        **filters,
    )


def message_columns(options: argparse.Namespace, console: Console) -> tuple[str, ...]:
    """Return the columns that a format of messages needs, unless ``--columns`` names others."""
    if options.format is not None:
        return tuple(each for each in options.format.columns if each not in options.properties) or ("queueOffset",)
    return TABLE_COLUMNS if Target.of(options, console).format is Format.TABLE else MESSAGE_COLUMNS


def identity_of(options: argparse.Namespace, selection: "Selection", flags: Sequence[str]) -> dict[str, object]:
    """Return the flags by which a job is told from another one, as values of JSON."""
    names = ("topic", "queue", "tag", "sql", "key", "read_from", "map_topic", *flags)
    times = {name: getattr(options, name) for name in ("start", "end", "day", "tz")}
    return {
        "store": selection.source.path,
        **{name: getattr(options, name) for name in names},
        **{name: None if value is None else repr(value) for name, value in times.items()},
    }


class Selection:
    """The messages that a command line names. Not thread-safe."""

    def __init__(self, options: argparse.Namespace, columns: Sequence[str]) -> None:
        self.source = source_of(options)
        self._reader = self.source.open()
        self.topics = Topics(tuple(dict.fromkeys(options.topic)), options.queue)
        self.spec = spec_of(options, columns, tags=options.tag, sql=options.sql)
        ((_, queues),) = select([self._reader], self.topics, argument="TOPIC")
        self.queues = {bounds.key: bounds for bounds in queues}  # the queues that are read, with their bounds

    def scan(self, start: "Position", end: "Position") -> "Scan":
        """Return the messages between two positions."""
        from segmentlog.api.scan import Scan
        from segmentlog.query.position import Fallback, Resolver, Rules

        rules = Rules(
            unlisted=Fallback.EARLIEST, unmatched_time=Fallback.LATEST, on_loss=self.spec.on_loss, is_lenient=True
        )
        ranges = Resolver(self._reader, rules, words()).plan(start, end, self.queues.values())
        return Scan(self.source, ranges, self.spec)

    def between(
        self, starts: "Mapping[QueueKey, int]", stops: "Mapping[QueueKey, int]", columns: Sequence[str]
    ) -> "Scan":
        """Return some columns of the messages between queue offsets, which have the same queues."""
        from segmentlog.api.scan import Scan
        from segmentlog.store import QueueRange

        ranges = [QueueRange(key, first, stops[key]) for key, first in starts.items() if first < stops[key]]
        return Scan(self.source, ranges, replace(self.spec, columns=tuple(columns)))
