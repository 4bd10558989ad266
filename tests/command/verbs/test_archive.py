import json
from pathlib import Path
from typing import Any

import pytest

from support.archived_store import write_whole
from support.commands import run_command
from support.tampering import overwrite

ROWS = 90


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_whole(tmp_path / "store", ROWS)


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "archive").mkdir()
    return f"file://{tmp_path}/archive"


def report(*words: object, code: int = 0) -> dict[str, Any]:
    ran = run_command("archive", *words, "--json")
    assert ran.code == code, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def test_an_archive_is_pushed_listed_verified_and_pulled(store: Path, url: str, tmp_path: Path) -> None:
    pushed = report("push", store, url)
    assert (pushed["records"], pushed["manifest"], pushed["warnings"]) == (ROWS, 1, [])
    listed = report("ls", url)
    assert sum(queue["messages"] for queue in listed["queues"]) == ROWS
    assert [piece["records"] for piece in listed["pieces"]] == [30, 30, 30]
    assert report("verify", url, "--deep")["records"] == ROWS
    pulled = report("pull", url, tmp_path / "restored", "--topic", "refunds", "--from", "@0")
    assert (pulled["queues"], pulled["segments"]) == (1, 3)
    for table in ("queues", "pieces", "files", "pushes"):
        assert "manifest 1: the log [0, " in run_command("archive", "ls", url, table).text
    text = run_command("archive", "pull", url, tmp_path / "again").text
    assert "3 queues with 90 entries" in text


def test_findings_have_the_exit_code_1(store: Path, url: str, tmp_path: Path) -> None:
    overwrite(store, 100, b"\xff\xff")
    assert run_command("archive", "push", store, url).code == 2
    assert "--damaged keep" in run_command("archive", "push", store, url).err
    kept = run_command("archive", "push", store, url, "--damaged", "keep")
    assert (kept.code, "damaged bytes" in kept.text) == (1, True)
    next((tmp_path / "archive" / "log").rglob("*-*")).unlink()
    found = report("verify", url, code=1)["findings"]
    assert [finding["text"] for finding in found] == ["this object is missing"]
    assert "damaged" in run_command("archive", "verify", url).text


def test_segments_are_pruned_by_a_time_or_a_number_of_days(store: Path, url: str) -> None:
    report("push", store, url)
    planned = report("prune", url, "--keep", "0.5", "--dry-run")
    assert (planned["pieces"], planned["manifest"]) == (2, 1)
    assert report("prune", url, "--before", "now", "--orphans-after", "1h")["start"] == planned["start"]
    assert "0 pieces" in run_command("archive", "prune", url, "--keep", "1").text


@pytest.mark.parametrize(
    "words", [["--storage", "aws_secret_access_key=secret"], ["--storage=aws_x=secret"], ["--storage", "secret"]]
)
@pytest.mark.parametrize("verb", [["archive", "verify"], ["topics"]])
def test_credentials_are_not_in_errors(verb: list[str], words: list[str]) -> None:
    ran = run_command(*verb, "nowhere", *words)
    assert ran.code == 2
    assert "secret" not in ran.err.replace("aws_secret_access_key", "")
