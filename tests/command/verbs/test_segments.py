"""Verb ``segments``."""

from pathlib import Path

from support.commands import run_command


def test_segments_lists_the_files_of_the_commit_log(store: Path) -> None:
    rows = run_command("segments", store, "--json").rows
    assert [row["path"] for row in rows] == sorted(str(path) for path in (store / "commitlog").iterdir())
    assert rows[0]["baseOffset"] == 0
    assert [row["bytes"] for row in rows] == [1 << 15] * len(rows)
