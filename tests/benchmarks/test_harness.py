import time

import pytest


@pytest.fixture
def clock(monkeypatch):
    """The time that cases take, which moves only when they say so."""
    now = [0.0]
    for name in ("perf_counter", "monotonic"):
        monkeypatch.setattr(time, name, lambda: now[0])
    return now


def taking(harness, clock, name, done, seconds, **fields):
    def run():
        done.append(name)
        clock[0] += seconds.pop(0) if len(seconds) > 1 else seconds[0]

    return harness.Case(name=name, peer="x", rows=1, action=run, **fields)


def test_cases_take_turns_and_each_round_begins_with_another(load, clock):
    harness, done = load("harness"), []
    cases = [taking(harness, clock, name, done, [1]) for name in "ABC"]

    results = harness.measure(cases, 2, lambda text: None)

    assert "".join(done) == "ABC" + "ABC" + "BCA"
    assert [(each.name, len(each.seconds)) for each in results] == [("A", 2), ("B", 2), ("C", 2)]


def test_a_short_case_is_timed_several_times_until_it_is_not_short(load, clock):
    harness, done, prepared = load("harness"), [], []
    short = taking(harness, clock, "A", done, [0.1, 0.1, 0.11, 0.12, 0.13, 0.1], before=lambda: prepared.append(1))
    mostly = taking(harness, clock, "B", done, [0.1, 0.1, 0.3, 0.1])

    results = harness.measure([short, mostly], 1, lambda text: None)

    assert "".join(done) == "AB" + "AAAAA" + "BB"
    assert len(prepared) == 1 + 5
    assert [each.seconds for each in results] == [
        pytest.approx((0.1, 0.11, 0.12, 0.13, 0.1)),
        pytest.approx((0.1, 0.3)),
    ]


def test_a_case_that_fails_its_check_is_not_timed(load):
    harness, done = load("harness"), []
    case = harness.Case(
        name="A", peer="x", rows=3, action=lambda: done.append(1), check=lambda: harness.expect_rows(2, 3)
    )

    with pytest.raises(harness.WrongRowsError, match="2 rows were moved, and there are 3"):
        harness.measure([case], 1, lambda text: None)

    assert not done


def test_two_cases_of_one_name_are_refused(load, result):
    harness = load("harness")
    harness.check_names([result("A"), result("B")])

    with pytest.raises(ValueError, match="two cases are called \\['A'\\]"):
        harness.check_names([result("A"), result("B"), result("A")])
