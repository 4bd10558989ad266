"""Verb ``retention``: expired files of a store, by RocketMQ's rules, listed or deleted.

::

    segmentlog retention plan  STORE --config broker.conf     the files, when and why; changes nothing
    segmentlog retention apply STORE --config broker.conf     deletes them; refused if a broker runs

Both answer what-if questions: another time, hour or use of the disks, a manual trigger, several runs.
"""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from segmentlog.output import text_table
from segmentlog.query.times import iso
from segmentlog.store import ConfigError, RetentionSettings, RocketMQRelease

from ..output.formats import add_json
from ..output.reports import Report, reported
from ..parser import Parser, add_directory, assignment, duration_ms, size, whole
from ..selection import read_conf

if TYPE_CHECKING:
    from segmentlog.store.maintenance import Retained

PLAN: Final = "plan"
_HARD_LIMIT_PERCENT: Final = RetentionSettings().hard_limit_percent


def add_retention(parser: Parser) -> None:
    parser.add_argument("action", choices=[PLAN, "apply"], help="plan changes nothing")
    add_directory(parser)
    _add_rules(parser)
    _add_conditions(parser)
    add_json(parser)


def _add_rules(parser: Parser) -> None:
    add = parser.add_argument
    add("--config", metavar="FILE", help="the broker's configuration (default: RocketMQ's defaults)")
    add(
        "--release",
        choices=[each.value for each in RocketMQRelease],
        default=RocketMQRelease.V5_1.value,
        help="RocketMQ release whose rules are followed (default: %(default)s)",
    )
    add(
        "--max-bytes",
        metavar="SIZE",
        type=size,
        help="size of all segments, such as 500g, above which the oldest are deleted, too; not in RocketMQ",
    )
    add(
        "--protect",
        metavar="GROUP",
        action="append",
        default=[],
        help="keep messages that this consumer group has not read; repeatable; not in RocketMQ",
    )
    add(
        "--min-age",
        metavar="TOPIC=DURATION",
        type=_min_age,
        action="append",
        default=[],
        help="keep segments with younger messages of a topic, such as orders=7d; repeatable; not in RocketMQ",
    )
    add(
        "--archive",
        metavar="DIR|URL",
        help="copy each file to this directory, or push the store to this URL, before it is deleted; not in RocketMQ",
    )
    add(
        "--hard-limit-percent",
        metavar="P",
        type=whole,
        default=_HARD_LIMIT_PERCENT,
        help="used percent of a disk above which --protect, --min-age, --archive keep nothing (default: %(default)s)",
    )


def _add_conditions(parser: Parser) -> None:
    add = parser.add_argument
    add("--now", metavar="MS", type=whole, help="time of the first run, ms since 1970 (default: now)")
    add("--hour", metavar="H", type=whole, help="local hour of the first run (default: that of the time)")
    add(
        "--disk-usage",
        metavar="P[,Q]",
        type=_usage,
        default=(None, None),
        help="used percent of the disks of CommitLog and ConsumeQueues (default: the disks' own)",
    )
    add("--manual", action="store_true", help="as after a manual trigger, which starts 20 runs")
    add("--rounds", metavar="N", type=whole, default=1, help="number of runs (default: 1)")


