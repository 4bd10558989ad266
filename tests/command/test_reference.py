"""``docs/cli.md``: made from the catalogue, and current."""

from pathlib import Path

import pytest

from segmentlog.command import reference
from segmentlog.command.catalogue import VERBS

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_current() -> None:
    fix = "run python -m segmentlog.command.reference docs/cli.md"
    assert PAGE.read_text(encoding="utf-8") == reference.render(), fix


def test_each_verb_and_flag_is_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference.main([])
    page = capsys.readouterr().out
    reference.main([str(tmp_path / "cli.md")])
    assert (tmp_path / "cli.md").read_text() == page
    for verb in VERBS:
        _, _, section = page.partition(f"\n### {verb.name}\n")
        section = section.partition("\n##")[0]
        assert section, verb.name
        for action in verb.parser().actions:
            assert action.dest == "help" or all(f"{name}" in section for name in action.option_strings)


def test_cells_have_no_unescaped_bars() -> None:
    for line in reference.render().splitlines():
        if line.startswith("| `"):
            assert line.replace("\\|", "").count("|") == 3, line
