import pytest

from segmentlog.store.errors import ConfigError, FilterSyntaxError
from segmentlog.store.filter.expressions import (
    And,
    Compare,
    Condition,
    Equal,
    In,
    IsNull,
    IsTrue,
    Match,
    Matches,
    Negative,
    Not,
    Number,
    NumberType,
    Or,
    Order,
    Property,
    Text,
    Truth,
)
from segmentlog.store.filter.sql92 import parse

A, B, C = Property("a"), Property("b"), Property("c")
ONE, TWO = Number(1, NumberType.INTEGER), Number(2, NumberType.INTEGER)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("a", IsTrue(A)),
        ("TRUE", Truth(True)),
        ("null", Truth(None)),
        ("a = 1 OR b = 1 AND c = 1", Or((Equal(A, ONE), And((Equal(B, ONE), Equal(C, ONE)))))),
        ("a AND b AND c", And((IsTrue(A), IsTrue(B), IsTrue(C)))),
        ("NOT a = 1", Equal(Not(IsTrue(A)), ONE)),
        ("NOT (a = 1)", Not(Equal(A, ONE))),
        ("a <> 1", Not(Equal(A, ONE))),
        ("a = 1 = TRUE", Equal(Equal(A, ONE), Truth(True))),
        ("a IS NULL", IsNull(A)),
        ("a is Not nUll", Not(IsNull(A))),
        ("a >= -1", Compare(A, Order.GREATER_EQUAL, Negative(ONE))),
        ("+a < +1", Compare(A, Order.LESS, ONE)),
        (
            "a BETWEEN 1 AND 2 AND b",
            And((And((Compare(A, Order.GREATER_EQUAL, ONE), Compare(A, Order.LESS_EQUAL, TWO))), IsTrue(B))),
        ),
        ("a NOT BETWEEN 2 AND 1", Or((Compare(A, Order.LESS, TWO), Compare(A, Order.GREATER, ONE)))),
        ("(a) IN ('x', 'it''s', '')", In(A, frozenset({"x", "it's", ""}))),
        ("a NOT IN ('x')", Not(In(A, frozenset({"x"})))),
        ("a contains 'b'", Matches(A, Match.CONTAINS, "b", negated=False)),
        ("a NOT StartsWith 'b'", Matches(A, Match.STARTSWITH, "b", negated=True)),
        ("1 endswith 'b'", Matches(ONE, Match.ENDSWITH, "b", negated=False)),
        ("notA = NULLIF", Equal(Property("notA"), Property("NULLIF"))),
        ("$a_1 = '-- no comment'", Equal(Property("$a_1"), Text("-- no comment"))),
    ],
)
def test_expressions(text: str, condition: Condition) -> None:
    assert parse(text) == condition
    assert parse(f"({text})") == condition
    assert parse(f" -- first\n/* ** / */{text}\t\f\r\n -- last") == condition


@pytest.mark.parametrize(
    ("literal", "number"),
    [
        ("0", Number(0, NumberType.INTEGER)),
        ("2147483647", Number(2**31 - 1, NumberType.INTEGER)),
        ("7L", Number(7, NumberType.INTEGER)),  # fits, so the suffix says nothing
        ("2147483648", Number(2**31, NumberType.LONG)),
        ("9223372036854775807l", Number(2**63 - 1, NumberType.LONG)),
        ("1.", Number(1.0, NumberType.DOUBLE)),
        (".5", Number(0.5, NumberType.DOUBLE)),
        ("01.5E+2", Number(150.0, NumberType.DOUBLE)),
        ("5e-324", Number(5e-324, NumberType.DOUBLE)),
    ],
)
def test_numbers(literal: str, number: Number) -> None:
    assert parse(f"a = {literal}") == Equal(A, number)


