"""Results of runs, section by section, in one JSON file to which further runs add.

::

    {"machine": {…}, "sections": {"read": {"when", "command", "rows", …, "results": […], "figures": {…}}, …},
     "failed": {"sink": "…"}, "skipped": {"kafka": "…"}, "targets": [{"target", "measured", "met"}, …]}

A section that is measured again replaces its former results. One that fails changes neither the others nor its own
former results. Figures of another machine are never mixed in.
"""

import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from harness import MIB, Found, Result, check_names
from targets import Measured, Target, targets

PACKAGES = ("pyspark", "pyarrow", "numpy", "isal")


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One section: what it found, when, and how it was asked."""

    when: str
    command: str
    rows: int
    body_bytes: int
    rounds: int
    seconds: float
    results: tuple[Result, ...]
    figures: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Convert to values of JSON."""
        held = {name: getattr(self, name) for name in ("when", "command", "rows", "body_bytes", "rounds", "seconds")}
        return {**held, "results": [_result(result) for result in self.results], "figures": dict(self.figures)}

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> Self:
        """Read the result of `to_dict`."""
        fields = set(Result.__dataclass_fields__)
        results = (Result.from_dict({k: v for k, v in each.items() if k in fields}) for each in held["results"])
        return cls(**{**held, "results": tuple(results)})


@dataclass(kw_only=True, slots=True)
class Report:
    """All results of one machine."""

    machine: dict[str, Any]
    sections: dict[str, Section] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path | None) -> Self:
        """Read an earlier report of this machine; an empty one where there is none, or it is of another machine."""
        here = machine()
        if path is None or not path.exists():
            return cls(machine=here)
        held = json.loads(path.read_text())
        if held["machine"] != here:
            return cls(machine=here)
        sections = {name: Section.from_dict(each) for name, each in held["sections"].items()}
        return cls(machine=here, sections=sections, failed=held["failed"], skipped=held["skipped"])

    def add(
        self, name: str, found: Found, *, command: str, rows: int, body_bytes: int, rounds: int, took: float
    ) -> None:
        """Replace the results of a section."""
        others = [result for other, each in self.sections.items() if other != name for result in each.results]
        check_names([*others, *found.results])
        self.failed.pop(name, None)
        self.sections[name] = Section(
            when=datetime.now(UTC).isoformat(timespec="seconds"),
            command=command,
            rows=rows,
            body_bytes=body_bytes,
            rounds=rounds,
            seconds=round(took, 1),
            results=tuple(found.results),
            figures=found.figures,
        )

    def order(self, names: Iterable[str]) -> None:
        """Put the sections into the order in which they are told."""
        self.sections = {name: self.sections[name] for name in names if name in self.sections}

    def measured(self) -> Measured:
        """Everything, by name."""
        results = {result.name: result for result in self.results()}
        return Measured(results, {k: v for each in self.sections.values() for k, v in each.figures.items()})

    def results(self) -> Iterator[Result]:
        """Go through the results of all sections."""
        for section in self.sections.values():
            yield from section.results

    def targets(self) -> list[Target]:
        """Compare the results with what is wanted; targets nothing was measured for are left out."""
        return [target for target in targets(self.measured()) if target.met is not None]

    def as_json(self) -> str:
        """Convert to values of JSON."""
        content = {
            "machine": self.machine,
            "sections": {name: section.to_dict() for name, section in self.sections.items()},
            "failed": self.failed,
            "skipped": self.skipped,
            "targets": [asdict(target) for target in self.targets()],
        }
        return json.dumps(content, indent=2) + "\n"

    def save(self, path: Path | None) -> None:
        """Write the report, if a path is set; an interruption leaves the old file."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_suffix(".new")
            fresh.write_text(self.as_json())
            fresh.replace(path)


def machine() -> dict[str, Any]:
    """Describe the machine and the software, without naming the machine."""
    return {
        "cpus": os.cpu_count(),
        "cpu": _cpu(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB,
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def _result(result: Result) -> dict[str, Any]:
    low, middle, high = result.rates()
    return {**result.to_dict(), "per_second": {"min": round(low, 3), "median": round(middle, 3), "max": round(high, 3)}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
