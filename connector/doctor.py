"""The doctor: a table of the parts that a set-up has and lacks, with the remedy for each.

::

    python -m segmentlog.connector.doctor                  the table below; exit code 1 if a check fails
    python -m segmentlog.connector.doctor --store PATH     … and whether that store can be read, and its owner
    python -m segmentlog.connector.doctor --start          … and start Spark to see on what it really runs
    python -m segmentlog.connector.doctor --master URL     … and start it there, and ask the executors' workers
    eval "$(python -m segmentlog.connector.doctor --export)"        make this shell fit: JAVA_HOME, PYSPARK_PYTHON

The checks are in ``setup/checks.py``. `segmentlog doctor` prints the same table.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence

from segmentlog.output import json_text, text_table

from .setup.checks import (
    Check,
    Status,
    environment_checks,
    session_checks,
    store_checks,
)
from .setup.java import JavaNotFoundError, prepare_java


def examine(*, store: str | None = None, start: bool = False, master: str | None = None) -> list[Check]:
    """Run all checks, in the order of repairs."""
    # A `store` is opened as a reader would. `start` or a `master` starts Spark and a Python worker, which takes some
    # seconds and sets `JAVA_HOME` of this process.
    found = list(environment_checks())
    if start or master is not None:
        found += session_checks(master)
    if store is not None:
        found += store_checks(store)
    return found


def render(checks: Sequence[Check]) -> str:
    """Return checks as a table, with the remedy below each."""
    rows = [(check.status.value, check.name, check.found) for check in checks]
    return text_table(rows, notes=[check.fix for check in checks])


def has_failed(checks: Sequence[Check]) -> bool:
    return any(check.status is Status.FAIL for check in checks)


def document(checks: Sequence[Check]) -> dict[str, object]:
    """Return checks as one JSON object."""
    return {"ok": not has_failed(checks), "checks": list(checks)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code: 0, or 1 if a check failed or there is no Java to export."""
    parser = argparse.ArgumentParser(
        prog="python -m segmentlog.connector.doctor", description="List what this set-up lacks for reading stores."
    )
    parser.add_argument("--store", metavar="PATH", help="also open this store directory")
    parser.add_argument("--start", action="store_true", help="also start Spark, and show on what it runs")
    parser.add_argument("--master", metavar="URL", help="start Spark on this master, and ask the workers there")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--export", action="store_true", help="print only shell commands that make the shell fit")
    options = parser.parse_args(arguments)
    if options.export:
        return _export()
    found = examine(store=options.store, start=options.start, master=options.master)
    sys.stdout.write((json_text(document(found), indent=2) if options.json else render(found)) + "\n")
    return 1 if has_failed(found) else 0


def _export() -> int:
    try:
        java = prepare_java()
    except JavaNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    variables = {"JAVA_HOME": str(java.home), "PYSPARK_PYTHON": sys.executable}
    sys.stdout.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    return 0


if __name__ == "__main__":
    sys.exit(main())
