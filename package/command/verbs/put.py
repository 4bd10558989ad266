r"""Verb ``put``: messages of standard input, appended to a store.

::

    printf 'one\ntwo\n' | segmentlog put STORE TOPIC                                  a message per line
    segmentlog cat A orders -o jsonl | jq … | segmentlog put B --input jsonl          export, edit, import
                                              │
    lines ──► batch ──► MessageStore.append_batch ──► … ──► flush ──► report: what is on the device

The first bad line ends it. All lines before are appended, and the error states their number.
"""

import argparse
from typing import TYPE_CHECKING, Final

from segmentlog.query.selection import UnknownTopicError
from segmentlog.query.suggestions import did_you_mean, listing

from ..console import Console
from ..errors import FLAGS, UsageError
from ..output.formats import add_output
from ..parser import Parser, chosen, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from segmentlog.store import AppendedBatch, SegmentLogError, StoreConfig

    from ..incoming import Fixed, Lines
    from ..receipt import Receipt

LINES: Final = "lines"
JSON_LINES: Final = "jsonl"


def add_arguments(parser: Parser) -> None:
    parser.add_argument("store", metavar="STORE", help="a store that no broker or other process has open")
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="the topic (default: that of each JSON line)")
    parser.add_argument(
        "--input",
        metavar="FORMAT",
        type=chosen([LINES, JSON_LINES]),
        default=LINES,
        help="lines: a message per line; jsonl: the JSON lines of `segmentlog cat` (default: lines)",
    )
    parser.add_argument("--queue", metavar="N", type=whole, help="the queue (default: that of each JSON line, else 0)")
    parser.add_argument("--tag", metavar="TAG", help="the tag of all messages")
    parser.add_argument("--keys", metavar="'K1 K2'", help="the keys of all messages, between blanks")
    parser.add_argument(
        "--property", metavar="NAME=VALUE", action="append", default=[], help="a property of all messages; repeatable"
    )
    parser.add_argument("--create", action="store_true", help="create topics, and the store, that do not exist")
    parser.add_argument(
        "--max-body-bytes", metavar="N", type=whole, help="the largest body (default: 4194304, as of brokers)"
    )
    parser.add_argument("--dry-run", action="store_true", help="check all lines, and append nothing")
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from segmentlog.store import Flush, MessageStore, StoreConfig
    from segmentlog.store.sink import stored_config

    from ..incoming import json_lines, text_lines
    from ..output.formats import Target
    from ..output.rows import write_table
    from ..progress import counted, logged
    from ..receipt import Receipt

    Target.of(options, console)  # a wrong -o is an error before anything is appended
    if options.input == LINES and options.topic is None:
        raise UsageError("TOPIC is missing", fix="Name the topic, or put JSON lines with --input jsonl")
    lines = (json_lines if options.input == JSON_LINES else text_lines)(console.stdin, _fixed(options))
    known = None if options.create else _known_topics(options)
    largest = {} if options.max_body_bytes is None else {"max_body_bytes": options.max_body_bytes}
    # Each read of a pipe is a batch, too small for a sync of its own. Closing the store syncs, then comes the report.
    config = stored_config(options.store, StoreConfig(flush=Flush.ASYNC, **largest))
    rules, receipt = _Rules(config, known), Receipt()
    with logged(console), counted(console) as show:
        if options.dry_run:
            _put(lines, receipt, rules, None, show)
        else:
            with MessageStore.open(options.store, config) as store:
                _put(lines, receipt, rules, store.append_batch, show)
    return write_table(receipt.table(), options, console)


class _Rules:
    """Conditions that messages meet: limits of the store, and known topics."""

    def __init__(self, config: "StoreConfig", known: frozenset[str] | None) -> None:
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
        fix = f"{did_you_mean(topic, self._known)}--create makes it; the topics are {listing(sorted(self._known))}"
        return batch.slice(0, row), UnknownTopicError(f"there is no topic `{topic}`", fix=fix)

    def check(self, batch: "pa.RecordBatch") -> None:
        """Raise what ``append_batch`` would."""
        from segmentlog.store.sink import encode_batch

        encode_batch(batch, self._config)

    def first_refused(self, batch: "pa.RecordBatch") -> "tuple[int, SegmentLogError]":
        """Return the first row of a refused batch that is refused itself, with its error."""
        from segmentlog.store import ConfigError, IllegalMessageError

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
    from segmentlog.store import ConfigError, IllegalMessageError

    def put(batch: "pa.RecordBatch") -> None:
        if batch.num_rows and append is not None:
            receipt.add(batch, append(batch))
        elif batch.num_rows:
            rules.check(batch)
            receipt.add(batch, None)

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

    pairs = {}
    for text in options.property:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--property is `{text}`", fix="Name a property and its value: region=eu")
        pairs[name] = value
    return Fixed(topic=options.topic, queue=options.queue, tags=options.tag, keys=options.keys, properties=pairs)


def _known_topics(options: argparse.Namespace) -> frozenset[str]:
    from segmentlog.store import NotAStoreError, StoreReader

    try:
        known = frozenset(StoreReader.open(options.store).topics())
    except NotAStoreError as error:
        raise NotAStoreError(error.problem, path=error.path, fix="--create makes a store here") from None
    if options.topic is not None and options.topic not in known:
        fix = f"{did_you_mean(options.topic, known)}--create makes it; the topics are {listing(sorted(known))}"
        raise UnknownTopicError(f"TOPIC: there is no topic `{options.topic}`", path=options.store, fix=fix)
    return known
