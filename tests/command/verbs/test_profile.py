"""Verb ``profile``: its report, its page, and a file that exists."""

import json
from pathlib import Path

import pytest

from support.commands import run_command
from support.small_store import ROWS, write_small_store


def test_a_report_of_all_and_of_some_topics(tmp_path: Path) -> None:
    store = write_small_store(tmp_path / "store")
    assert "orders" in run_command("profile", store, "--processes", 1).text
    found = json.loads(run_command("profile", store, "orders", "--processes", 1, "--json").out)
    assert found["messages"] == ROWS * 2 // 3
    assert {"rows", "queues", "tags", "hosts", "minutes", "sizes", "lateness", "retention"} <= set(found)
    assert run_command("profile", store, "ordres").code == 2


@pytest.mark.slow
def test_a_page_is_a_new_file(tmp_path: Path) -> None:
    store, page = write_small_store(tmp_path / "store"), tmp_path / "page.html"
    assert run_command("profile", store, "--processes", 1, "--html", page).code == 0
    assert page.read_text().startswith("<!doctype html>")
    again = run_command("profile", store, "--processes", 1, "--html", page)
    assert again.code == 2
    assert "--html" in again.err
