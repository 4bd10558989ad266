"""Check of the project's English: docstrings, comments, messages and Markdown against a list of rules.

::

    python scripts/prose.py store/read docs/reader.md      these paths; without a path, the whole repository

    *.py      docstrings, comments, string literals of four words or more; in tests names of tests, but no literals
    *.md      everything outside code blocks and `code`
    *.ipynb   Markdown cells

    docs/reader.md:71: anew: 'anew' -> recreated, written again
    └ file        └ line └ rule └ found  └ what to write

An exception is written on the line of the finding and names its rule and a reason. In Python it reads
``# prose: allow RULE - reason``, and after the closing quotes it holds for a whole docstring. In Markdown it reads
``<!-- prose: allow RULE - reason -->``. One that allows nothing is a finding, too. Standard library only.
"""  # prose: allow anew - the example

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TOPS: Final = (
    "store",
    "query",
    "connector",
    "jobs",
    "package",
    "tests",
    "benchmarks",
    "scripts",
    "notebooks",
    "docs",
)
PAGES: Final = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
MAX_WORDS: Final = 25
MIN_LITERAL_WORDS: Final = 4

_UNIT: Final = (
    r"bytes?|[KMGT]i?B|ns|µs|ms|s|seconds?|minutes?|rows?|messages?|records?|entries|entry|calls?|reads?|syncs?|fsyncs?"
    r"|descriptors?|files?|times?|words|copies|copy|tasks?|threads?"
)
_NUMBER: Final = r"\d[\d.,_]*|one|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|forty|hundreds?|thousands?"
_EACH: Final = (
    r"message|row|queue|record|second|minute|hour|day|batch|task|file|segment|entry|topic|partition|call|sync|commit"
    r"|trigger|group|process|thread|query|store|page|block|micro-batch|core"
)
RULES: Final = {
    "behind": (
        r"(?<!fall )(?<!falls )(?<!fell )(?<!left )\bbehind\b",
        "after, beyond, later than; a consumer has a lag, or falls behind",
    ),
    "in-front": (r"\bin\s+front\s+of\b", "before"),
    "lies": (r"\b(?:lies?|lay|lain|lying)\b(?!\s+out\b)", "is at, is stored in, is in"),
    "gives": (
        r"\b(?:gives?|gave|giving)\b(?!\s+(?:up|way)\b)",
        "return (a function), pass or set (a caller), yield, write, grant",
    ),
    "who": (
        r"\b(?:nobody|whoever|whom|who|somebody|someone|anybody|anyone|everybody|everyone)\b",
        "the noun: the caller, the writer, the user, another process, no reader",
    ),
    "anew": (r"\banew\b", "recreated, written again"),
    "ado": (r"\b(?:more|further)\s+ado\b", "without further options, directly"),
    "in-vain": (r"\bin\s+vain\b", "failed, without effect"),
    "per": (
        rf"\b(?:{_NUMBER})\s+(?:{_UNIT})\s+an?\s+(?:{_EACH})\b(?!\s+(?:has|holds|had|reads|writes|takes|is|was|can)\b)",
        "per: `20 bytes per message`",
    ),
    "none": (
        r"(?-i:(?<!there )\b(?:is|are|was)\s+none\b|\bnone\s+(?:is|are|was)\b)|\bwhich\s+there\s+(?:is|are)\s+no",
        "no topics found; column `x` does not exist",
    ),
    "riddle": (
        (
            r"\b(?:what(?:ever)?|whose|those|others|ones|(?<!by )one(?=$| that\b| which\b| is\b| was\b| has\b)|says? so"
            r"|goes? on|all the same|stands? for|takes? away|(?:is|are) no (?!longer|larger|more|less))"
        ),
        "in the name of a test: a noun for each pronoun; is not a X; continues, reports",
    ),
    "headline": (
        r"(?P<found>What|Who|Whoever|How|Where|Why|Whether|All\s+that|Everything\s+that|That)\b",
        "a noun phrase with the field's term, or a verb: `Return whether …`",
    ),
    "long": (r"", f"sentences of at most {MAX_WORDS} words, one idea each"),
}
"""Rule to (pattern, wording).

``headline`` holds for first lines and headings, ``long`` for docstrings and Markdown, ``riddle`` for names of tests.
"""

