"""Results in a notebook: short HTML tables, every text escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import Final

SHOWN_ROWS: Final = 10
_CELL_CHARS: Final = 60


def html_table(caption: str, names: Sequence[str], rows: Iterable[Sequence[object]], count: int) -> str:
    """Return an HTML table of the first rows, with a line about those that are left out of ``count``."""
    head = "".join(f"<th>{_cell(name)}</th>" for name in names)
    shown = ["".join(f"<td>{_cell(value)}</td>" for value in row) for row in islice(rows, SHOWN_ROWS)]
    if count > len(shown):
        shown.append(f'<td colspan="{len(names)}">and {count - len(shown)} more</td>')
    body = "".join(f"<tr>{row}</tr>" for row in shown)
    caption = f"<caption>{_text(caption)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return _text(text if len(text) <= _CELL_CHARS else text[: _CELL_CHARS - 1] + "\N{HORIZONTAL ELLIPSIS}")


def _text(text: str) -> str:
    """Escape a text; what a page would not show as it is, such as changes of the text direction, is a dot."""
    return escape("".join(each if each.isprintable() else "\N{MIDDLE DOT}" for each in text))
