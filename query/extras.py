"""Packages of extras, imported when they are needed first."""

from importlib import import_module
from typing import Any

from segmentlog.store import MissingExtraError


def optional_module(package: str, needs: str, *, extra: str = "", module: str = "") -> Any:
    """Import a package of an extra; `MissingExtraError` without it begins with ``needs``, such as ``plots need``.

    Extra and module have the package's name, unless others are passed.
    """
    wanted = module or package.replace("-", "_")
    try:
        return import_module(wanted)
    except ModuleNotFoundError as error:
        if not f"{wanted}.".startswith(f"{error.name}."):
            raise
        problem = f"{needs} the package {package}, which is not installed"
        raise MissingExtraError(problem, fix=f"pip install 'segmentlog[{extra or package}]'") from None


def check_tasks_run_functions() -> None:
    """Raise `MissingExtraError` without pandas: ``mapInArrow`` of PySpark does not start without it."""
    optional_module("pandas", "functions in tasks of Spark need", extra="jobs")
