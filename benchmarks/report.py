"""Results of runs: a JSON file to which runs add, and what is made of it: figures of ``docs/benchmarks.md``, and CSV.

::

    {"machine": {…}, "sections": {"read": {"when", "command", "rows", …, "results": […], "figures": {…}}, …},
     "failed": {"sink": "…"}, "skipped": {"kafka": "…"}}

A section that is measured again replaces its former results. One that fails changes neither the others nor its own
former results. Figures of another machine are never mixed in.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self, TextIO

from harness import Result, Unit
from machine import PACKAGES, described
from sections.committing import COMMIT, ENCODE, STAGE, UNSYNCED
from targets import TARGETS, Measured

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


@dataclass(kw_only=True, slots=True)
class Section:
    """One section: what it found, when, and how it was asked."""

    when: str
    command: str
    rows: int
    body_bytes: int
    rounds: int
    results: list[Result]
    figures: Mapping[str, float]


@dataclass(kw_only=True, slots=True)
class Report:
    """All results of one machine."""

    machine: dict[str, Any] = field(default_factory=described)
    sections: dict[str, Section] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path | None) -> Self:
        """Read an earlier report of this machine; an empty one where there is none, or it is of another machine."""
        found = cls()
        held = json.loads(path.read_text()) if path is not None and path.exists() else {}
        if held.get("machine") == found.machine:
            found.failed, found.skipped = held["failed"], held["skipped"]
            for name, section in held["sections"].items():
                results = [Result(**each) for each in section["results"]]
                found.sections[name] = Section(**{**section, "results": results})
        return found

    def save(self, path: Path) -> None:
        """Write the report; an interruption leaves the old file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self), indent=2) + "\n")
        fresh.replace(path)

    def measured(self) -> Measured:
        """Everything, by name."""
        figures = {name: value for section in self.sections.values() for name, value in section.figures.items()}
        return Measured({result.name: result for result in self.results()}, figures)

    def results(self) -> Iterator[Result]:
        """Go through the results of all sections."""
        for section in self.sections.values():
            yield from section.results

    def write_cases(self, file: TextIO) -> None:
        """Write all cases and figures as CSV."""
        csv.writer(file, lineterminator="\n").writerows([HEAD, *self._cases()])

    def _cases(self) -> Iterator[tuple[str, ...]]:
        for name, section in self.sections.items():
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

    def put_into_page(self, page: Path) -> None:
        """Write figures and plots between the two marks of a page, and all cases as CSV into the folder beside it."""
        from plots import draw  # noqa: PLC0415 - matplotlib is optional, and slow to import

        folder = page.with_suffix("")
        folder.mkdir(exist_ok=True)
        with (folder / "figures.csv").open("w", newline="") as file:
            self.write_cases(file)
        plots = "\n".join(f"![{plot.stem}]({plot.relative_to(page.parent)})" for plot in draw(self, folder))
        head, _, rest = page.read_text().partition(BEGIN)
        page.write_text(f"{head}{BEGIN}\n\n{self.markdown()}\n{plots}\n\n{END}{rest.partition(END)[2]}")

    def markdown(self) -> str:
        """Format the figures of the page."""
        machine = self.machine
        packages = ", ".join(f"{name} {machine[name]}" for name in PACKAGES)
        cpus = f"{machine['cpus']} CPUs ({machine['cpu']}), {machine['memory_mib'] >> 10} GiB of memory"
        runs = (
            f"{each.when[:10]}, {each.rows:,} rows of {each.body_bytes:,} bytes, {each.rounds} rounds: `{each.command}`"
            for each in self.sections.values()
        )
        parts = [
            [f"{cpus}, {machine['system']}, Python {machine['python']}, {packages}."],
            table("target", "measured; bold: missed", self._targets()),
            dict.fromkeys(runs),
            table("step", "µs per row", self._steps(), "### Steps of a write"),
            table("µs per message", "by what grows", self._growth(), "### Growth"),
            [f"- `{name}` failed: {why}" for name, why in self.failed.items()]
            + [f"- {name}: left out, {why}" for name, why in self.skipped.items()],
        ]
        return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"

    def _targets(self) -> Iterator[tuple[str, str]]:
        """Targets and what was measured, if it was."""
        measured = self.measured()
        for text, rule in TARGETS:
            try:
                shown, met = rule(measured)
            except KeyError:
                continue
            yield text, shown if met else f"**{shown}**"

    def _steps(self) -> Iterator[tuple[str, str]]:
        """Time of each step of a write."""
        results = self.measured().results
        return ((step, _microseconds(results[name])) for step, name in STEPS.items() if name in results)

    def _growth(self) -> Iterator[tuple[str, str]]:
        """Points of each curve."""
        for name in dict.fromkeys(result.curve for result in self.results() if result.curve):
            points = (f"{each.x:,g}: {_microseconds(each)}" for each in self.results() if each.curve == name)
            yield name, " · ".join(points)


def table(left: str, right: str, rows: Iterable[tuple[str, str]], *title: str) -> list[str]:
    """Format a table of two columns; nothing if it is empty."""
    lines = [f"| {one} | {two} |" for one, two in rows]
    head = [line for each in title for line in (each, "")]
    return [*head, f"| {left} | {right} |", "|---|---:|", *lines] if lines else []


def _microseconds(result: Result) -> str:
    return f"{result.median_seconds / result.rows * 1e6:.2f}"
