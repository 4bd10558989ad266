"""Measures segmentlog beside its peers, on the same rows, in one run.

``make bench`` measures 2 million rows of 1 KiB in some 25 minutes, with 20 GiB of disk. ``make bench-store`` measures
appends beside RocketMQ's own code, and ``make bench-quick`` only shows that everything runs.

    python benchmarks/run.py --only sink,drain --json benchmarks/results/latest.json --rounds 3
    python benchmarks/run.py --only "" --json benchmarks/results/latest.json --page docs/benchmarks.md

A section that fails is reported, and the others continue. With ``--json`` each section is saved when it is done, and
replaces earlier results. Stores are made in the folder for temporary files, which ``TMPDIR`` names.
"""

import argparse
import shlex
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import page
from bench import Bench
from harness import Result, UnavailableError, tell
from report import Report, Section
from sections import (
    command,
    committing,
    finding,
    growth,
    jobs,
    latency,
    reading,
    remote,
    replicating,
    sinking,
    storing,
    streaming,
)

SPARK: Mapping[str, Callable[[Bench], list[Result]]] = {
    "read": reading.reads,
    "memory": reading.memory,
    "queues": reading.queues,
    "planning": reading.planning,
    "window": reading.window,
    "keys": reading.look_ups,
    "command": command.commands,
    "sink": sinking.sinks,
    "commit": committing.commits,
    "drain": streaming.drains,
    "micro-batch": streaming.plans,
    "latency": latency.latencies,
    "grow-store": growth.store_sizes,
    "grow-queues": growth.queue_numbers,
    "grow-body": growth.body_sizes,
    "grow-cores": growth.cores,  # last: it leaves another session
}
"""Sections of ``make bench``."""
STORE: Mapping[str, Callable[[Bench], list[Result]]] = {
    "store-puts": storing.puts,
    "store-sync": storing.sync_batches,
    "store-singles": storing.singles,
    "store-drains": storing.drains,
    "store-filters": storing.filters,
    "store-find": finding.finds,
    "store-jobs": jobs.maintenance,
    "store-replication": replicating.replication,
    "store-logs": storing.logs,
    "store-recovery": storing.recoveries,
}
"""Sections of ``make bench-store``, beside RocketMQ's own code."""
SECTIONS = {**STORE, **SPARK, "remote": remote.archives}  # remote needs a server of S3
GROUPS = {"spark": tuple(SPARK), "store": tuple(STORE), "all": tuple(SECTIONS)}
PEERS = ("transport", "parquet", "kafka", "rocketmq")
QUICK = {"rows": 20_000, "rounds": 1, "scale": 0.05}


def main() -> int:
    """Run what the command line asks for; 0 if all of that could be measured."""
    args, sections = arguments()
    # Ended from outside, stop the broker and remove the stores all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    report, failed = Report.load(args.json), False
    shape = {"rows": args.rows, "body_bytes": args.body_bytes, "rounds": args.rounds}
    with (
        tempfile.TemporaryDirectory(prefix="segmentlog-bench-", ignore_cleanup_errors=True) as folder,
        Bench(
            folder=Path(folder),
            **shape,
            scale=args.scale,
            peers=args.peers.split(","),
            memory=None if args.quick else Path(folder) / "memory",
        ) as bench,
    ):
        for name in sections:
            tell(name)
            bench.figures = {}
            try:
                results = SECTIONS[name](bench)
            except Exception as problem:  # noqa: BLE001 - whatever it is, the other sections are worth having
                if not isinstance(problem, UnavailableError):
                    traceback.print_exc()
                report.failed[name], failed = f"{type(problem).__name__}: {str(problem)[:300]}", True
                tell(f"  {name} failed: {report.failed[name]}")
            else:
                report.failed.pop(name, None)
                report.sections[name] = Section(
                    when=datetime.now(UTC).isoformat(timespec="seconds"),
                    command=asked(args),
                    **shape,
                    results=results,
                    figures=bench.figures,
                )
            report.skipped |= bench.skipped
            report.sections = {each: report.sections[each] for each in SECTIONS if each in report.sections}
            if args.json:
                report.save(args.json)
    if args.page:
        page.put_into_page(report, args.page)
    else:
        print(page.markdown(report))
        page.write_cases(report, sys.stdout)
    return int(failed)


def asked(args: argparse.Namespace) -> str:
    """Return a command that repeats the measurement, without the paths of this machine."""
    given = {"only": args.only, "peers": args.peers, "rows": args.rows, "body-bytes": args.body_bytes}
    given |= {"rounds": args.rounds, "scale": args.scale}
    return shlex.join(
        ["benchmarks/run.py", *(word for name, value in given.items() for word in (f"--{name}", f"{value}"))]
    )


def arguments() -> tuple[argparse.Namespace, list[str]]:
    """Read the command line; return the sections that it asks for, too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    some = f"of the groups {', '.join(GROUPS)} (%(default)s) and sections {', '.join(SECTIONS)}; '' for none"
    add("--quick", action="store_true", help="few rows, one round: shows that it runs, not how fast")
    add("--rows", type=int, default=2_000_000, help="rows in the store (%(default)s)")
    add("--rounds", type=int, default=3, help="timings of each case (%(default)s)")
    add("--scale", type=float, default=1.0, help="times the size of what does not use these rows (%(default)s)")
    add("--body-bytes", type=int, default=1024, help="bytes of a body (%(default)s)")
    add("--only", default="spark", metavar="A,B", help=some)
    add("--peers", default=",".join(PEERS), metavar="A,B", help="peers (%(default)s; '' for no peer)")
    add("--json", type=Path, help="add what was found to this file")
    add("--page", type=Path, help="put figures and plots into this page, between its marks, and the folder beside it")
    args = parser.parse_args()
    if args.quick:
        vars(args).update(QUICK)
    names = {each for part in args.only.split(",") for each in GROUPS.get(part, (part,))}
    unknown = {*names, *args.peers.split(",")} - {*SECTIONS, *PEERS, ""}
    if unknown:
        parser.error(f"no section, group or peer is called {', '.join(sorted(unknown))}")
    return args, [name for name in SECTIONS if name in names]


if __name__ == "__main__":
    sys.exit(main())
