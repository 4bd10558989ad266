"""Results of runs: a JSON file to which runs add.

::

    {"machine": {…}, "sections": {"read": {"when", "command", "rows", …, "results": […], "figures": {…}}, …},
     "failed": {"sink": "…"}, "skipped": {"kafka": "…"}}

A section that is measured again replaces its former results. One that fails changes neither the others nor its own
former results. Figures of another machine are never mixed in.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from harness import OURS, Result
from machine import described


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

    @property
    def results(self) -> dict[str, Result]:
        """Results of all sections, by name of their case."""
        return {result.name: result for section in self.sections.values() for result in section.results}

    def figure(self, name: str) -> float:
        """Return a figure of any section."""
        return {name: value for section in self.sections.values() for name, value in section.figures.items()}[name]

    def case(self, name: str) -> Result:
        """Return the result of a case; one that names no peer is ours."""
        return self.results[name if ": " in name else f"{OURS}: {name}"]

    def ratio(self, ours: str, theirs: str) -> float:
        """Relate the rates of two cases."""
        return self.case(ours).rate / self.case(theirs).rate

    def seconds(self, name: str) -> float:
        """Median of a case's timings."""
        return self.case(name).median_seconds
