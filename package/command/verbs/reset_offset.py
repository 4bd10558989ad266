"""Verb ``reset-offset``: a consumer group moved to another place, or what that would change.

::

    segmentlog reset-offset STORE GROUP --to-time 2026-01-31T12:00:00Z --dry-run     before and after, of each queue
    segmentlog reset-offset STORE GROUP --to-time 2026-01-31T12:00:00Z               done; mqadmin: resetOffsetByTime

While a broker has the store open, the positions are noted beside its own: readers of segmentlog see them, its consumers
do not. Column ``recorded`` is then ``sidecar``, and the exit code 1 unless ``--beside-broker`` asked for it.
"""

import argparse
from typing import TYPE_CHECKING, Final

from segmentlog.query.selection import check_topics, group_progress

from ..console import Console
from ..errors import NOT_FOUND
from ..output.formats import add_output
from ..parser import Parser, chosen, typed, whole
from ..positions import add_zone, clock_of, parse_time

if TYPE_CHECKING:
    from segmentlog.store.groups import ToEarliest, ToLatest, ToOffset, ToTime

_COLUMNS: Final = ("group", "topic", "queueId", "before", "after", "recorded")


def add_arguments(parser: Parser) -> None:
    parser.add_argument("store", metavar="STORE", help="the broker's storePathRootDir, or a copy of it")
    parser.add_argument("group", metavar="GROUP", help="the consumer group")
    parser.add_argument(
        "--topic",
        metavar="TOPIC",
        action="append",
        help="the topics, also one that is new to the group; repeatable (default: all of the group)",
    )
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--earliest", action="store_true", help="to the first message of each queue")
    to.add_argument("--latest", action="store_true", help="to the end of each queue")
    to.add_argument(
        "--to-time",
        metavar="TIME",
        type=typed(parse_time),
        help="to a store time: ISO-8601, a date, -1h, yesterday, or @MS",
    )
    to.add_argument("--to-offset", metavar="N", type=whole, help="to a queue offset, or the nearest of each queue")
    add_zone(parser)
    parser.add_argument(
        "--boundary",
        metavar="WHICH",
        type=chosen(["lower", "upper"]),
        default="lower",
        help="of --to-time: lower is the first message at or after, upper the last at or before (default: lower)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the change, and change nothing")
    parser.add_argument(
        "--beside-broker",
        action="store_true",
        help="exit code 0 also if a broker has the store open: its own consumers do not see the change",
    )
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    import pyarrow as pa

    from segmentlog.store import StoreReader
    from segmentlog.store.groups import Recorded, list_groups, reset_group

    from ..output.formats import Target
    from ..output.rows import write_table
    from ..progress import logged

    Target.of(options, console)  # a wrong -o is an error before anything changes
    if options.topic:
        check_topics(options.topic, StoreReader.open(options.store).topics(), path=options.store, argument="--topic")
    elif list_groups(options.store):
        group_progress([StoreReader.open(options.store)], options.group)  # an unknown group is an error
    with logged(console):
        change = reset_group(
            options.store, options.group, _target(options), topics=options.topic, dry_run=options.dry_run
        )
    where = change.recorded.value
    rows = [(change.group, move.key.topic, move.key.queue_id, move.before, move.after, where) for move in change.moves]
    types = (pa.string(), pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.string())
    columns = [list(each) for each in zip(*rows, strict=True)] or [[]] * len(types)
    schema = pa.schema(list(zip(_COLUMNS, types, strict=True)))
    code = write_table(pa.table(columns, schema=schema), options, console)
    return NOT_FOUND if change.recorded is Recorded.SIDECAR and not options.beside_broker else code


def _target(options: argparse.Namespace) -> "ToEarliest | ToLatest | ToTime | ToOffset":
    from segmentlog.store import Boundary
    from segmentlog.store.groups import ToEarliest, ToLatest, ToOffset, ToTime

    if options.to_time is not None:
        return ToTime(clock_of(options).ms(options.to_time), Boundary[options.boundary.upper()])
    if options.to_offset is not None:
        return ToOffset(options.to_offset)
    return ToEarliest() if options.earliest else ToLatest()
