"""Verb ``demote``."""

import json
from pathlib import Path

from support.commands import run_command
from support.promoted import part, served


def test_it_prints_what_was_cut_off(tmp_path: Path) -> None:
    pair = part(tmp_path, old=5, new=5)
    with served(pair.new) as server:
        ran = run_command("demote", pair.old, "--master", f"127.0.0.1:{server.port}", "--json")
    assert (ran.code, json.loads(ran.out)["start"]) == (1, pair.parting)


def test_the_master_is_required(tmp_path: Path) -> None:
    ran = run_command("demote", tmp_path)
    assert (ran.code, ran.out) == (2, b"")
    assert "--master" in ran.err
