"""The command ``segmentlog`` as tests run it: in this process, in some milliseconds; as a program it takes 300 ms."""

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from segmentlog.command.console import Console
from segmentlog.command.main import main

INSTALLED: Final = Path(sys.executable).with_name("segmentlog")


@dataclass(frozen=True, slots=True)
class Ran:
    """Exit code and output of one command line."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Rows that were printed as JSON lines; stderr may only tell that some are missing."""
        assert self.err == "" or self.code == 1
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """The error that was printed as JSON, after the log, with nothing on stdout."""
        assert (self.code, self.out) == (2, b"")
        found: dict[str, Any] = json.loads(self.err.splitlines()[-1])["error"]
        return found


def run_command(*arguments: object, stdin: bytes = b"", terminal: bool = False, width: int = 200) -> Ran:
    """Run the command in this process; ``terminal`` makes stdout and stderr terminals with colours."""
    out, err = io.BytesIO(), io.StringIO()
    console = Console(
        stdin=io.BytesIO(stdin),
        stdout=out,
        stderr=err,
        is_terminal=terminal,
        has_progress=terminal,
        has_colour=terminal,
        width=width,
    )
    code = main([str(each) for each in arguments], console)
    return Ran(code, out.getvalue(), err.getvalue())
