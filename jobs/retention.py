"""Expired files of a store, by RocketMQ's rules: foreseen, or deleted.

::

    python -m segmentlog.jobs.retention plan  STORE --config broker.conf     what goes, when and why; changes nothing
    python -m segmentlog.jobs.retention apply STORE --config broker.conf     deletes it; refused if a broker runs

Both answer what-if questions: another time, hour or use of the disks, a manual trigger, several runs.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from segmentlog.connector.options.values import duration_ms
from segmentlog.output import text_table
from segmentlog.store import ConfigError, RetentionSettings, RocketMQRelease

from .command_line import add_commit_log, command_line, finished

if TYPE_CHECKING:
    from segmentlog.store.maintenance import Conditions, Retained


class Action(Enum):
    """Choice between foreseeing and deleting."""

    PLAN = "plan"
    APPLY = "apply"


@dataclass(frozen=True, kw_only=True, slots=True)
class Args:
    """Options of the job.

    Attributes
    ----------
    action
        Whether files are deleted.
    store
        The broker's ``storePathRootDir``.
    config
        The broker's configuration file; RocketMQ's defaults if None.
    release
        RocketMQ release whose rules are followed.
    log_bytes_max
        Bytes of all segments above which the oldest are deleted; None for no limit.
    protected_groups, min_age_ms
        Groups whose unread messages are kept, and minimum ages by topic.
    archive
        Directory into which files are copied before they are deleted; None for no copies.
    hard_limit_percent
        Used space of a disk above which the disk wins over groups, ages and an archive that fails.
    conditions
        Time, disks and number of the runs; one run now if None.
    commit_log_paths
        Directories of the segments; if empty those of the configuration, or else ``commitlog`` in the store.
    """

    action: Action
    store: str
    config: str | None = None
    release: RocketMQRelease = RocketMQRelease.V5_1
    log_bytes_max: int | None = None
    protected_groups: tuple[str, ...] = ()
    min_age_ms: Mapping[str, int] = field(default_factory=dict)
    archive: str | None = None
    hard_limit_percent: int = RetentionSettings().hard_limit_percent
    conditions: "Conditions | None" = None
    commit_log_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Result of the job."""

    action: Action
    store: str
    found: "Retained"
    notes: tuple[str, ...] = ()

    @property
    def has_findings(self) -> bool:
        """Return whether a file could not be deleted or archived, or a wrong ``deleteWhen`` stopped a run."""
        return self.found.failures > 0 or any(run.problem for run in self.found.runs)

    def as_dict(self) -> dict[str, object]:
        """Return all of it, for one JSON object."""
        found = self.found
        runs = [
            {
                "now": run.moment.ms,
                "hour": run.moment.hour,
                "timeUp": run.time_up,
                "spaceShort": run.space_short,
                "manual": run.manual,
                "forced": run.forced,
                "problem": run.problem,
                "diskFull": run.disk_full,
                "minPhysicalOffset": run.log_start,
                "wanted": run.wanted,
                "diskWins": run.disk_wins,
                "deleted": [
                    {
                        "file": each.file,
                        "bytes": each.bytes,
                        "modified": each.modified_ms,
                        "reason": each.reason,
                        "archive": each.archive,
                    }
                    for each in run.expired
                ],
            }
            for run in found.runs
        ]
        queues = [
            {
                "topic": bounds.key.topic,
                "queueId": bounds.key.queue_id,
                "minOffset": bounds.min_offset,
                "maxOffset": bounds.max_offset,
            }
            for bounds in found.queues
        ]
        return {
            "action": self.action.value,
            "store": self.store,
            "notes": list(self.notes),
            "runs": runs,
            "minPhysicalOffset": found.log_start,
            "queues": queues,
            "diskFull": found.disk_full,
            "archived": found.archived,
            "failures": found.failures,
        }

    def __str__(self) -> str:
        found = self.found
        rows: list[tuple[object, ...]] = []
        for number, run in enumerate(found.runs, 1):
            rows += [(number, each.file, each.bytes, _shown(each.modified_ms), each.reason) for each in run.expired]
            if run.wanted and not run.disk_wins:
                rows.append((number, "the rest is kept", None, "", run.wanted))
            if run.problem:
                rows.append((number, "CommitLog skipped", None, "", run.problem))
        lines = [*self.notes, text_table(rows, head=("run", "file", "bytes", "modified", "reason"))]
        files = sum(len(run.expired) for run in found.runs)
        size = sum(each.bytes for run in found.runs for each in run.expired)
        verb = "to delete" if self.action is Action.PLAN else "deleted"
        lines.append(
            f"{files - found.failures} files of {size} bytes {verb}; the log starts at {found.log_start}; "
            f"puts are {'refused' if found.disk_full else 'accepted'}"
        )
        archived = [each.archive for run in found.runs for each in run.expired if each.archive is not None]
        if archived and self.action is Action.PLAN:
            lines.append(f"each file is copied before it is deleted, the first to {archived[0]}")
        elif archived:
            lines.append(f"{found.archived} files archived, the first as {archived[0]}")
        if found.failures:
            lines.append(f"{found.failures} files could not be deleted or archived, see the log")
        return "\n".join(lines)


def _shown(ms: int | None) -> str:
    return "" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


