"""Reference pages: ``docs/options.md`` and ``docs/cli.md``, written from the declarations of options and verbs.

::

    .venv/bin/python scripts/pages.py

    connector/options, columns ──► docs/options.md
    package/command, schemas   ──► docs/cli.md         a test compares both pages
"""

import argparse
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql.types import DataType

from segmentlog.command.catalogue import VERBS
from segmentlog.command.parser import Parser
from segmentlog.connector.options.option import Mode, Option
from segmentlog.connector.options.read_table import SOURCE, SchemaMode
from segmentlog.connector.options.write_table import SINK
from segmentlog.connector.read import COLUMNS_BY_DEFAULT, KAFKA, NATIVE
from segmentlog.connector.write.schema import FIELDS, IGNORED
from segmentlog.query.metadata import SCHEMAS
from segmentlog.query.rows import QUEUE_SPANS
from segmentlog.store import NATIVE_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

DOCS: Final = Path(__file__).parents[1] / "docs"

_OPTIONS_HEAD: Final = """\
# Options of `segmentlog`

<!-- Made by `scripts/pages.py`; change the tables in connector/options/ instead. -->

## Options of the source

Names are read in any case. An unknown option is an error, with a suggestion, unless `strictOptions` is `false`.
Ranges are half-open: a start is read, an end is not.

A size is `64m`, `1g` or a number of bytes. A duration has a unit: `500ms`, `30s`, `15m`, `1h`, `1d`. Names are
separated by commas, with or without blanks; other white space around a name is an error. Options limit what is
read, a `where` does not ([reasons](reader.md#filters-of-a-query)).
"""
_SECTIONS: Final = (
    (
        "Stores",
        "path",
        """\
spark.read.format("segmentlog").option("subscribe", "orders").load("/data/store")
""",
    ),
    (
        "Topics and queues",
        "subscribe",
        """\
spark.read.format("segmentlog").option("assign", '{"orders": [0, 1]}').load("/data/store")
""",
    ),
    (
        "Start and end",
        "startingOffsets",
        """\
window = spark.read.format("segmentlog").options(subscribe="orders", timeZone="Europe/Berlin")
window.options(startingTimestamp="2026-01-31", endingTimestamp="2026-02-01").load("/data/store")
""",
    ),
    (
        "Filters",
        "tags",
        """\
spark.read.format("segmentlog").options(subscribe="orders", tags="paid || refunded").load("/data/store")
""",
    ),
    (
        "Metadata and look-ups",
        "metadata",
        """\
spark.read.format("segmentlog").options(metadata="lag", consumerGroup="etl").load("/data/store")
spark.read.format("segmentlog").options(subscribe="orders", keys="key-7,key-8").load("/data/store")
""",
    ),
    (
        "Micro-batches of streams",
        "maxOffsetsPerTrigger",
        """\
limited = spark.readStream.format("segmentlog").options(subscribe="orders", maxBytesPerTrigger="256m")
messages = limited.load("/data/store")
""",
    ),
    (
        "Partitions of Spark",
        "minPartitions",
        """\
spark.read.format("segmentlog").options(subscribe="orders", minPartitions=8).load("/data/store")
""",
    ),
    (
        "Columns and bodies",
        "columns",
        """\
rows = spark.read.format("segmentlog").options(subscribe="orders", columns="queueId,queueOffset,body")
rows.options(propertyColumns="region", corruptRecord="skip").load("/data/store")
""",
    ),
    ("Tuning", "batchBytes", ""),
)
"""Sections of the source's options: title, first option, and example."""
_NATIVE_HEAD: Final = """\
Columns

A column of a message that has no such property is null. For a damaged record, `corruptRecord=null` returns a row with
`topic`, `queueId`, `queueOffset` and `brokerName`, and nulls in all other columns."""
_KAFKA_HEAD: Final = """\
Columns with `schemaMode=kafka`

The columns of Spark's Kafka source. `timestamp` is the store time
([ADR 10](adr/0010-kafka-timestamp-is-store-time.md))."""
KAFKA_MEANINGS: Final = {
    "key": "`keys` as UTF-8",
    "value": "`body`",
    "topic": "`topic`",
    "partition": "`queueId`",
    "offset": "`queueOffset`",
    "timestamp": "`storeTimestamp`",
    "timestampType": "always 1, Kafka's `LogAppendTime`",
    "headers": "`properties`, values as UTF-8",
    "brokerName": "`brokerName`",
}
_SINK_HEAD: Final = """\
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
_VERBS_HEAD: Final = """\
# Verbs of the command `segmentlog`

