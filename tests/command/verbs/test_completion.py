"""Verb ``completion``; the scripts are tested in ``tests/command/test_completion.py``."""

from support.commands import run_command


def test_the_script_goes_to_stdout_alone() -> None:
    ran = run_command("completion", "bash")
    assert (ran.code, ran.err) == (0, "")
    assert ran.text.endswith("complete -o filenames -F _segmentlog segmentlog\n")


def test_a_missing_shell() -> None:
    ran = run_command("completion")
    assert (ran.code, ran.out) == (2, b"")
    assert "the following arguments are required: SHELL" in ran.err
