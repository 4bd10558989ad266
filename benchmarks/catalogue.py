"""All sections, in the order in which they run, and which of them a run has unless told otherwise."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sections import (
    backfilling,
    command,
    expiring,
    finding,
    growth,
    jobs,
    latency,
    limits,
    queue_kinds,
    reading,
    remote,
    replicating,
    sinking,
    storing,
    streaming,
)

if TYPE_CHECKING:
    from bench import Bench
    from harness import Found

Section = Callable[["Bench"], "Found"]

SPARK: Mapping[str, Section] = {
    "limits": limits.limits,
    "read": reading.reads,
    "memory": reading.memory,
    "queues": reading.queues,
    "planning": reading.planning,
    "window": reading.window,
    "keys": reading.look_ups,
    "command": command.commands,
    "sink": sinking.sinks,
    "commit": sinking.commits,
    "backfill": backfilling.backfills,
    "replay": jobs.replays,
    "drain": streaming.drains,
    "micro-batch": streaming.plans,
    "latency": latency.latencies,
    "replicated-stream": replicating.streams,
    "grow-store": growth.store_sizes,
    "grow-queues": growth.queue_numbers,
    "grow-body": growth.body_sizes,
    "grow-cores": growth.cores,  # last: it leaves another session
}
"""Sections of ``make bench``."""

STORE: Mapping[str, Section] = {
    "store-puts": storing.section(storing.Storing.puts),
    "store-sync": storing.section(storing.Storing.sync_batches),
    "store-singles": storing.section(storing.Storing.singles),
    "store-drains": storing.section(storing.Storing.drains),
    "store-filters": storing.section(storing.Storing.filters),
    "store-queue-kinds": queue_kinds.plans_and_scans,
    "store-find": finding.finds,
    "store-jobs": jobs.maintenance,
    "store-resend": jobs.resends,
    "store-retention": expiring.decisions,
    "store-replication": replicating.replication,
    "store-queues": storing.section(storing.Storing.queues),
    "store-logs": storing.section(storing.Storing.logs),
    "store-recovery": storing.section(storing.Storing.recoveries),
}
"""Sections of ``make bench-store``, beside RocketMQ's own code."""

REMOTE: Mapping[str, Section] = {"remote": remote.archives}
"""Sections that need a server of S3, run with ``--only remote``."""

SECTIONS: Mapping[str, Section] = {**STORE, **SPARK, **REMOTE}
GROUPS: Mapping[str, tuple[str, ...]] = {"spark": tuple(SPARK), "store": tuple(STORE), "all": tuple(SECTIONS)}
PEERS = ("transport", "parquet", "kafka", "rocketmq")


def chosen(text: str) -> tuple[str, ...]:
    """Return the sections of a list of names and groups, in the order in which they run.

    Raises
    ------
    ValueError
        If there is no such section or group.
    """
    names = [name for part in text.split(",") for name in GROUPS.get(part, (part,))]
    unknown = sorted(set(names) - set(SECTIONS))
    if unknown:
        raise ValueError(f"no section is called {unknown}; there are {', '.join((*GROUPS, *SECTIONS))}")
    return tuple(name for name in SECTIONS if name in names)