<!-- Made by `scripts/pages.py`; change package/command/ instead. -->

[The command `segmentlog`](command.md) describes positions and formats, [Errors](errors.md) exit codes.
The names of mqadmin are accepted, too.
"""
_COMMON_VERBS: Final = 2
"""An argument of so many verbs is described once."""
_GROUPS: Final = {
    "store": ("STORE", "--commit-log", "--storage", "--cache-dir"),
    "messages": ("TOPIC …", "-p, --queue", "--tag", "--sql", "--read-from"),
    "bodies": ("--grep", "--regex", "--ignore-case", "--json-path", "--equals"),
    "rows": ("--columns", "--properties", "--on-corrupt", "--on-loss"),
    "range": ("--from", "--to", "--day", "--tz"),
    "output": ("-o, --output", "--json", "-w, --write"),
    "work": ("--processes", "--master", "--conf"),
}
"""Arguments that verbs have together."""
_REPORT: Final = ("--json", "print the report, or the error, as one JSON object")


def options_page() -> str:
    """Write the page of options and columns."""
    meanings = {column.name: column.meaning for column in NATIVE_COLUMNS}
    native = _column_table(_NATIVE_HEAD, NATIVE, meanings, COLUMNS_BY_DEFAULT[SchemaMode.NATIVE])
    kafka = _column_table(_KAFKA_HEAD, KAFKA, KAFKA_MEANINGS, COLUMNS_BY_DEFAULT[SchemaMode.KAFKA])
    source = [*_source(), *native, "", *kafka, ""]
    return "\n".join([_OPTIONS_HEAD, *source, *_sink()])


def _source() -> Iterator[str]:
    """Write the options of the source, section by section."""
    options = list(SOURCE)
    starts = [next(at for at, option in enumerate(options) if option.name == first) for _, first, _ in _SECTIONS]
    for (title, _, example), start, stop in zip(_SECTIONS, starts, [*starts[1:], len(options)], strict=True):
        yield from (f"### {title}", "")
        yield from (f"    {line}" for line in example.splitlines())
        yield from [""] if example else []
        yield from (*_options(options[start:stop]), "")


def _sink() -> list[str]:
    """Write what the sink takes: options, then columns."""
    columns = ["## Columns that the sink writes", "", "| Column | Type | Meaning |", "|---|---|---|"]
    columns += [
        f"| {', '.join(f'`{name}`' for name in field.names)} | {field.type_text} | {field.meaning} |"
        for field in FIELDS
    ]
    names = ", ".join(f"`{name}`" for name in IGNORED)
    ignored = ["## Columns that the sink leaves out", "", f"The store decides them: {names}."]
    return [_SINK_HEAD, *_options(SINK), "", *columns, "", *ignored, ""]


def _options(table: Iterable[Option[Any]]) -> list[str]:
    return ["| Option | Values | Default | Meaning |", "|---|---|---|---|", *map(_row, table)]


def _row(option: Option[Any]) -> str:
    names = f'<a id="{option.name}"></a>' + ", ".join(f"`{name}`" for name in (option.name, *option.aliases))
    return (
        "| "
        + " | ".join(
            cell.replace("|", "\\|") for cell in (names, option.value, _default(option), _option_meaning(option))
        )
        + " |"
    )


def _option_meaning(option: Option[Any]) -> str:
    return {Mode.BATCH: "Batch: ", Mode.STREAM: "Stream: ", Mode.BOTH: ""}[option.mode] + option.meaning


def _default(option: Option[Any]) -> str:
    if option.default_text is not None:
        return option.default_text
    return "" if option.default is None else str(option.default).lower()


def _column_table(
    title: str, columns: Mapping[str, DataType], meanings: Mapping[str, str], default: Sequence[str]
) -> list[str]:
    """Write a table of columns, which begins with the ``default`` ones."""
    rows = [f"| `{name}` | {kind.simpleString()} | {meanings[name]} |" for name, kind in columns.items()]
    head = [
        f"Without `columns` or a schema: the columns up to `{default[-1]}`; with `columns=*`: all.",
        "",
        "| Column | Type | Source |",
    ]
    return [f"## {title}", "", *head, "|---|---|---|", *rows]


_Row: TypeAlias = tuple[str, str]


def verbs_page() -> str:
    """Write the page of verbs and flags."""
    parts = [_VERBS_HEAD]
    parsers = [(verb.parser(), verb.aliases) for verb in VERBS]
    counts = Counter(row for parser, _ in parsers for row in _rows(parser))
    often = [row for row, count in counts.items() if count >= _COMMON_VERBS]
    common = [row for at, row in enumerate(often) if row[0] not in {words for words, _ in often[:at]}]
    parts += [
        "## Arguments of several verbs",
        "",
        *map(_item, common),
        "",
        "Below, a name in italics stands for all of:",
    ]
    parts += ["", *(f"* *{name}*: {', '.join(map(_code, words))}" for name, words in _GROUPS.items())]
    parts += [f"* *report*: `--json`: {_REPORT[1]}", "", "## Verbs", ""]
    for parser, aliases in parsers:
        parts += [*_verb(parser, aliases, common), ""]
    return "\n".join([*parts, *_schemas()])


def _verb(parser: Parser, aliases: Sequence[str], common: Collection[_Row]) -> list[str]:
    former = f" mqadmin: {', '.join(f'`{name}`' for name in aliases)}." if aliases else ""
    lines = [f"### {parser.verb}", "", f"{parser.summary[0].upper()}{parser.summary[1:]}.{former}", ""]
    shared = [_short(words) for words, meaning in _rows(parser) if (words, meaning) in common]
    own = [_item(row) for row in _rows(parser) if row not in common and row != _REPORT]
    named = ["*report*"] if _REPORT in _rows(parser) else []
    for name, members in _GROUPS.items():
        if set(members) <= set(shared):
            named.append(f"*{name}*")
            shared = [words for words in shared if words not in members]
    named += map(_code, shared)
    return [*lines, *([", ".join(named), ""] if named and own else [", ".join(named)] if named else []), *own]


def _code(words: str) -> str:
    return f"`{words}`"


def _item(row: _Row) -> str:
    return f"* `{row[0]}`: {row[1]}"


def _short(words: str) -> str:
    """Return the names of a flag, without its value; an argument stays as it is."""
    flags = [word.rstrip(",") for word in words.split() if word.startswith("-")]
    return ", ".join(flags) or words


def _rows(parser: Parser) -> list[_Row]:
    return [(_words(action), _meaning(action)) for action in parser.actions if action.dest != "help"]


def _words(action: argparse.Action) -> str:
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices is not None else action.dest)
    value = value if isinstance(value, str) else " ".join(value)  # a name for each of several values
    if not action.option_strings:
        return {"?": f"[{value}]", "*": f"[{value} …]", "+": f"{value} …"}.get(str(action.nargs), value)
    return ", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {value}")


def _meaning(action: argparse.Action) -> str:
    text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    return " ".join(text.split())


def _schemas() -> list[str]:
    """Write the columns of verbs whose rows always have the same."""
    lines = ["## Columns", "", "`cat`, `tail` and `get` print [columns of messages](options.md#columns).", ""]
    tables: dict[str, pa.Schema] = dict(SCHEMAS) | {"put": QUEUE_SPANS}
    lines += ["Columns without a type are strings. Timestamps have microseconds, in UTC.", ""]
    lines += ["| rows | columns, with types of Arrow |", "|---|---|"]
    return [*lines, *(f"| {name} | {'; '.join(map(_column, schema))} |" for name, schema in tables.items()), ""]


def _column(field: "pa.Field[pa.DataType]") -> str:
    kind = str(field.type).partition("[")[0]
    return f"`{field.name}`" if kind == "string" else f"`{field.name}:{kind}`"


def pages() -> dict[Path, str]:
    """Return the pages by path."""
    return {DOCS / "options.md": options_page(), DOCS / "cli.md": verbs_page()}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
