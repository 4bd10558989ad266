"""Paths and names in docs/architecture.md, compared with the code: each module exists, each name is defined in it."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PLACE = re.compile(r"`(?P<path>[\w/]+\.py)`(?:: (?P<names>`[\w.]+`(?:, `[\w.]+`)*))?")
STEP = re.compile(r"^ {4,}(?P<module>[a-z_]+(?:/[a-z_]+)+) {2,}", re.MULTILINE)


def defined_in(source: str) -> set[str]:
    """Names of classes and functions of a module, and of methods as ``Class.name``."""
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


def places() -> list[tuple[str, tuple[str, ...]]]:
    table = PAGE[PAGE.index("| question | answer |") :]
    return [(each["path"], tuple(re.findall(r"[\w.]+", each["names"] or ""))) for each in PLACE.finditer(table)]


def test_each_place_exists_and_defines_its_names() -> None:
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path, _ in places()}
    assert [(path, names) for path, names in places() if not set(names) <= defined_in(texts[path])] == []


def test_each_row_of_the_table_has_a_place() -> None:
    rows = PAGE[PAGE.index("| question | answer |") :].splitlines()[2:]
    assert len(rows) >= 20
    assert [row for row in rows if not PLACE.search(row)] == []


def test_each_step_of_a_journey_is_a_module() -> None:
    modules = [step["module"] for step in STEP.finditer(PAGE)]
    assert len(modules) >= 25
    missing = [each for each in modules if not any((ROOT / top / f"{each}.py").exists() for top in ("", "connector"))]
    assert missing == []


def test_the_layers_are_the_layers_of_pyproject() -> None:
    """The tables of the page have the packages of the import contracts, layer by layer."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = {each["id"]: each["layers"] for each in contracts if "layers" in each}
    table = PAGE[PAGE.index("| packages of `store/`") : PAGE.index("| packages of `connector/`")]
    shown = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.splitlines()[2:] if row.startswith("|")]
    real = [re.findall(r"\w+", layer) for layer in layers["store"]]
    assert [name for row in shown for name in row] == [name for layer in real for name in layer]
    table = PAGE[PAGE.index("| packages of `connector/`") :].split("\n\n")[0]
    packages = {name for layer in layers["connector"] for name in re.findall(r"\w+", layer)}
    assert set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines()[2:]))) <= packages
    assert {each for each in packages if (ROOT / "connector" / each).is_dir()} <= set(re.findall(r"`(\w+)`", table))


def test_a_name_that_is_not_defined_is_seen() -> None:
    source = "class A:\n    x = 1\n\n    def b(self): ...\n\n\ndef c(): ...\n"
    assert defined_in(source) == {"A", "A.b", "c"}