def run(args: Args) -> Report:
    """Foresee or delete. Needs no Spark.

    Raises
    ------
    SegmentLogError
        If the store cannot be read, the configuration is wrong, or another process has the store open.
    """
    # They load Arrow, which --help does not wait for.
    from segmentlog.store.maintenance import (  # noqa: PLC0415
        Conditions,
        apply_retention,
        configured_paths,
        plan_retention,
    )

    conf = "" if args.config is None else _read_conf(args.config)
    settings = replace(
        RetentionSettings.from_conf(conf, args.release),
        log_bytes_max=args.log_bytes_max,
        protected_groups=args.protected_groups,
        min_age_ms=args.min_age_ms,
        archive=args.archive,
        hard_limit_percent=args.hard_limit_percent,
    )
    act = plan_retention if args.action is Action.PLAN else apply_retention
    conditions = args.conditions or Conditions()
    commit_logs, notes = args.commit_log_paths, tuple[str, ...]()
    if not commit_logs:
        commit_logs, notes = configured_paths(conf, args.store)
    return Report(args.action, args.store, act(args.store, settings, conditions, commit_log_paths=commit_logs), notes)


def _read_conf(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(
            f"--config: the broker's configuration cannot be read: {found}",
            path=path,
            fix="Pass the file that the broker was started with (`mqbroker -c FILE`)",
        ) from error


def _min_ages(texts: Sequence[str]) -> dict[str, int]:
    """Parse each ``TOPIC=DURATION``: ms by topic."""
    found: dict[str, int] = {}
    for text in texts:
        topic, equals, age = text.partition("=")
        if not equals:
            raise ConfigError(f"--min-age is {text!r}", fix="Name a topic and a duration with its unit: orders=7d")
        if topic in found:
            raise ConfigError(f"--min-age names topic {topic} twice", fix="Name each topic once")
        found[topic] = duration_ms("--min-age", age)
    return found


def _usage(text: str) -> tuple[float, float]:
    """Parse ``P[,Q]``: the used percent of the CommitLog's disk, and of the ConsumeQueues'."""
    try:
        shares = [float(part.strip().removesuffix("%")) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage: write 60, or 60,20 for both disks") from None
    if len(shares) > 2:
        raise argparse.ArgumentTypeError(f"{text!r} names more than two disks")
    return shares[0], shares[-1]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    parser.add_argument("action", choices=[each.value for each in Action], help="plan changes nothing")
    parser.add_argument("store", metavar="STORE", help="the broker's storePathRootDir")
    parser.add_argument("--config", metavar="FILE", help="the broker's configuration (default: RocketMQ's defaults)")
    parser.add_argument(
        "--release",
        choices=[each.value for each in RocketMQRelease],
        default=RocketMQRelease.V5_1.value,
        help="RocketMQ release whose rules are followed (default: %(default)s)",
    )
    parser.add_argument(
        "--max-bytes",
        metavar="N",
        type=int,
        help="bytes of all segments above which the oldest are deleted, too; not in RocketMQ (default: none)",
    )
    parser.add_argument(
        "--protect",
        metavar="GROUP",
        action="append",
        default=[],
        help="keep what this consumer group has not read; repeatable; not in RocketMQ (default: none)",
    )
    parser.add_argument(
        "--min-age",
        metavar="TOPIC=DURATION",
        action="append",
        default=[],
        help="keep segments with younger messages of a topic, such as orders=7d; repeatable; not in RocketMQ "
        "(default: none)",
    )
    parser.add_argument(
        "--archive",
        metavar="DIR",
        help="copy each file to this directory, and verify the copy, before it is deleted; not in RocketMQ "
        "(default: none)",
    )
    parser.add_argument(
        "--hard-limit-percent",
        metavar="P",
        type=int,
        default=RetentionSettings().hard_limit_percent,
        help="used percent of a disk above which files go in spite of --protect, --min-age and a failed archive "
        "(default: %(default)s)",
    )
    parser.add_argument("--now", metavar="MS", type=int, help="time of the first run, ms since 1970 (default: now)")
    parser.add_argument("--hour", metavar="H", type=int, help="local hour of the first run (default: that of the time)")
    parser.add_argument(
        "--disk-usage",
        metavar="P[,Q]",
        type=_usage,
        default=(None, None),
        help="used percent of the disks of CommitLog and ConsumeQueues (default: the disks' own)",
    )
    parser.add_argument("--manual", action="store_true", help="as after a manual trigger, which starts 20 runs")
    parser.add_argument("--rounds", metavar="N", type=int, default=1, help="number of runs (default: 1)")
    add_commit_log(parser)


def parse(options: argparse.Namespace) -> Args:
    """Return the arguments that a parser with `add_arguments` found.

    Raises
    ------
    ConfigError
        If a minimum age or a condition makes no sense.
    """
    from segmentlog.store.maintenance import Conditions  # noqa: PLC0415 - as in `run`

    log_used, queues_used = options.disk_usage
    conditions = Conditions(
        now_ms=options.now,
        hour=options.hour,
        log_used=log_used,
        queues_used=queues_used,
        manual=options.manual,
        rounds=options.rounds,
    )
    return Args(
        action=Action(options.action),
        store=options.store,
        config=options.config,
        release=RocketMQRelease(options.release),
        log_bytes_max=options.max_bytes,
        protected_groups=tuple(options.protect),
        min_age_ms=_min_ages(options.min_age),
        archive=options.archive,
        hard_limit_percent=options.hard_limit_percent,
        conditions=conditions,
        commit_log_paths=tuple(options.commit_log),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code, see `command_line`."""
    parser = command_line("retention", "Foresee or delete the expired files of a store, by RocketMQ's rules.")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    return finished(options, lambda: run(parse(options)))


if __name__ == "__main__":
    sys.exit(main())
