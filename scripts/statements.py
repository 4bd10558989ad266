"""Statements of Python per package, docstrings not counted: what a feature costs to read.

::

    python scripts/statements.py

Nothing fails by these numbers: they are for the author of a change, and for its reviewer.
"""

import ast
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("store", "query", "connector", "jobs", "package")
BESIDE = ("tests", "benchmarks", "scripts")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def statements(source: str) -> int:
    """Count the statements of a module, nested ones included."""
    nodes = [*ast.walk(ast.parse(source))]
    documented = [node for node in nodes if isinstance(node, DOCUMENTED)]
    docstrings = sum(ast.get_docstring(node, clean=False) is not None for node in documented)
    return sum(isinstance(node, ast.stmt) for node in nodes) - docstrings


def main() -> None:
    """Print a line per package of the product, its sum, and what is beside it."""
    found: Counter[str] = Counter()
    for top in (*PRODUCT, *BESIDE):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).parts
            package = "/".join(parts[:2]) if top in PRODUCT and len(parts) > 2 else top
            found[package] += statements(path.read_text(encoding="utf-8"))
    product = sum(count for package, count in found.items() if package.partition("/")[0] in PRODUCT)
    rows = [*found.items(), ("product", product)]
    sys.stdout.writelines(f"{count:7,}  {package}\n" for package, count in rows)


if __name__ == "__main__":
    main()
