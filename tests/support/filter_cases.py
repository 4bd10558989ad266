"""SQL92 filters and rows of properties to evaluate them on, generated from a seed, biased towards the odd ones.

::

    seed ──► expression: tree of conditions, keywords in any case, literals at the limits of their types
                 │ some are damaged: tokens dropped, doubled, replaced
    rows ────────┴──► RocketMQ (the oracle, or its recorded answers), and this project ──► a letter per row

Letters: T true, F false, N null, E evaluation error. Only T is delivered, so ours are compared as T or not.
"""

import gzip
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from segmentlog.store.errors import FilterSyntaxError
from segmentlog.store.filter.evaluate import Sql92Filter

from . import releases

NAMES: Final = ("a", "b", "c", "TAGS", "_x1", "$d", "notA")

VALUES: Final = (
    *("5", "-5", "+5", "005", "0", "-0", "1", "10", "7", "100", "-1"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "4294967296"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"),
    *("00000000000000000000000000007", "99999999999999999999999999", "+-5", "--5", "5-", "+", "-"),
    *("5.0", "10.5", ".5", "5.", "-.5", ".", "1e5", "1E-3", "1e", "e5", "1e400", "-1e400", "1e-400", "-0.0", "0.0"),
    *("NaN", "-NaN", "nan", "Infinity", "+Infinity", "-Infinity", "infinity", "inf"),
    *(
        "5d",
        "5F",
        "5.5f",
        "5L",
        "0x5",
        "0x1F",
        "0x1p3",
        "-0X1.8p1d",
        "0x.8p1",
        "0xp1",
        "0x1p99999",
        "010",
        "1_000",
        "1,5",
    ),
    *(" 5", "5 ", "\t5.5\n", "\x1f7\x0b", "\u00a05", "５", "-٥", "1٢3", "𝟓", "½", "−5"),
    *("true", "TRUE", "tRuE", "false", "FALSE", "yes", "null", "NULL"),
    *("x", "X", "abc", "aBc", "ab", "bc", "a b", "it's", "''", "%", "_", "é", "日本", "😀", "abc\nabc", " "),
)

ROWS_SEED: Final = 92
_SEARCH: Final = re.compile("contains|startswith|endswith", re.IGNORECASE)


def rows() -> list[dict[str, str]]:
    """Return property rows: each value once as ``a``, each against another; some rows lack some, one lacks all."""
    chance = random.Random(ROWS_SEED)
    made: list[dict[str, str]] = [
        {},
        {"b": "5"},
        {"a": "5", "b": "5"},
        {"a": "5", "b": "05"},
        {"a": "0.0", "b": "-0.0"},
    ]
    for value in VALUES:
        others = {name: chance.choice(VALUES) for name in NAMES[1:] if chance.random() < 0.6}
        made.append({"a": value, **others})
    return made


def expressions(seed: int, count: int, version: str = releases.NEWEST) -> list[str]:
    """Return different filters, the same for a seed; about a third of them are no SQL92.

    For versions before 5.1.3 without the words that they have for names of properties.
    """
    generator = _Expressions(random.Random(seed))
    made: dict[str, None] = {}
    while len(made) < count:
        expression = generator.one()
        if releases.SEARCH.holds(version) or not _SEARCH.search(expression):
            made[expression] = None
    return list(made)


class Recorded(NamedTuple):
    """Answers of RocketMQ: of every expression a letter per row, or None where it refuses the expression."""

    rows: list[dict[str, str]]
    answers: dict[str, str | None]


def recorded_path(version: str) -> Path:
    return Path(__file__).parents[1] / "store" / "filter" / "answers" / f"{version}.json.gz"


def recorded(version: str) -> Recorded:
    return Recorded(**json.loads(gzip.decompress(recorded_path(version).read_bytes())))


def differences(answers: Recorded) -> Iterator[str]:
    """Yield each filter that this project evaluates otherwise than RocketMQ, with both results."""
    for expression, theirs in answers.answers.items():
        ours = delivered(expression, answers.rows)
        if ours != (theirs and re.sub("[^T]", "-", theirs)):
            yield f"{expression!r}: RocketMQ {theirs}, ours {ours}"


class _Expressions:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def one(self) -> str:
        tokens = list(self._condition(self._chance.choice((0, 1, 1, 2, 2, 3))))
        while self._chance.random() < 0.13:
            self._damage(tokens)
        return self._joined(tokens)

    def _damage(self, tokens: list[str]) -> None:
        place = self._chance.randrange(len(tokens) + 1)
        match self._chance.randrange(4):
            case 0:
                del tokens[place : place + 1]
            case 1:
                tokens.insert(place, self._chance.choice(_STRAY))
            case 2:
                tokens[place : place + 1] = [self._chance.choice(_STRAY)]
            case _:
                tokens[place:place] = tokens[max(0, place - 2) : place]

    def _joined(self, tokens: Sequence[str]) -> str:
        text = ""
        for token in tokens:
            blank = self._chance.choice(
                (" ",) * 12 + ("", "  ", "\n", "\t", "/* x */", " /** * **/ ", "--c\n", "--c'\r\n")
            )
            if blank == "" and text[-1:].isalnum() and token[:1].isalnum() and self._chance.random() < 0.9:
                blank = " "
            text += blank + token
        return (
            text.strip(" ") if self._chance.random() < 0.9 else text + self._chance.choice((" ", "-- end", "--", "\n"))
        )

    def _word(self, word: str) -> str:
        cased = self._chance.choice((str.upper, str.upper, str.lower, str.capitalize, str.swapcase))
        return cased(word)

    def _condition(self, depth: int) -> Iterator[str]:
        kind = self._chance.random()
        if depth <= 0 or kind < 0.2:
            yield from self._test(depth)
        elif kind < 0.65:
            yield from self._operand_of_logic(depth)
            for _ in range(self._chance.choice((1, 1, 1, 2, 3))):
                yield self._word(self._chance.choice(("AND", "OR")))
                yield from self._operand_of_logic(depth)
        elif kind < 0.85:
            yield self._word("NOT")
            yield from self._parenthesised(depth)
        else:
            yield from self._parenthesised(depth)

    def _operand_of_logic(self, depth: int) -> Iterator[str]:
        return self._parenthesised(depth) if self._chance.random() < 0.4 else self._condition(depth - 1)

    def _parenthesised(self, depth: int) -> Iterator[str]:
        yield "("
        yield from self._condition(depth - 1)
        yield ")"

    def _test(self, depth: int) -> Iterator[str]:
        kind = self._chance.random()
        if kind < 0.05:
            yield self._chance.choice((self._name(), self._word("TRUE"), self._word("FALSE"), self._word("NULL")))
        elif kind < 0.35:
            yield from self._operand(depth)
            yield self._chance.choice(("=", "<>"))
            yield from self._operand(depth)
        elif kind < 0.6:
            yield from self._number_or_name()
            yield self._chance.choice((">", ">=", "<", "<="))
            yield from self._number_or_name()
        elif kind < 0.7:
            yield from self._operand(depth)
            yield from (self._word("IS"), *self._maybe_not(), self._word("NULL"))
        elif kind < 0.8:
            yield from self._number_or_name()
            yield from (*self._maybe_not(), self._word("BETWEEN"))
            yield from self._number_or_name()
            yield self._word("AND")
            yield from self._number_or_name()
        elif kind < 0.9:
            yield self._name()
            yield from (*self._maybe_not(), self._word("IN"), "(", self._string())
            for _ in range(self._chance.choice((0, 1, 2, 6))):
                yield from (",", self._string())
            yield ")"
        else:
            yield from self._operand(depth)
            yield from (*self._maybe_not(), self._word(self._chance.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))))
            yield self._string()

    def _maybe_not(self) -> tuple[str, ...]:
        return (self._word("NOT"),) if self._chance.random() < 0.4 else ()

    def _operand(self, depth: int) -> Iterator[str]:
        kind = self._chance.random()
        if kind < 0.45:
            yield self._name()
        elif kind < 0.6:
            yield self._string()
        elif kind < 0.8:
            yield from self._number()
        elif kind < 0.9:
            yield self._word(self._chance.choice(("TRUE", "FALSE", "TRUE", "FALSE", "NULL")))
        elif kind < 0.95:
            yield self._chance.choice(("-", "+", self._word("NOT")))
            yield from self._operand(depth - 1)
        else:
            yield from self._parenthesised(depth)

    def _number_or_name(self) -> Iterator[str]:
        if self._chance.random() < 0.06:
            yield from self._operand(0)
        elif self._chance.random() < 0.45:
            yield self._name()
        else:
            yield from self._number()

    def _number(self) -> Iterator[str]:
        yield from self._chance.choice(((), (), (), ("-",), ("-",), ("+",), ("-", "-"), ("+", "-")))
        yield self._chance.choice(_NUMBERS if self._chance.random() < 0.9 else _ODD_NUMBERS)

    def _name(self) -> str:
        return self._chance.choice((*("a",) * 6, *NAMES, "missing", "A"))

    def _string(self) -> str:
        text = self._chance.choice((*VALUES, "a", "b", "c", "5", "tr", ""))
        return "'" + text.replace("'", "''") + "'"


