"""Verb ``tail``: the last messages of topics, and those that are appended from now on.

::

    segmentlog tail STORE TOPIC -n 5              the last five by physical offset, of all queues together
    segmentlog tail STORE TOPIC -f --json         then each further message, some milliseconds after its append

        follower made ──► its positions ──► last messages before them ──► batches of the follower ──► Ctrl-C

No message is between the two parts, and none comes twice.
"""

import argparse
from contextlib import closing
from typing import TYPE_CHECKING, Final

from ..console import Console
from ..output.formats import Pace, add_output
from ..output.templates import parse_template
from ..parser import Parser, seconds, typed, whole
from ..selection import Selection, add_selection, message_columns

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    import pyarrow as pa

    from segmentlog import Follow
    from segmentlog.store import QueueKey

_PLACE: Final = "physicalOffset"


def add_arguments(parser: Parser) -> None:
    add_selection(parser)
    parser.add_argument("-n", "--number", metavar="N", type=whole, default=10, help="so many messages (default: 10)")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with messages as they are appended")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, help="end -f when nothing was appended for so long"
    )
    parser.add_argument(
        "--format", metavar="TEMPLATE", type=typed(parse_template), help=r"as of `segmentlog cat`: '%%o %%s\n'"
    )
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from ..output.rows import write_messages

    selection = Selection(options, message_columns(options, console))
    with closing(_messages(selection, options)) as batches:
        schema = selection.between({}, {}, selection.spec.columns).schema
        pace = Pace.LIVE if options.follow else Pace.BULK
        return write_messages(schema, batches, options, console, pace=pace)


def _messages(selection: Selection, options: argparse.Namespace) -> "Generator[pa.RecordBatch, None, None]":
    if not options.follow:
        ends = {key: each.max_offset for key, each in selection.queues.items()}
        yield from _last(selection, ends, options.number)
        return
    with _follower(selection, options) as follower:
        ends = {key: offset for key, offset in follower.positions.items() if key in selection.queues}
        yield from _last(selection, ends, options.number)
        yield from follower


def _follower(selection: Selection, options: argparse.Namespace) -> "Follow":
    from segmentlog.api.follow import Follow
    from segmentlog.query.position import Latest

    return Follow(selection.source, selection.topics, Latest(), selection.spec, timeout_s=options.timeout)


def _last(selection: Selection, ends: "dict[QueueKey, int]", number: int) -> "Iterable[pa.RecordBatch]":
    """Return the last messages before some ends, in the order of the log."""
    if not number:
        return []
    names = [*selection.spec.columns, *selection.spec.property_columns]
    columns = list(dict.fromkeys([*selection.spec.columns, _PLACE]))
    width = number
    while True:
        starts = {key: max(selection.queues[key].min_offset, end - width) for key, end in ends.items()}
        found = selection.between(starts, ends, columns).to_arrow()
        if found.num_rows >= number or all(first == selection.queues[key].min_offset for key, first in starts.items()):
            break
        width *= 4  # a filter left messages out
    last = found.sort_by(_PLACE).slice(max(0, found.num_rows - number)).select(names)
    batches: list[pa.RecordBatch] = last.to_batches()
    return batches