_WORDS: Final = re.compile(
    "|".join(
        f"(?P<{name.replace('-', '_')}>{rule})"
        for name, (rule, _) in RULES.items()
        if name not in {"riddle", "headline", "long"}
    ),
    re.IGNORECASE,
)
_RIDDLES: Final = re.compile(RULES["riddle"][0])
_TEST: Final = re.compile(r"^ *(?:async )?def test_(\w+)", re.MULTILINE)
_FIRST_LINES: Final = {
    "docstring": re.compile(rf"\A\s*{RULES['headline'][0]}"),
    "markdown": re.compile(rf"^#+\s+{RULES['headline'][0]}", re.MULTILINE),
}
_ESCAPE: Final = re.compile(r"prose: allow (?P<rules>[a-z, -]+?) - (?P<reason>\S.*)")
_STRING_OR_COMMENT: Final = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"""'
    r"|'''(?:[^'\\]|\\.|'(?!''))*'''"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'(?:[^'\\\n]|\\.)*'"
    r"|#(?P<comment>[^\n]*(?:\n[ \t]*#[^\n]*)*)",
    re.DOTALL,
)
_BLOCK: Final = re.compile(r"(?<=::)\n(?:[ \t]*\n)+( +)[^\n]*(?:\n(?:\1[^\n]*|[ \t]*(?=\n)))*")
_CODE: Final = re.compile(r"``[^`]+``|`[^`]+`")
_FENCE: Final = re.compile(r"^( *)(```|~~~).*?^\1\2[^\n]*$", re.DOTALL | re.MULTILINE)
_INDENTED: Final = re.compile(r"(?<=\n\n)(?:    [^\n]*\n(?:\n(?=    ))?)+")
_REMARK: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK: Final = re.compile(r"\[([^]\[]*)\]\((?:[^()\s]|\([^()\s]*\))*\)")
_SENTENCE_END: Final = re.compile(r"(?<!e\.g)(?<!i\.e)(?<!etc)(?<! vs)[.!?…][\"')\]*_]*(?=\s)|[.!?…][\"')\]*_]*$")
_ITEM: Final = re.compile(r"\s*(?:[*+-]|\d+\.|>)\s+")
_DRAWN: Final = re.compile(r"[│┌┐└┘├┤┬┴┼─►◄▲▼═]|\S {3,}\S")


@dataclass(frozen=True, slots=True)
class Finding:
    """A place that breaks a rule.

    Attributes
    ----------
    line
        From 1.
    rule
        A name in `RULES`, or ``escape`` for an exception that excepts nothing or names no rule.
    found
        The words at fault.
    """

    path: Path
    line: int
    rule: str
    found: str

    def __str__(self) -> str:
        path = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        wording = RULES[self.rule][1] if self.rule in RULES else "remove it: there is nothing to allow, or no such rule"
        return f"{path}:{self.line}: {self.rule}: {self.found!r} -> {wording}"


@dataclass(slots=True)
class Text:
    """Prose of a file.

    Attributes
    ----------
    kind
        ``docstring``, ``comment``, ``literal``, ``markdown`` or ``name`` of a test.
    text
        With code blanked out, its newlines kept.
    line, last
        The first line of the text in the file, and the last one, from 1.
    """

    kind: str
    text: str
    line: int
    last: int


@dataclass(slots=True)
class Escapes:
    """The exceptions that a file names, by line, and which of them were needed."""

    by_line: dict[int, set[str]] = field(default_factory=dict)
    used: set[tuple[int, str]] = field(default_factory=set)

    @classmethod
    def read(cls, source: str, *, python: bool) -> "Escapes":
        """Find the exceptions in the text of a file: in comments of Python, anywhere in Markdown."""
        found = cls()
        if "prose: allow" in source:
            text = _STRING_OR_COMMENT.sub(_without_string, source) if python else source
            for number, line in enumerate(text.split("\n"), 1):
                if match := _ESCAPE.search(line):
                    found.by_line[number] = {rule.strip() for rule in match["rules"].split(",")}
        return found

    def allow(self, rule: str, lines: Iterable[int]) -> bool:
        """Return whether one of these lines names the rule, and note that it was needed."""
        for line in lines:
            if rule in self.by_line.get(line, ()):
                self.used.add((line, rule))
                return True
        return False

    def unused(self) -> Iterator[tuple[int, str]]:
        """List exceptions that were not needed: line and rule."""
        return (
            (line, rule)
            for line, rules in self.by_line.items()
            for rule in sorted(rules)
            if (line, rule) not in self.used
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Check paths, print the findings, and return 1 if there are any."""
    parser = argparse.ArgumentParser(
        description="Check docstrings, comments, messages and Markdown against the word list."
    )
    parser.add_argument("paths", nargs="*", type=Path, help="files and folders; without one, the whole repository")
    options = parser.parse_args(arguments)
    missing = [path for path in options.paths if not path.exists()]
    if missing:
        parser.error(f"these paths do not exist: {', '.join(map(str, missing))}")
    paths = options.paths or [*(ROOT / top for top in TOPS), *(ROOT / page for page in PAGES)]
    findings = [finding for path in files(paths) for finding in check(path)]
    sys.stdout.writelines(f"{finding}\n" for finding in findings)
    return 1 if findings else 0


