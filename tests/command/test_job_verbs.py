"""Verbs that are jobs: the same flags and JSON as ``python -m segmentlog.jobs.X``, and the errors of all verbs."""

import json
from pathlib import Path

import pytest

from segmentlog.jobs import rebuild, salvage, verify
from support.commands import run_command
from support.small_store import write_small_store
from support.tampering import put_at, segments


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A store in which one record is damaged."""
    path = write_small_store(tmp_path / "store")
    first = segments(path)[0]
    put_at(first, first.read_bytes().index(b"body 6 "), b"####")
    return path


def test_the_report_is_that_of_the_job(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (["--json"], []):
        ran = run_command("verify", damaged, *flags)
        assert (ran.code, verify.main([str(damaged), *flags])) == (1, 1)
        assert ran.text == capsys.readouterr().out


def test_names_in_json_are_those_of_columns(damaged: Path, tmp_path: Path) -> None:
    words = {
        "verify": (damaged,),
        "salvage": (damaged, tmp_path / "copy"),
        "rebuild": (damaged, "--to", tmp_path / "queues"),
    }
    for verb, arguments in words.items():
        report = json.loads(run_command(verb, *arguments, "--json").out)
        assert report["lostMessages"] >= 0
        assert not any("_" in name for name in report)


def test_progress_is_lines_in_a_pipe_and_a_bar_on_a_terminal(damaged: Path) -> None:
    assert "INFO    CommitLog segment " in run_command("verify", damaged).err
    shown = run_command("verify", damaged, terminal=True)
    assert "INFO" not in shown.err
    assert f"{len(segments(damaged))}/{len(segments(damaged))}" in shown.err
    assert "\x1b" not in shown.text


@pytest.mark.parametrize("verb", ["verify", "salvage", "rebuild"])
def test_a_directory_that_is_no_store(verb: str, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    more = [tmp_path / "copy"] if verb == "salvage" else []
    error = run_command(verb, tmp_path / "plain", *more, "--json").error
    assert error["code"] == "SEGMENTLOG_NOT_A_STORE"
    assert error["where"]["path"] == str(tmp_path / "plain")


def test_flags_of_jobs_and_verbs_are_the_same() -> None:
    for job in (verify, salvage, rebuild):
        name = job.__name__.rpartition(".")[2]
        assert run_command(name, "--help").code == 0
        assert "there is no flag `--josn`" in run_command(name, "x", "--josn").err
