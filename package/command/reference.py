"""``docs/cli.md``, made from the catalogue and the parsers: ``python -m segmentlog.command.reference docs/cli.md``.

::

    catalogue, parsers of verbs ────────┬──► docs/cli.md       a test compares them
    schemas of rows ────────────────────┘

Writes to standard output, or to the file named as argument.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

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
_COMMON_VERBS: Final = 3
"""An argument of so many verbs is described once."""
_Row: TypeAlias = tuple[str, str]


def render() -> str:
    """Write the whole page."""
    parts = [_HEAD]
    for heading in dict.fromkeys(verb.heading for verb in VERBS):
        parts += [f"{heading}: " + ", ".join(f"[{v.name}](#{v.name})" for v in VERBS if v.heading == heading) + ".", ""]
    parsers = [(verb.parser(), verb.aliases) for verb in VERBS]
    counts = Counter(row for parser, _ in parsers for row in _rows(parser))
    often = [row for row, count in counts.items() if count >= _COMMON_VERBS]
    common = [row for at, row in enumerate(often) if row[0] not in {words for words, _ in often[:at]}]
    parts += ["## Arguments of several verbs", "", *map(_item, common), "", "## Verbs", ""]
    for parser, aliases in parsers:
        parts += [*_verb(parser, aliases, common), ""]
    return "\n".join([*parts, *_schemas()])


def _verb(parser: Parser, aliases: Sequence[str], common: Collection[_Row]) -> list[str]:
    former = f" mqadmin: {', '.join(f'`{name}`' for name in aliases)}." if aliases else ""
    lines = [f"### {parser.verb}", "", f"{parser.summary[0].upper()}{parser.summary[1:]}.{former}", ""]
    shared = [words for words, meaning in _rows(parser) if (words, meaning) in common]
    own = [_item(row) for row in _rows(parser) if row not in common]
    return lines + ([f"* {', '.join(f'`{_short(words)}`' for words in shared)}: as above"] if shared else []) + own


def _item(row: _Row) -> str:
    return f"* `{row[0]}`: {row[1]}"


def _short(words: str) -> str:
    """Return the longest name of a flag, without its value; an argument stays as it is."""
    flags = [word.rstrip(",") for word in words.split() if word.startswith("-")]
    return max(flags, key=len, default=words)


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
    from segmentlog.metadata import SCHEMAS

    from .receipt import SCHEMA

    lines = ["## Columns", "", "`cat`, `tail` and `get` print [columns of messages](options.md#columns).", ""]
    tables: dict[str, pa.Schema] = dict(SCHEMAS) | {"put": SCHEMA}
    lines += ["| rows | columns, with types of Arrow |", "| --- | --- |"]
    return [*lines, *(f"| {name} | {', '.join(map(_column, schema))} |" for name, schema in tables.items()), ""]


def _column(field: "pa.Field[pa.DataType]") -> str:
    return f"`{field.name} {field.type}`"


def main(arguments: Sequence[str]) -> None:
    """Write the page to the file named first, else to standard output."""
    write_page(render(), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
