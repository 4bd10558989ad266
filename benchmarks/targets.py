"""Targets of the project, each with a rule that compares it with the measured results.

A rule looks cases up by name, and raises `KeyError` if one was not measured. Compared cases are measured in one
section, and so in turns.
"""

from collections.abc import Callable

from harness import OURS
from machine import MIB
from peers.prebuilt import SCHEMAS
from peers.rocketmq import KEYS_COMPARED, NAME
from report import Report
from sections.committing import COMMIT_BYTES, RECORD_BYTES, UNSYNCED
from sections.reading import WORKER_BYTES
from sections.storing import FILTERS

LATENCY_MS = 60
WINDOW_SHARE, WINDOW_TOLERANCE = 0.01, 1.25
MOVED = "plan a micro-batch, 10 of 10000 queues moved, Spark"
STEADY = "steady state, 20,000 messages/s, µs of CPU per MiB"
REPLICATED_PUTS, PUTS = "asynchronous puts until the replica has them, 1024 B", "asynchronous puts alone"
LOOK_UPS, VERIFY = "look-ups of all keys", "verify, one process"


Value = Callable[[Report], float]
Rule = Callable[[Report], tuple[str, bool]]
"""What was measured, as text, and whether the target is met."""
Target = tuple[str, Rule]


def _at_least(limit: float, value: Value, shown: str = "{:.2f} times") -> Rule:
    return lambda m: (shown.format(value(m)), value(m) >= limit)


def _at_most(limit: float, value: Value, shown: str = "{:.2f} times") -> Rule:
    return lambda m: (shown.format(value(m)), value(m) <= limit)


def share(text: str, ours: str, ceiling: str, least: float) -> Target:
    """Ours has at least this share of a ceiling's rate."""
    return f"{text}: at least {least:.0%} of the ceiling", _at_least(least, lambda m: m.ratio(ours, ceiling), "{:.0%}")


def times(text: str, ours: str, theirs: str, least: float, whose: str) -> Target:
    """Ours has at least so many times a peer's rate."""
    return f"{text}: at least {least:g} times {whose}", _at_least(least, lambda m: m.ratio(ours, theirs))


def stored(what: str, least: float, kind: str = "") -> Target:
    """Ours has at least so many times RocketMQ's rate."""
    return times(f"{what}{kind}", f"{OURS}{kind}: {what}", f"{NAME}: {what}", least, NAME)


def flat(text: str, first: str, last: str) -> Target:
    """A row of the last costs at most 1.5 times one of the first."""
    return f"{text}: at most 1.5 times", _at_most(1.5, lambda m: m.ratio(first, last))


def rate(text: str, name: str, least: int, unit: str) -> Target:
    """A case of ours has at least this rate."""
    return f"{text}: at least {least:,} {unit}", _at_least(least, lambda m: m.case(name).rate, "{:,.0f}")


def below(text: str, name: str, seconds: float) -> Target:
    """A case of ours takes less time than that."""
    return f"{text}: below {seconds:g} s", _at_most(seconds, lambda m: m.seconds(name), "{:.2f} s")


def soon(text: str, name: str, limit_ms: float) -> Target:
    """The 99th percentile of a latency is below a limit."""
    rule = _at_most(limit_ms, lambda m: m.case(name).milliseconds(0.99)[0], "{:.3g} ms")
    return f"{text}, p99: below {limit_ms:g} ms", rule


def memory(text: str, figure: str, mib: int) -> Target:
    """A figure in bytes is below so many MiB."""
    return f"{text}: below {mib} MiB", _at_most(mib, lambda m: m.figure(figure) / MIB, "{:.0f} MiB")


def late(what: str, percent: int) -> Target:
    """A row comes not much later than from the prebuilt source."""

    def rule(report: Report) -> tuple[str, bool]:
        ours, ceiling = (report.case(name).milliseconds(percent / 100)[0] for name in (what, f"transport: {what}"))
        return f"{ours - ceiling:+.0f} ms ({ours:.0f})", ours - ceiling <= LATENCY_MS

    return f"{what}, p{percent}: at most {LATENCY_MS} ms above the prebuilt source", rule


def _window(report: Report) -> tuple[str, bool]:
    """One percent of the time costs one percent of a scan, and a constant."""
    full, one_percent, least = map(report.seconds, ("full scan", "1 % time window", "1 ms time window"))
    allowed = WINDOW_SHARE * full + least
    # A window of one task is not spread over the cores, and no timing of a few hundred ms repeats exactly.
    return f"{one_percent:.2f} s of {allowed:.2f} s", one_percent <= WINDOW_TOLERANCE * allowed


def _less_cpu(report: Report) -> tuple[str, bool]:
    """Our replica needs less CPU time per MiB of log than RocketMQ's slave beside it."""
    value = report.figure(f"{OURS}: {STEADY}") / report.figure(f"{NAME}: {STEADY}")
    return f"{value:.2f} times", value < 1


def _commit(report: Report) -> float:
    return report.case(UNSYNCED).rate * report.figure(RECORD_BYTES) / 1e9


