"""Tables for terminals, and JSON of reports."""

import pytest

from segmentlog.output import printable, text_table


def test_names_are_aligned_left_and_numbers_right() -> None:
    rows = [("a", 7, "x"), ("longer", None, "y"), ("b", 123, None)]
    assert text_table(rows, head=("name", "n", "t")).splitlines() == [
        "name      n  t",
        "a         7  x",
        "longer    -  y",
        "b       123",
    ]


def test_width_is_that_of_a_terminal_and_long_cells_are_cut() -> None:
    lines = text_table(
        [("标签", "a"), ("e\u0301\n", "b"), ("x" * 9, {"k": "v"})], head=("n", "t"), rule=True, cell_chars=5
    )
    assert lines.splitlines() == ["n      t", "-----  ---", "标签   a", "e\u0301\\n    b", "xxxx…  k=v"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\tb", "a\\tb"), ("\x9b1m", "\\x9b1m"), ("\u202e", "\\u202e"), ("é", "é"), ("\ud800", "\\ud800")],
)
def test_terminal_control_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown).isprintable()
