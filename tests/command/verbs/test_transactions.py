"""Verb ``transactions``."""

from pathlib import Path

import segmentlog
from support.commands import run_command
from support.system_store import build_system_store


def test_transactions_are_printed_as_python_returns_them(tmp_path: Path) -> None:
    path = build_system_store(tmp_path / "broker-a")
    rows = run_command("transactions", path, "--json").rows
    expected = segmentlog.open(path).transactions().to_arrow()
    assert [list(row) for row in rows] == [expected.schema.names] * 1
    assert [row["outcome"] for row in rows] == expected["outcome"].to_pylist() == ["pending"]
    assert run_command("transactions", path).text.split()[0] == "brokerName"