SPARK: tuple[Target, ...] = (
    *(share(f"read, {name}", name, f"transport: {name}", 0.85) for name in SCHEMAS),
    *(times(name, name, "kafka: count", 10, "Kafka's count") for name in ("count", "offsets only")),
    (
        "many short queues: at most 2 times the time of the same rows in one queue",
        _at_most(2, lambda m: m.ratio("5000 rows in 1 queue", "5000 rows in 1000 queues"), "{:.1f} times"),
    ),
    below("planning 10,000 queues", "plan 10000 queues", 2),
    below("planning 50,000 queues", "plan 50000 queues", 3),
    (f"1 % time window: {WINDOW_SHARE:.0%} of the full scan and the time of one millisecond's rows", _window),
    memory("private memory of a task", WORKER_BYTES, 256),
    times("sink", "sink", "kafka: sink", 1.2, "Kafka's"),
    times("sink", "sink", "kafka: sink, tuned", 0.9, "Kafka's, tuned"),
    times("sink, properties", "sink, properties", "kafka: sink, tuned, headers", 1.1, "Kafka's, tuned, with headers"),
    ("commit, on the page cache: at least 1.8 GB/s", _at_least(1.8, _commit, "{:.2f} GB/s")),
    memory("private memory of the commit", COMMIT_BYTES, 512),
    share("drain with AvailableNow", "drain", "transport: drain", 0.85),
    times("drain with AvailableNow", "drain", "kafka: drain", 1.25, "Kafka's"),
    below("a DataFrame for 1,000 keys", "look-up of 1,000 keys, DataFrame", 3),
    *(late(what, percent) for what in ("latency to foreachBatch", "latency to its rows") for percent in (50, 95)),
    below("segmentlog --help", "start for --help", 0.15),
    below("segmentlog get --key, cold process, 10 GiB", "start for get --key", 0.4),
    times("cat to JSON lines", "cat to JSON lines", "kcat: cat to JSON lines", 3, "kcat"),
    share("cat to Arrow", "cat to Arrow", "Store.scan: scan in a process", 0.8),
    soon("from an append to the line of tail -f", "from append to tail -f", 50),
    soon("from an append to the batch of follow", "latency of follow, without Spark", 5),
    below("planning a micro-batch, 10 of 10,000 queues moved", MOVED, 0.3),
    *(
        flat(f"{what}, 1 GiB of store against 0.1", f"{what}, store of 0.1 GiB", f"{what}, store of 1 GiB")
        for what in ("scan", "append", "look-ups")
    ),
    *(
        flat(f"{what}, 10,000 queues against 1", f"{what}, 1 queue", f"{what}, 10,000 queues")
        for what in ("scan", "append")
    ),
)
STORE: tuple[Target, ...] = (
    stored("catching up", 1.5),
    (f"steady state, 20,000 messages/s, CPU of a replica per MiB: below {NAME}'s", _less_cpu),
    stored("synchronous double write, 64 threads", 0.9),
    stored("synchronous double write, 64 in flight in one thread", 0.9),
    stored("synchronous double write, batches of 1,024", 0.9),
    times("a replica beside asynchronous puts, 1024 B", REPLICATED_PUTS, PUTS, 0.9, "the rate of the puts"),
    stored("append async, 1024 B", 2.5),
    stored("append async, 4096 B", 2.5),
    stored("append sync, batches of 1,024", 2),
    stored("append sync, one by one", 1),
    stored("drain, 1024 B", 1),
    stored("drain, 1024 B", 1.5, ", no properties"),
    stored("drain, 4096 B", 1),
    stored("drain, 4096 B", 1.5, ", no properties"),
    *(
        times(
            f"scan with {text}",
            f"{OURS}, {text}: scan, 100 B",
            f"{OURS}, no filter: scan, 100 B",
            0.5,
            "the scan without a filter",
        )
        for text in FILTERS
    ),
    (
        "look-up of one key, p50: below 400 µs",
        _at_most(400, lambda m: m.seconds("look-up of one key") * 1e6, "{:.0f} µs"),
    ),
    below("look-up of one key in a new process", "look-up of one key in a new process", 0.4),
    times("look-ups of all keys, keys compared by both", LOOK_UPS, f"{KEYS_COMPARED}: {LOOK_UPS}", 5, NAME),
    flat("append async, 64 GiB of log against 1", *(f"{OURS}, {gib} GiB of log: append async" for gib in (1, 64))),
    ("verify, per core: at least 1 GB/s", _at_least(1, lambda m: m.case(VERIFY).rate / 1e9, "{:.2f} GB/s")),
    rate("rebuild on two cores, 1024 B", "rebuild, 1024 B", 3_000_000, "messages/s"),
    rate("rebuild on two cores, 100 B", "rebuild, 100 B", 3_000_000, "messages/s"),
    below("open after a crash", "open after a crash", 5),
    below("open with 10,000 queues", "open with 10,000 queues", 10),
)
TARGETS = (*SPARK, *STORE)
