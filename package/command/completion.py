"""Scripts that complete command lines: verbs, their flags, and files, made from the parsers of all verbs.

::

    segmentlog <TAB>             topics  queues  segments …
    segmentlog cat --<TAB>       --from  --to  --tag …
    segmentlog cat <TAB>         files and directories

The scripts state the verbs of the version that made them, and start no Python when a key is pressed.
"""

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from .parser import Parser


class _Flag(NamedTuple):
    names: tuple[str, ...]
    text: str
    has_value: bool


def _flags(parser: Parser) -> Iterator[_Flag]:
    """Yield the flags of a verb, with their help on one line."""
    for action in parser.actions:
        if action.option_strings:
            yield _Flag(tuple(action.option_strings), _text(action), action.nargs != 0)


def _text(action: argparse.Action) -> str:
    return " ".join((action.help or "").replace("%%", "%").replace("%(default)s", str(action.default)).split())


def _bash(parsers: Sequence[Parser]) -> str:
    cases = "\n".join(
        f"    {parser.verb}) flags={shlex.quote(' '.join(name for flag in _flags(parser) for name in flag.names))} ;;"
        for parser in parsers
    )
    verbs = shlex.quote(" ".join(parser.verb for parser in parsers))
    return f"""\
# bash completion of segmentlog
_segmentlog() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} flags= words
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W {verbs} -- "$current")
    return
  fi
  case ${{COMP_WORDS[1]}} in
{cases}
  esac
  case $current in
    -*) mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$current") ;;
    *) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
  esac
}}
complete -o filenames -F _segmentlog segmentlog"""


def _zsh(parsers: Sequence[Parser]) -> str:
    verbs = "\n".join(f"    {shlex.quote(f'{parser.verb}:{parser.summary}')}" for parser in parsers)
    cases = []
    for parser in parsers:
        flags = [
            shlex.quote(f"{name}[{_bracketed(flag.text)}]{':value:_files' if flag.has_value else ''}")
            for flag in _flags(parser)
            for name in flag.names
        ]
        cases.append("\n        ".join([f"      {parser.verb}) _arguments", *flags, "'*:file:_files' ;;"]))
    joined = "\n".join(case.replace("\n", " \\\n") for case in cases)
    return f"""\
#compdef segmentlog
# zsh completion of segmentlog
_segmentlog() {{
  local -a verbs
  verbs=(
{verbs}
  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
  else
    local verb=$words[2]
    shift words
    (( CURRENT -= 1 ))
    case $verb in
{joined}
    esac
  fi
}}
if [ "$funcstack[1]" = _segmentlog ]; then
  _segmentlog "$@"
else
  compdef _segmentlog segmentlog
fi"""


def _bracketed(text: str) -> str:
    """Return a text as it may be between the brackets of ``_arguments``."""
    return "".join("\\" + character if character in "[]:\\" else character for character in text)


def _fish(parsers: Sequence[Parser]) -> str:
    lines = ["# fish completion of segmentlog"]
    for parser in parsers:
        lines.append(
            f"complete -c segmentlog -n __fish_use_subcommand -f -a {parser.verb} -d {_quoted(parser.summary)}"
        )
        for flag in _flags(parser):
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
            value = " -r" if flag.has_value else ""
            lines.append(
                f"complete -c segmentlog -n '__fish_seen_subcommand_from {parser.verb}' {names}{value}"
                f" -d {_quoted(flag.text)}"
            )
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Quote a text for fish, which knows two escapes within single quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: Final[Mapping[str, Callable[[Sequence[Parser]], str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""Shells, and the functions that make their scripts of the parsers of all verbs."""
