"""Targets of the project, compared with the measured results.

A target is one line in `SPARK_TARGETS` or `STORE_TARGETS`. It looks cases up by name, and its result is "not measured"
if one of them is missing. Compared cases are measured in one section, and so in turns.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from harness import MIB, Result

LATENCY_MS = 60
COMMIT_GB_PER_S = 1.8
WINDOW_SHARE = 0.01
WINDOW_TOLERANCE = 1.25
WORKER_BYTES = "private memory of a worker, bytes"
COMMIT_BYTES = "peak private memory of a commit, bytes"
RECORD_BYTES = "bytes of a record in the commit"
PLANNED = "segmentlog: plan and scan by"
MICRO_BATCH = "segmentlog: plan a micro-batch, 10 of 10000 queues moved, Spark"
SCHEMAS = ("all columns, properties", "all columns", "body only")
PEER = "RocketMQ 5.3.3"
CATCHING_UP = "catching up"
DOUBLE_WRITE = "synchronous double write, 64 threads"
DOUBLE_IN_FLIGHT = "synchronous double write, 64 in flight in one thread"
DOUBLE_BATCHES = "synchronous double write, batches of 1,024"
ASYNC_REPLICA = "asynchronous puts until the replica has them, 1024 B"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One thing that is wanted: ``met`` is None where something needed was not measured."""

    target: str
    measured: str
    met: bool | None

    @classmethod
    def not_measured(cls, target: str) -> Self:
        """Say that something needed was not measured."""
        return cls(target=target, measured="not measured", met=None)


@dataclass(frozen=True, slots=True)
class Measured:
    """All results: timings by name of their case, and figures."""

    results: Mapping[str, Result]
    figures: Mapping[str, float]

    def named(self, *names: str) -> Sequence[Result] | None:
        """Return these results, or None if one is missing."""
        found = [self.results[name] for name in names if name in self.results]
        return found if len(found) == len(names) else None

    def called(self, beginning: str) -> Result | None:
        """Return the first result whose name begins so."""
        return next((result for name, result in self.results.items() if name.startswith(beginning)), None)


Rule = Callable[[Measured], Target]


def share(text: str, ours: str, ceiling: str, least: float) -> Rule:
    """Ours has at least this share of a ceiling's rate."""
    return _ratio(f"{text}: at least {least:.0%} of the ceiling", ours, ceiling, least, lambda value: f"{value:.0%}")


def times(text: str, ours: str, theirs: str, least: float, whose: str) -> Rule:
    """Ours has at least so many times a peer's rate."""
    return _ratio(f"{text}: at least {least:g} times {whose}", ours, theirs, least, lambda value: f"{value:.2f} times")


def flat(text: str, first: str, last: str, most: float) -> Rule:
    """A row of the one costs at most so many times one of the other."""
    wanted = f"{text}: at most {most:g} times"

    def rule(measured: Measured) -> Target:
        found = measured.named(first, last)
        if found is None:
            return Target.not_measured(wanted)
        value = found[0].rate / found[1].rate
        return Target(target=wanted, measured=f"{value:.2f} times", met=value <= most)

    return rule


def below(text: str, beginning: str, seconds: float) -> Rule:
    """A case takes less time than that."""
    wanted = f"{text}: below {seconds:g} s"
    return _limited(
        wanted, lambda measured: measured.called(beginning), lambda result: result.median_seconds, seconds, "{:.2f} s"
    )


def _limited(
    wanted: str,
    find: Callable[[Measured], Result | None],
    value: Callable[[Result], float],
    limit: float,
    shown: str,
) -> Rule:
    """Return the rule that a value of one case is below a limit; ``shown`` formats it."""

    def rule(measured: Measured) -> Target:
        found = find(measured)
        if found is None:
            return Target.not_measured(wanted)
        return Target(target=wanted, measured=shown.format(value(found)), met=value(found) < limit)

    return rule


def memory(text: str, figure: str, mib: int) -> Rule:
    """A figure in bytes is below so many MiB."""
    wanted = f"{text}: below {mib} MiB"

    def rule(measured: Measured) -> Target:
        value = measured.figures.get(figure)
        if value is None:
            return Target.not_measured(wanted)
        return Target(target=wanted, measured=f"{value / MIB:.0f} MiB", met=value < mib * MIB)

    return rule


