import pytest


@pytest.mark.parametrize(("rate", "expected"), [(75, ("75%", True)), (74, ("74%", False))])
def test_a_share_of_the_ceiling(load, result, judge, rate, expected):
    rule = load("targets").share("sink", "a", "b", 0.75)
    assert judge(rule, result("a", rate), result("b", 100)) == expected


@pytest.mark.parametrize(("rate", "expected"), [(200, ("2.00 times", True)), (190, ("1.90 times", False))])
def test_a_target_in_multiples_of_a_peer(load, result, judge, rate, expected):
    rule = load("targets").times("sink", "a", "b", 2, "Kafka's")
    assert judge(rule, result("a", rate), result("b", 100)) == expected


def test_rates_are_compared_also_where_the_rows_are_not_as_many(load, result, judge):
    rule = load("targets").times("sink", "a", "b", 2, "Kafka's")
    assert judge(rule, result("a", rows=10, seconds=(1,)), result("b", rows=1, seconds=(1,))) == ("10.00 times", True)


@pytest.mark.parametrize(("rate", "expected"), [(67, ("1.49 times", True)), (66, ("1.52 times", False))])
def test_a_target_for_a_growth_in_time(load, result, judge, rate, expected):
    rule = load("targets").flat("scan", "small", "large", 1.5)
    assert judge(rule, result("small", 100), result("large", rate)) == expected


@pytest.mark.parametrize(("took", "expected"), [(1.99, ("1.99 s", True)), (2.0, ("2.00 s", False))])
def test_a_target_for_a_time(load, result, judge, took, expected):
    rule = load("targets").below("planning", "segmentlog: plan ", 2)
    assert judge(rule, result("segmentlog: plan 7 queues", seconds=(took,))) == expected


@pytest.mark.parametrize(("mib", "met"), [(511, True), (512, False)])
def test_a_target_for_memory(load, judge, mib, met):
    rule = load("targets").memory("commit", "peak", 512)
    assert judge(rule, peak=mib << 20) == (f"{mib} MiB", met)


@pytest.mark.parametrize(("ours", "expected"), [(0.16, ("+60 ms (160)", True)), (0.162, ("+62 ms (162)", False))])
def test_a_latency_near_the_ceiling(load, result, judge, ours, expected):
    rule = load("targets").late("latency", 95)
    times = (*[0.01] * 94, ours, ours, ours, ours, ours, ours)
    ceiling = (*[0.01] * 94, *[0.1] * 6)
    assert judge(rule, result("segmentlog: latency", seconds=times), result("transport: latency", seconds=ceiling)) == (
        expected
    )


@pytest.mark.parametrize(("rate", "expected"), [(1.5e6, ("1.80 GB/s", True)), (1.4e6, ("1.68 GB/s", False))])
def test_the_commit_in_bytes(load, result, judge, rate, expected):
    targets = load("targets")
    figures = {targets.RECORD_BYTES: 1200.0}
    assert judge(targets.commit_rate, result("segmentlog: commit, nothing synced", rate), **figures) == expected


@pytest.mark.parametrize(("rate", "expected"), [(1e9, ("1.00 GB/s", True)), (0.98e9, ("0.98 GB/s", False))])
def test_a_target_in_bytes(load, result, judge, rate, expected):
    assert judge(load("targets").bandwidth("grep", "a", 1), result("a", rate)) == expected


@pytest.mark.parametrize(("rate", "expected"), [(3e6, ("3,000,000", True)), (2_999_000, ("2,999,000", False))])
def test_a_target_in_messages(load, result, judge, rate, expected):
    assert judge(load("targets").per_second("rebuild", "a", 3_000_000), result("a", rate)) == expected


@pytest.mark.parametrize(("took", "met"), [(0.125, True), (0.13, False)])
def test_a_window_costs_its_share_and_a_constant(load, result, judge, took, met):
    rule = load("targets").window
    scans = [("full scan", 5.0), ("1 % time window", took), ("1 ms time window", 0.05)]
    found = judge(rule, *(result(f"segmentlog: {name}", seconds=(seconds,)) for name, seconds in scans))
    assert found == (f"{took:.2f} s of 0.10 s", met)


@pytest.mark.parametrize(("took", "met"), [(2.0, True), (2.1, False)])
def test_many_short_queues(load, result, judge, took, met):
    many, one = (
        result(f"segmentlog: 50 rows in {name}", seconds=(s,)) for name, s in (("10 queues", took), ("1 queue", 1.0))
    )
    assert judge(load("targets").short_queues, many, one) == (f"{took:.1f} times", met)


def test_a_target_without_a_figure_is_neither_met_nor_missed(load):
    targets = load("targets")
    found = targets.targets(targets.Measured({}, {}))

    assert {(each.measured, each.met) for each in found} == {("not measured", None)}
    assert len({each.target for each in found}) == len(found)
