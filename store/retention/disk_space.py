"""Disk space rules: whether a disk makes retention delete, delete young segments too, or refuse puts.

::

    used share      0 ─────────── 0.75 ─────────── 0.85 ─────────── 0.90 ─────── 1
    5.x                            delete expired   delete young     and refuse puts
    4.9                            delete expired   … if anything starts the run      and refuse puts

The disks of the CommitLog and of the ConsumeQueues are looked at in this order. RocketMQ:
``CleanCommitLogService.isSpaceToDelete``, ``UtilAll.getDiskPartitionSpaceUsedPercent``.
"""

import math
from typing import NamedTuple

from ..files.fs import Space
from .settings import RetentionSettings, RocketMQRelease, Thresholds


class Disks(NamedTuple):
    """File systems of the CommitLog directories, in their order, and of the ConsumeQueues; None where it is missing."""

    logs: tuple[Space | None, ...]
    queues: Space | None


class Verdict(NamedTuple):
    """Result of a look at the disks.

    Attributes
    ----------
    delete
        Whether space alone starts a deletion.
    forced
        Whether young segments may go.
    disk_full
        Whether puts are refused from now on.
    """

    delete: bool
    forced: bool
    disk_full: bool


def used_share(space: Space | None, release: RocketMQRelease) -> float:
    """Return the used share of a file system as a release computes it; -1 without one.

    4.9 divides by all of it; 5.x by what users can have, rounded up to a whole percent.
    """
    if space is None or space.total <= 0:
        return -1.0
    used = space.total - space.free
    if release is RocketMQRelease.V4_9:
        return used / space.total
    return -(-used * 100 // (used + space.usable)) / 100.0


def look_at_disks(disks: Disks, store_bytes: int, settings: RetentionSettings, *, disk_full: bool) -> Verdict:
    """Judge the disks.

    Parameters
    ----------
    store_bytes
        Bytes of all files of the store; used only if brokers share the disk.
    disk_full
        Whether puts were refused before.
    """
    limits = settings.thresholds
    logs = [used_share(space, settings.release) for space in disks.logs]
    queues = used_share(disks.queues, settings.release)
    if settings.release is RocketMQRelease.V4_9:
        return _look_as_4(logs[0], queues, limits, disk_full=disk_full)
    emptiest = min(range(len(logs)), key=logs.__getitem__)
    log = logs[emptiest]
    force = min(limits.force, limits.refuse)
    if log > force:
        return Verdict(delete=True, forced=True, disk_full=disk_full or log > limits.refuse)
    if queues > force:
        return Verdict(delete=True, forced=True, disk_full=queues > limits.refuse)
    if settings.brokers_per_disk <= 1:
        short = any(share < 0 or share > limits.delete for share in (log, queues))
        return Verdict(delete=short, forced=False, disk_full=False)
    chosen = disks.logs[emptiest]
    own = int((-1 if chosen is None else chosen.total) / settings.brokers_per_disk)
    share = store_bytes / own if own else math.inf
    forced = share > settings.share_force
    return Verdict(delete=forced or share > limits.delete, forced=forced, disk_full=False)


def is_full_after_check(disks: Disks, settings: RetentionSettings, *, disk_full: bool) -> bool:
    """Return whether puts are refused after the check that 4.9 makes on another timer, of the CommitLog's disk only."""
    if settings.release is not RocketMQRelease.V4_9:
        return disk_full
    return used_share(disks.logs[0], settings.release) > settings.thresholds.refuse


def _look_as_4(log: float, queues: float, limits: Thresholds, *, disk_full: bool) -> Verdict:
    """4.9: the force level deletes nothing by itself, and each disk sets or clears the refusal in turn."""
    forced = False
    for share in (log, queues):
        if share > limits.refuse:
            disk_full = forced = True
        elif share > limits.force:
            forced = True
        else:
            disk_full = False
        if share < 0 or share > limits.delete:
            return Verdict(delete=True, forced=forced, disk_full=disk_full)
    return Verdict(delete=False, forced=forced, disk_full=disk_full)
