"""Reports of maintenance verbs: text or one JSON object; on a terminal, the table of a job fits its width."""

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from segmentlog.output import json_text, printable

from ..console import Console, logged
from ..errors import FOUND, NOT_FOUND

if TYPE_CHECKING:
    import pyarrow as pa
    from _typeshed import DataclassInstance

    from segmentlog.jobs.report import Report as JobReport

_AFTER_UNDERSCORE: Final = re.compile(r"_([a-z])")


class Report(NamedTuple):
    """Result of a maintenance verb; a terminal gets summary and table, if there is a table, in place of the text."""

    text: str
    document: Mapping[str, object]
    has_findings: bool = False
    summary: str = ""
    table: "pa.Table | None" = None

    @classmethod
    def of(cls, found: "JobReport") -> Self:
        """Return the report of a job."""
        table = found.table if found.table.num_rows else None
        return cls(str(found), found.document(), found.has_findings, found.summary, table)


def print_report(work: Callable[[], Report], options: argparse.Namespace, console: Console) -> int:
    """Do the work, print its report, and return `FOUND`, or `NOT_FOUND` if it has findings."""
    with logged(console):
        found = work()
    if options.json:
        console.print(json_text(found.document))
    elif found.table is not None and console.is_terminal:
        from .tables import RichTable

        console.print(f"{printable(found.summary)}\n")
        writer = RichTable(console.stdout, found.table.schema, console)
        for batch in found.table.to_batches():
            writer.write(batch)
    else:
        for line in found.text.split("\n"):
            console.print(printable(line))
    return NOT_FOUND if found.has_findings else FOUND


def reported(work: Callable[[argparse.Namespace], Report]) -> Callable[[argparse.Namespace, Console], int]:
    """Make ``run_VERB`` of a function that returns the report of the verb, which is printed."""

    def run(options: argparse.Namespace, console: Console) -> int:
        return print_report(lambda: work(options), options, console)

    return run


def camel_case(report: "DataclassInstance") -> dict[str, Any]:
    """Return the fields of a dataclass under their names in JSON: ``lost_messages`` is ``lostMessages``."""
    return {_AFTER_UNDERSCORE.sub(lambda found: found[1].upper(), name): each for name, each in asdict(report).items()}
