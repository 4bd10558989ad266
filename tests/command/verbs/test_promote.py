"""Verb ``promote``."""

import json
from pathlib import Path

from support.commands import run_command
from support.promoted import append


def test_it_prints_the_epoch(tmp_path: Path) -> None:
    end = append(tmp_path / "store", range(5))
    ran = run_command("promote", tmp_path / "store", "--json")
    assert (ran.code, json.loads(ran.out)["start"]) == (0, end)


def test_a_path_without_a_store(tmp_path: Path) -> None:
    ran = run_command("promote", tmp_path / "nothing")
    assert (ran.code, ran.out) == (2, b"")
    assert not (tmp_path / "nothing").exists()
