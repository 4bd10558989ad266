"""Live view: a table that a terminal shows in one place, again and again."""

import io
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from ..console import Console
from ..errors import FOUND
from .tables import RichTable

_HOME: Final = "\x1b[H"
_CLEAR_LINE: Final = "\x1b[K"
_CLEAR_BELOW: Final = "\x1b[J"


def show(tables: Iterable[pa.Table], console: Console) -> int:
    """Show tables of one schema, each in place of the table before, until Ctrl-C.

    The screen is written over rather than cleared, so that it does not flicker.
    """
    console.stdout.write(b"\x1b[2J")
    for table in tables:
        text = io.BytesIO()
        writer = RichTable(text, table.schema, console)
        for batch in table.to_batches():
            writer.write(batch)
        writer.close()
        lines = text.getvalue().decode().splitlines()
        shown = "".join(f"{line}{_CLEAR_LINE}\n" for line in lines)
        console.stdout.write(f"{_HOME}{shown}{_CLEAR_BELOW}".encode())
        console.stdout.flush()
    return FOUND
