"""Layout of the code: functions of at most 60 lines, no import cycle."""

import ast
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = ("package", "store", "query", "connector", "jobs")
FUNCTION_LINES_MAX: Final = 60


def _modules() -> list[str]:
    found = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


@cache
def _nodes(module: str) -> list[ast.AST]:
    return [*ast.walk(ast.parse((ROOT / module).read_text(encoding="utf-8")))]


MODULES: Final = _modules()


def test_no_function_is_too_long() -> None:
    functions = ast.FunctionDef, ast.AsyncFunctionDef
    every = [(module, each) for module in MODULES for each in _nodes(module) if isinstance(each, functions)]
    lines = {f"{module} {each.name}": (each.end_lineno or 0) - each.lineno + 1 for module, each in every}
    assert {name: count for name, count in lines.items() if count > FUNCTION_LINES_MAX} == {}


# Cycles


def _dotted(module: str) -> str:
    return module.removeprefix("package/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


NAMES: Final = {_dotted(module): module for module in MODULES}


@cache
def _imports(module: str) -> set[str]:
    """Modules of ours that a module imports, anywhere in it, but for types alone."""
    of = _dotted(module)
    package = of if module.endswith("/__init__.py") else of.rpartition(".")[0]
    for_types = {
        id(inner)
        for node in _nodes(module)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in _nodes(module):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("segmentlog.") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").removeprefix("segmentlog.")
            if node.level:
                up = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*up, *([node.module] if node.module else [])])
            inner_names = {f"{base}.{alias.name}" for alias in node.names}
            found |= (inner_names & NAMES.keys()) or {base}
    return {name for name in found if name in NAMES} - {of}


def _cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return one cycle, or an empty list: modules without remaining imports are removed until the rest is a cycle."""
    left = {name: set(targets) for name, targets in graph.items()}
    while leaves := {name for name, targets in left.items() if not targets}:
        left = {name: targets - leaves for name, targets in left.items() if name not in leaves}
    path: list[str] = []
    at = min(left, default="")
    while at and at not in path:
        path.append(at)
        at = min(left[at])
    return path[path.index(at) :] if at else []


def test_no_modules_import_each_other_lazily_either() -> None:
    assert _cycle({name: _imports(module) for name, module in NAMES.items()}) == []


def test_cycles_are_found() -> None:
    assert _cycle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert _cycle({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == ["b", "c"]
    assert sum(len(_imports(module)) for module in MODULES) > 500
