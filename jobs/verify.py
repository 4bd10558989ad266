"""Findings about a store, which is only read.

::

    python -m segmentlog.jobs.verify STORE            a table of findings
    python -m segmentlog.jobs.verify STORE --json

    commitlog/ ──► every record, its CRCs ──► every queue entry, every index entry ──► findings

It may run beside the store's owner. To go on with a store whose log is damaged, see ``segmentlog.jobs.salvage``; whose
queues are, ``segmentlog.jobs.rebuild``.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from segmentlog.output import text_table
from segmentlog.store.maintenance import VerifyReport, verify

from .command_line import add_commit_log, command_line, finished

_SHOWN = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Args:
    """Arguments of the job.

    Attributes
    ----------
    store
        The broker's ``storePathRootDir``.
    commit_log_paths
        Where its segments are, if not in ``commitlog`` in the store.
    """

    store: str
    commit_log_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Result of the job."""

    found: VerifyReport

    @property
    def has_findings(self) -> bool:
        """Return whether something is wrong."""
        return not self.found.is_sound

    def as_dict(self) -> dict[str, object]:
        """Return all of it, for one JSON object."""
        return asdict(self.found)

    def __str__(self) -> str:
        found = self.found
        state = "nothing is wrong" if found.is_sound else "damaged"
        head = f"{found.records} records in [{found.log_start}, {found.log_end}), {found.queues} queues"
        lost = f", {found.lost_messages} messages lost" if found.lost_messages else ""
        lines = [f"{head} with {found.entries} entries, {found.keys} keys indexed{lost}: {state}"]
        rows = [(finding.kind.value, f"{finding.text} ({finding.path})") for finding in found.findings[:_SHOWN]]
        lines += [text_table(rows)] if rows else []
        if len(found.findings) > _SHOWN:
            lines.append(f"… and {len(found.findings) - _SHOWN} more; --json lists all")
        return "\n".join(lines)


def run(args: Args) -> Report:
    """Verify. Needs no Spark.

    Raises
    ------
    SegmentLogError
        If the store cannot be read.
    """
    return Report(verify(args.store, commit_log_paths=args.commit_log_paths))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code, see `command_line`."""
    parser = command_line("verify", "List what is wrong with a store, without touching it.")
    parser.add_argument("store", metavar="STORE", help="the broker's storePathRootDir")
    add_commit_log(parser)
    options = parser.parse_args(arguments)
    args = Args(store=options.store, commit_log_paths=tuple(options.commit_log))
    return finished(options, lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
