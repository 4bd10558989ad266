"""Parts that formats share: bodies with defects keep their places, and values that do not fit are alone."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from segmentlog.query.body_columns import ParsedBodies, RowBodies, not_utf8, parsed_where, reason_of


class Numbers(RowBodies):
    """Bodies that are a number each, in a column of 8 bits."""

    schema = pa.schema([("n", pa.int8()), ("s", pa.struct([("n", pa.int8())]))])

    def decoder(self) -> Callable[[bytes], dict[str, Any]]:
        return lambda body: {"n": int(body), "s": {"n": 1}}


def test_a_value_that_does_not_fit_costs_its_own_row() -> None:
    bodies = [b"1", b"x", None, b"200", *[b"5"] * 20, b"-300"]
    columns, errors = Numbers().parse(pa.array(bodies, pa.binary()))
    expected = [1, None, None, None, *[5] * 20, None]
    assert columns.to_pylist() == [{"n": n, "s": None if n is None else {"n": 1}} for n in expected]
    assert errors.is_null().to_pylist() == [n is not None for n in expected]
    assert "invalid literal" in errors[1].as_py()
    assert errors[2].as_py() == "the body is null"
    assert "200" in errors[3].as_py()


def test_the_first_of_several_defects_is_the_error() -> None:
    seen: list[int] = []

    def parse(bodies: pa.BinaryArray) -> ParsedBodies:
        seen.append(len(bodies))
        return ParsedBodies(pa.record_batch({"a": bodies}), pa.nulls(len(bodies), pa.string()))

    wrong = [(pa.array([True, False, False]), "first"), (pa.array([True, True, False]), "second")]
    columns, errors = parsed_where(pa.array([b"a", b"b", b"c"]), wrong, parse)
    assert errors.to_pylist() == ["first", "second", None]
    assert columns["a"].to_pylist() == [None, None, b"c"]
    assert seen == [1]


def test_bodies_that_are_not_utf8() -> None:
    assert not_utf8(pa.array([b"\xc3\xa4", b"\xff", b"", b"\xc3"]))[0].to_pylist() == [False, True, False, True]
    assert not_utf8(pa.array([b"a", b""]))[0].to_pylist() == [False, False]
    assert not_utf8(pa.array([], pa.binary()))[0].to_pylist() == []


def test_reasons_are_short_and_never_empty() -> None:
    assert reason_of(ValueError("x" * 1000)) == "x" * 200 + "…"
    assert reason_of(EOFError()) == "the body ends too early"
    assert reason_of(KeyError()) == "KeyError"
    assert reason_of(pa.ArrowInvalid("JSON parse error: Invalid value. in row 0")) == "Invalid value."
