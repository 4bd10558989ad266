"""``docs/cli.md``, made from the catalogue and the parsers: ``python -m segmentlog.command.reference docs/cli.md``.

::

    catalogue, parsers of verbs ────────┬──► docs/cli.md       a test compares them
    schemas of rows ────────────────────┘

Writes to standard output, or to the file named as argument.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from segmentlog.output import write_page

from .catalogue import VERBS
from .parser import Parser

if TYPE_CHECKING:
    import pyarrow as pa

_HEAD: Final = """\
# Verbs of the command `segmentlog`

<!-- Made by `python -m segmentlog.command.reference docs/cli.md`; change package/command/ instead. -->

[The command `segmentlog`](command.md) describes positions and formats, [Errors](errors.md) exit codes.
This page lists all verbs with their arguments, and the columns of their rows. The names of mqadmin are accepted, too.
"""


def render() -> str:
    """Write the whole page."""
    parts = [_HEAD]
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
    value = value if isinstance(value, str) else " ".join(value)  # a name for each of several values
    if not action.option_strings:
        return {"?": f"[{value}]", "*": f"[{value} …]", "+": f"{value} …"}.get(str(action.nargs), value)
    return ", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {value}".replace("|", "\\|"))


def _meaning(action: argparse.Action) -> str:
    text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    return " ".join(text.split()).replace("|", "\\|")


def _schemas() -> list[str]:
    """Write the columns of verbs whose rows always have the same."""
    from segmentlog.query.metadata import SCHEMAS
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
    write_page(render(), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
