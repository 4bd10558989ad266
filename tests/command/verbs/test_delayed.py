"""Verb ``delayed``."""

from pathlib import Path

import segmentlog
from support.commands import run_command
from support.system_store import build_system_store


def test_delayed_are_printed_as_python_returns_them(tmp_path: Path) -> None:
    path = build_system_store(tmp_path / "broker-a")
    rows = run_command("delayed", path, "--json").rows
    expected = segmentlog.open(path).delayed().to_arrow()
    assert [list(row) for row in rows] == [expected.schema.names] * 2
    assert [row["state"] for row in rows] == expected["state"].to_pylist() == ["pending", "pending"]
    assert run_command("delayed", path).text.split()[0] == "brokerName"
