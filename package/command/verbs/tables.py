"""Verbs ``topics``, ``queues``, ``segments`` and ``groups``: tables about a store.

::

    segmentlog topics STORE [--all]        mqadmin: topicList
    segmentlog queues STORE [TOPIC …]      mqadmin: topicStatus
    segmentlog segments STORE
    segmentlog groups STORE [GROUP]        a row for each queue
"""

import argparse
from typing import TYPE_CHECKING

from ..console import Console
from ..output.formats import add_output
from ..parser import Parser, add_store
from ..reading import opened

if TYPE_CHECKING:
    import pyarrow as pa

    import segmentlog


def add_arguments(parser: Parser) -> None:
    add_store(parser)
    parser.set_defaults(table=_TABLES[parser.verb])
    if parser.verb == "topics":
        parser.add_argument("--all", action="store_true", help="RocketMQ's own topics, too, such as retry topics")
    elif parser.verb == "queues":
        parser.add_argument("topic", metavar="TOPIC", nargs="*", help="topics (default: all)")
    elif parser.verb == "groups":
        parser.add_argument("group", metavar="GROUP", nargs="?", help="one group (default: all)")
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from ..output.rows import write_table

    with opened(options) as store:
        table = options.table(store, options)
    return write_table(table, options, console)


def _topics(store: "segmentlog.Store", options: argparse.Namespace) -> "pa.Table":
    import pyarrow.compute as pc

    table = store.topics().to_arrow()
    return table if options.all else table.filter(pc.invert(table["isSystem"]))


def _queues(store: "segmentlog.Store", options: argparse.Namespace) -> "pa.Table":
    return store.queues(options.topic or None).to_arrow()


def _segments(store: "segmentlog.Store", _: argparse.Namespace) -> "pa.Table":
    return store.segments().to_arrow()


def _groups(store: "segmentlog.Store", options: argparse.Namespace) -> "pa.Table":
    import pyarrow.compute as pc

    table = store.groups().to_arrow()
    if options.group is None:
        return table
    store.lag(options.group)  # an unknown group is an error
    return table.filter(pc.equal(table["group"], options.group))


_TABLES = {"topics": _topics, "queues": _queues, "segments": _segments, "groups": _groups}
