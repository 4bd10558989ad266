"""Verbs that write to a store: messages of standard input, and positions of consumer groups."""

import argparse
from typing import TYPE_CHECKING, Final

from segmentlog.query.selection import check_topics, topics_to_write, unknown_group, unknown_topic
from segmentlog.query.times import parse_time
from segmentlog.store import ConfigError, IllegalMessageError

from ..console import Console, counted, logged
from ..errors import FLAGS, NOT_FOUND, UsageError
from ..output.formats import Target, add_output
from ..parser import Parser, assignment, directory, typed, whole
from ..selection import add_boundary, boundary_of, clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from segmentlog.store import AppendedBatch, SegmentLogError, StoreConfig
    from segmentlog.store.groups import ToEarliest, ToLatest, ToOffset, ToTime

    from ..incoming import Fixed, Lines, Receipt

# Verb `put`

LINES: Final = "lines"
JSON_LINES: Final = "jsonl"
_MAKE: Final = "--create"


def add_put(parser: Parser) -> None:
    r"""Verb ``put``: messages of standard input, appended to a store.

    ::

        printf 'one\ntwo\n' | segmentlog put STORE TOPIC                                  a message per line
        segmentlog cat A orders -o jsonl | jq … | segmentlog put B --input jsonl          export, edit, import
                                                  │
        lines ──► batch ──► MessageStore.append_batch ──► … ──► flush ──► report: what is on the device

    The first bad line ends it. All lines before are appended, and the error states their number.
    """
    parser.add_argument(
        "store", metavar="STORE", type=directory, help="a store that no broker or other process has open"
    )
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="the topic (default: that of each JSON line)")
    parser.add_argument(
        "--input",
        metavar="FORMAT",
        choices=[LINES, JSON_LINES],
        default=LINES,
        help="lines: a message per line; jsonl: the JSON lines of `segmentlog cat` (default: lines)",
    )
    parser.add_argument("--queue", metavar="N", type=whole, help="the queue (default: that of each JSON line, else 0)")
    parser.add_argument("--tag", metavar="TAG", help="the tag of all messages")
    parser.add_argument("--keys", metavar="'K1 K2'", help="the keys of all messages, between blanks")
    parser.add_argument(
        "--property",
        metavar="NAME=VALUE",
        type=assignment("a property and its value", "region=eu"),
        action="append",
        default=[],
        help="a property of all messages; repeatable",
    )
    parser.add_argument("--create", action="store_true", help="create topics, and the store, that do not exist")
    parser.add_argument(
        "--max-body-bytes", metavar="N", type=whole, help="the largest body (default: 4194304, as of brokers)"
    )
    parser.add_argument("--dry-run", action="store_true", help="check all lines, and append nothing")
    add_output(parser)


def run_put(options: argparse.Namespace, console: Console) -> int:
    from segmentlog.query.source import StoreSource
    from segmentlog.store import Flush, MessageStore, StoreConfig, place_of
    from segmentlog.store.sink import stored_config

    from ..incoming import Receipt, json_lines, text_lines
    from ..output.writers import write_table

    StoreSource(path=place_of(options.store)).check_is_one()
    Target.of(options, console)  # a wrong -o is an error before anything is appended
    if options.input == LINES and options.topic is None:
        raise UsageError("TOPIC is missing", fix="Name the topic, or put JSON lines with --input jsonl")
    lines = (json_lines if options.input == JSON_LINES else text_lines)(console.stdin, _fixed(options))
    known = _known_topics(options)
    largest = {} if options.max_body_bytes is None else {"max_body_bytes": options.max_body_bytes}
    # Each read of a pipe is a batch, too small for a sync of its own. Closing the store syncs, then comes the report.
    config = stored_config(options.store, StoreConfig(flush=Flush.ASYNC, **largest))
    rules, receipt = _Rules(options.store, config, None if options.create else known), Receipt()
    with logged(console), counted(console) as show:
        if options.dry_run:
            _put(lines, receipt, rules, None, show)
        else:
            with MessageStore.open(options.store, config) as store:
                _put(lines, receipt, rules, store.append_batch, show)
                store.make_topics(receipt.topics - known)
    return write_table(receipt.table(), options, console, "standard input has no line: nothing was appended")


