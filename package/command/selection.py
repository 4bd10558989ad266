"""Selection of messages: the flags that ``cat`` and ``tail`` share, and the scan that they describe.

::

    TOPIC … -p 0,1 --from 12:00 --to 13:00 --tag 'a || b' --sql 'n > 3' --columns … --properties …
       └────────┬────────────────────────┘ └──────────┬──────────────────────────────────────────┘
        offsets by queue                      arguments of Store.scan
"""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from .console import Console
from .errors import UsageError
from .output.formats import Format, Target
from .parser import Parser, add_store, chosen, known_column, names
from .positions import Position, offsets
from .reading import bounds_of, opened, reader_of

if TYPE_CHECKING:
    import segmentlog
    from segmentlog.store import QueueBounds, QueueKey, StoreReader

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
    add_store(parser)
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
    add_columns(parser)


def add_columns(parser: Parser) -> None:
    """Add the flags for `columns_of`, and for the treatment of damage."""
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
        raise argparse.ArgumentTypeError(f"`{text}` is no list of queue numbers: write such as 0,3")
    return tuple(map(int, found))


def columns_of(options: argparse.Namespace, default: Sequence[str]) -> dict[str, Any]:
    """Return columns and treatment of damage as arguments of ``Store.scan`` and ``Store.find``.

    Raises
    ------
    UsageError
        If a column does not exist.
    """
    from segmentlog.store import NATIVE_SCHEMA, OnCorrupt, OnLoss

    known_column("--columns", options.columns or (), NATIVE_SCHEMA.names)
    return {
        "columns": options.columns or default,
        "properties": options.properties,
        "on_corrupt": OnCorrupt[options.on_corrupt.upper()],
        "on_loss": OnLoss[options.on_loss.upper()],
    }


def message_columns(options: argparse.Namespace, console: Console) -> tuple[str, ...]:
    """Return the columns that a format of messages needs, unless ``--columns`` names others."""
    if options.format is not None:
        return tuple(each for each in options.format.columns if each not in options.properties) or ("queueOffset",)
    return TABLE_COLUMNS if Target.of(options, console).format is Format.TABLE else MESSAGE_COLUMNS


class Selection:
    """The messages that a command line names. Not thread-safe.

    Parameters
    ----------
    options
        What `add_selection` added.
    columns
        Columns unless ``--columns`` names others.

    Raises
    ------
    SegmentLogError
        If the store, a topic or a queue does not exist, or a flag is wrong.
    """

    def __init__(self, options: argparse.Namespace, columns: Sequence[str]) -> None:
        self.store = opened(options)
        self.reader = reader_of(options)
        self.topics = tuple(dict.fromkeys(options.topic))
        self.arguments = columns_of(options, columns) | {"tags": options.tag, "sql": options.sql}
        """Arguments of ``Store.scan`` and ``Store.follow``, but for topics and positions."""
        self.queues = _selected(self.reader, self.topics, options.queue)
        """The queues that are read, with their bounds."""

    def scan(self, start: Position, end: Position) -> "segmentlog.Scan":
        """Return the messages between two positions."""
        stops = offsets("--to", end, self.reader, self.queues)
        starts = offsets("--from", start, self.reader, self.queues)
        return self.between({key: min(first, stops[key]) for key, first in starts.items()}, stops)

    def between(
        self, starts: dict["QueueKey", int], stops: dict["QueueKey", int], *, columns: Sequence[str] | None = None
    ) -> "segmentlog.Scan":
        """Return the messages between queue offsets, which have the same queues; ``columns`` replace the asked ones."""
        arguments = self.arguments if columns is None else self.arguments | {"columns": columns}
        if self.arguments["on_loss"].name == "SKIP":
            starts = {key: max(first, self.queues[key].min_offset) for key, first in starts.items()}
        return self.store.scan(self.topics, start=starts, end=stops, **arguments)


def _selected(
    reader: "StoreReader", topics: Sequence[str], wanted: Sequence[int] | None
) -> dict["QueueKey", "QueueBounds"]:
    found = bounds_of(reader, topics)
    for queue in wanted or ():
        if all(key.queue_id != queue for key in found):
            there = ", ".join(sorted({str(key.queue_id) for key in found}, key=int))
            raise UsageError(f"-p: there is no queue {queue}", path=reader.path, fix=f"The queues are {there}")
    return {key: bounds for key, bounds in found.items() if wanted is None or key.queue_id in wanted}