def files(paths: Iterable[Path]) -> list[Path]:
    """List the files with prose below some paths; absolute and sorted."""
    found = set[Path]()
    for path in paths:
        top = path.resolve()
        inside = (each for suffix in ("py", "md", "ipynb") for each in top.rglob(f"*.{suffix}"))
        found.update(inside if top.is_dir() else [top])
    return sorted(found)


def check(path: Path) -> list[Finding]:
    """Check one file; return its findings in the order of its lines."""
    source = path.read_text(encoding="utf-8")
    escapes = Escapes.read(source, python=path.suffix == ".py")
    if path.suffix == ".py":
        texts = chain(python_texts(source, literals=not path.is_relative_to(ROOT / "tests")), test_names(source))
    else:
        texts = notebook_texts(source) if path.suffix == ".ipynb" else markdown_texts(source)
    found = set[Finding]()
    for text in texts:
        for rule, line, words in breaches(text):
            if not escapes.allow(rule, (line, text.last)):
                found.add(Finding(path, line, rule, words))
    found.update(Finding(path, line, "escape", rule) for line, rule in escapes.unused())
    return sorted(found, key=lambda finding: (finding.line, finding.rule, finding.found))


def breaches(text: Text) -> Iterator[tuple[str, int, str]]:
    """Find what breaks a rule in a text: rule, line, words."""
    for match in _WORDS.finditer(text.text):
        yield (
            str(match.lastgroup).replace("_", "-"),
            text.line + text.text.count("\n", 0, match.start()),
            " ".join(match[0].split()),
        )
    if text.kind == "name" and (match := _RIDDLES.search(text.text)):
        yield "riddle", text.line, match[0]
    if text.kind in _FIRST_LINES:
        for match in _FIRST_LINES[text.kind].finditer(text.text):
            yield "headline", text.line + text.text.count("\n", 0, match.start()), match["found"]
    if text.kind in {"docstring", "markdown"}:
        prose = _BLOCK.sub(_blank, text.text) if text.kind == "docstring" else text.text
        for line, sentence in sentences(prose):
            words = [word for word in sentence.split() if any(map(str.isalnum, word))]
            if len(words) > MAX_WORDS:
                yield "long", text.line + line, f"{' '.join(words[:5])} … ({len(words)} words)"


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Split prose into sentences with their lines from 0. Headings, list items and facts in a cell stand alone."""
    for line, paragraph in paragraphs(text):
        begin = 0
        for end in (*(match.end() for match in _SENTENCE_END.finditer(paragraph)), len(paragraph)):
            sentence = paragraph[begin:end]
            if sentence.strip():
                yield line + paragraph.count("\n", 0, begin + len(sentence) - len(sentence.lstrip())), sentence
            begin = end


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Split prose at empty lines, list items, drawn lines, changes of the indentation, and table cells at ``;``."""
    begin, lines, indent = 0, list[str](), -1
    for number, line in enumerate([*text.split("\n"), ""]):
        bare = line.strip()
        depth = len(line) - len(line.lstrip())
        item = _ITEM.match(line)
        ends = not bare or bare[0] in "#|" or item or _DRAWN.search(bare)
        if lines and (ends or (depth != indent and number > 1)):
            yield begin, "\n".join(lines)
            lines = []
        if not bare or (_DRAWN.search(bare) and bare[0] != "|"):
            continue
        if bare[0] == "|":
            yield from ((number, part) for cell in bare.split("|") for part in cell.split(";") if part.strip())
        elif bare[0] == "#":
            yield number, bare
        else:
            begin, indent = (number, depth) if not lines else (begin, indent)
            if item:
                indent = item.end()
            lines.append(line)


