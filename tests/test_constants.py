"""Constants stand before the first function or class of their module, unless their value needs one that it defines."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]


def late(source: str) -> list[str]:
    """Constants after the first definition that could stand before it."""
    defined, found = set[str](), list[str]()
    for node in ast.parse(source).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                defined.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if defined:
                needs = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - {name}
                (found.append if name.isupper() and not needs & defined else defined.add)(name)
    return found


def test_constants_stand_at_the_top() -> None:
    paths = [
        path
        for top in ("store", "query", "connector", "package", "jobs", "scripts")
        for path in Path(ROOT / top).rglob("*.py")
    ]
    assert {str(path): names for path in paths if (names := late(path.read_text(encoding="utf-8")))} == {}


def test_a_late_constant_is_seen() -> None:
    assert late("A = 1\ndef f(): ...\nB = A\nC = f()\nD = C\nE: int = 2\n") == ["B", "E"]
