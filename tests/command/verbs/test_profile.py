import json
from pathlib import Path

from support.commands import run_command
from support.small_store import ROWS, write_small_store


def test_a_report_of_all_and_of_some_topics_and_a_page_in_a_new_file(tmp_path: Path) -> None:
    store, page = write_small_store(tmp_path / "store"), tmp_path / "page.html"
    ran = run_command("profile", store, "--processes", 1, "--html", page)
    assert (ran.code, "orders" in ran.text, page.read_text()[:15]) == (0, True, "<!doctype html>")
    again = run_command("profile", store, "--processes", 1, "--html", page)
    assert (again.code, "--html" in again.err) == (2, True)
    found = json.loads(run_command("profile", store, "orders", "--processes", 1, "--json").out)
    assert found["messages"] == ROWS * 2 // 3
    assert {"rows", "queues", "tags", "hosts", "minutes", "sizes", "lateness", "retention"} <= set(found)
    assert run_command("profile", store, "ordres").code == 2
