import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from segmentlog.query.bodies import body_format
from segmentlog.query.body_columns import RowBodies, reason_of


def test_reasons_are_short_and_never_empty() -> None:
    assert reason_of(ValueError("x" * 1000)) == "x" * 200 + "…"
    assert reason_of(EOFError()) == "the body ends too early"
    assert reason_of(KeyError()) == "KeyError"
    assert reason_of(pa.ArrowInvalid("JSON parse error: Invalid value. in row 0")) == "Invalid value."


class Numbers(RowBodies):
    """Bodies that are a number each, as two columns."""

    schema = pa.schema([("small", pa.int8()), ("number", pa.int32())])

    def decoder(self) -> Callable[[bytes], dict[str, Any]]:
        return lambda body: {"small": int(body) % 300, "number": int(body)}


def test_values_that_a_column_cannot_hold_cost_few_conversions(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 1000
    bodies = pa.array([b"%d" % each for each in range(rows)], pa.binary())
    converted, array = [0], pa.array

    def counted(values: Any, *kind: Any) -> Any:
        converted[0] += bool(kind) and pa.types.is_struct(kind[0])
        return array(values, *kind)

    monkeypatch.setattr(pa, "array", counted)
    columns, errors = Numbers().parse(bodies)
    expected = [(each % 300, each) if each % 300 < 128 else (None, None) for each in range(rows)]
    assert [tuple(row.values()) for row in columns.to_pylist()] == expected
    assert errors.is_null().to_pylist() == [small is not None for small, _ in expected]
    assert converted[0] == 2


@pytest.mark.parametrize(("good", "warned"), [(None, True), (999, False), (1000, True)])
def test_there_is_one_warning_if_none_of_the_first_1000_bodies_parses(
    caplog: pytest.LogCaptureFixture, good: int | None, *, warned: bool
) -> None:
    form = pickle.loads(pickle.dumps(body_format("json", "id bigint")))
    bodies = [b'{"id":1}' if number == good else b'{"id":"x"}' for number in range(3000)]
    for start in range(0, len(bodies), 250):
        form.parse(pa.array(bodies[start : start + 250], pa.binary()))
    text = "first 1000 bodies parses: Column(/id) changed from number to string. A body has the members id string"
    assert caplog.text.count(text) == warned
    assert len(caplog.records) == warned