REFUSED = [
    ("", 0, "ends in place of a property or a literal"),
    ("a =", 3, "ends in place of a property or a literal"),
    ("(a = 1", 6, "ends in place of `)`"),
    ("a == 1", 3, "`=` at character 4 is unexpected, in place of a property or a literal"),
    ("a != 1", 2, "Write <> for unequal"),
    ("a = 'x", 4, "A string ends with a single quote"),
    ('a = "x"', 4, "Write strings in single quotes"),
    ("a /* b", 2, "A comment ends with */"),
    ("a IS b", 5, "`b` at character 6 is unexpected, in place of NOT or NULL"),
    ("a NOT b", 6, "in place of BETWEEN, CONTAINS, STARTSWITH, ENDSWITH or IN"),
    ("a IN (1)", 6, "in place of a string in single quotes"),
    ("a IN ()", 6, "in place of a string in single quotes"),
    ("a IN ('x' 'y')", 10, "in place of `)` or a comma"),
    ("contains = 'x'", 0, "`contains` at character 1 is unexpected"),
    ("5", 0, "`5` at character 1 is not a condition"),
    ("a AND 'x'", 6, "`'x'` at character 7 is not a condition"),
    ("NOT -a", 4, "`-a` at character 5 is not a condition"),
    ("a = NULL", 4, "equals nothing: write IS NULL or IS NOT NULL"),
    ("NULL <> a", 0, "equals nothing"),
    ("TRUE = 1", 7, "is not compared with TRUE or FALSE"),
    ("a > 'x'", 4, "is neither number nor property"),
    ("(a = 1) < 2", 1, "`a = 1` at character 2 is neither number nor property"),
    ("a BETWEEN 1 AND TRUE", 16, "is neither number nor property"),
    ("a BETWEEN 2 AND 1", 16, "is less than the lower bound of BETWEEN"),
    ("'x' IN ('x')", 0, "is not a property"),
    ("NOT a IN ('x')", 0, "`NOT a` at character 1 is not a property"),
    ("a = 9223372036854775808", 4, "is more than 9223372036854775807"),
    ("a = " + "9" * 5000, 4, "is more than 9223372036854775807"),
    ("a = 0.0", 4, "is zero or infinite as a double, which RocketMQ refuses"),
    ("a = 1e309", 4, "is zero or infinite as a double, which RocketMQ refuses"),
    ("a = 1e-400", 4, "is zero or infinite as a double, which RocketMQ refuses"),
    ("a = 'x' \0", 8, r"`\x00` at character 9 is unexpected"),
    ("a = \ud800", 4, r"`\ud800` at character 5 is not a Unicode character"),
    ("-" * 101 + "a = 1", 100, "is nested more than 100 deep"),
]


@pytest.mark.parametrize(("text", "position", "words"), REFUSED, ids=range(len(REFUSED)))
def test_refused_texts_report_the_position_and_the_expected_token(text: str, position: int, words: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    assert isinstance(caught.value, ConfigError)
    if "100 deep" not in words:
        assert caught.value.position == position
    assert words in str(caught.value)
    assert str(caught.value).isprintable()
    assert "RocketMQ ignores" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("a = 1 AD b = 2", 6, "`AD` at character 7 is unexpected, in place of an operator, AND, OR or the end"),
        ("a LIKE 'x%'", 2, "Write CONTAINS, STARTSWITH or ENDSWITH in place of LIKE"),
        ("a + 1 > 5", 2, "SQL92 filters of RocketMQ have no arithmetic"),
        ("a = 010", 5, "`10` at character 6 is unexpected"),
        ("a = 1)", 5, "`)` at character 6 is unexpected, in place of the end"),
        ("a = 5LL !", 6, "`L` at character 7"),
    ],
)
def test_text_that_rocketmq_ignores_is_refused(text: str, position: int, words: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    assert caught.value.position == position
    assert words in str(caught.value)
    assert "RocketMQ ignores the text from there on: correct or remove it." in str(caught.value)
    parse(text[:position])  # what it filters by


def test_errors_of_the_text_before_come_first() -> None:
    with pytest.raises(FilterSyntaxError, match="equals nothing"):
        parse("a = NULL b")
    with pytest.raises(FilterSyntaxError, match="`5` at character 1 is not a condition"):
        parse("5 b")


@pytest.mark.parametrize("text", ["a = 1 -- no line end", "a = 1 --", "a = 1 --\rOR TRUE --"])
def test_a_comment_may_end_with_the_text(text: str) -> None:
    """RocketMQ has minus signs there, and ignores them."""
    assert parse(text) in (Equal(A, ONE), Or((Equal(A, ONE), Truth(True))))


def test_two_minus_signs_are_a_comment_only_if_a_newline_follows() -> None:
    assert parse("a = --1") == Equal(A, Negative(Negative(ONE)))
    with pytest.raises(FilterSyntaxError, match="ends in place of"):
        parse("a = --1\n")


def test_keywords_are_ascii() -> None:
    """RocketMQ's lexer knows no other letters; `ſ` is an S to many case rules."""
    with pytest.raises(FilterSyntaxError, match="`I` at character 3"):
        parse("a Iſ NULL")


def test_long_texts_are_shown_around_the_fault() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse("a = 1 OR " * 1000 + "! " + "b" * 1000)
    assert "…" in caught.value.problem
    assert "`!` at character 9001" in caught.value.problem
    assert len(caught.value.problem) < 300


def test_long_and_flat_filters_are_not_deep() -> None:
    condition = parse(" OR ".join(f"a = {number}" for number in range(2000)))
    assert isinstance(condition, Or)
    assert len(condition.operands) == 2000
    assert parse("(" * 5000 + "a" + ")" * 5000) == IsTrue(A)
