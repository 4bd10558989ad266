"""The code blocks of a Markdown page, found and executed as a reader of the page would.

::

    ```python / ```sql / ```sh        a block; a block indented by four spaces counts where it begins with a command
    <!-- skip: the reason -->         the next block is not executed, for this reason
    <!-- cluster -->                  the next block is executed by tests/connector/test_deployment.py
    <!-- output -->                   the next block is what the shell block before it prints
    <!-- setup                        Python that is executed at this place and not shown
    code
    -->

Blocks of one page share their Python names, and a directory that stands for ``/data``. In shell blocks ``STORE`` and
``DIR`` are directories in it, and a target of ``make`` only has to exist: the tests are started by one. A block of
plain commands runs in this process, and a verb with Spark in the session of the test.
"""

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import chdir, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from .commands import run_command

ROOT: Final = Path(__file__).parents[2]
EXECUTED: Final = frozenset({"python", "sql", "sh"})
SHOWN: Final = frozenset({"text", "json"})
_COMMANDS: Final = {
    "sh": r"(segmentlog|make|pip|python3?|\.venv/bin/python|eval|source|export|spark-submit)\s",
    "python": r"(spark|frame|from|import)[\s.]",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    page: Path
    line: int
    language: str  # ``python``, ``sql`` or ``sh``; anything else is not code that could be executed
    text: str
    skip: str | None = None  # why it is not executed; None where it is
    cluster: bool = False  # whether it needs a cluster
    output: bool = False  # whether it is the output of the block before it
    hidden: bool = False  # whether readers of the page do not see it

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line} ({self.language})"


def code_blocks(page: Path) -> list[Block]:
    pattern = re.compile(
        r"^```(?P<language>[^\n]*)\n(?P<fenced>.*?)^```$"
        r"|(?<=\n\n)(?P<indented>(?:    [^\n]*\n(?:\n(?=    ))?)+)"
        r"|^<!--(?P<comment>.*?)-->",
        re.DOTALL | re.MULTILINE,
    )
    text = page.read_text(encoding="utf-8")
    found, directive = [], ""
    for match in pattern.finditer(text):
        where = {"page": page, "line": text.count("\n", 0, match.start()) + 1}
        if match["comment"] is not None:
            directive = match["comment"].strip()
            if directive.startswith("setup\n"):
                found.append(Block(**where, language="python", text=directive.removeprefix("setup\n"), hidden=True))
            continue
        if match["fenced"] is not None:
            language, code = match["language"].strip(), match["fenced"]
        else:
            code = re.sub(r"^    ", "", match["indented"], flags=re.MULTILINE)
            language = next((name for name, begin in _COMMANDS.items() if re.match(begin, code)), "text")
        skip = directive.removeprefix("skip:").strip() if directive.startswith("skip:") else None
        marks = {"cluster": directive == "cluster", "output": directive == "output"}
        found.append(Block(**where, language=language, text=code, skip=skip, **marks))
        directive = ""
    return found


class Reader:
    def __init__(self, folder: Path, names: Mapping[str, Any], replaced: Mapping[str, str] | None = None) -> None:
        self.names = dict(names)
        self._folder = folder
        self._replaced = {"/data/": f"{folder}/"} | dict(replaced or {})

    def execute(self, block: Block) -> Any:
        """Execute a block; return the value of its last expression, None where it has none."""
        text = block.text
        for shown, executed in self._replaced.items():
            text = text.replace(shown, executed)
        try:
            if block.language == "python":
                return self._python(text, str(block))
            if block.language == "sql":
                return [self.names["spark"].sql(each).collect() for each in text.split(";") if each.strip()]
            return self._shell(text)
        except Exception as error:
            error.add_note(f"in {block}")
            raise

    def _python(self, text: str, name: str) -> Any:
        *statements, last = ast.parse(text).body
        if not isinstance(last, ast.Expr):
            exec(compile(text, name, "exec"), self.names)
            return None
        exec(compile(ast.Module(statements, []), name, "exec"), self.names)
        return eval(compile(ast.Expression(last.value), name, "eval"), self.names)

    def _shell(self, text: str) -> str:
        text = re.sub(r"\bSTORE\b", str(self._folder / "store"), text)
        text = re.sub(r"\b(TO|DIR)\b", str(self._folder / "elsewhere"), text)
        for target in re.findall(r"^make ([a-z-]+)", text, re.MULTILINE):
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"the Makefile has no target `{target}`"
        text = re.sub(r"^make [^\n]*", "", text, flags=re.MULTILINE)
        lines = [shlex.split(line, comments=True) for line in text.splitlines()] if _is_plain(text) else [["bash"]]
        if any(words[:1] != ["segmentlog"] for words in lines):
            return run_shell(text, self._folder)
        printed = ""
        session = patch("segmentlog.command.sessions.session", lambda *_: nullcontext(self.names["spark"]))
        with chdir(self._folder), session:
            for words in lines:
                ran = run_command(*words[1:])
                assert ran.code == 0, f"exit code {ran.code} of:\n{words}\n{ran.err[-4_000:]}"
                printed += ran.text
        return printed


def _is_plain(text: str) -> bool:
    """Return whether shell commands are words alone, as far as their characters tell."""
    return not re.search(r"[|<>;&*`\\]|\$\(|\bEND\b", re.sub(r"'[^'\n]*'|#.*", "", text))


def run_shell(text: str, folder: Path, **environ: str) -> str:
    """Execute shell commands in a directory with this Python first on PATH; return what they print."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        check=False,
        cwd=folder,
        env=os.environ | {"PATH": path} | environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    assert ran.returncode == 0, f"exit code {ran.returncode} of:\n{text}\n{ran.stdout[-4_000:]}"
    return ran.stdout
