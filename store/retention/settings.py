"""Settings of retention, under the names of ``broker.conf`` and with its defaults; a release decides which rules hold.

RocketMQ 4.9, 5.1 and 5.3 to 5.5 differ: ``MessageStoreConfig``, ``DefaultMessageStore.CleanCommitLogService``.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Final, NamedTuple

from ..config import check_fields
from ..errors import ConfigError
from ..format.broker_config import parse_properties
from ..format.naming import is_readable_topic

_INT_MAX: Final = (1 << 31) - 1
PROPERTIES: Final = {
    "fileReservedTime": "file_reserved_hours",
    "deleteWhen": "delete_when",
    "diskMaxUsedSpaceRatio": "disk_max_used_percent",
    "diskSpaceCleanForciblyRatio": "force_percent",
    "diskSpaceWarningLevelRatio": "refuse_percent",
    "rocketmq.broker.diskSpaceCleanForciblyRatio": "force_share",
    "rocketmq.broker.diskSpaceWarningLevelRatio": "refuse_share",
    "cleanFileForciblyEnable": "force_enabled",
    "deleteFileBatchMax": "files_per_run",
    "deleteCommitLogFilesInterval": "log_pause_ms",
    "deleteConsumeQueueFilesInterval": "queue_pause_ms",
    "destroyMapedFileIntervalForcibly": "held_ms",
    "redeleteHangedFileInterval": "retry_ms",
    "cleanResourceInterval": "interval_ms",
    "replicasPerDiskPartition": "brokers_per_disk",
    "logicalDiskSpaceCleanForciblyThreshold": "share_force",
}
"""Attribute of `RetentionSettings` by RocketMQ's property."""


class RocketMQRelease(Enum):
    """RocketMQ release whose rules are followed."""

    V4_9 = "4.9"
    """Ten files per run at most; above the force-clean level nothing is deleted that another rule does not delete."""
    V5_1 = "5.1"
    V5_3 = "5.3"
    """5.3 to 5.5: decide as 5.1. ConsumeQueues and index have a timer of their own there; here they follow at once."""


