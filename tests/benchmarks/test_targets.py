import pytest


@pytest.mark.parametrize(("per_second", "expected"), [(75, ("75%", True)), (74, ("74%", False))])
def test_a_target_is_met_up_to_its_limit(load, result, judge, per_second, expected):
    share = load("targets").share("", "a", "b", 0.75)
    assert judge(share, result("a", per_second), result("b", 100)) == expected


def test_a_target_without_a_figure_is_neither_met_nor_missed(load):
    targets = load("targets")
    found = targets.targets(targets.Measured({}, {}))
    assert {(each.measured, each.met) for each in found} == {("not measured", None)}
    assert len({each.target for each in found}) == len(found)
