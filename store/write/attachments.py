"""Attachments of an open store: other parties that take part in its appends.

::

    put ──► record in the log ──► log listeners: dispatcher, then these       under the put lock
              └──► group commit ──► acknowledgers: device, then these         before the append returns
              └──► metrics

A replication master is a listener and an acknowledger. RocketMQ: ``HAService`` in ``CommitLog.handleDiskFlushAndHA``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .group_commit import Acknowledger
from .metrics import WriterMetrics
from .put_path import LogListener


@dataclass(frozen=True, kw_only=True, slots=True)
class Attachments:
    """Parties that one opened store serves.

    Attributes
    ----------
    acknowledgers
        Hold each append before it is acknowledged, in addition to the device.
    listeners
        Learn of each end of the log, in the order of the log.
    metrics
        Collector of the writer's measurements; None measures nothing.
    """

    acknowledgers: Sequence[Acknowledger] = ()
    listeners: Sequence[LogListener] = ()
    metrics: WriterMetrics | None = None


NO_ATTACHMENTS = Attachments()
"""A store that only its own device acknowledges."""
