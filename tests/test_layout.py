"""Layout of the code: sizes, cycles, docstrings, and a test file beside every module.

::

    store/format/x.py  ──► tests/format/test_x.py          store/files/x.py ──► tests/files/test_x.py
    store/read/x.py    ──► tests/store/read/test_x.py      scripts/x.py     ──► tests/scripts/test_x.py
    package/x.py       ──► tests/test_x.py                 package/api/x.py ──► tests/api/test_x.py

Limits are those of CONTRIBUTING.md. An exception is an entry below with its reason; a new one needs a reason as good.
"""

import ast
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = ("package", "store", "query", "connector", "jobs")
MODULE_LINES_MAX: Final = 700
FUNCTION_LINES_MAX: Final = 60
UNITS_MAX: Final = {"store": 18, "connector": 12}
TESTS_OF: Final = {
    "store/format": "tests/format",
    "store/files": "tests/files",
    "package": "tests",
    "package/api": "tests/api",
    "package/command": "tests/command",
    "package/command/output": "tests/command/output",
    "package/command/verbs": "tests/command/verbs",
}

RE_EXPORTS: Final = {
    "package/command/__main__.py": "runs main by module: tests/command/test_main.py",
    "package/admin.py": "a door: tests/test_doors.py",
    "package/replication.py": "a door: tests/test_doors.py",
    "package/spark.py": "a door: tests/test_doors.py",
    "store/follow.py": "a door: tests/test_doors.py",
    "store/sink.py": "a door: tests/test_doors.py",
    "jobs/submit.py": "runs main under spark-submit: tests/command/test_sessions.py",
    "connector/pyspark_segmentlog/__init__.py": "a door: tests/connector/test_shim.py",
}
"""Modules without code of their own."""
IN_PLACE: Final = "archives read in place: tests/store/read/test_archived_in_place.py"
TESTED_ELSEWHERE: Final = {
    "query/system_frames.py": "a file per frame, such as tests/query/test_traces.py",
    "store/types.py": "records without behaviour",
    "store/directory/archived_store.py": IN_PLACE,
    "store/dispatch/packed_files.py": IN_PLACE,
    "store/dispatch/packed_queues.py": IN_PLACE,
    "store/files/routed_fs.py": IN_PLACE,
    "store/maintenance/archives.py": "verbs, and a pull: tests/store/maintenance/test_pulling.py",
    "store/read/spec.py": "scans of entries alone, and scans that open the log: tests/store/read/test_scan.py",
    "store/objects/access.py": "options that reach workers: tests/connector/read/test_archive_url.py",
}
"""Modules whose contract another file of tests holds."""
UNITS_EXEMPT: Final = {
    *("__init__", "__pycache__"),
    *("follow", "sink"),  # doors: they re-export
    *("filter", "find", "ha", "retention"),  # packages that the limit left room for, each a concern of its own
}


def _modules() -> list[str]:
    found = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


@cache
def _nodes(module: str) -> list[ast.AST]:
    return [*ast.walk(ast.parse((ROOT / module).read_text(encoding="utf-8")))]


MODULES: Final = _modules()
IMPLEMENTED: Final = [module for module in MODULES if not module.endswith("/__init__.py")]


def _mirror(module: str) -> str:
    folder, _, name = module.rpartition("/")
    return f"{TESTS_OF.get(folder, f'tests/{folder}')}/test_{name}"


def test_every_module_has_its_tests() -> None:
    known = {*RE_EXPORTS, *TESTED_ELSEWHERE}
    missing = [module for module in IMPLEMENTED if module not in known and not (ROOT / _mirror(module)).exists()]
    assert missing == [], "write tests/…/test_x.py, or say above where the tests are"


def test_exceptions_are_modules() -> None:
    listed = {*RE_EXPORTS, *TESTED_ELSEWHERE}
    assert listed <= set(MODULES)
    assert [module for module in RE_EXPORTS if len((ROOT / module).read_text().splitlines()) > 50] == []
    tested = [module for module in listed if (ROOT / _mirror(module)).exists()]
    assert tested == [], "it has tests, and needs no entry"
    sentences = [*TESTED_ELSEWHERE.values(), *RE_EXPORTS.values()]
    named = [word.strip(",:;") for reason in sentences for word in reason.split() if word.startswith("tests/")]
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_no_module_is_too_long() -> None:
    lines = {module: len((ROOT / module).read_text(encoding="utf-8").splitlines()) for module in MODULES}
    assert {module: count for module, count in lines.items() if count > MODULE_LINES_MAX} == {}


def test_no_function_is_too_long() -> None:
    functions = ast.FunctionDef, ast.AsyncFunctionDef
    every = [(module, each) for module in MODULES for each in _nodes(module) if isinstance(each, functions)]
    lines = {f"{module} {each.name}": (each.end_lineno or 0) - each.lineno + 1 for module, each in every}
    assert {name: count for name, count in lines.items() if count > FUNCTION_LINES_MAX} == {}


@pytest.mark.parametrize("package", UNITS_MAX)
def test_few_units_are_at_the_top_of_a_package(package: str) -> None:
    folders = {path.name for path in (ROOT / package).iterdir() if path.is_dir() and any(path.glob("*.py"))}
    units = folders | {path.stem for path in (ROOT / package).glob("*.py")}
    assert len(units - UNITS_EXEMPT) <= UNITS_MAX[package]


def test_every_module_has_a_docstring() -> None:
    """So has every name that users can import, see test_doors.py. Elsewhere a name may say enough."""
    trees = {module: _nodes(module)[0] for module in MODULES}
    assert [name for name, tree in trees.items() if isinstance(tree, ast.Module) and not ast.get_docstring(tree)] == []


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
