"""What the project wants to reach, each with what was measured. Later work adds its own lines here."""

from collections.abc import Mapping

from harness import MIB, Result, Target
from peers.transport import SCHEMAS

TRANSPORT_SHARE = 0.8
KAFKA_COUNT_TIMES = 10
SMALL_QUEUES_TIMES = 3
PLANNING_SECONDS = 2.0
WINDOW_SHARE = 0.01
WINDOW_TOLERANCE = 1.25
WORKER_MIB = 256


def targets(results: Mapping[str, Result], worker_bytes: int | None) -> list[Target]:
    """Compare what was measured with what is wanted.

    Parameters
    ----------
    results
        By name of the case. Cases that were left out are simply not there.
    worker_bytes
        Peak of private memory of a Python worker.
    """
    found = [_share_of_transport(results, name) for name in SCHEMAS]
    found += [_times_kafka_count(results, name) for name in ("count", "offsets only")]
    found += [_small_queues(results), _planning(results), _window(results)]
    mib = None if worker_bytes is None else worker_bytes / MIB
    found.append(
        Target(
            target=f"private memory of a task below {WORKER_MIB} MiB",
            measured="not measured" if mib is None else f"{mib:.0f} MiB",
            met=None if mib is None else mib < WORKER_MIB,
        )
    )
    return found


def _share_of_transport(results: Mapping[str, Result], name: str) -> Target:
    target = f"{name}: at least {TRANSPORT_SHARE:.0%} of the transport ceiling"
    ours, ceiling = results.get(f"segmentlog: {name}"), results.get(f"transport: {name}")
    if ours is None or ceiling is None:
        return Target.not_measured(target)
    share = ceiling.median_seconds / ours.median_seconds * ours.rows / ceiling.rows
    return Target(target=target, measured=f"{share:.0%}", met=share >= TRANSPORT_SHARE)


def _times_kafka_count(results: Mapping[str, Result], name: str) -> Target:
    target = f"{name}: at least {KAFKA_COUNT_TIMES} times Kafka's count"
    ours, kafka = results.get(f"segmentlog: {name}"), results.get("kafka: count")
    if ours is None or kafka is None:
        return Target.not_measured(target)
    times = kafka.median_seconds / ours.median_seconds * ours.rows / kafka.rows
    return Target(target=target, measured=f"{times:.1f} times", met=times >= KAFKA_COUNT_TIMES)


def _small_queues(results: Mapping[str, Result]) -> Target:
    target = f"many short queues: at most {SMALL_QUEUES_TIMES} times the time of the same rows in one queue"
    spread = {result.name.rpartition(" in ")[2]: result for result in results.values() if " rows in " in result.name}
    one = spread.pop("1 queue", None)
    if one is None or not spread:
        return Target.not_measured(target)
    times = max(result.median_seconds for result in spread.values()) / one.median_seconds
    return Target(target=target, measured=f"{times:.1f} times", met=times <= SMALL_QUEUES_TIMES)


def _planning(results: Mapping[str, Result]) -> Target:
    plans = [result for result in results.values() if result.name.startswith("segmentlog: plan ")]
    target = f"planning 10,000 queues: below {PLANNING_SECONDS:g} s"
    if not plans:
        return Target.not_measured(target)
    return Target(
        target=target,
        measured=f"{plans[0].median_seconds:.2f} s",
        met=plans[0].median_seconds < PLANNING_SECONDS,
    )


def _window(results: Mapping[str, Result]) -> Target:
    target = f"1 % time window: {WINDOW_SHARE:.0%} of the full scan and the time of one millisecond's rows"
    full, window, least = (
        results.get(f"segmentlog: {name}") for name in ("full scan", "1 % time window", "1 ms time window")
    )
    if full is None or window is None or least is None:
        return Target.not_measured(target)
    allowed = WINDOW_SHARE * full.median_seconds + least.median_seconds
    return Target(
        target=target,
        measured=f"{window.median_seconds:.2f} s of {allowed:.2f} s",
        # A window of one task is not spread over the cores, and no timing of a few hundred ms repeats exactly.
        met=window.median_seconds <= WINDOW_TOLERANCE * allowed,
    )
