import json

import pytest


@pytest.fixture
def compare(load):
    return load("regression").compare


def test_a_result_within_a_quarter_is_not_a_warning(compare):
    assert compare({"rows": 100.0}, {"rows": 75.0}) == []
    assert compare({"rows": 100.0}, {"rows": 500.0}) == []


def test_a_quarter_less_is_warned_of(compare):
    assert compare({"rows": 100.0, "fine": 1.0}, {"rows": 74.0, "fine": 1.0}) == [
        "rows: 74 is 26% less than the 100 it was"
    ]


def test_a_slow_result_is_measured_again(load, monkeypatch, tmp_path, capsys):
    regression = load("regression")
    found = iter([{"a": 10.0, "b": 99.0}, {"a": 98.0, "b": 20.0}, {"a": 0.0, "b": 0.0}])
    monkeypatch.setattr(regression, "measure", lambda: next(found))
    baseline = tmp_path / "baseline.json"
    baseline.write_text(json.dumps({"a": 100.0, "b": 100.0}))

    regression.main(["--baseline", str(baseline)])

    assert capsys.readouterr().out == "a: 98, was 100\nb: 99, was 100\n"


@pytest.mark.slow
def test_the_stored_baseline_has_every_measured_figure(load, monkeypatch):
    regression = load("regression")
    monkeypatch.setattr(regression, "ROUNDS", 1)

    found = regression.measure()

    assert set(found) == set(json.loads(regression.BASELINE.read_text()))
    assert all(value > 0 for value in found.values())
