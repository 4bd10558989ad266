import pyarrow as pa

from segmentlog.query.body_columns import ParsedBodies, not_utf8, parsed_where, reason_of


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
