"""Verb ``salvage``."""

import json
from pathlib import Path

from support.commands import run_command


def test_a_copy_is_sound(store: Path, tmp_path: Path) -> None:
    ran = run_command("salvage", store, tmp_path / "copy", "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["records"] == 803
    assert run_command("verify", tmp_path / "copy").code == 0


def test_a_target_that_is_there(store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    ran = run_command("salvage", store, tmp_path)
    assert (ran.code, ran.out) == (2, b"")
    assert (tmp_path / "file").read_text() == "mine"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_wrong_numbers(store: Path, tmp_path: Path) -> None:
    ran = run_command("salvage", store, tmp_path / "copy", "--segment-bytes", "many")
    assert ran.code == 2
    assert "--segment-bytes: " in ran.err
    assert not (tmp_path / "copy").exists()
