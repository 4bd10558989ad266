"""Jobs: each module runs its verb, with the same arguments, output and exit codes."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from segmentlog.command.catalogue import VERBS
from support.commands import run_command

JOBS = sorted(path.stem for path in (Path(__file__).parents[2] / "jobs").glob("[a-z]*.py"))


@pytest.mark.parametrize("job", JOBS)
def test_each_job_is_a_verb(
    job: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert job in {verb.name for verb in VERBS}
    monkeypatch.setattr(sys, "argv", [f"segmentlog.jobs.{job}", "--help"])
    monkeypatch.setattr("segmentlog.command.main.gc.freeze", lambda: None)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"segmentlog.jobs.{job}", run_name="__main__")
    assert (ended.value.code, capfdbinary.readouterr().out) == (0, run_command(job, "--help").out)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_job_has_the_errors_and_exit_codes_of_its_verb(flags: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "segmentlog.jobs.verify", str(tmp_path), *flags]
    ran = subprocess.run(command, capture_output=True, check=False, timeout=60)
    expected = run_command("verify", tmp_path, *flags)
    assert (ran.returncode, ran.stdout, ran.stderr.decode()) == (2, b"", expected.err)