_NUMBERS: Final = (
    *("5", "5", "0", "1", "7", "10", "5L", "5l", "100"),
    *("2147483647", "2147483648", "4294967296", "2147483648L", "9223372036854775807", "9223372036854775807L"),
    *("9007199254740993", "9007199254740992.0", "5.0", "5.", ".5", "0.5", "10.5", "1e5", "1E5", "1.5e3", "1e-3", "5e0"),
    *("1e+2", "1.e2", "00.5", "05.0", "1e308", "1e-323", "2.2250738585072011e-308"),
)
_ODD_NUMBERS: Final = (
    *("0L", "00", "010", "08", "9223372036854775808", "99999999999999999999", "0.0", "0e0", "1e309", "1e400", "1e-400"),
    *("1e", "1.5.2", "1..2", "0x1F", "0x5", "017", "5d", "5f", "1_000"),
)
_STRAY: Final = (
    *("AND", "OR", "NOT", "IS", "NULL", "IN", "BETWEEN", "TRUE", "LIKE", "ESCAPE", "contains", "a", "b", "5", "'x'"),
    *("(", ")", ",", "=", "==", "!=", "!", "<>", "<", ">", "+", "-", "*", "/", "--", "/*", "*/", "'", '"', ".", ";"),
    *("@", "#", "?", ":", "é", "ſ", "K", "\0", "\u00a0", "\x0b", "ſ = 5", "%", "[", "\\", "<=>", "< >", "'a' 'b'"),
)


def columns(properties: Sequence[Mapping[str, str]], names: frozenset[str]) -> pa.RecordBatch:
    arrays = [pa.array([row.get(name) for row in properties], pa.string()) for name in sorted(names)]
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(properties), pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, names=sorted(names))


def delivered(text: str, properties: Sequence[Mapping[str, str]]) -> str | None:
    """Evaluate a filter as RocketMQ does: ``T`` where it delivers a row, ``-`` elsewhere; None for a text it refuses.

    Where RocketMQ ignores the end of a text, `Sql92Filter` refuses it and says from where on. Then the text up to there
    is evaluated, so that what RocketMQ makes of it is checked as well.
    """
    try:
        compiled = Sql92Filter.compile(text)
    except FilterSyntaxError as error:
        if "RocketMQ ignores" not in (error.fix or ""):
            return None
        compiled = Sql92Filter.compile(text[: error.position])
    mask = compiled.mask(columns(properties, compiled.columns))
    assert mask.shape == (len(properties),)
    assert mask.dtype == np.bool_
    return "".join("T" if wanted else "-" for wanted in mask.tolist())
