from importlib import import_module
from pathlib import Path

import pytest

from segmentlog.command.catalogue import VERBS, find_verb, help_text
from segmentlog.command.errors import UsageError

ROOT = Path(__file__).parents[2]


def test_each_verb_has_a_module_and_each_module_a_verb() -> None:
    modules = {path.stem for path in (ROOT / "package" / "command" / "verbs").glob("*.py")} - {"__init__"}
    asked = {verb.module for verb in VERBS}
    assert asked == modules
    functions = {f"run_{verb.name.replace('-', '_')}" for verb in VERBS}
    found = [name for each in asked for name in vars(import_module(f"segmentlog.command.verbs.{each}"))]
    assert {name for name in found if name.startswith("run_")} == functions


def test_no_name_or_alias_is_there_twice() -> None:
    names = [name for verb in VERBS for name in (verb.name, *verb.aliases)]
    assert sorted(set(names)) == sorted(names)


def test_names_of_mqadmin_are_found_but_not_listed() -> None:
    assert find_verb("topicList").name == "topics"
    assert "topicList" not in help_text()


def test_an_unknown_verb_suggests_the_nearest_verb() -> None:
    with pytest.raises(UsageError, match="there is no verb `topcs`") as caught:
        find_verb("topcs")
    assert "Did you mean `topics`?" in str(caught.value)


def test_help_lists_each_verb_once_with_its_summary() -> None:
    lines = help_text().splitlines()
    for verb in VERBS:
        (line,) = [line for line in lines if line.startswith(f"  {verb.name} ")]
        assert line.endswith(f"  {verb.summary}")
        assert len(line) < 100