def late(what: str, percent: int) -> Rule:
    """A row comes not much later than from the prebuilt source."""
    wanted = f"{what}, p{percent}: at most {LATENCY_MS} ms above the prebuilt source"

    def rule(measured: Measured) -> Target:
        found = measured.named(f"segmentlog: {what}", f"transport: {what}")
        if found is None:
            return Target.not_measured(wanted)
        ours, ceiling = (round(result.quantile(percent / 100) * 1000, 1) for result in found)
        return Target(
            target=wanted, measured=f"{ours - ceiling:+.0f} ms ({ours:.0f})", met=ours - ceiling <= LATENCY_MS
        )

    return rule


def bandwidth(text: str, case: str, gb_per_s: float) -> Rule:
    """Hold a case in bytes against a number of bytes a second."""
    return _rate(f"{text}: at least {gb_per_s:g} GB/s", case, gb_per_s * 1e9, lambda rate: f"{rate / 1e9:.2f} GB/s")


def per_second(text: str, case: str, least: int) -> Rule:
    """Hold a case against a number of rows a second."""
    return _rate(f"{text}: at least {least:,} messages/s", case, least, lambda rate: f"{rate:,.0f}")


def _rate(wanted: str, case: str, least: float, shown: Callable[[float], str]) -> Rule:
    def rule(measured: Measured) -> Target:
        found = measured.named(case)
        if found is None:
            return Target.not_measured(wanted)
        return Target(target=wanted, measured=shown(found[0].rate), met=found[0].rate >= least)

    return rule


def commit_rate(measured: Measured) -> Target:
    """Hold the commit against a number of bytes a second; on the page cache, as the device is the machine's."""
    wanted = f"commit, on the page cache: at least {COMMIT_GB_PER_S} GB/s"
    found, size = measured.named("segmentlog: commit, nothing synced"), measured.figures.get(RECORD_BYTES)
    if found is None or size is None:
        return Target.not_measured(wanted)
    rate = found[0].rate * size / 1e9
    return Target(target=wanted, measured=f"{rate:.2f} GB/s", met=rate >= COMMIT_GB_PER_S)


def short_queues(measured: Measured) -> Target:
    """Rows in many short queues cost not much more than the same in one."""
    wanted = "many short queues: at most 2 times the time of the same rows in one queue"
    spread = {name.rpartition(" in ")[2]: result for name, result in measured.results.items() if " rows in " in name}
    one = spread.pop("1 queue", None)
    if one is None or not spread:
        return Target.not_measured(wanted)
    value = max(result.median_seconds for result in spread.values()) / one.median_seconds
    return Target(target=wanted, measured=f"{value:.1f} times", met=value <= 2)


def window(measured: Measured) -> Target:
    """One percent of the time costs one percent of a scan, and a constant."""
    wanted = f"1 % time window: {WINDOW_SHARE:.0%} of the full scan and the time of one millisecond's rows"
    found = measured.named(*(f"segmentlog: {name}" for name in ("full scan", "1 % time window", "1 ms time window")))
    if found is None:
        return Target.not_measured(wanted)
    full, one_percent, least = (result.median_seconds for result in found)
    allowed = WINDOW_SHARE * full + least
    # A window of one task is not spread over the cores, and no timing of a few hundred ms repeats exactly.
    met = one_percent <= WINDOW_TOLERANCE * allowed
    return Target(target=wanted, measured=f"{one_percent:.2f} s of {allowed:.2f} s", met=met)


def _ratio(wanted: str, ours: str, theirs: str, least: float, shown: Callable[[float], str]) -> Rule:
    def rule(measured: Measured) -> Target:
        found = measured.named(ours, theirs)
        if found is None:
            return Target.not_measured(wanted)
        value = found[0].rate / found[1].rate
        return Target(target=wanted, measured=shown(value), met=value >= least)

    return rule


