import math
import pickle
import re
import struct
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.errors import ConfigError
from segmentlog.store.filter import evaluate
from segmentlog.store.filter.evaluate import Sql92Filter, doubles, integers, order_key
from segmentlog.store.format.properties import java_int
from support import filter_cases, releases


@pytest.mark.scaled(quick=1)
@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize("version", ["5.3.3", "5.1.0", "4.9.1"])
def test_filters_match_as_rocketmq_recorded(version: str) -> None:
    recorded = filter_cases.recorded(version)
    compiled = [answers for answers in recorded.answers.values() if answers is not None]
    assert len(compiled) > (2000 if releases.SEARCH.holds(version) else 200)
    assert all(sum(letter in answers for answers in compiled) > 50 for letter in "TFNE")
    assert list(filter_cases.differences(recorded)) == []


def test_a_filter_reads_only_the_properties_it_names() -> None:
    wanted = Sql92Filter.compile("a = 1 OR (b > 2 AND a IS NULL) OR 'c' = 'd'")
    assert wanted.columns == {"a", "b"}
    assert Sql92Filter.compile("TRUE").columns == frozenset()


def test_no_rows() -> None:
    wanted = Sql92Filter.compile("a > 5 OR a > 5.0 OR a = TRUE OR a IN ('x')")
    assert wanted.mask(filter_cases.columns([], wanted.columns)).tolist() == []
    assert Sql92Filter.compile("TRUE").mask(filter_cases.columns([], frozenset())).tolist() == []


def test_filters_are_equal_by_their_meaning() -> None:
    wanted = Sql92Filter.compile("a = 1")
    assert wanted == Sql92Filter.compile(" (A = 1)".replace("A", "a"))
    assert hash(wanted) == hash(Sql92Filter.compile("a=1"))
    assert wanted != Sql92Filter.compile("a = 2")
    assert "a = 1" in repr(wanted)
    assert len(repr(wanted)) < 50


def test_a_missing_parser_is_named_and_an_unpickled_filter_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = pickle.dumps(Sql92Filter.compile("a > 5"))
    monkeypatch.delitem(sys.modules, "segmentlog.store.filter.sql92", raising=False)
    monkeypatch.setitem(sys.modules, "lark", None)
    assert pickle.loads(pickled).mask(pa.record_batch({"a": ["5", "6"]})).tolist() == [False, True]
    with pytest.raises(ConfigError, match=r"need the package `lark`\. Install it: pip install 'lark>=1\.2'"):
        Sql92Filter.compile("a = 1")


def test_a_mask_owns_its_memory() -> None:
    texts = pa.array(["5", "6", None] * 10)
    mask = Sql92Filter.compile("a > 5").mask(pa.record_batch({"a": texts}))
    mask[:] = False
    assert mask.flags.writeable
    assert Sql92Filter.compile("a > 5").mask(pa.record_batch({"a": texts})).sum() == 10


DOUBLE = re.compile(
    r"[+-]?(NaN|Infinity|((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|0[xX]([0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?)",
    re.ASCII,
)
TEXTS = st.one_of(
    st.none(),
    st.text(max_size=4),
    st.integers(-(1 << 70), 1 << 70).map(str),
    st.integers(-(1 << 31) - 2, (1 << 31) + 2).map(str),
    st.sampled_from([(1 << 63) - 1, 1 << 63, -(1 << 63), -(1 << 63) - 1, (1 << 31) - 1, 1 << 31, -(1 << 31)]).map(str),
    st.floats().map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(float.hex),
    st.text("0123456789+-.eEdDfFxXpP_ \t٣５", max_size=8),
    st.sampled_from(
        ["NaN", "-NaN", "Infinity", "-Infinity", "nan", "infinity", "1e400", "-1e400", "0x1p9999", "1e-999"]
    ),
)


def column(texts: list[str | None]) -> pa.StringArray:
    return pa.array(texts, pa.string())


def long_value(text: str | None) -> int | None:
    if text is None or not re.fullmatch(r"[+-]?\d+", text) or max(text) > "\uffff":
        return None
    value = int(text)
    return value if -(1 << 63) <= value < 1 << 63 else None


def double_value(text: str | None) -> float | None:
    trimmed = (text or "").strip("".join(map(chr, range(33))))
    if not DOUBLE.fullmatch(trimmed):
        return None
    if "x" not in trimmed.lower():
        return float(trimmed.rstrip("dDfF"))
    try:
        return float.fromhex(re.sub("(?<=[0-9])[dDfF]$", "", trimmed))
    except OverflowError:
        return math.copysign(math.inf, -1 if trimmed[0] == "-" else 1)


@given(st.lists(TEXTS))
def test_integers_are_parsed_as_in_java(texts: list[str | None]) -> None:
    assert integers(column(texts), 32).to_pylist() == [None if t is None else java_int(t) for t in texts]
    assert integers(column(texts), 64).to_pylist() == list(map(long_value, texts))


@given(st.lists(TEXTS))
def test_doubles_are_parsed_as_in_java(texts: list[str | None]) -> None:
    expected = [None if value is None else order_key(value) for value in map(double_value, texts)]
    assert doubles(column(texts)).to_pylist() == expected


def test_parts_of_an_array_are_read_alone() -> None:
    texts = column(["x", "٣", "5", "7", "1e5"])
    assert integers(texts.slice(2, 2), 32).to_pylist() == [5, 7]
    assert integers(texts.slice(1, 2), 64).to_pylist() == [3, 5]
    assert doubles(texts.slice(2)).to_pylist() == [order_key(5.0), order_key(7.0), order_key(1e5)]
    assert integers(texts.slice(5), 32).to_pylist() == []
    assert doubles(column([])).to_pylist() == []
    assert doubles(column([None, None])).to_pylist() == [None, None]


@given(st.lists(st.floats(), min_size=2))
def test_keys_order_as_double_compare_to(numbers: list[float]) -> None:
    def position(number: float) -> tuple[bool, float, bool]:
        return (math.isnan(number), 0.0 if math.isnan(number) else number, math.copysign(1, number) > 0)

    by_key = sorted(numbers, key=order_key)
    same = [(math.isnan(n), None if math.isnan(n) else struct.pack(">d", n)) for n in by_key]
    expected = sorted(
        numbers, key=lambda n: (math.isnan(n), *position(n)[1:]) if not math.isnan(n) else (True, 0, True)
    )
    assert same == [(math.isnan(n), None if math.isnan(n) else struct.pack(">d", n)) for n in expected]
    assert order_key(-0.0) < order_key(0.0)
    assert order_key(math.inf) < order_key(math.nan) == order_key(-math.nan)


def test_older_releases_of_arrow_refuse_large_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then numpy reads them: emulated, since only some releases do that."""
    cast = evaluate.pc.cast

    def strict(values: pa.Array, type_: pa.DataType) -> pa.Array:
        if type_ == pa.float64() and "1e400" in values.to_pylist():
            raise pa.ArrowInvalid("Failed to parse string: '1e400'")
        return cast(values, type_)

    monkeypatch.setattr(evaluate.pc, "cast", strict)
    keys = doubles(column(["1e400", "x", None, "-2.5"])).to_pylist()
    assert keys == [order_key(math.inf), None, None, order_key(-2.5)]
