import argparse

import pytest

from segmentlog.command.errors import UsageError
from segmentlog.command.parser import Parser, add_store, names, typed, whole


@pytest.fixture
def parser() -> Parser:
    made = Parser("cat", "messages")
    add_store(made)
    made.add_argument("--columns", type=names)
    made.add_argument("-n", "--number", type=whole)
    made.add_argument("--kind", choices=["table", "csv"])
    return made


def test_arguments_are_parsed(parser: Parser) -> None:
    options = parser.parse(["/s", "--columns", "a, b", "-n", "3", "--commit-log", "/x", "--commit-log=/y"])
    assert (options.store, options.columns, options.number, options.commit_log) == ("/s", ("a", "b"), 3, ["/x", "/y"])


@pytest.mark.parametrize(
    ("arguments", "problem", "remedy"),
    [
        (["/s", "--colums", "a"], "there is no flag `--colums`", "Did you mean `--columns`?"),
        (["--colums=a"], "there is no flag `--colums`", "Did you mean `--columns`?"),
        (["/s", "--col", "a"], "there is no flag `--col`", "The flags are"),
        (["/s", "t"], "unexpected argument `t`", "--help"),
        (["/s", "-x"], "unexpected argument `-x`", "--help"),
        ([], "the following arguments are required: STORE", "--help"),
        ([""], "STORE: the text is empty", "for this directory"),
        (["/s", "--commit-log", ""], "--commit-log: the text is empty", "for this directory"),
        (["/s", "-n", "-1"], "-n/--number: `-1` is not a whole number from 0 on", "--help"),
        (["/s", "-n", "\u0661"], "-n/--number: `\u0661` is not a whole number from 0 on", "--help"),
        (["/s", "-n"], "-n/--number: expected one argument", "--help"),
        (["/s", "--columns", "a,,b"], "--columns: `a,,b` has an empty name", "--help"),
        (["/s", "--kind", "tabel"], "--kind: `tabel` is unknown", "Did you mean `table`? The choices are"),
    ],
)
def test_wrong_arguments(parser: Parser, arguments: list[str], problem: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        parser.parse(arguments)
    assert caught.value.problem.startswith(problem)
    assert remedy in (caught.value.fix or "")


def test_words_after_two_dashes_are_arguments(parser: Parser) -> None:
    assert parser.parse(["--", "--store"]).store == "--store"


def test_a_parser_of_text_is_a_type_of_arguments() -> None:
    def refuse(text: str) -> int:
        raise UsageError(f"`{text}` is no time", fix="Pass such as 2026-01-31T12:00:00Z")

    with pytest.raises(argparse.ArgumentTypeError, match=r"`x` is no time\0Pass such as 2026"):
        typed(refuse)("x")
    assert typed(int)("7") == 7