def _soon(what: str, case: str, limit_ms: float) -> Rule:
    """Hold the 99th percentile of a latency against a limit."""
    wanted = f"{what}, p99: below {limit_ms:g} ms"
    return _limited(
        wanted,
        lambda measured: measured.results.get(case),
        lambda result: result.quantile(0.99) * 1000,
        limit_ms,
        "{:.3g} ms",
    )


shown = _soon("from an append to the line of tail -f", "segmentlog: from append to tail -f", 50)
followed = _soon("from an append to the batch of follow", "segmentlog: latency of follow, without Spark", 5)


def _sink(kind: str, least: float, peer: str, whose: str) -> Rule:
    return times(f"sink{kind}", f"segmentlog: sink{kind}", peer, least, whose)


SPARK_TARGETS: tuple[Rule, ...] = (
    *(share(f"read, {name}", f"segmentlog: {name}", f"transport: {name}", 0.85) for name in SCHEMAS),
    *(times(name, f"segmentlog: {name}", "kafka: count", 10, "Kafka's count") for name in ("count", "offsets only")),
    short_queues,
    below("planning 10,000 queues", "segmentlog: plan 10000 queues", 2),
    below("planning 50,000 queues", "segmentlog: plan 50000 queues", 3),
    window,
    memory("private memory of a task", WORKER_BYTES, 256),
    _sink("", 1.2, "kafka: sink", "Kafka's"),
    _sink("", 0.9, "kafka: sink, tuned", "Kafka's, tuned"),
    _sink(", properties", 1.1, "kafka: sink, tuned, headers", "Kafka's, tuned, with headers"),
    commit_rate,
    memory("private memory of the commit", COMMIT_BYTES, 512),
    times("backfill", "segmentlog: backfill to Parquet", "parquet: copy to Parquet", 0.85, "Spark's own copy"),
    times("replay", "segmentlog: replay", "segmentlog: sink, from a store", 0.9, "the sink"),
    share("drain with AvailableNow", "segmentlog: drain", "transport: drain", 0.85),
    times("drain with AvailableNow", "segmentlog: drain", "kafka: drain", 1.25, "Kafka's"),
    below("a DataFrame for 1,000 keys", "segmentlog: look-up of 1,000 keys, DataFrame", 3),
    *(late(what, percent) for what in ("latency to foreachBatch", "latency to its rows") for percent in (50, 95)),
    below("segmentlog --help", "segmentlog: start for --help", 0.15),
    below("segmentlog get --key, cold process, 10 GiB", "segmentlog: start for get --key", 0.4),
    times("cat to JSON lines", "segmentlog: cat to JSON lines", "kcat: cat to JSON lines", 3, "kcat"),
    share("cat to Arrow", "segmentlog: cat to Arrow", "Store.scan: scan in a process", 0.8),
    bandwidth("cat --grep in bodies of 1 KiB, with the start of Python", "segmentlog: cat --grep, bytes", 1),
    shown,
    followed,
    below("planning a micro-batch, 10 of 10,000 queues moved", MICRO_BATCH, 0.3),
    *(
        flat(
            f"{what}, 1 GiB of store against 0.1", *(f"segmentlog: {what}, store of {x} GiB" for x in ("0.1", "1")), 1.5
        )
        for what in ("scan", "append", "look-ups")
    ),
    *(
        flat(
            f"{what}, 10,000 queues against 1",
            f"segmentlog: {what}, 1 queue",
            f"segmentlog: {what}, 10,000 queues",
            1.5,
        )
        for what in ("scan", "append")
    ),
)

OURS, PLAIN = "segmentlog", "segmentlog, no properties"


def _store(what: str, least: float, who: str = OURS) -> Rule:
    return times(f"{what}{who.removeprefix(OURS)}", f"{who}: {what}", f"{PEER}: {what}", least, PEER)


single_look_up = _limited(
    "look-up of one key, p50: below 150 µs",
    lambda measured: measured.results.get(f"{OURS}: look-up of one key"),
    lambda result: result.median_seconds * 1e6,
    150,
    "{:.0f} µs",
)