@reported
def run_retention(options: argparse.Namespace) -> Report:
    """List or delete. A finding is a file that could not be deleted or archived, or a wrong ``deleteWhen``."""
    from segmentlog.query.selection import check_topics, topics_to_write
    from segmentlog.store import Snapshot
    from segmentlog.store.maintenance import Conditions, apply_retention, configured_paths, plan_retention

    ages, topics = dict(options.min_age), [topic for topic, _ in options.min_age]
    if twice := [topic for topic in ages if topics.count(topic) > 1]:
        raise ConfigError(f"--min-age names topic {twice[0]} twice", fix="Name each topic once")
    conf = "" if options.config is None else read_conf(options.config)
    settings = replace(
        RetentionSettings.from_conf(conf, RocketMQRelease(options.release)),
        log_bytes_max=options.max_bytes,
        protected_groups=tuple(options.protect),
        min_age_ms=ages,
        archive=options.archive,
        hard_limit_percent=options.hard_limit_percent,
    )
    commit_logs, notes = tuple(options.commit_log), tuple[str, ...]()
    if not commit_logs:
        commit_logs, notes = configured_paths(conf, options.store)
    if ages:
        snapshot = Snapshot.open(options.store, commit_log_paths=commit_logs)
        check_topics(ages, sorted(topics_to_write(snapshot)), path=snapshot.path, argument="--min-age")
    act = plan_retention if options.action == PLAN else apply_retention
    log_used, queues_used = options.disk_usage
    conditions = Conditions(
        now_ms=options.now,
        hour=options.hour,
        log_used=log_used,
        queues_used=queues_used,
        manual=options.manual,
        rounds=options.rounds,
    )
    found = act(options.store, settings, conditions, commit_log_paths=commit_logs)
    document = {"action": options.action, "store": options.store, "notes": list(notes), **_document(found)}
    has_findings = found.failures > 0 or any(run.plan.failure for run in found.runs)
    return Report("\n".join([*notes, *_lines(found, is_plan=options.action == PLAN)]), document, has_findings)


def _min_age(text: str) -> tuple[str, int]:
    """Parse ``TOPIC=DURATION``, the duration in ms."""
    topic, age = assignment("a topic and a duration", "orders=7d")(text)
    return topic, duration_ms(age)


def _usage(text: str) -> tuple[float, float]:
    """Parse ``P[,Q]``: the used percent of the CommitLog's disk, and of the ConsumeQueues'."""
    try:
        shares = [float(part.strip().removesuffix("%")) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage: write 60, or 60,20 for both disks") from None
    if len(shares) > 2:
        raise argparse.ArgumentTypeError(f"{text!r} names more than two disks")
    return shares[0], shares[-1]


def _document(found: "Retained") -> dict[str, Any]:
    runs = [
        {
            "now": run.moment.ms,
            "hour": run.moment.hour,
            "timeUp": run.plan.time_up,
            "spaceShort": run.plan.space_short,
            "manual": run.plan.manual,
            "forced": run.plan.forced,
            "problem": run.plan.failure,
            "diskFull": run.plan.disk_full_checked,
            "minPhysicalOffset": run.plan.log_start,
            "wanted": run.plan.wanted,
            "diskWins": run.plan.disk_wins,
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
        "runs": runs,
        "minPhysicalOffset": found.log_start,
        "queues": queues,
        "diskFull": found.disk_full,
        "archived": found.archived,
        "failures": found.failures,
    }


def _lines(found: "Retained", *, is_plan: bool) -> list[str]:
    rows: list[tuple[object, ...]] = []
    for number, run in enumerate(found.runs, 1):
        rows += [(number, each.file, each.bytes, _shown(each.modified_ms), each.reason) for each in run.expired]
        if run.plan.wanted and not run.plan.disk_wins:
            rows.append((number, "the rest is kept", None, "", run.plan.wanted))
        if run.plan.failure:
            rows.append((number, "CommitLog skipped", None, "", run.plan.failure))
    lines = [text_table(rows, head=("run", "file", "bytes", "modified", "reason"))]
    expired = [each for run in found.runs for each in run.expired]
    lines.append(
        f"{len(expired) - found.failures} files of {sum(each.bytes for each in expired)} bytes "
        f"{'to delete' if is_plan else 'deleted'}; the log starts at {found.log_start}; "
        f"puts are {'refused' if found.disk_full else 'accepted'}"
    )
    archived = [each.archive for each in expired if each.archive is not None]
    if archived and is_plan:
        lines.append(f"each file is copied before it is deleted, the first to {archived[0]}")
    elif archived:
        lines.append(f"{found.archived} files archived, the first as {archived[0]}")
    if found.failures:
        lines.append(f"{found.failures} files could not be deleted or archived, see the log")
    return lines


def _shown(ms: int | None) -> str:
    return "" if ms is None else iso(ms // 1000 * 1000)
