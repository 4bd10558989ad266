"""Verb ``rebuild``."""

import json
from pathlib import Path

from support.commands import run_command


def test_queues_in_another_directory(store: Path, tmp_path: Path) -> None:
    ran = run_command("rebuild", store, "--to", tmp_path / "queues", "--json")
    report = json.loads(ran.out)
    assert (ran.code, report["entries"], report["lostMessages"]) == (0, 803, 0)
    assert (tmp_path / "queues" / "orders" / "3").is_dir()


def test_queues_that_are_there_stay(store: Path) -> None:
    ran = run_command("rebuild", store)
    assert (ran.code, ran.out) == (2, b"")
    assert str(store / "consumequeue") in ran.err