class Thresholds(NamedTuple):
    """Used shares of a disk, 0 to 1, above which something happens."""

    delete: float
    force: float
    refuse: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionSettings:
    """Settings of retention; each names RocketMQ's property.

    Attributes
    ----------
    release
        RocketMQRelease whose rules are followed.
    file_reserved_hours
        Age from which a segment is expired, by its modification time (``fileReservedTime``).
    delete_when
        Local hours in which expired segments are deleted, separated by ``;`` (``deleteWhen``). As in RocketMQ a wrong
        entry before the current hour's makes each run skip the CommitLog.
    disk_max_used_percent
        Used space above which expired segments are deleted at any hour (``diskMaxUsedSpaceRatio``).
    force_percent, refuse_percent
        Used space above which young segments are deleted, too, and above which puts are refused
        (``diskSpaceCleanForciblyRatio``, ``diskSpaceWarningLevelRatio``, of 5.x).
    force_share, refuse_share
        The same as shares; they have precedence (system properties ``rocketmq.broker.diskSpaceCleanForciblyRatio`` and
        ``rocketmq.broker.diskSpaceWarningLevelRatio``). 4.9 has no other way to set them.
    force_enabled
        Whether young segments may be deleted (``cleanFileForciblyEnable``).
    files_per_run
        Segments deleted per run at most, of 5.x (``deleteFileBatchMax``).
    log_pause_ms, queue_pause_ms
        Pauses after a segment and after a queue (``deleteCommitLogFilesInterval``,
        ``deleteConsumeQueueFilesInterval``).
    held_ms
        Time after which a segment is deleted although it is referenced (``destroyMapedFileIntervalForcibly``).
    retry_ms
        Time between two attempts to delete a first segment that could not be deleted
        (``redeleteHangedFileInterval``).
    interval_ms
        Time between two runs (``cleanResourceInterval``).
    start_ms
        Time from the start of a store to its first run; RocketMQ has no property for it.
    brokers_per_disk
        Brokers that share the disk, of 5.x (``replicasPerDiskPartition``).
    log_bytes_max
        Bytes of all segments above which the oldest are deleted at any hour and age; None for no limit. RocketMQ has
        no such limit.
    protected_groups
        Consumer groups whose unread messages are kept, and those of streams that publish their progress as a group's.
        RocketMQ has no such guard.
    min_age_ms
        Minimum age per topic, in ms by topic name: a segment is kept while it holds a younger message of the topic.
        RocketMQ has no such age.
    archive
        Directory into which files are copied before they are deleted, or URL of an archive to which the store is
        pushed; None for no copies. RocketMQ has no archive.
    hard_limit_percent
        Used space of either disk above which the disk wins over protected groups, minimum ages and an archive that
        fails: their segments are deleted.
    share_force
        Part of this broker's share of the disk above which young segments are deleted
        (``logicalDiskSpaceCleanForciblyThreshold``).
    """

    release: RocketMQRelease = RocketMQRelease.V5_1
    file_reserved_hours: int = 72
    delete_when: str = "04"
    disk_max_used_percent: int = 75
    force_percent: int = 85
    refuse_percent: int = 90
    force_share: float | None = None
    refuse_share: float | None = None
    force_enabled: bool = True
    files_per_run: int = 10
    log_pause_ms: int = 100
    queue_pause_ms: int = 100
    held_ms: int = 120_000
    retry_ms: int = 120_000
    interval_ms: int = 10_000
    start_ms: int = 60_000
    brokers_per_disk: int = 1
    share_force: float = 0.8
    log_bytes_max: int | None = None
    protected_groups: tuple[str, ...] = ()
    min_age_ms: Mapping[str, int] = field(default_factory=dict)
    archive: str | None = None
    hard_limit_percent: int = 85

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.hard_limit_percent <= 100:
            raise ConfigError(f"hard_limit_percent is {self.hard_limit_percent}", fix="Name a percentage from 0 to 100")
        if self.archive is not None and not self.archive:
            raise ConfigError("archive is empty", fix="Name a directory or URL, or None for no copies")
        for topic, age in self.min_age_ms.items():
            if not is_readable_topic(topic):
                raise ConfigError(f"min_age_ms names {topic!r}", fix="Name a topic: no topic can have this name")
            if age < 1:
                raise ConfigError(f"min_age_ms is {age} for topic {topic}", fix="Set 1 ms at least, or leave it out")
        if self.log_bytes_max is not None and self.log_bytes_max < 1:
            raise ConfigError(f"log_bytes_max is {self.log_bytes_max}", fix="Set 1 at least, or None for no limit")

    @classmethod
    def from_broker(
        cls, properties: Mapping[str, str], release: RocketMQRelease = RocketMQRelease.V5_1
    ) -> "RetentionSettings":
        """Return the settings of a broker's configuration; other properties are ignored, wrong ones an error."""
        found: dict[str, object] = {}
        defaults = {each.name: each.default for each in fields(cls)}
        for name, attribute in PROPERTIES.items():
            if name in properties:
                found[attribute] = _parsed(name, properties[name], defaults[attribute])
        return cls(release=release, **found)  # type: ignore[arg-type]

    @classmethod
    def from_conf(cls, text: str, release: RocketMQRelease = RocketMQRelease.V5_1) -> "RetentionSettings":
        """Return the settings of a ``broker.conf``; see `from_broker`, and `FormatError` for a wrong escape."""
        return cls.from_broker(parse_properties(text), release)

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds, limited as the release limits them."""
        delete = min(max(self.disk_max_used_percent, 10), 95) / 100.0
        force, refuse = self.force_share, self.refuse_share
        if self.release is RocketMQRelease.V4_9:
            return Thresholds(delete, 0.85 if force is None else force, 0.90 if refuse is None else refuse)
        force = self.force_percent / 100.0 if force is None else force
        refuse = self.refuse_percent / 100.0 if refuse is None else refuse
        return Thresholds(delete, min(max(force, 0.30), 0.85), min(max(refuse, 0.35), 0.90))

    @property
    def files_max(self) -> int:
        """Segments deleted per run at most."""
        return 10 if self.release is RocketMQRelease.V4_9 else max(self.files_per_run, 1)


def _parsed(name: str, text: str, default: object) -> object:
    """Return a value of the type of its default; a default of None stands for a share."""
    if isinstance(default, str):
        return text
    value = text.strip()
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[value.lower()]
        if isinstance(default, int):
            number = int(value)
            if abs(number) <= _INT_MAX:
                return number
        else:
            share = float(value)
            if math.isfinite(share):
                return share
    except (ValueError, KeyError):
        pass
    kind = {bool: "true or false", int: "an integer of 32 bits"}.get(type(default), "a number")
    raise ConfigError(f"{name} is {text!r}, it must be {kind}", fix="Correct the broker's configuration")
