"""What is made of results: figures and plots of ``docs/benchmarks.md``, and CSV."""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from harness import Result, Unit
from machine import PACKAGES
from report import Report
from sections.committing import COMMIT, ENCODE, STAGE, UNSYNCED
from targets import TARGETS

BEGIN, END = "<!-- figures: made by benchmarks/run.py --page, do not edit -->", "<!-- end of figures -->"
HEAD = ("section", "case", "unit", "minimum or p50", "median or p95", "maximum or p99")
STEPS = {
    "transport to the tasks, dropped there (Spark, all cores)": "transport: sink",
    "encode (one thread)": ENCODE,
    "encode and stage (one thread)": STAGE,
    "commit, nothing synced (all cores)": UNSYNCED,
    "commit, with its syncs": COMMIT,
    "the whole write (Spark, all cores)": "segmentlog: sink",
}


def write_cases(report: Report, file: TextIO) -> None:
    """Write all cases and figures as CSV."""
    csv.writer(file, lineterminator="\n").writerows([HEAD, *_cases(report)])


def _cases(report: Report) -> Iterator[tuple[str, ...]]:
    for name, section in report.sections.items():
        for each in section.results:
            if each.unit == Unit.LATENCY:
                unit, shown = "ms", [f"{value:.0f}" for value in each.milliseconds(0.5, 0.95, 0.99)]
            elif each.unit == Unit.BYTES:
                unit, shown = "MB", [f"{rate / 1e6:.4g}" for rate in each.rates()]
            else:
                unit, shown = each.unit, [f"{rate:.4g}" for rate in each.rates()]
            yield name, each.name, unit, *shown
        for figure, value in section.figures.items():
            yield name, figure, "", "", f"{value:.4g}", ""


def put_into_page(report: Report, page: Path) -> None:
    """Write figures and plots between the two marks of a page, and all cases as CSV into the folder beside it."""
    from plots import draw  # noqa: PLC0415 - matplotlib is optional, and slow to import

    folder = page.with_suffix("")
    folder.mkdir(exist_ok=True)
    with (folder / "figures.csv").open("w", newline="") as file:
        write_cases(report, file)
    plots = "\n".join(f"![{plot.stem}]({plot.relative_to(page.parent)})" for plot in draw(report, folder))
    head, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{head}{BEGIN}\n\n{markdown(report)}\n{plots}\n\n{END}{rest.partition(END)[2]}")


def markdown(report: Report) -> str:
    """Format the figures of the page."""
    machine = report.machine
    packages = ", ".join(f"{name} {machine[name]}" for name in PACKAGES)
    cpus = f"{machine['cpus']} CPUs ({machine['cpu']}), {machine['memory_mib'] >> 10} GiB of memory"
    runs = (
        f"{each.when[:10]}, {each.rows:,} rows of {each.body_bytes:,} bytes, {each.rounds} rounds: `{each.command}`"
        for each in report.sections.values()
    )
    parts = [
        [f"{cpus}, {machine['system']}, Python {machine['python']}, {packages}."],
        table("target", "measured; bold: missed", _targets(report)),
        dict.fromkeys(runs),
        table("step", "µs per row", _steps(report), "### Steps of a write"),
        table("µs per message", "by what grows", _growth(report), "### Growth"),
        [f"- `{name}` failed: {why}" for name, why in report.failed.items()]
        + [f"- {name}: left out, {why}" for name, why in report.skipped.items()],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _targets(report: Report) -> Iterator[tuple[str, str]]:
    """Targets and what was measured, if it was."""
    for text, rule in TARGETS:
        try:
            shown, met = rule(report)
        except KeyError:
            continue
        yield text, shown if met else f"**{shown}**"


def _steps(report: Report) -> Iterator[tuple[str, str]]:
    """Time of each step of a write."""
    results = report.results
    return ((step, _microseconds(results[name])) for step, name in STEPS.items() if name in results)


def _growth(report: Report) -> Iterator[tuple[str, str]]:
    """Points of each curve."""
    results = report.results.values()
    for name in dict.fromkeys(each.curve for each in results if each.curve):
        points = (f"{each.x:,g}: {_microseconds(each)}" for each in results if each.curve == name)
        yield name, " · ".join(points)


def table(left: str, right: str, rows: Iterable[tuple[str, str]], *title: str) -> list[str]:
    """Format a table of two columns; nothing if it is empty."""
    lines = [f"| {one} | {two} |" for one, two in rows]
    head = [line for each in title for line in (each, "")]
    return [*head, f"| {left} | {right} |", "|---|---:|", *lines] if lines else []


def _microseconds(result: Result) -> str:
    return f"{result.median_seconds / result.rows * 1e6:.2f}"
