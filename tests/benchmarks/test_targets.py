"""Targets of the benchmarks: each rule with a figure that meets its limit, and one that misses it."""

import pytest

WAITS = [0.001] * 50


def seconds(name, *took, rows=1000):
    return {"name": name, "rows": rows, "seconds": took}


def rate(name, per_second):
    return seconds(name, 1000 / per_second)


def against(name, per_second, other="b"):
    """Return two results; the second has 100 rows per second."""
    return [rate(name, per_second), rate(other, 100)]


def latencies(took):
    low = [0.01] * 94
    return [seconds("segmentlog: latency", *low, *[took] * 6), seconds("transport: latency", *low, *[0.1] * 6)]


def windows(took):
    scans = {"full scan": 5.0, "1 % time window": took, "1 ms time window": 0.05}
    return [seconds(f"segmentlog: {name}", each) for name, each in scans.items()]


def short_queues(took):
    return [seconds(f"segmentlog: 50 rows in {name}", each) for name, each in (("10 queues", took), ("1 queue", 1.0))]


def cpu(ours):
    return {f"{who}: steady, µs of CPU per MiB": each for who, each in (("segmentlog", ours), ("RocketMQ 5.3.3", 100))}


ASYNC = "segmentlog: asynchronous puts alone"
RULES = {
    "share": (lambda of: of.share("", "a", "b", 0.75), lambda n: against("a", n), {75: "75%", 74: "74%"}),
    "times": (
        lambda of: of.times("", "a", "b", 2, "Kafka's"),
        lambda n: against("a", n),
        {200: "2.00 times", 190: "1.90 times"},
    ),
    "other numbers of rows": (
        lambda of: of.times("", "a", "b", 2, "Kafka's"),
        lambda n: [seconds("a", 1, rows=n), seconds("b", 1, rows=1)],
        {10: "10.00 times", 1: "1.00 times"},
    ),
    "growth": (
        lambda of: of.flat("", "a", "b", 1.5),
        lambda n: [rate("a", 100), rate("b", n)],
        {67: "1.49 times", 66: "1.52 times"},
    ),
    "time": (
        lambda of: of.below("", "segmentlog: plan ", 2),
        lambda n: [seconds("segmentlog: plan 7 queues", n)],
        {1.99: "1.99 s", 2.0: "2.00 s"},
    ),
    "memory": (lambda of: of.memory("", "peak", 512), lambda n: {"peak": n << 20}, {511: "511 MiB", 512: "512 MiB"}),
    "latency": (lambda of: of.late("latency", 95), latencies, {0.16: "+60 ms (160)", 0.162: "+62 ms (162)"}),
    "bytes": (
        lambda of: of.bandwidth("", "a", 1),
        lambda n: [rate("a", n)],
        {1e9: "1.00 GB/s", 0.98e9: "0.98 GB/s"},
    ),
    "messages": (
        lambda of: of.per_second("", "a", 3_000_000),
        lambda n: [rate("a", n)],
        {3e6: "3,000,000", 2_999_000: "2,999,000"},
    ),
    "window": (lambda of: of.window, windows, {0.125: "0.12 s of 0.10 s", 0.13: "0.13 s of 0.10 s"}),
    "short queues": (lambda of: of.short_queues, short_queues, {2.0: "2.0 times", 2.1: "2.1 times"}),
    "CPU of a replica": (lambda of: of.less_cpu("steady"), cpu, {99.0: "0.99 times", 100.0: "1.00 times"}),
    "idle replicas": (
        lambda of: of.idle_replicas,
        lambda n: {"CPU of a master with 100 idle replicas, ppm of a core": n},
        {9_900.0: "0.99 %", 10_000.0: "1.00 %"},
    ),
    "line shown": (
        lambda of: of.shown,
        lambda n: [seconds("segmentlog: from append to tail -f", *WAITS, *[n / 1000] * 50)],
        {49: "49 ms", 51: "51 ms"},
    ),
    "follower": (
        lambda of: of.followed,
        lambda n: [seconds("segmentlog: latency of follow, without Spark", *WAITS, *[n / 1000] * 50)],
        {4.9: "4.9 ms", 5.1: "5.1 ms"},
    ),
    "look-up of one key": (
        lambda of: of.single_look_up,
        lambda n: [seconds("segmentlog: look-up of one key", 1e-6, n * 1e-6, 1.0, rows=1)],
        {149: "149 µs", 151: "151 µs"},
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_a_target_is_met_up_to_its_limit(load, result, judge, name):
    rule, given, cases = RULES[name]
    for (value, shown), met in zip(cases.items(), (True, False), strict=True):
        found = given(value)
        results, figures = ([], found) if isinstance(found, dict) else ([result(**each) for each in found], {})
        assert judge(rule(load("targets")), *results, **figures) == (shown, met)


@pytest.mark.parametrize(("per_second", "expected"), [(1.5e6, ("1.80 GB/s", True)), (1.4e6, ("1.68 GB/s", False))])
def test_the_commit_in_bytes(load, result, judge, per_second, expected):
    targets = load("targets")
    figures = {targets.RECORD_BYTES: 1200.0}
    assert judge(targets.commit_rate, result("segmentlog: commit, nothing synced", per_second), **figures) == expected


@pytest.mark.parametrize(("per_second", "expected"), [(90, ("0.90 times", True)), (89, ("0.89 times", False))])
def test_a_replica_keeps_up(load, result, judge, per_second, expected):
    targets = load("targets")
    found = result(f"segmentlog: {targets.ASYNC_REPLICA}", per_second), result(ASYNC, 100)
    assert judge(targets.keeps_up, *found) == expected


def test_a_target_without_a_figure_is_neither_met_nor_missed(load):
    targets = load("targets")
    found = targets.targets(targets.Measured({}, {}))

    assert {(each.measured, each.met) for each in found} == {("not measured", None)}
    assert len({each.target for each in found}) == len(found)
