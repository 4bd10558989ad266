"""The results as JSON, as a table in Markdown, and as a plot."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness import MIB, Result, Target
from targets import targets

COLOURS = {"segmentlog": "#0b6e4f", "transport": "#9aa0a6", "parquet": "#d98e04", "kafka": "#b23a48"}
PACKAGES = ("pyspark", "pyarrow", "numpy", "isal")
TELLING_ROWS = 1_000_000
MET = {True: "yes", False: "**no**", None: "–"}


@dataclass(kw_only=True, slots=True)
class Report:
    """All that one run found."""

    rows: int
    body_bytes: int
    queues: int
    rounds: int
    results: list[Result] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    worker_bytes: int | None = None

    def targets(self) -> list[Target]:
        """Compare the results with what is wanted."""
        return targets({result.name: result for result in self.results}, self.worker_bytes)

    def as_json(self) -> str:
        """Give everything, with the machine it was measured on."""
        content = {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "workload": {"rows": self.rows, "body_bytes": self.body_bytes, "queues": self.queues},
            "rounds": self.rounds,
            "results": [_result(result) for result in self.results],
            "worker_private_bytes": self.worker_bytes,
            "skipped": self.skipped,
            "targets": [asdict(target) for target in self.targets()],
        }
        return json.dumps(content, indent=2)

    def as_markdown(self) -> str:
        """Give the tables for the documentation."""
        work = f"{self.rows:,} rows of {self.body_bytes:,} bytes and 5 properties in {self.queues} queues"
        lines = [
            f"{work}, {self.rounds} rounds. {_machine_text()}.",
            "",
            "| case | rows/s, median | min | max | seconds, median |",
            "| --- | ---: | ---: | ---: | ---: |",
        ]
        for result in self.results:
            low, middle, high = result.rates()
            lines.append(f"| {result.name} | {middle:,.0f} | {low:,.0f} | {high:,.0f} | {result.median_seconds:.2f} |")
        if self.rows < TELLING_ROWS:
            lines += ["", "So few rows show that everything runs; fixed costs drown the rest. Judge no target by them."]
        lines += ["", "| target | measured | met |", "| --- | ---: | :-: |"]
        lines += [f"| {target.target} | {target.measured} | {MET[target.met]} |" for target in self.targets()]
        lines += ["" if self.skipped else None, *(f"- {name}: skipped, {why}" for name, why in self.skipped.items())]
        return "\n".join(line for line in lines if line is not None) + "\n"

    def plot(self, path: Path) -> None:
        """Draw the rates of all cases over the whole workload; needs matplotlib."""
        import matplotlib as mpl  # noqa: PLC0415 - optional, and slow to import

        mpl.use("Agg")
        from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend was chosen

        whole = [result for result in reversed(self.results) if result.rows == self.rows]
        figure, axes = plt.subplots(figsize=(9, 0.35 * len(whole) + 1.2))
        middles = [result.rates()[1] for result in whole]
        spread = [
            [middle - result.rates()[0] for middle, result in zip(middles, whole, strict=True)],
            [result.rates()[2] - middle for middle, result in zip(middles, whole, strict=True)],
        ]
        colours = [COLOURS.get(result.peer, "#444444") for result in whole]
        axes.barh([result.name for result in whole], middles, xerr=spread, color=colours)
        axes.set_xscale("log")
        axes.set_xlabel(f"rows per second ({self.body_bytes:,} byte bodies; bars: median, lines: min to max)")
        figure.savefig(path, bbox_inches="tight", dpi=120)
        plt.close(figure)


def machine() -> dict[str, Any]:
    """Describe the machine and the software, without naming the machine."""
    return {
        "cpus": os.cpu_count(),
        "cpu": _cpu(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB,
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def check_names(results: Sequence[Result]) -> None:
    """Refuse two cases of one name: targets look results up by it."""
    names = [result.name for result in results]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"two cases are called {sorted(twice)}")


def _result(result: Result) -> Mapping[str, Any]:
    low, middle, high = result.rates()
    rates = {"min": round(low), "median": round(middle), "max": round(high)}
    return {**asdict(result), "rows_per_second": rates}


def _machine_text() -> str:
    found = machine()
    return f"{found['cpus']} CPUs ({found['cpu']}), Python {found['python']}, " + ", ".join(
        f"{name} {found[name]}" for name in PACKAGES
    )


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
