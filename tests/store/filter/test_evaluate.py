"""SQL92 filters evaluated over batches: as RocketMQ has recorded it, and rule by rule."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from segmentlog.store.errors import ConfigError
from segmentlog.store.filter import evaluate
from segmentlog.store.filter.evaluate import Sql92Filter
from support import filter_cases

ROWS = [{}, {"a": "5"}, {"a": "7", "b": "7"}, {"b": "x"}, {"a": "x", "b": "5"}, {"a": "true"}]


def matched(text: str) -> str:
    """Evaluate a filter on `ROWS`: T where it matches."""
    wanted = Sql92Filter.compile(text)
    mask = wanted.mask(filter_cases.columns(ROWS, wanted.columns))
    return "".join("T" if row else "-" for row in mask.tolist())


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize("version", ["5.3.3", "5.1.0", "4.9.1"])
def test_filters_match_as_rocketmq_recorded(version: str) -> None:
    recorded = filter_cases.recorded(version)
    compiled = [answers for answers in recorded.answers.values() if answers is not None]
    assert len(compiled) > (2000 if version == "5.3.3" else 200)
    assert all(sum(letter in answers for answers in compiled) > 50 for letter in "TFNE")
    assert list(filter_cases.differences(recorded)) == []


def _with_two_values(value: pa.BooleanArray) -> pa.BooleanArray:
    return INVERT(pc.fill_null(value, fill_value=False))


def _without_nulls(value: pa.BooleanArray, other: pa.BooleanArray) -> pa.BooleanArray:
    return pc.or_(value, other)


def _failing_always(one: pa.BooleanArray | None, other: pa.BooleanArray | None) -> pa.BooleanArray | None:
    return None


INVERT = pc.invert
PLANTED: dict[str, tuple[object, str, Callable[..., object]]] = {
    "NOT has two values": (evaluate.pc, "invert", _with_two_values),
    "OR is null if either side is": (evaluate.pc, "or_kleene", _without_nulls),
    "errors of the right side are lost": (evaluate, "_either", _failing_always),
    "doubles compare as text": (evaluate, "doubles", lambda texts: pc.cast(pc.binary_length(texts), pa.int64())),
    "integers have 64 bits": (evaluate, "integers", lambda texts, _: INTEGERS(texts, 64)),
    "truth is told by case": (evaluate.pc, "ascii_lower", lambda texts: texts),
    "search is by prefix": (evaluate.pc, "ends_with", pc.starts_with),
}
INTEGERS = evaluate.integers


@pytest.mark.conformance
@pytest.mark.parametrize("bug", PLANTED)
def test_the_recorded_answers_tell_planted_bugs(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, broken = PLANTED[bug]
    monkeypatch.setattr(module, name, broken)
    if name == "ends_with":
        monkeypatch.setitem(evaluate._MATCHES, evaluate.Match.ENDSWITH, broken)
    assert next(filter_cases.differences(filter_cases.recorded("5.3.3")), None) is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # missing properties
        ("a = 5", "-T----"),
        ("a <> 'x'", "-TT--T"),
        ("NOT (a = 'x')", "-TT--T"),
        ("a IS NULL", "T--T--"),
        ("a IS NOT NULL", "-TT-TT"),
        ("a NOT IN ('x', '5')", "--T--T"),
        ("a NOT CONTAINS 'x'", "-TT--T"),
        ("a = b", "T-T---"),
        ("a <> b", "-T--TT"),
        ("'x' = b", "---T--"),
        ("NOT ('x' = b)", "TTT-TT"),
        ("a = 5 OR b = 'x'", "-T-T--"),
        # numbers
        ("a > 5", "--T---"),
        ("a >= 5.0 AND b > 6", "--T---"),
        ("a BETWEEN 5 AND 7", "-TT---"),
        ("a > b", "------"),
        ("a >= b", "--T---"),
        # errors void the filter, unless something before them decides
        ("a > 0 OR b = 'x'", "-TTT--"),
        ("b = 'x' OR a > 0", "-TTT--"),
        ("b = '5' OR a > 0", "-TT-T-"),
        ("a > 0 OR TRUE", "TTTT--"),
        ("TRUE OR a > 0", "TTTTTT"),
        ("NOT (FALSE AND a > 0)", "TTTTTT"),
        # truth
        ("a", "------"),
        ("NOT a", "-TT-TT"),
        ("a = TRUE", "-----T"),
        ("a = FALSE", "-TT-T-"),
        ("NOT (TRUE = a)", "T--T--"),
        ("-a IS NULL", "TTTTTT"),
        ("a ENDSWITH ''", "------"),
        ("TRUE", "TTTTTT"),
        ("NULL", "------"),
        ("'7' = 7 AND 5 < 7.0", "TTTTTT"),
    ],
)
def test_rules(text: str, expected: str) -> None:
    assert matched(text) == expected


def test_a_filter_reads_only_what_it_names() -> None:
    wanted = Sql92Filter.compile("a = 1 OR (b > 2 AND a IS NULL) OR 'c' = 'd'")
    assert wanted.columns == {"a", "b"}
    assert Sql92Filter.compile("TRUE").columns == frozenset()


def test_no_rows() -> None:
    wanted = Sql92Filter.compile("a > 5 OR a > 5.0 OR a = TRUE OR a IN ('x')")
    assert wanted.mask(filter_cases.columns([], wanted.columns)).tolist() == []
    assert Sql92Filter.compile("TRUE").mask(filter_cases.columns([], frozenset())).tolist() == []


def test_filters_are_equal_by_what_they_mean() -> None:
    wanted = Sql92Filter.compile("a = 1")
    assert wanted == Sql92Filter.compile(" (A = 1)".replace("A", "a"))
    assert hash(wanted) == hash(Sql92Filter.compile("a=1"))
    assert wanted != Sql92Filter.compile("a = 2")
    assert "a = 1" in repr(wanted)
    assert len(repr(wanted)) < 50


@pytest.mark.slow
def test_an_unpickled_filter_needs_no_parser() -> None:
    script = (
        "import pickle, sys; wanted = pickle.loads(bytes.fromhex(sys.argv[1])); import pyarrow as pa;"
        " print(wanted.mask(pa.record_batch({'a': ['5', '6']})).tolist(), 'lark' in sys.modules)"
    )
    pickled = pickle.dumps(Sql92Filter.compile("a > 5 OR b IS NOT NULL AND a = 1".replace(" OR b IS NOT NULL", "")))
    done = subprocess.run(
        [sys.executable, "-c", script, pickled.hex()], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.split("\n")[0].endswith("False")


def test_a_missing_parser_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "segmentlog.store.filter.sql92", raising=False)
    monkeypatch.setitem(sys.modules, "lark", None)
    with pytest.raises(ConfigError, match=r"need the package `lark`\. Install it: pip install 'lark>=1\.2'"):
        Sql92Filter.compile("a = 1")


def test_a_mask_owns_its_memory() -> None:
    texts = pa.array(["5", "6", None] * 10)
    mask = Sql92Filter.compile("a > 5").mask(pa.record_batch({"a": texts}))
    mask[:] = False
    assert mask.flags.writeable
    assert Sql92Filter.compile("a > 5").mask(pa.record_batch({"a": texts})).sum() == 10
