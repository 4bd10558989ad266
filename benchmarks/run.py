"""Measures segmentlog beside its peers, on the same rows, in one run.

Run ``make bench`` (2 million rows of 1 KiB, some ten minutes and 8 GiB of disk) or ``make bench-quick`` (that it runs,
not how fast). ``python benchmarks/run.py --help`` lists what can be chosen.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import workload
from harness import Bench, Case, UnavailableError, measure
from peers import kafka, parquet, segmentlog_source, transport
from report import Report, check_names
from session import session

Prepare = Callable[[Bench], AbstractContextManager[list[Case]]]

READ: dict[str, Prepare] = {
    "segmentlog": segmentlog_source.cases,
    "transport": transport.cases,
    "parquet": parquet.cases,
    "kafka": kafka.cases,
}
"""Sections that are measured in turns with each other."""

ALONE: dict[str, Prepare] = {
    "queues": segmentlog_source.queue_cases,
    "planning": segmentlog_source.planning_cases,
    "window": segmentlog_source.window_cases,
}
"""Sections whose cases are measured in turns among themselves."""

MEMORY = "memory"
SECTIONS = (*READ, *ALONE, MEMORY)

FULL_ROWS, FULL_ROUNDS = 2_000_000, 5
QUICK_ROWS, QUICK_ROUNDS = 50_000, 1


def main() -> int:
    """Run what the command line asks for; 0 if all that was asked for could be measured."""
    args = _arguments()
    # Ended from outside, stop the broker and remove the stores all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sections = args.only or SECTIONS
    with _folder(args.work_dir, keep=args.keep) as folder, ExitStack() as peers:
        report = Report(rows=args.rows, body_bytes=args.body_bytes, queues=args.queues, rounds=args.rounds)
        jars = []
        if "kafka" in sections:
            try:
                jars = kafka.connector_jars()
            except UnavailableError as problem:
                report.skipped["kafka"] = str(problem)
        _tell(f"writing {args.rows:,} rows")
        work = workload.write(folder, rows=args.rows, queues=args.queues, body_bytes=args.body_bytes)
        spark = peers.enter_context(session(folder, jars))
        bench = Bench(spark=spark, workload=work, folder=folder, rounds=args.rounds, tell=_tell)
        reads: list[Case] = []
        for name, prepare in READ.items():
            if name in sections and name not in report.skipped:
                try:
                    reads += peers.enter_context(prepare(bench))
                except UnavailableError as problem:
                    report.skipped[name] = str(problem)
        if reads:
            _tell("reading all rows")
            report.results += measure(reads, args.rounds, _tell)
        for name, prepare in ALONE.items():
            if name in sections:
                _tell(name)
                with prepare(bench) as cases:
                    report.results += measure(cases, args.rounds, _tell)
        if MEMORY in sections:
            _tell(MEMORY)
            report.worker_bytes = segmentlog_source.memory(bench)
    check_names(report.results)
    _publish(report, args)
    return 1 if report.skipped and args.only else 0


def _publish(report: Report, args: argparse.Namespace) -> None:
    table = report.as_markdown()
    sys.stdout.write(table)
    if args.table is not None:
        args.table.write_text(table)
    if args.json is not None:
        args.json.write_text(report.as_json() + "\n")
    if args.plot is not None:
        try:
            report.plot(args.plot)
        except ImportError:
            _tell("no plot: pip install matplotlib, or the extra 'bench'")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows, one round: shows that it runs, not how fast")
    parser.add_argument("--rows", type=int, help=f"rows in the store ({FULL_ROWS:,}; quick: {QUICK_ROWS:,})")
    parser.add_argument("--rounds", type=int, help=f"timings of each case ({FULL_ROUNDS}; quick: {QUICK_ROUNDS})")
    parser.add_argument("--body-bytes", type=int, default=1024, help="bytes of a body (%(default)s)")
    parser.add_argument("--queues", type=int, default=8, help="queues of the topic (%(default)s)")
    parser.add_argument("--only", type=_sections, metavar="A,B", help=f"of the sections {', '.join(SECTIONS)}")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    parser.add_argument("--table", type=Path, help="write the tables, which are printed anyway, to this file")
    parser.add_argument("--plot", type=Path, help="draw the rates into this file (.svg, .png)")
    parser.add_argument("--work-dir", type=Path, help="make the stores below this folder instead of the system's")
    parser.add_argument("--keep", action="store_true", help="leave the stores there at the end")
    args = parser.parse_args()
    args.rows = args.rows or (QUICK_ROWS if args.quick else FULL_ROWS)
    args.rounds = args.rounds or (QUICK_ROUNDS if args.quick else FULL_ROUNDS)
    return args


def _sections(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    unknown = set(chosen) - set(SECTIONS)
    if unknown:
        raise argparse.ArgumentTypeError(f"no section is called {sorted(unknown)}; there are {', '.join(SECTIONS)}")
    return chosen


@contextmanager
def _folder(below: Path | None, *, keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="segmentlog-bench-", dir=below))
    try:
        yield folder
    finally:
        if keep:
            _tell(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _tell(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
