"""Tables for terminals, and JSON of reports."""

from dataclasses import dataclass
from enum import Enum

import pytest

from segmentlog.output import json_text, printable, text_table


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    color: Color
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Outer:
    name: str | None
    inner: list[Inner]


def test_names_are_aligned_left_and_numbers_right() -> None:
    rows = [("a", 7, "x"), ("longer", None, "y"), ("b", 123, None)]
    assert text_table(rows, head=("name", "n", "t")).splitlines() == [
        "name      n  t",
        "a         7  x",
        "longer    -  y",
        "b       123",
    ]


def test_a_column_with_a_text_is_aligned_to_the_left() -> None:
    assert text_table([(1, "a"), ("10", "b")]).splitlines() == ["1   a", "10  b"]


def test_a_note_is_below_its_row_in_the_last_column() -> None:
    assert text_table([("ok", "java", "17"), ("fail", "x", "none")], notes=["", "install it"]).splitlines() == [
        "ok    java  17",
        "fail  x     none",
        "            -> install it",
    ]


def test_width_is_that_of_a_terminal_and_long_cells_are_cut() -> None:
    lines = text_table(
        [("标签", "a"), ("e\u0301\n", "b"), ("x" * 9, {"k": "v"})], head=("n", "t"), rule=True, cell_chars=5
    )
    assert lines.splitlines() == ["n      t", "-----  ---", "标签   a", "e\u0301\\n    b", "xxxx…  k=v"]


def test_a_table_without_rows() -> None:
    assert text_table([], head=("a", "b")) == "a  b"
    assert text_table([]) == ""


def test_json_of_dataclasses_enums_and_tuples() -> None:
    report = Outer(None, [Inner(Color.RED, (1, 2))])
    assert json_text(report) == '{"name": null, "inner": [{"color": "red", "sizes": [1, 2]}]}'
    assert json_text({"checks": (Color.RED,)}, indent=1) == '{\n "checks": [\n  "red"\n ]\n}'


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\tb", "a\\tb"), ("\x9b1m", "\\x9b1m"), ("\u202e", "\\u202e"), ("é", "é"), ("\ud800", "\\ud800")],
)
def test_terminal_control_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown).isprintable()