def less_cpu(what: str) -> Rule:
    """Our replica needs less CPU time per MiB of log than RocketMQ's slave beside it."""
    wanted = f"{what}, CPU of a replica per MiB: below {PEER}'s"

    def rule(measured: Measured) -> Target:
        ours, theirs = (measured.figures.get(f"{who}: {what}, µs of CPU per MiB") for who in (OURS, PEER))
        if ours is None or theirs is None:
            return Target.not_measured(wanted)
        return Target(target=wanted, measured=f"{ours / theirs:.2f} times", met=ours < theirs)

    return rule


def idle_replicas(measured: Measured) -> Target:
    """A master with idle replicas uses little of a core."""
    wanted = "a master with 100 idle replicas: below 1 % of a core"
    ppm = measured.figures.get("CPU of a master with 100 idle replicas, ppm of a core")
    if ppm is None:
        return Target.not_measured(wanted)
    return Target(target=wanted, measured=f"{ppm / 1e4:.2f} %", met=ppm < 1e4)


def keeps_up(measured: Measured) -> Target:
    """A replica has everything soon after the last asynchronous put."""
    wanted = "a replica beside asynchronous puts, 1024 B: at least 0.9 times the rate of the puts"
    found = measured.named(f"{OURS}: {ASYNC_REPLICA}", f"{OURS}: asynchronous puts alone")
    if found is None:
        return Target.not_measured(wanted)
    value = found[0].rate / found[1].rate
    return Target(target=wanted, measured=f"{value:.2f} times", met=value >= 0.9)


STORE_TARGETS: tuple[Rule, ...] = (
    _store(CATCHING_UP, 1.5),
    less_cpu("steady state, 20,000 messages/s"),
    _store(DOUBLE_WRITE, 0.9),
    _store(DOUBLE_IN_FLIGHT, 0.9),
    _store(DOUBLE_BATCHES, 0.9),
    idle_replicas,
    keeps_up,
    _store("append async, 1024 B", 2.5),
    _store("append async, 4096 B", 2.5),
    _store("append sync, batches of 1,024", 2),
    _store("append sync, one by one", 1),
    *(_store(f"drain, {size} B", least, who) for size in (1024, 4096) for who, least in ((OURS, 1), (PLAIN, 1.5))),
    *(
        times(
            f"scan with {text}",
            f"segmentlog, {text}: scan, 100 B",
            "segmentlog, no filter: scan, 100 B",
            0.5,
            "the scan without a filter",
        )
        for text in ("amount >= 0", "amount > 5.5 AND region IS NOT NULL")
    ),
    single_look_up,
    below("look-up of one key in a new process", f"{OURS}: look-up of one key in a new process", 0.4),
    times(
        "look-ups of all keys, keys compared by both",
        f"{OURS}: look-ups of all keys",
        f"{PEER}, keys compared: look-ups of all keys",
        5,
        PEER,
    ),
    flat(
        "append async, 10,000 queues against 1",
        "segmentlog, 1 queues: append async",
        "segmentlog, 10,000 queues: append async",
        1.5,
    ),
    flat(
        "append async, 64 GiB of log against 1",
        "segmentlog, 1 GiB of log: append async",
        "segmentlog, 64 GiB of log: append async",
        1.5,
    ),
    flat("plan and scan, RocksDB, kept against files", f"{PLANNED} files", f"{PLANNED} RocksDB, kept", 2),
    flat("plan and scan, log alone, kept against files", f"{PLANNED} files", f"{PLANNED} the log alone, kept", 2),
    bandwidth("verify, per core", f"{OURS}: verify, one process", 1),
    *(per_second(f"rebuild on two cores, {size} B", f"{OURS}: rebuild, {size} B", 3_000_000) for size in (1024, 100)),
    times(
        "resend, one in flight",
        f"{OURS}: resend, one in flight",
        f"{PEER}: send, one thread",
        0.8,
        f"{PEER}'s producer",
    ),
    below("open after a crash", "segmentlog: open after a crash", 5),
    below("open with 10,000 queues", "segmentlog: open with 10,000 queues", 10),
)


def targets(measured: Measured, rules: Sequence[Rule] = (*SPARK_TARGETS, *STORE_TARGETS)) -> list[Target]:
    """Compare what was measured with what is wanted."""
    return [rule(measured) for rule in rules]
