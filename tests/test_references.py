"""Names in single backticks, in docstrings and comments, are modules, definitions, attributes, options or builtins."""

import ast
import builtins
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = {
    path.relative_to(ROOT): path.read_text(encoding="utf-8")
    for package in ("store", "query", "connector", "package", "jobs")
    for path in (ROOT / package).rglob("*.py")
}
REFERENCE = re.compile(r"(?<!`)`([A-Za-z_][\w./]*)`(?!`)")
DRAWING = re.compile(r"^::\n\n(?: +.*\n|\n)+", re.MULTILINE)
FOREIGN = {"np", "pa", "pyarrow", "ssl", "sys", "segmentlog"}  # packages; `segmentlog` has its own test of names


def references(source: str) -> list[str]:
    """Names in the docstrings and comments of a module, but for the drawings of the module's own docstring."""
    expressions = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr)]
    texts = [str(node.value) for node in expressions if isinstance(node, ast.Constant)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts += [token.string for token in tokens if token.type == tokenize.COMMENT]
    return REFERENCE.findall(DRAWING.sub("", "\n".join(texts)))


def names_in(tree: ast.AST) -> set[str]:
    """Names that are defined or used, and words that are whole texts, such as names of options."""
    fields = [getattr(node, name, None) for node in ast.walk(tree) for name in ("name", "arg", "id", "attr", "value")]
    return {name for name in fields if isinstance(name, str)}


def owned() -> dict[str, set[str]]:
    """Names in each module, package and class by its name; those in all modules by ``""``."""
    found = defaultdict[str, set[str]](set, {"": set(dir(builtins))})
    for path, source in SOURCES.items():
        *packages, stem = path.with_suffix("").parts
        found[packages[-1]].add(stem)
        tree = ast.parse(source)
        for node in [each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)]:
            found[node.name] |= names_in(node)
        found[stem] |= names_in(tree)
        found[""] |= names_in(tree) | {*packages, stem}
    return found


def test_each_reference_names_something() -> None:
    owners, modules = owned(), [f"/{path.as_posix()}" for path in SOURCES]

    def is_known(reference: str) -> bool:
        *front, last = reference.split(".")
        if "/" in reference:
            return any(each.endswith(f"/{reference.removesuffix('.py')}.py") for each in modules)
        return last in owners[front[-1] if front else ""] or bool(FOREIGN.intersection(front[:1]))

    wrong = [f"{path}: {each}" for path, text in SOURCES.items() for each in references(text) if not is_known(each)]
    assert set(wrong) <= {"store/read/snapshot.py: query.parts"}  # it goes with the verbs of that module


def test_a_reference_is_seen() -> None:
    assert references('"""See `a.b`, ``c``.\n\n::\n\n    `drawn`\n\n`d`"""\ne = 1  # of `f/g`\n') == ["a.b", "d", "f/g"]
