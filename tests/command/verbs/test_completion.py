import shutil
import subprocess
from pathlib import Path

import pytest

from support.commands import run_command

BASH = """
source {script}
complete_line() {{
  COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _shtab_segmentlog; echo "${{COMPREPLY[@]}}"
}}
complete_line segmentlog sa
complete_line segmentlog cat /data --fr
complete_line segmentlog put --dry
complete_line segmentlog verify {folder}/st
complete_line segmentlog cat {folder} orders --fro
complete_line segmentlog replicate h:1 copy --from l
"""


def script(shell: str, folder: Path) -> Path:
    ran = run_command("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    (folder / shell).write_text(ran.text)
    return folder / shell


def output(shell: str, program: str) -> str:
    """Output of a program in a shell, or a skip if this machine does not have the shell."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed on this machine")
    ran = subprocess.run([shell, "-c", program], capture_output=True, check=False, timeout=300)
    assert (ran.returncode, ran.stderr) == (0, b"")
    return ran.stdout.decode()


def test_bash_completes_verbs_flags_and_files(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    found = output("bash", BASH.format(script=script("bash", tmp_path), folder=tmp_path)).splitlines()
    assert found == ["salvage", "--from", "--dry-run", f"{tmp_path}/store", "--from", "last"]


@pytest.mark.slow
@pytest.mark.scaled(quick=0)
def test_zsh_takes_the_script(tmp_path: Path) -> None:
    path = script("zsh", tmp_path)
    found = output(
        "zsh", f'autoload -Uz compinit; compinit -u -d {tmp_path}/dump; eval "$(cat {path})"; echo $_comps[segmentlog]'
    )
    assert found == "_shtab_segmentlog\n"


def test_fish_completes_verbs_and_flags(tmp_path: Path) -> None:
    path = script("fish", tmp_path)
    found = output("fish", f"source {path}; complete -C 'segmentlog sal'; complete -C 'segmentlog cat --fro'")
    assert [line.partition("\t")[0] for line in found.splitlines()] == ["salvage", "--from"]
