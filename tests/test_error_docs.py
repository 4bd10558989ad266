"""docs/errors.md has every code with its class, cause and remedy."""

import re
from pathlib import Path

from segmentlog.command.errors import UsageError
from segmentlog.connector import errors as connector_errors
from segmentlog.connector.setup.java import JavaNotFoundError
from segmentlog.jobs.lake.target import TargetChangedError
from segmentlog.query import selection, times
from segmentlog.query.ledgers import TargetUnclearError
from segmentlog.store import SegmentLogError
from segmentlog.store import errors as store_errors

PAGE = (Path(__file__).parents[1] / "docs" / "errors.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(SEGMENTLOG_\w+)` \| `(\w+)`(?: \(`\w+`\))? \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def conditions(module: object) -> list[tuple[str, str]]:
    """Code and class of each error that a module defines, in its order."""
    return [
        (kind.condition, kind.__name__)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, SegmentLogError) and kind.__module__ == module.__name__
    ]


def test_every_code_is_listed_once_with_cause_and_remedy() -> None:
    rows = ROW.findall(PAGE)
    assert len(rows) == PAGE.count("| `SEGMENTLOG_")
    asked = [pair for module in (store_errors, times, selection, connector_errors) for pair in conditions(module)]
    others = (JavaNotFoundError, UsageError, TargetChangedError, TargetUnclearError)
    asked += [(each.condition, each.__name__) for each in others]
    assert [(code, kind) for code, kind, _, _ in rows] == asked
    assert all(len(cause) > 5 for _, _, cause, _ in rows)
