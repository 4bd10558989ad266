"""``docs/options.md``, made from the declaration of the options: ``python -m segmentlog.connector.option_docs``.

Writes to standard output, or to the file named as argument.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.types import DataType

from segmentlog.output import write_page

from .options.option import Mode, Option, Table
from .options.read_table import SOURCE
from .options.write_table import SINK
from .read.column_docs import KAFKA_MEANINGS, NATIVE_MEANINGS, ColumnMeaning
from .read.schema import KAFKA, NATIVE
from .write.schema import FIELDS, IGNORED

_HEAD = """\
# Options of `segmentlog`

<!-- Made by `python -m segmentlog.connector.option_docs docs/options.md`; change the tables in
connector/options/ instead. -->

## Options of the source

    spark.read.format("segmentlog").option("subscribe", "orders").load("/data/store")

Names are read in any case. An unknown option is an error, with a suggestion, unless `strictOptions` is `false`.
Ranges are half-open: a start is read, an end is not.

A duration has a unit: `500ms`, `30s`, `15m`, `1h`, `1d`. A name is taken as it is: white space around one is an error,
but for blanks around the commas of a list. Options limit what is read, a `where` does not
([why](reader.md#filters-of-a-query)).

A DataFrame is planned when it is first used, and Spark keeps that plan. Load it again to see what a live broker has
written since.
"""


def render() -> str:
    """Write the whole page."""
    native = _columns("Columns", NATIVE, NATIVE_MEANINGS, 9)
    kafka = _columns(_KAFKA_HEAD, KAFKA, KAFKA_MEANINGS, 7)
    source = [*_options(SOURCE), "", *native, "", *kafka, ""]
    return "\n".join([_HEAD, *source, *_sink()])


_KAFKA_HEAD = """\
Columns with `schemaMode=kafka`

The columns of Spark's Kafka source, made of the native ones. `timestamp` is the store time, because timestamp options
go by store time. The producer's time is the native column `bornTimestamp`."""
_SINK_HEAD = """\
## Options of the sink

<!-- setup
frame = spark.createDataFrame([("one",)], "body string")
stream = spark.readStream.schema("body string").json("/data/incoming")
-->

    frame.write.format("segmentlog").mode("append").option("topic", "orders").save("/data/store")
    to_store = stream.writeStream.format("segmentlog").option("checkpointLocation", "/data/checkpoint")
    to_store.option("topic", "orders").start("/data/store")

How rows become messages, and what exactly once means: [sink.md](sink.md).
"""


def _sink() -> list[str]:
    """Write what the sink takes: options, then columns."""
    columns = ["## Columns that the sink writes", "", "| Column | Type | Meaning |", "| --- | --- | --- |"]
    columns += [
        f"| {', '.join(f'`{name}`' for name in field.names)} | {field.type_text} | {field.meaning} |"
        for field in FIELDS
    ]
    ignored = ["## Columns that the sink leaves out", "", *(f"* `{name}`: {why}" for name, why in IGNORED.items())]
    return [_SINK_HEAD, *_options(SINK), "", *columns, "", *ignored, ""]


def _options(table: Table) -> list[str]:
    return ["| Option | Values | Default | Meaning |", "| --- | --- | --- | --- |", *map(_row, table)]


def _row(option: Option[Any]) -> str:
    names = ", ".join(f"`{name}`" for name in (option.name, *option.aliases))
    return (
        "| "
        + " | ".join(cell.replace("|", "\\|") for cell in (names, option.value, _default(option), _meaning(option)))
        + " |"
    )


def _meaning(option: Option[Any]) -> str:
    return {Mode.BATCH: "Batch: ", Mode.STREAM: "Stream: ", Mode.BOTH: ""}[option.mode] + option.meaning


def _default(option: Option[Any]) -> str:
    if option.default_text is not None:
        return option.default_text
    return "" if option.default is None else str(option.default).lower()


def _columns(
    title: str, columns: Mapping[str, DataType], meanings: Mapping[str, ColumnMeaning], default: int
) -> list[str]:
    """Write a table of columns, of which the first ``default`` are there without asking."""
    rows = [
        f"| `{name}` | {kind.simpleString()} | {meanings[name].source} | {meanings[name].null_text} |"
        for name, kind in columns.items()
    ]
    last = list(columns)[default - 1]
    head = [
        f"Without `columns` or a schema: the columns up to `{last}`.",
        "",
        "| Column | Type | Source and unit | Null |",
    ]
    return [f"## {title}", "", *head, "| --- | --- | --- | --- |", *rows]


def main(arguments: Sequence[str]) -> None:
    """Write the page to the file named first, else to standard output."""
    write_page(render(), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
