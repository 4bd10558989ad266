"""The store of the worked example in ``docs/retention.md``, and the check of the output that the page shows."""

import os
from datetime import datetime
from pathlib import Path

from support.commands import run_command
from support.documents import ROOT, code_blocks

MODIFIED = ("2026-11-20T09:12:44", "2026-11-20T14:03:10", "2026-11-22T08:00:00", "2026-11-23T09:00:00")
"""Of each segment, in UTC."""
PLAN = ("--now", "1795449600000", "--hour", "16", "--disk-usage", "60")


def make_busy_store(store: Path) -> None:
    """Make four sparse segments, and a queue whose first file ends before the third one."""
    for number, modified in enumerate(MODIFIED):
        segment = store / "commitlog" / f"{number << 30:020d}"
        _sparse(segment, 1 << 30)
        os.utime(segment, (datetime.fromisoformat(modified + "+00:00").timestamp(),) * 2)
    queue = store / "consumequeue" / "orders" / "0"
    _sparse(queue / f"{0:020d}", 6_000_000, (2_000_000_000).to_bytes(8, "big") + (200).to_bytes(4, "big") + bytes(8))
    _sparse(queue / f"{6_000_000:020d}", 6_000_000)


def check_shown_plan(store: Path, config: Path) -> None:
    page = ROOT / "docs" / "retention.md"
    shown = next(each.text for each in code_blocks(page) if each.text.startswith("run  file"))
    printed = run_command("retention", "plan", str(store), "--config", str(config), *PLAN)
    assert (printed.code, printed.text) == (0, shown), printed


def _sparse(path: Path, size: int, last: bytes = b"") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.seek(size - 20)
        file.write(last)
        file.truncate(size)
