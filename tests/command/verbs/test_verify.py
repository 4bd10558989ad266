"""Verb ``verify``."""

from pathlib import Path

from support.commands import run_command
from support.small_store import ROWS, write_small_store


def test_a_sound_store(tmp_path: Path) -> None:
    ran = run_command("verify", write_small_store(tmp_path / "store"))
    assert ran.code == 0
    assert f"{ROWS} records in [0, " in ran.text
    assert ran.text.endswith(": nothing is wrong\n")


def test_a_missing_store(tmp_path: Path) -> None:
    assert run_command("verify", tmp_path / "no", "--json").error["code"] == "SEGMENTLOG_NOT_A_STORE"
    assert "the following arguments are required: STORE" in run_command("verify").err
