import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]

Found = Callable[[str, str], list[tuple[int, str]]]


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    """``scripts/prose.py``, which is run by path and belongs to no package."""
    spec = importlib.util.spec_from_file_location("prose", ROOT / "scripts" / "prose.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["prose"] = module  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def found(prose: ModuleType, tmp_path: Path) -> Found:
    """A function that checks a file with a name and a content, and returns line and rule of each finding."""

    def check(name: str, source: str) -> list[tuple[int, str]]:
        (tmp_path / name).write_text(source, encoding="utf-8")
        return [(each.line, each.rule) for each in prose.check(tmp_path / name)]

    return check


WORDS = {
    "behind": ("the record behind it", "a reader that falls behind"),
    "in-front": ("the segment in front\nof it", "the front of the queue"),
    "lies": ("the file lies in a folder", "the layout of the file"),
    "gives": ("a call gives the offset", "it gives up after a second, at the given offset"),
    "who": ("nobody reads it", "a queue whose end moved"),
    "anew": ("it is made anew", "it is a new one"),
    "ado": ("without more ado", "without more options"),
    "in-vain": ("delivered in vain", "in various ways"),
    "per": ("costs 20 bytes a message", "costs 20 bytes per message; 5 rows a task has read"),
    "none": ("of the rows none is read", "there is none; None is unknown"),
}


@pytest.mark.parametrize(("rule", "bad", "good"), [(rule, *texts) for rule, texts in WORDS.items()])
def test_each_rule_finds_its_words_in_every_kind_of_prose(rule: str, bad: str, good: str, found: Found) -> None:
    literal = bad.replace("\n", " ")
    assert found("a.md", f"# Title\n\nA page: {bad}.\n") == [(3, rule)]
    assert found("a.py", f'"""A module: {bad}."""\n') == [(1, rule)]
    assert found("b.py", f"x = 1\n# A remark: {bad.replace(chr(10), chr(10) + '# ')}.\n") == [(2, rule)]
    assert found("c.py", f'x = 1\nraise ValueError(f"{{x}} is an error: {literal}")\n') == [(2, rule)]
    for name, text in (("d.md", f"A page: {good}.\n"), ("d.py", f'"""A module: {good}."""\n')):
        assert found(name, text) == []


@pytest.mark.parametrize(
    ("riddle", "plain"),
    [
        ("each_hears_what_it_needs", "every_waiter_gets_its_own_disk_full_error"),
        ("a_stop_drops_the_others", "a_stop_drops_the_other_jobs"),
        ("a_closed_store_and_an_open_one", "rows_are_read_one_by_one"),
        ("the_last_ones", "one_message_is_read"),
        ("a_link_is_no_lock", "a_link_is_not_a_lock_and_is_no_longer_followed"),
        ("the_plan_says_so", "the_plan_has_a_reason"),
    ],
)
def test_names_of_tests_are_not_riddles(riddle: str, plain: str, found: Found) -> None:
    assert found("a.py", f"import x\n\n\ndef test_{riddle}() -> None: ...\n") == [(4, "riddle")]
    assert found("b.py", f"def test_{plain}() -> None: ...\n\n\ndef {riddle}() -> None: ...\n") == []


@pytest.mark.parametrize("word", ["What", "Who", "How", "Where", "Whether", "All that"])
def test_headlines(word: str, found: Found) -> None:
    def headlines(name: str, source: str) -> list[int]:
        return [line for line, rule in found(name, source) if rule == "headline"]

    assert headlines("a.py", f'"""{word} is stored."""\n') == [1]
    assert headlines("b.py", f'class A:\n    """A class.\n\n    {word} is stored.\n    """\n') == []
    assert headlines("c.py", f'class A:\n    x: int = 1\n    """{word} is stored."""\n') == [3]
    assert headlines("d.md", f"# Storage\n\n## {word} is stored\n\n{word} is stored.\n") == [3]


def test_long_sentences_are_counted_by_words(found: Found) -> None:
    short, long = " ".join(["word"] * 25), " ".join(["word"] * 26)
    assert found("a.md", f"{short}. {short}.\n\n* {short}\n* {short}\n\n| {short} | {short}; {short} |\n") == []
    assert found("b.md", f"{short}.\n{long}.\n\n* one\n* {long}\n\n| a; b | {long} |\n") == [
        (2, "long"),
        (5, "long"),
        (7, "long"),
    ]
    assert found("c.py", f'"""{short}.\n\n{short}.\n\nArgs\n----\nname\n    {short}\n"""\n') == []
    assert found("d.py", f'"""A module.\n\nwords\n{long}.\n"""\n') == [(3, "long")]
    assert found("d.py", f'"""A module.\n\n::\n\n    {long}\n\n    {long}\n\n{long}.\n"""\n') == [
        (9, "long")
    ]  # a drawing
    assert found("e.py", f'# {long}\nx = "{long}"\n') == []  # comments and messages have no such limit
    assert found("f.md", f"{' '.join(['`a code span`'] * 13)} [a link](to/a.md#page) — {' '.join(['x'] * 10)}.\n") == []


def test_code_is_not_checked_as_prose(found: Found) -> None:
    assert (
        found("a.md", "Text.\n\n```text\nnobody\n```\n\n    nobody indented\n\n`nobody` [a](nobody) <!-- nobody -->\n")
        == []
    )
    assert found("b.py", '"""A module, ``nobody``.\n\n>>> nobody\n"""\nnobody = who(lies)\nkey = "lies"\n') == []
    assert found("c.md", "Text.\n\n    indented\n\nnobody\n") == [(5, "who")]


def test_literals_and_comments_are_told_apart(found: Found) -> None:
    assert found("a.py", 'x = "# nobody"  # somebody\ny = "it\'s"  # nobody\n') == [(1, "who"), (2, "who")]
    assert found("b.py", 'x = (\n    "a longer text that is in two "\n    "parts, which nobody reads"\n)\n') == [
        (2, "who")
    ]


def test_exceptions_hold_for_their_rule_and_line(found: Found) -> None:
    assert found("a.py", "x = 1  # behind a proxy  # prose: allow behind - a place\n") == []
    assert found("b.py", '"""A module.\n\nBehind a proxy.\n"""  # prose: allow behind - a place\n') == []
    assert found("b.py", 'x = "# prose: allow behind - a literal"  # behind\n') == [(1, "behind")]
    assert found("c.md", "Behind a proxy. <!-- prose: allow behind - a place -->\n") == []
    assert found("d.md", "Behind it lies. <!-- prose: allow behind, lies - both -->\n") == []
    assert found("e.md", "Behind it lies. <!-- prose: allow behind - a place -->\n") == [(1, "lies")]
    assert found("f.md", "Behind.\n\nAfter. <!-- prose: allow behind - a place -->\n") == [(1, "behind"), (3, "escape")]
    assert found("g.md", "After. <!-- prose: allow this - no such rule -->\n") == [(1, "escape")]
    assert found("h.md", "Behind. <!-- prose: allow behind -->\n") == [(1, "behind")]  # without a reason


def test_the_command_prints_findings_and_fails(
    prose: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.md").write_text("A file lies here.\n")
    (tmp_path / "inner" / "b.md").write_text("Nobody.\n")
    assert prose.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == (
        f"{tmp_path}/a.md:1: lies: 'lies' -> is at, is stored in, is in\n"
        f"{tmp_path}/inner/b.md:1: who: 'Nobody' -> "
        "the noun: the caller, the writer, the user, another process, no reader\n"
    )
    (tmp_path / "clean.md").write_text("A file is here.\n")
    assert prose.main([str(tmp_path / "clean.md")]) == 0
    with pytest.raises(SystemExit):
        prose.main([str(tmp_path / "gone")])
    assert "these paths do not exist" in capsys.readouterr().err


def test_every_folder_with_prose_is_checked(prose: ModuleType) -> None:
    checked = {path.relative_to(ROOT).parts[0] for path in prose.files([ROOT / top for top in prose.TOPS])}
    assert checked == set(prose.TOPS)
    tops = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
    assert tops - {"build", "images", "segmentlog.egg-info", "spark-warehouse", "__pycache__"} == set(prose.TOPS)