def python_texts(source: str, *, literals: bool) -> Iterator[Text]:
    """Find the prose of a module: docstrings, comments, and string literals if they are asked for."""
    for match in _STRING_OR_COMMENT.finditer(source):
        if match["comment"]:
            line, text = source.count("\n", 0, match.start()) + 1, re.sub(r"\n[ \t]*#", "\n", match["comment"])
            yield Text("comment", _without_code(_ESCAPE.sub("", text)), line, line + text.count("\n"))
    pending: list[ast.AST] = [ast.parse(source)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                yield Text("docstring", _without_code(_without_doctests(node.value.value)), node.lineno, _last(node))
            continue
        if literals and isinstance(node, ast.Constant | ast.JoinedStr):
            text = _literal(node)
            if len(re.findall(r"[A-Za-z]{2,}", text)) >= MIN_LITERAL_WORDS and " " in text:
                yield Text("literal", _without_code(text), node.lineno, _last(node))
            continue
        if literals or not isinstance(node, ast.expr):
            pending.extend(ast.iter_child_nodes(node))


def test_names(source: str) -> Iterator[Text]:
    """Find the names of tests, as words."""
    for match in _TEST.finditer(source):
        line = source.count("\n", 0, match.start(1)) + 1
        yield Text("name", match[1].replace("_", " "), line, line)


def _last(node: ast.expr | ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _literal(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)


def markdown_texts(source: str) -> Iterator[Text]:
    """Find the prose of a page: one text, with code, remarks and targets of links blanked out."""
    text = _REMARK.sub(_blank, source)
    for pattern in (_FENCE, _INDENTED):
        text = pattern.sub(_blank, text)
    text = _without_code(_LINK.sub(lambda link: link[1] + "\n" * link[0].count("\n", len(link[1]) + 1), text))
    yield Text("markdown", text, 1, text.count("\n") + 1)


def notebook_texts(source: str) -> Iterator[Text]:
    """Find the prose of a notebook: its Markdown cells, each at the line of the notebook where its text begins."""
    lines = source.split("\n")
    for cell in json.loads(source)["cells"]:
        if cell["cell_type"] == "markdown" and cell["source"]:
            first = json.dumps(cell["source"][0], ensure_ascii=False)
            line = next(number for number, each in enumerate(lines, 1) if first in each)
            for text in markdown_texts("".join(cell["source"])):
                yield Text("markdown", text.text, line, line + len(cell["source"]))


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", "", match[0])


def _without_string(match: re.Match[str]) -> str:
    return match[0] if match["comment"] else _blank(match)


def _without_code(text: str) -> str:
    return _CODE.sub(lambda code: "`x`" + "\n" * code[0].count("\n"), text) if "`" in text else text


def _without_doctests(text: str) -> str:
    return re.sub(r"^ *(?:>>>|\.\.\. ).*", "", text, flags=re.MULTILINE) if ">>>" in text else text


if __name__ == "__main__":
    sys.exit(main())
