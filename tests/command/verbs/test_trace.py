"""Verb ``trace``."""

from pathlib import Path

import segmentlog
from support.commands import run_command
from support.system_store import build_system_store


def test_traces_are_printed_as_python_returns_them(tmp_path: Path) -> None:
    path = build_system_store(tmp_path / "broker-a")
    rows = run_command("trace", path, "--json").rows
    expected = segmentlog.open(path).trace().to_arrow()
    assert [list(row) for row in rows] == [expected.schema.names] * 2
    assert [row["error"] for row in rows] == expected["error"].to_pylist() == [None, "the type of the entry is unknown"]
    assert run_command("trace", path).text.split()[0] == "brokerName"