class _Rules:
    """Conditions that messages meet: limits of the store, and known topics."""

    def __init__(self, path: str, config: "StoreConfig", known: frozenset[str] | None) -> None:
        self._path = path
        self._config = config
        self._known = known

    def cut(self, batch: "pa.RecordBatch") -> "tuple[pa.RecordBatch, SegmentLogError | None]":
        """Return the rows before the first with an unknown topic, and the error of that one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._known is None:
            return batch, None
        is_known = pc.is_in(batch["topic"], pa.array(sorted(self._known), pa.string()))
        row = pc.index(is_known, value=False).as_py()
        if row < 0:
            return batch, None
        topic = batch["topic"][row].as_py()
        return batch.slice(0, row), unknown_topic(topic, self._known, path=self._path, make=_MAKE)

    def check(self, batch: "pa.RecordBatch") -> None:
        """Raise what ``append_batch`` would."""
        from segmentlog.store.sink import encode_batch

        encode_batch(batch, self._config)

    def first_refused(self, batch: "pa.RecordBatch") -> "tuple[int, SegmentLogError]":
        """Return the first row of a refused batch that is refused itself, with its error."""
        accepted, refused = 0, batch.num_rows
        while refused - accepted > 1:
            middle = (accepted + refused) // 2
            try:
                self.check(batch.slice(0, middle))
                accepted = middle
            except (IllegalMessageError, ConfigError):
                refused = middle
        try:
            self.check(batch.slice(accepted, 1))
        except (IllegalMessageError, ConfigError) as error:
            return accepted, error
        raise AssertionError("a batch is refused, and each of its rows is not")


def _put(
    blocks: "Iterator[Lines]",
    receipt: "Receipt",
    rules: _Rules,
    append: "Callable[[pa.RecordBatch], AppendedBatch] | None",
    show: "Callable[[int], None]",
) -> None:
    """Append blocks of lines, or check them; raise the error of the first bad line once all before it are appended."""

    def put(batch: "pa.RecordBatch") -> None:
        if batch.num_rows and append is not None:
            receipt.add_batch(batch, append(batch))
        elif batch.num_rows:
            rules.check(batch)
            receipt.add_batch(batch, None)

    for block in blocks:
        batch, error = rules.cut(block.batch)
        try:
            put(batch)
        except (IllegalMessageError, ConfigError):
            row, error = rules.first_refused(batch)
            put(batch.slice(0, row))
        if error is not None:
            raise _at_line(error, receipt.messages + 1, is_dry=append is None)
        show(receipt.messages)
        if block.bad is not None:
            raise _noted(block.bad, block.bad.problem, receipt.messages, is_dry=append is None)


def _at_line(error: "SegmentLogError", line: int, *, is_dry: bool) -> "SegmentLogError":
    error.reword(FLAGS)
    problem = f"standard input: line {line}: {error.problem.replace('row 0', 'this line')}"
    return _noted(error, problem, line - 1, is_dry=is_dry)


def _noted(error: "SegmentLogError", problem: str, appended: int, *, is_dry: bool) -> "SegmentLogError":
    """Return an error with a note of what was appended before it."""
    if is_dry or not appended:
        note = "Nothing was appended"
    else:
        note = f"Lines 1 to {appended} were appended; `tail -n +{appended + 1}` selects the others"
    fix = ". ".join(filter(None, [(error.fix or "").rstrip("."), note]))
    return type(error)(problem, path=error.path, fix=fix)


def _fixed(options: argparse.Namespace) -> "Fixed":
    from ..incoming import Fixed

    properties = dict(options.property)
    return Fixed(topic=options.topic, queue=options.queue, tags=options.tag, keys=options.keys, properties=properties)


def _known_topics(options: argparse.Namespace) -> frozenset[str]:
    from segmentlog.store import NotAStoreError, Snapshot

    try:
        known = frozenset(topics_to_write(Snapshot.open(options.store)))
    except NotAStoreError as error:
        if options.create:
            return frozenset()  # or the path holds something else: opening it for writing tells
        raise NotAStoreError(error.problem, path=error.path, fix="--create makes a store here") from None
    if options.topic is not None and options.topic not in known and not options.create:
        raise unknown_topic(options.topic, known, path=options.store, argument="TOPIC", make=_MAKE)
    return known


# Verb `reset-offset`


def add_reset_offset(parser: Parser) -> None:
    """Verb ``reset-offset``: a consumer group moved to another place, or what that would change.

    ::

        segmentlog reset-offset STORE GROUP --to-time 2026-01-31T12:00:00Z --dry-run   before and after, of each queue
        segmentlog reset-offset STORE GROUP --to-time 2026-01-31T12:00:00Z             done; mqadmin: resetOffsetByTime

    While a broker has the store open, the positions are noted beside its own: readers of segmentlog see them, its
    consumers do not. Column ``recorded`` is then ``sidecar``, and the exit code 1 unless ``--beside-broker`` asked for
    it.
    """
    parser.add_argument("store", metavar="STORE", type=directory, help="the broker's storePathRootDir, or a copy of it")
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
    add_boundary(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the change, and change nothing")
    parser.add_argument(
        "--beside-broker",
        action="store_true",
        help="exit code 0 also if a broker has the store open: its own consumers do not see the change",
    )
    add_output(parser)


def run_reset_offset(options: argparse.Namespace, console: Console) -> int:
    import pyarrow as pa

    from segmentlog.query.rows import table_of
    from segmentlog.store import Snapshot
    from segmentlog.store.groups import Recorded, list_groups, reset_group

    from ..output.writers import write_table

    Target.of(options, console)  # a wrong -o is an error before anything changes
    if options.topic:
        check_topics(options.topic, Snapshot.open(options.store).topics(), path=options.store, argument="--topic")
    else:
        _check_has_position(options.group, {each.group for each in list_groups(options.store)}, options.store)
    with logged(console):
        change = reset_group(
            options.store, options.group, _target(options), topics=options.topic, dry_run=options.dry_run
        )
    where = change.recorded.value
    rows = [(change.group, *move.key, move.before, move.after, where) for move in change.moves]
    schema = pa.schema(
        [
            ("group", pa.string()),
            ("topic", pa.string()),
            ("queueId", pa.int32()),
            ("before", pa.int64()),
            ("after", pa.int64()),
            ("recorded", pa.string()),
        ]
    )
    code = write_table(table_of(rows, schema), options, console)
    return NOT_FOUND if change.recorded is Recorded.SIDECAR and not options.beside_broker else code


def _check_has_position(group: str, known: set[str], path: str) -> None:
    if group not in known:
        error = unknown_group(group, known, path=path)
        fix = f"--topic TOPIC gives a new group positions. {error.fix if known else ''}"
        raise ConfigError(error.problem, path=error.path, fix=fix.removesuffix(". "))


def _target(options: argparse.Namespace) -> "ToEarliest | ToLatest | ToTime | ToOffset":
    from segmentlog.store.groups import ToEarliest, ToLatest, ToOffset, ToTime

    if options.to_time is not None:
        return ToTime(clock_of(options).ms(options.to_time), boundary_of(options))
    if options.boundary is not None:
        raise UsageError("--boundary is passed without --to-time", fix="Leave it out, or pass --to-time")
    if options.to_offset is not None:
        return ToOffset(options.to_offset)
    return ToEarliest() if options.earliest else ToLatest()
