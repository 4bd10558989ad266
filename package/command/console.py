"""Console: the three standard streams of one run, and what their ends can show. Stdout has data only."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, Self, TextIO


@dataclass(frozen=True, kw_only=True, slots=True)
class Console:
    """Streams of one run; ``stdout`` takes bytes. Not thread-safe, as its streams are not."""

    # `is_terminal` is of `stdout`, `has_progress` of `stderr`. `has_colour` is a terminal without `NO_COLOR` that is
    # not `dumb`. `width` is in columns.

    stdin: BinaryIO
    stdout: BinaryIO
    stderr: TextIO
    is_terminal: bool = False
    has_progress: bool = False
    has_colour: bool = False
    width: int = 80

    @classmethod
    def of_process(cls, environment: Mapping[str, str] = os.environ) -> Self:
        is_terminal = sys.stdout.isatty()
        return cls(
            stdin=sys.stdin.buffer,
            stdout=sys.stdout.buffer,
            stderr=sys.stderr,
            is_terminal=is_terminal,
            has_progress=sys.stderr.isatty(),
            has_colour=is_terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb",
            width=shutil.get_terminal_size().columns,
        )

    def print(self, text: str) -> None:
        """Write a line of text to ``stdout``."""
        self.stdout.write(text.encode("utf-8", "backslashreplace") + b"\n")
