"""Verb ``dump``: records and queue entries byte by byte.

::

    segmentlog dump STORE --physical-offset 4096 -n 2        two records of the CommitLog, field by field
    segmentlog dump STORE --topic orders -p 3 --offset 12    an entry of a ConsumeQueue        mqadmin: queryCq

    item  field       position  bytes             value
    4096  total_size      4096  000000f2          242
    4096  magic           4100  daa320a7          message, topic length in 1 byte

Damage is shown, not refused: the row ``problem`` names the first fault of an item, and the exit code is 1.
"""

import argparse
from typing import TYPE_CHECKING, Final

from segmentlog.query.selection import Topics, select

from ..console import Console
from ..errors import NOT_FOUND, UsageError
from ..output.formats import add_output
from ..parser import Parser, add_store, whole
from ..reading import source_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from segmentlog.store import StoreReader
    from segmentlog.store.maintenance import DissectedField

_ITEMS_A_BATCH: Final = 4_000


def add_arguments(parser: Parser) -> None:
    add_store(parser)
    add = parser.add_argument
    add("--physical-offset", metavar="N", type=whole, help="first record (default: where the log begins)")
    add("--topic", metavar="TOPIC", help="with -p and --offset: entries of a queue instead of records")
    add("-p", "--queue", metavar="N", type=whole, help="queue by number")
    add("--offset", metavar="N", type=whole, help="first entry, by queue offset")
    add("-n", "--number", metavar="N", type=whole, default=1, help="so many records or entries (default: 1)")
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    import pyarrow as pa

    from ..output.rows import write_rows

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
    reader = source_of(options).open()
    problems: list[DissectedField] = []
    batches = _batches(_fields(reader, options), schema, problems)
    code = write_rows(schema, batches, options, console)
    return NOT_FOUND if problems else code


def _fields(reader: "StoreReader", options: argparse.Namespace) -> "Iterator[DissectedField]":
    from segmentlog.store import QueueKey
    from segmentlog.store.maintenance import dissect_entries, dissect_records

    given = {"--topic": options.topic, "-p": options.queue, "--offset": options.offset}
    missing = [flag for flag, value in given.items() if value is None]
    if len(missing) == len(given):
        start = reader.log.min_offset if options.physical_offset is None else options.physical_offset
        return dissect_records(reader, start, options.number)
    if missing:
        problem = f"{' and '.join(missing)} is missing: entries need --topic, -p and --offset"
        raise UsageError(problem, fix="Pass such as --topic orders -p 3 --offset 12")
    if options.physical_offset is not None:
        raise UsageError("--physical-offset and --offset are passed together", fix="Leave one of them out")
    select([reader], Topics((options.topic,), (options.queue,)), argument="--topic")
    return dissect_entries(reader, QueueKey(options.topic, options.queue), options.offset, options.number)


def _batches(
    fields: "Iterator[DissectedField]", schema: "pa.Schema", problems: "list[DissectedField]"
) -> "Iterator[pa.RecordBatch]":
    from itertools import islice

    import pyarrow as pa

    while chunk := list(islice(fields, _ITEMS_A_BATCH)):
        problems += [each for each in chunk if each.name == "problem"]
        columns = [
            pa.array([each.item for each in chunk], pa.int64()),
            pa.array([each.name for each in chunk], pa.string()),
            pa.array([each.position for each in chunk], pa.int64()),
            pa.array([each.data.hex() for each in chunk], pa.string()),
            pa.array([each.value for each in chunk], pa.string()),
            pa.array([each.path for each in chunk], pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
