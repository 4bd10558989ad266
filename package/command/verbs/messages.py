"""Verbs that read messages: by position, the last ones, by key or id, and byte by byte."""

import argparse
from collections import Counter
from contextlib import closing
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from segmentlog.output import printable
from segmentlog.query.selection import Topics, select, topic_pattern
from segmentlog.query.suggestions import listing

from ..console import Console
from ..errors import FOUND, NOT_FOUND, UsageError
from ..output.formats import Pace, add_output
from ..output.templates import parse_template
from ..parser import Parser, add_store, seconds, typed, whole
from ..selection import (
    Selection,
    add_bodies,
    add_columns,
    add_day,
    add_selection,
    add_window,
    asked_times,
    asked_window,
    bodies_of,
    clock_of,
    held_topics,
    message_columns,
    no_message,
    open_stores,
    parse_at,
    selected_spec,
    source_of,
    spec_of,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    import pyarrow as pa

    from segmentlog import JoinedRows, Scan, SystemRows
    from segmentlog.store import QueueKey, Snapshot
    from segmentlog.store.find import Found
    from segmentlog.store.maintenance import DissectedField

# Verb `cat`

_THREADS_MAX: Final = 8
_PLACE: Final = "physicalOffset"
_KEYS: Final = ("key", "unique_key")
_PLACES: Final = ("offset", "physical_offset")
_WAYS: Final = ("id", "key", "unique_key", "offset", "physical_offset")
_ITEMS_A_BATCH: Final = 4_000
_NO_ROWS: Final = {
    "delayed": "no delayed message was found",
    "deliveries": "no delayed message was found",
    "dead-letters": "no dead letter was found",
    "transactions": "no half message of a transaction was found",
    "trace": "no entry of a message trace was found: brokers with traceTopicEnable=true have them",
}


def add_cat(parser: Parser) -> None:
    r"""Verb ``cat``: messages of topics, from one position to another.

    ::

        segmentlog cat STORE TOPIC … --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z -o jsonl
        segmentlog cat STORE TOPIC --day yesterday --tz Europe/Berlin
        segmentlog cat STORE TOPIC -p 3 --from -10 -f '%o %s\n'           kcat: -C -p 3 -o -10
        segmentlog cat STORE TOPIC --tag 'paid || refunded' -n 5          mqadmin: consumeMessage
        segmentlog cat STORE TOPIC --body json --schema 'orderId string, total double'
        segmentlog cat STORE TOPIC --grep o-17 --json-path '$.total' --equals 25

    Messages of one queue come in the order of their queue offsets. Between queues there is no order.
    """
    add_selection(parser, or_pattern=True)
    add_window(parser)
    add_bodies(parser)
    parser.add_argument("-n", "--number", metavar="N", type=whole, help="at most N messages")
    parser.add_argument(
        "-f",
        "--format",
        metavar="TEMPLATE",
        type=typed(parse_template),
        help=r"kcat's format string, such as '%%t %%p %%o %%k %%s\n', or %%{COLUMN}",
    )
    add_output(parser)


def run_cat(options: argparse.Namespace, console: Console) -> int:
    from segmentlog.api.stores import joined

    from ..output.writers import write_messages

    start, end = asked_window(options, clock_of(options))
    bodies = bodies_of(options)
    made = () if bodies is None else ("body", *bodies.schema.names)
    selections = Selection.each(options, selected_spec(options, message_columns(options, console, made)))
    scan = joined([each.scan(start, end, bodies) for each in selections])
    threads = 1
    if selections[0].spec.predicate.bodies:  # searched without Python's lock, and so by several threads at once
        from segmentlog.jobs.spread import cores  # here: it loads multiprocessing

        threads = min(_THREADS_MAX, cores())
    how = {} if threads == 1 else {"threads": threads}
    with closing(_first_rows(scan, options.number, **how)) as batches:
        return write_messages(scan.schema, batches, options, console, nothing=partial(no_message, options))


def _first_rows(
    rows: "Scan | JoinedRows | SystemRows", number: int | None, **how: int
) -> "Generator[pa.RecordBatch, None, None]":
    """Yield the first rows of a result, or all of them; ``how`` are arguments of `to_batches`."""
    if number is None:
        yield from rows.to_batches(**how)
    elif number:
        from segmentlog.api.rows import first_rows

        found = first_rows(rows.to_batches(**how), number, rows.schema) if how else rows.head(number)
        yield from found.to_batches()


# Verb `tail`


def add_tail(parser: Parser) -> None:
    """Verb ``tail``: the last messages of topics, and those that are appended from now on.

    ::

        segmentlog tail STORE TOPIC -n 5              the last five by physical offset, of all queues together
        segmentlog tail STORE TOPIC -f --json         then each further message, some milliseconds after its append

            follower made ──► its positions ──► last messages before them ──► batches of the follower ──► Ctrl-C

    No message is between the two parts, and none comes twice.
    """
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


def run_tail(options: argparse.Namespace, console: Console) -> int:
    from ..output.writers import write_messages

    selection = Selection(options, selected_spec(options, message_columns(options, console)))
    with closing(_messages(selection, options)) as batches:
        schema = selection.between({}, {}, selection.spec.columns).schema
        pace = Pace.LIVE if options.follow else Pace.BULK
        return write_messages(schema, batches, options, console, pace=pace, nothing=partial(no_message, options))


def _messages(selection: Selection, options: argparse.Namespace) -> "Generator[pa.RecordBatch, None, None]":
    if not options.follow:
        ends = {key: each.max_offset for key, each in selection.queues.items()}
        yield from _last(selection, ends, options.number)
        return
    from segmentlog.api.follow import Follow
    from segmentlog.query.position import Latest

    spec = selection.spec
    with Follow(selection.source, selection.followed, Latest(), spec, timeout_s=options.timeout) as follower:
        ends = {key: offset for key, offset in follower.positions.items() if key in selection.queues}
        yield from _last(selection, ends, options.number)
        yield from follower


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


# Verb `get`


def add_get(parser: Parser) -> None:
    """Verb ``get``: messages by id, key, unique key, queue offset or physical offset.

    ::

        segmentlog get STORE --key 4711 [--topic T] [--from TIME] [--to TIME]     mqadmin: queryMsgByKey
        segmentlog get STORE --unique-key 7F00… [--topic T]                       mqadmin: queryMsgByUniqueKey
        segmentlog get STORE --id 7F0000010000…                                   mqadmin: queryMsgById
        segmentlog get STORE --topic T -p 3 --offset 1000                         mqadmin: queryMsgByOffset
        segmentlog get STORE --physical-offset 1048576

    All of them are complete: there is no limit of 64 messages, and each hit of the index is compared with its message.
    The flag may be repeated. Exit code 1 means that nothing was found for one of the values; stderr shows which.
    """
    add_store(parser, or_pattern=True)
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


def run_get(options: argparse.Namespace, console: Console) -> int:
    way = _way(options)
    from ..output.writers import write_messages

    spec = spec_of(options, message_columns(options, console))
    snapshots = [snapshot for _, snapshot in open_stores(options)]
    topics = held_topics(snapshots, options.topic, options.store)
    found = [_found(snapshot, way, some, options) for snapshot, some in zip(snapshots, topics, strict=True)]
    names = [*spec.columns, *spec.property_columns]
    rows = found[0].schema(spec).empty_table().select(names).schema  # without `asked`
    batches = (batch.select(names) for each in found for batch in each.batches(spec))
    code = write_messages(rows, batches, options, console, nothing=partial(no_message, options))
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
    is_one = options.topic is not None and len(options.topic) == 1 and topic_pattern(options.topic) is None
    if has_place and (options.queue is None or not is_one):
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
    if way in _PLACES and source_of(options).is_pattern:
        raise UsageError(f"{flags[way]} is a place in one store, and STORE is a pattern", fix="Name one of the stores")
    return way


def _found(snapshot: "Snapshot", way: str, topics: "Sequence[str]", options: argparse.Namespace) -> "Found":
    from segmentlog.store import QueueKey
    from segmentlog.store.find import Finder, KeyField, Order, Window

    finder, values = Finder(snapshot), getattr(options, way)
    match way:
        case "id":
            return finder.by_message_ids(values)
        case "physical_offset":
            return finder.by_physical_offsets(values)
        case "offset":
            (topic,) = topics
            return finder.by_queue_offsets(QueueKey(topic, options.queue), values)
    return finder.by_keys(
        topics,
        values,
        KeyField.KEYS if way == "key" else KeyField.UNIQUE,
        window=Window(*asked_times(options)),
        order=Order.NEWEST_FIRST if options.newest_first else Order.OLDEST_FIRST,
    )


def _report_missing(found: "Sequence[Found]", way: str, console: Console) -> int:
    """Name the values that found nothing in any store, on stderr; return `NOT_FOUND` if there are any."""
    first, *others = [_missing(each, way) for each in found]
    without = [value for value in first if all(value in other for other in others)]
    if without:
        names = listing([str(each) for each in without])
        console.stderr.write(printable(f"not found: {names}") + "\n")
    return NOT_FOUND if without else FOUND


def _missing(found: "Found", way: str) -> list[object]:
    """Return the values that found nothing in a store."""
    missing = found.missing()
    without: list[object] = missing[missing.num_columns - 1].to_pylist()
    if way in _KEYS:  # asked once per topic
        topics = len(found.asked["topic"].unique())
        without = [each for each, count in Counter(without).items() if count == topics]
    return without


# Verb `dump`


def add_dump(parser: Parser) -> None:
    """Verb ``dump``: records and queue entries byte by byte.

    ::

        segmentlog dump STORE --physical-offset 4096 -n 2        two records of the CommitLog, field by field
        segmentlog dump STORE --topic orders -p 3 --offset 12    an entry of a ConsumeQueue        mqadmin: queryCq

        item  field       position  bytes             value
        4096  total_size      4096  000000f2          242
        4096  magic           4100  daa320a7          message, topic length in 1 byte

    Damage is shown, not refused: the row ``problem`` names the first fault of an item, and the exit code is 1.
    """
    add_store(parser)
    add = parser.add_argument
    add("--physical-offset", metavar="N", type=whole, help="first record (default: where the log begins)")
    add("--topic", metavar="TOPIC", help="with -p and --offset: entries of a queue instead of records")
    add("-p", "--queue", metavar="N", type=whole, help="queue by number")
    add("--offset", metavar="N", type=whole, help="first entry, by queue offset")
    add("-n", "--number", metavar="N", type=whole, default=1, help="so many records or entries (default: 1)")
    add_output(parser)


def run_dump(options: argparse.Namespace, console: Console) -> int:
    import pyarrow as pa

    from ..output.writers import write_rows

    schema = pa.schema(
        [
            ("item", pa.int64()),
            ("field", pa.string()),
            ("position", pa.int64()),
            ("bytes", pa.string()),
            ("value", pa.string()),
            ("path", pa.string()),
        ]
    )
    snapshot = source_of(options).open()
    problems: list[DissectedField] = []
    batches = _batches(_fields(snapshot, options), schema, problems)
    code = write_rows(schema, batches, options, console)
    return NOT_FOUND if problems else code


def _fields(snapshot: "Snapshot", options: argparse.Namespace) -> "Iterator[DissectedField]":
    from segmentlog.store import QueueKey
    from segmentlog.store.maintenance import dissect_entries, dissect_records

    given = {"--topic": options.topic, "-p": options.queue, "--offset": options.offset}
    missing = [flag for flag, value in given.items() if value is None]
    if len(missing) == len(given):
        start = snapshot.log.min_offset if options.physical_offset is None else options.physical_offset
        return dissect_records(snapshot, start, options.number)
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        problem = f"{' and '.join(missing)} {verb} missing: entries need --topic, -p and --offset"
        raise UsageError(problem, fix="Pass such as --topic orders -p 3 --offset 12")
    if options.physical_offset is not None:
        raise UsageError("--physical-offset and --offset are passed together", fix="Leave one of them out")
    select([snapshot], Topics((options.topic,), (options.queue,)), argument="--topic")
    return dissect_entries(snapshot, QueueKey(options.topic, options.queue), options.offset, options.number)


def _batches(
    fields: "Iterator[DissectedField]", schema: "pa.Schema", problems: "list[DissectedField]"
) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    while chunk := list(islice(fields, _ITEMS_A_BATCH)):
        problems += [each for each in chunk if each.name == "problem"]
        rows = [{**each._asdict(), "field": each.name, "bytes": each.data.hex()} for each in chunk]
        yield pa.RecordBatch.from_pylist(rows, schema)


# Verbs `delayed`, `dead-letters`, `transactions` and `trace`


def add_delayed(parser: Parser) -> None:
    """Verb ``delayed``: delayed messages as rows, and how often the broker delivered them.

    ::

        segmentlog delayed STORE [TOPIC …] --from -1h -o jsonl
        segmentlog delayed STORE --check                  late, missing and repeated ones; exit code 1 if there are any
        segmentlog delayed STORE --check --all            all, with the number of their deliveries
    """
    _add_system_rows(parser)
    parser.add_argument(
        "--check",
        action="store_true",
        help="count the deliveries of each message, and show those that are late, missing or repeated",
    )
    parser.add_argument("--all", action="store_true", help="with --check: show all messages")


def _add_system_rows(parser: Parser) -> None:
    """Verbs ``dead-letters``, ``transactions`` and ``trace``: messages of RocketMQ's own topics, as rows.

    ::

        segmentlog VERB STORE [TOPIC …] --from -1h -o jsonl
    """
    add_store(parser)
    parser.add_argument("topic", metavar="TOPIC", nargs="*", help="topics that the messages are for (default: all)")
    times = (("--from", "start", "rows stored at or after this time"), ("--to", "end", "rows stored before this time"))
    for flag, dest, text in times:
        parser.add_argument(flag, dest=dest, metavar="TIME", type=typed(parse_at), help=text)
    add_day(parser)
    parser.add_argument("-n", "--number", metavar="N", type=whole, help="at most N rows")
    add_output(parser)


add_dead_letters = add_transactions = add_trace = _add_system_rows


def _system_rows(kind: str, options: argparse.Namespace) -> "SystemRows":
    from segmentlog import SystemRows
    from segmentlog.query.system_frames import SystemWindow

    start_ms, stop_ms = asked_times(options)
    window = SystemWindow(
        topics=Topics(tuple(options.topic)) if options.topic else None, start_ms=start_ms, stop_ms=stop_ms
    )
    return SystemRows(source_of(options), kind, window)


def _print_system_rows(kind: str, options: argparse.Namespace, console: Console) -> int:
    from ..output.writers import write_rows

    rows = _system_rows(kind, options)
    with closing(_first_rows(rows, options.number)) as batches:
        return write_rows(rows.schema, batches, options, console, nothing=lambda: _NO_ROWS[kind])


def run_delayed(options: argparse.Namespace, console: Console) -> int:
    if options.check:
        return _check_delayed(options, console)
    if options.all:
        raise UsageError("--all is passed without --check", fix="Add --check, or leave --all out: all rows are shown")
    return _print_system_rows("delayed", options, console)


def _check_delayed(options: argparse.Namespace, console: Console) -> int:
    """Print messages whose delivery is not as it should be; return `NOT_FOUND` if there are any."""
    from segmentlog.query.deliveries import FINDINGS

    from ..output.writers import write_rows

    rows = _system_rows("deliveries", options)
    counts: Counter[str] = Counter()

    def shown() -> "Generator[pa.RecordBatch, None, None]":
        import pyarrow as pa
        import pyarrow.compute as pc

        left = options.number
        for batch in rows.to_batches():
            counts.update(each or "unknown" for each in batch["delivery"].to_pylist())
            kept = batch if options.all else batch.filter(pc.is_in(batch["delivery"], pa.array(FINDINGS)))
            kept = kept.slice(0, left)
            if kept.num_rows:
                yield kept
            left = None if left is None else left - kept.num_rows

    def summary() -> str:
        parts = ", ".join(f"{count} {name}" for name, count in counts.most_common())
        return f"{counts.total()} delayed messages: {parts}" if parts else _NO_ROWS["deliveries"]

    with closing(shown()) as batches:
        code = write_rows(rows.schema, batches, options, console, nothing=summary)
    if code == FOUND:
        console.stderr.write(summary() + "\n")
    return NOT_FOUND if any(counts[each] for each in FINDINGS) else FOUND


run_dead_letters = partial(_print_system_rows, "dead-letters")
run_transactions = partial(_print_system_rows, "transactions")
run_trace = partial(_print_system_rows, "trace")
