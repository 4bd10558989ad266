"""``docs/cli.md``, made from the catalogue and the parsers: ``python -m segmentlog.command.reference docs/cli.md``.

::

    head: formats, exit codes, errors ──┐
    catalogue, parsers of verbs ────────┼──► docs/cli.md       a test compares them
    schemas of rows ────────────────────┘

Writes to standard output, or to the file named as argument.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .catalogue import VERBS
from .parser import Parser

if TYPE_CHECKING:
    import pyarrow as pa

_HEAD: Final = """\
# The command `segmentlog`

<!-- Made by `python -m segmentlog.command.reference docs/cli.md`; change package/command/ instead. -->

`segmentlog VERB STORE …` reads and maintains a store directory. It needs no broker and no Java, except for `demo` and
`doctor --start`. Verbs that read take no lock: a broker may be running. `segmentlog VERB --help` prints the flags.
mqadmin's names of the verbs are accepted, such as `topicList` for `topics`.

## Output

| flag | rows are |
| --- | --- |
| `-o table` | a table, by rich on a terminal; the default |
| `-o json`, `-o jsonl`, `--json` | one JSON array; one JSON object per line (`jsonl` and `--json`) |
| `-o csv` | CSV with a head |
| `-o arrow`, `-o arrow-file`, `-o parquet` | an Arrow IPC stream or file, or Parquet |
| `-w FILE` | written to a new file, in the format of its suffix; it appears when it is complete |

Data goes to stdout. Errors, warnings and progress go to stderr. Progress is a bar on a terminal. In a pipe, jobs write
log lines, and nothing has colours. `NO_COLOR` turns them off on a terminal, too. Control characters of messages never
reach a terminal: tables, CSV and JSON show them escaped.

JSON has a stable schema. Every column is a key of every row, in camelCase, and null is `null`. A new version may add
keys. It removes or renames none without an entry under *removal* in the changelog. A binary value that is not UTF-8 is
hexadecimal, under its name with `Hex` appended: `bodyHex` instead of `body`. Times are ISO-8601 in UTC with
milliseconds, `properties` is an object, and 64-bit integers are numbers. Verbs without `-o` print one report, and with
`--json` it is one JSON object. Its keys are defined in [Jobs](jobs.md#counts).

## Exit codes

| code | meaning |
| --- | --- |
| 0 | rows were found, the store is sound, or the work was done |
| 1 | nothing was found, or there are findings: something is wrong or missing |
| 2 | a wrong argument, or an error |
| 130, 141 | interrupted by Ctrl-C; the reader of stdout went away |

## Errors

    error[SEGMENTLOG_UNKNOWN_QUEUE]: TOPIC: there is no topic `ordrs`
      asked:  segmentlog queues /data/store ordrs
      where:  /data/store
      remedy: Did you mean `orders`? The topics are `orders`, `payments`

With `--json`, `-o json` or `-o jsonl` an error is one JSON object on stderr:

    {"error": {"code": "…", "asked": "…", "found": "…", "where": {"path": "…", "offset": null}, "remedy": "…"}}

`code` is one of [the conditions](errors.md), `SEGMENTLOG_USAGE` for a wrong argument, or `OS_ERROR`.

## Export, edit, import

    segmentlog cat /data/store orders --from 2026-01-31T12:00:00Z -o jsonl > orders.jsonl
    segmentlog put /data/copy --input jsonl --dry-run < orders.jsonl
    segmentlog put /data/copy --input jsonl < orders.jsonl

`put` takes the keys topic, queueId, body or bodyHex, tags, keys, uniqKey, properties, flag, bornTimestamp, bornHost and
reconsumeTimes. It ignores the other keys of `cat`, which the store decides, and refuses unknown ones. A key wins over
the property of the same meaning, also if it is `null`. Flags of the command line win over keys.

The first bad line ends `put` with exit code 2. The error states its number. All lines before it are appended, and none
from it on. After exit code 0 all messages are on the device. After Ctrl-C the lines up to some line are appended. The
store must not be open elsewhere. Topics and stores are created with `--create` only.
"""


def render() -> str:
    """Write the whole page."""
    parts = [_HEAD, "## Verbs", ""]
    for heading in dict.fromkeys(verb.heading for verb in VERBS):
        parts += [f"{heading}: " + ", ".join(f"[{v.name}](#{v.name})" for v in VERBS if v.heading == heading) + ".", ""]
    for verb in VERBS:
        parts += [*_verb(verb.parser(), verb.aliases), ""]
    return "\n".join([*parts, *_schemas()])


def _verb(parser: Parser, aliases: Sequence[str]) -> list[str]:
    former = f" mqadmin: {', '.join(f'`{name}`' for name in aliases)}." if aliases else ""
    lines = [f"### {parser.verb}", "", f"{parser.summary[0].upper()}{parser.summary[1:]}.{former}", ""]
    lines += ["| argument | meaning |", "| --- | --- |"]
    rows = [(_words(action), _meaning(action)) for action in parser.actions if action.dest != "help"]
    return lines + [f"| `{words}` | {meaning} |" for words, meaning in rows]


def _words(action: argparse.Action) -> str:
    value = action.metavar or ("\\|".join(map(str, action.choices)) if action.choices is not None else action.dest)
    assert isinstance(value, str)
    if not action.option_strings:
        return {"?": f"[{value}]", "*": f"[{value} …]", "+": f"{value} …"}.get(str(action.nargs), value)
    return ", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {value}".replace("|", "\\|"))


def _meaning(action: argparse.Action) -> str:
    text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    return " ".join(text.split()).replace("|", "\\|")


def _schemas() -> list[str]:
    """Write the columns of verbs whose rows always have the same."""
    from segmentlog.metadata import SCHEMAS
    from segmentlog.store import NATIVE_SCHEMA

    from .receipt import SCHEMA

    lines = ["## Columns", "", "`cat`, `tail` and `get` print the columns of messages that `--columns` names.", ""]
    tables: dict[str, pa.Schema] = dict(SCHEMAS) | {"put": SCHEMA, "messages": NATIVE_SCHEMA}
    lines += ["| rows | columns, with types of Arrow |", "| --- | --- |"]
    return [*lines, *(f"| {name} | {', '.join(map(_column, schema))} |" for name, schema in tables.items()), ""]


def _column(field: "pa.Field[pa.DataType]") -> str:
    return f"`{field.name} {field.type}`"


def main(arguments: Sequence[str]) -> None:
    """Write the page to the file named first, else to standard output."""
    if arguments:
        Path(arguments[0]).write_text(render(), encoding="utf-8")
    else:
        sys.stdout.write(render())


if __name__ == "__main__":
    main(sys.argv[1:])
