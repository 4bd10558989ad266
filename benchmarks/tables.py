"""A report as tables in Markdown, the part of ``docs/benchmarks.md`` that is made of them, and all cases as CSV."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from harness import Result, Unit
from report import PACKAGES, Report, Section

TELLING_ROWS = 1_000_000
BEGIN, END = "<!-- figures: made by benchmarks/run.py --page, do not edit -->", "<!-- end of figures -->"
SCALES = {Unit.ROWS: (1, ""), Unit.BYTES: (1e6, " MB"), Unit.CALLS: (1, "")}
"""Divisor and suffix of a rate: rows and calls are told apart by the names of the cases."""
STEPS = {
    "transport to the tasks, dropped there (Spark, all cores)": "transport: sink",
    "encode (one thread)": "segmentlog: encode, one thread",
    "encode and stage (one thread)": "segmentlog: encode and stage, one thread",
    "commit, nothing synced (one thread)": "segmentlog: commit, nothing synced",
    "commit, with its syncs": "segmentlog: commit",
    "the whole write (Spark, all cores)": "segmentlog: sink",
}


def markdown(report: Report, *, with_cases: bool = True) -> str:
    """Format all tables; without the cases of each section, which the page leaves to `as_csv`."""
    lines = [_machine_text(report), ""]
    if any(section.rows < TELLING_ROWS for section in report.sections.values()):
        lines += ["Few rows show that everything runs; fixed costs drown the rest. Judge no target by them.", ""]
    lines += _targets(report)
    run = ""
    for name, section in report.sections.items() if with_cases else ():
        lines += _section(name, section, run)
        run = _run_text(section)
    if not with_cases:
        lines += [*dict.fromkeys(map(_run_text, report.sections.values())), ""]
    lines += _steps({result.name: result for result in report.results()})
    lines += _curves(list(report.results()))
    lines += [f"- `{name}` failed: {why}" for name, why in report.failed.items()]
    lines += [f"- {name}: left out, {why}" for name, why in report.skipped.items()]
    return "\n".join(lines).rstrip() + "\n"


def as_csv(report: Report) -> str:
    """Format all cases and figures: minimum, median and maximum of a rate, or p50, p95 and p99 of a latency."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("section", "case", "unit", "minimum or p50", "median or p95", "maximum or p99"))
    for name, section in report.sections.items():
        writer.writerows((name, *cells) for cells in _cells(section))
    return text.getvalue()


def _cells(section: Section) -> Iterator[tuple[str, ...]]:
    for result in section.results:
        if result.unit is Unit.LATENCY:
            yield result.name, "ms", *(f"{result.quantile(share) * 1000:.0f}" for share in (0.5, 0.95, 0.99))
        else:
            scale, suffix = SCALES[result.unit]
            yield result.name, suffix.strip() or result.unit.value, *(f"{rate / scale:.4g}" for rate in result.rates())
    for name, value in section.figures.items():
        yield name, "", "", f"{value:.4g}", ""


def put_into_page(page: Path, figures: str, plots: Iterable[Path]) -> None:
    """Put tables and plots in the place of those that a page has between its two marks.

    Raises
    ------
    ValueError
        If the page has no such place.
    """
    text = page.read_text()
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no line {BEGIN!r} with {END!r} after it")
    shown = "\n".join(f"![{plot.stem}]({plot.relative_to(page.parent)})" for plot in plots)
    page.write_text(f"{head}{BEGIN}\n\n{figures}\n{shown}{chr(10) * 2 if shown else ''}{END}{tail}")


def _machine_text(report: Report) -> str:
    found = report.machine
    packages = ", ".join(f"{name} {found[name]}" for name in PACKAGES)
    cpus = f"{found['cpus']} CPUs ({found['cpu']}), {found['memory_mib'] >> 10} GiB of memory"
    return f"{cpus}, {found['system']}, Python {found['python']}, {packages}."


def _targets(report: Report) -> list[str]:
    rows = [f"| {each.target} | {each.measured if each.met else f'**{each.measured}**'} |" for each in report.targets()]
    return ["| target | measured; bold: missed |", "| --- | ---: |", *rows, ""] if rows else []


def _run_text(section: Section) -> str:
    asked = f"{section.when[:10]}, {section.rows:,} rows of {section.body_bytes:,} bytes, {section.rounds} rounds"
    return f"{asked}: `{section.command}`"


def _section(name: str, section: Section, run_before: str) -> list[str]:
    """Format one section; the run is named where it differs from that of the section before."""
    run = _run_text(section)
    rated = [result for result in section.results if result.unit is not Unit.LATENCY and not result.curve]
    waits = [result for result in section.results if result.unit is Unit.LATENCY]
    if not (rated or waits or section.figures):
        return []  # all of it is in the table of growth
    lines = [f"### `{name}`", "", *([run, ""] if run != run_before else [])]
    if rated:
        lines += [*_side_by_side(rated), ""]
    if waits:
        lines += ["| case | p50, p95, p99 |", "| --- | --- |", *map(_waited, waits), ""]
    return lines + [f"- {name}: {value:,.0f}" for name, value in section.figures.items()] + [""] * bool(section.figures)


def _side_by_side(results: Iterable[Result]) -> list[str]:
    """Format rates: a row per case, a column per peer. ``PEER, KIND: CASE`` is the case ``CASE, KIND`` of that peer."""
    cases: dict[str, dict[str, str]] = {}
    for result in results:
        peer, case = _peer_and_case(result)
        cases.setdefault(case, {})[peer] = _rate(result)
    peers = list(dict.fromkeys(peer for rates in cases.values() for peer in rates))
    rows = [f"| {case} | {' | '.join(rates.get(peer, '') for peer in peers)} |" for case, rates in cases.items()]
    return [f"| per second | {' | '.join(peers)} |", "| --- |" + " --- |" * len(peers), *rows]


def _peer_and_case(result: Result) -> tuple[str, str]:
    who, _, case = result.name.partition(": ")
    peer, comma, kind = who.partition(", ")
    return peer, f"{case}{comma}{kind}"


def _rate(result: Result) -> str:
    scale, suffix = SCALES[result.unit]
    low, middle, high = (_number(rate / scale) for rate in result.rates())
    return f"{middle}{suffix} ({low}–{high})"


def _waited(result: Result) -> str:
    waits = ", ".join(f"{result.quantile(share) * 1000:.0f}" for share in (0.5, 0.95, 0.99))
    return f"| {result.name} | {waits} ms |"


def _steps(results: Mapping[str, Result]) -> list[str]:
    """Format the time of each step of a write."""
    found = {step: results[name] for step, name in STEPS.items() if name in results}
    if not any(name.startswith("segmentlog: commit") for name in results):
        return []
    rows = [f"| {step} | {result.median_seconds / result.rows * 1e6:.2f} |" for step, result in found.items()]
    return ["### Steps of a write", "", "| step | µs per row |", "| --- | ---: |", *rows, ""]


def _curves(results: list[Result]) -> list[str]:
    names = dict.fromkeys(result.curve for result in results if result.curve)
    if not names:
        return []
    lines = ["### Growth", "", "| µs per message | |", "| --- | --- |"]
    for name in names:
        points = [
            f"{result.x:,g}: {result.median_seconds / result.rows * 1e6:.2f}"
            for result in results
            if result.curve == name
        ]
        lines.append(f"| {name} | {' · '.join(points)} |")
    return [*lines, ""]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
