"""Measures segmentlog beside its peers, on the same rows, in one run.

``make bench`` measures 2 million rows of 1 KiB in some 25 minutes, with 20 GiB of disk. ``make bench-store`` measures
appends beside RocketMQ's own code, and ``make bench-quick`` only shows that everything runs.

    python benchmarks/run.py --only sink,drain --json benchmarks/results/latest.json --rounds 3
    python benchmarks/run.py --only "" --json benchmarks/results/latest.json --page docs/benchmarks.md

A section that fails is reported, and the others continue. With ``--json`` each section is saved when it is done, and
replaces earlier results. ``--resume`` measures only sections that the file does not have.
"""

import argparse
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import Bench
from catalogue import GROUPS, PEERS, SECTIONS, chosen
from harness import Found, UnavailableError
from report import Report
from tables import as_csv, markdown, put_into_page

FULL_ROWS, FULL_ROUNDS = 2_000_000, 3
PLACES = ("--json", "--table", "--plots", "--page", "--work-dir")
QUICK_ROWS, QUICK_ROUNDS, QUICK_SCALE = 20_000, 1, 0.05


def main() -> int:
    """Run what the command line asks for; 0 if all of that could be measured."""
    args = _arguments()
    # Ended from outside, stop the broker and remove the stores all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    report = Report.load(args.json)
    sections = [name for name in args.only if not (args.resume and name in report.sections)]
    command = command_line(sys.argv[1:])
    failed = []
    with _folder(args.work_dir, keep=args.keep) as folder, _bench(args, folder) as bench:
        for name in sections:
            _tell(name)
            started = time.monotonic()
            found = _measured(name, bench, report)
            if found is None:
                failed.append(name)
            else:
                shape = {"rows": args.rows, "body_bytes": args.body_bytes, "rounds": args.rounds}
                report.add(name, found, command=command, **shape, took=time.monotonic() - started)
            report.skipped |= bench.skipped
            report.order(SECTIONS)
            report.save(args.json)
    _publish(report, args)
    return 1 if failed else 0


def command_line(given: Sequence[str]) -> str:
    """Return a command that repeats the measurement, without the paths of this machine."""
    told, skips = ["benchmarks/run.py"], False
    for word in given:
        if skips:
            skips = False
        elif word in PLACES:
            skips = True
        elif word.partition("=")[0] not in PLACES:
            told.append(word)
    return shlex.join(told)


def _measured(name: str, bench: Bench, report: Report) -> Found | None:
    """Run a section; None if it failed, which is noted and ends nothing else."""
    try:
        return SECTIONS[name](bench)
    except UnavailableError as problem:
        report.failed[name] = str(problem)
    except Exception as problem:  # noqa: BLE001 - whatever it is, the other sections are worth having
        report.failed[name] = f"{type(problem).__name__}: {str(problem)[:300]}"
        traceback.print_exc()
    _tell(f"  {name} failed: {report.failed[name]}")
    return None


def _bench(args: argparse.Namespace, folder: Path) -> Bench:
    return Bench(
        folder,
        rows=args.rows,
        body_bytes=args.body_bytes,
        queues=args.queues,
        rounds=args.rounds,
        scale=args.scale,
        full=args.full,
        peers=args.peers,
        rocketmq=args.rocketmq,
        fills_memory=not (args.quick or args.leave_memory),
        tell=_tell,
    )


def _publish(report: Report, args: argparse.Namespace) -> None:
    figures = markdown(report)
    sys.stdout.write(figures)
    if args.table is not None:
        args.table.write_text(figures)
    plots: list[Path] = []
    if args.plots is not None:
        args.plots.mkdir(parents=True, exist_ok=True)
        (args.plots / "figures.csv").write_text(as_csv(report))
        try:
            from plots import draw  # noqa: PLC0415 - matplotlib is optional

            plots = draw(report, args.plots)
        except ImportError:
            _tell("no plots: pip install matplotlib, or the extra 'bench'")
    if args.page is not None:
        put_into_page(args.page, markdown(report, with_cases=False), plots)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="few rows, one round: shows that it runs, not how fast")
    add("--full", action="store_true", help="also the sizes that need 40 GiB of disk")
    add("--rows", type=int, help=f"rows in the store ({FULL_ROWS:,}; quick: {QUICK_ROWS:,})")
    add("--rounds", type=int, help=f"timings of each case ({FULL_ROUNDS}; quick: {QUICK_ROUNDS})")
    add("--scale", type=float, help=f"times the size of what does not use these rows (1; quick: {QUICK_SCALE})")
    add("--body-bytes", type=int, default=1024, help="bytes of a body (%(default)s)")
    add("--queues", type=int, default=8, help="queues of the topic (%(default)s)")
    add(
        "--only",
        type=_sections,
        default="spark",
        metavar="A,B",
        help=f"of the groups {', '.join(GROUPS)} (%(default)s) and sections {', '.join(SECTIONS)}; '' for none",
    )
    add("--peers", type=_peers, default=",".join(PEERS), metavar="A,B", help="peers (%(default)s; '' for no peer)")
    add("--rocketmq", type=lambda text: text.split(","), default="5.3.3", help="its releases (%(default)s)")
    add("--leave-memory", action="store_true", help="do not fill free memory with the page cache before timings")
    add("--json", type=Path, help="add what was found to this file")
    add("--resume", action="store_true", help="leave out sections that the file of --json has")
    add("--table", type=Path, help="write the tables, which are printed anyway, to this file")
    add("--plots", type=Path, metavar="FOLDER", help="write plots, and all cases as CSV, into this folder")
    add("--page", type=Path, help="put tables of compared cases, and plots, into this page, between its marks")
    add("--work-dir", type=Path, help="make the stores below this folder instead of the system's")
    add("--keep", action="store_true", help="leave the stores there at the end")
    args = parser.parse_args()
    args.rows = args.rows or (QUICK_ROWS if args.quick else FULL_ROWS)
    args.rounds = args.rounds or (QUICK_ROUNDS if args.quick else FULL_ROUNDS)
    args.scale = args.scale or (QUICK_SCALE if args.quick else 1.0)
    return args


def _sections(text: str) -> tuple[str, ...]:
    try:
        return chosen(text) if text else ()
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def _peers(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, text.split(",")))
    unknown = set(names) - set(PEERS)
    if unknown:
        raise argparse.ArgumentTypeError(f"no peer is called {sorted(unknown)}; there are {', '.join(PEERS)}")
    return names


@contextmanager
def _folder(below: Path | None, *, keep: bool) -> Iterator[Path]:
    if below is not None:
        below.mkdir(parents=True, exist_ok=True)
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
