"""Lag as Prometheus gauges; needs the extra ``metrics``.

::

    segmentlog_lag_messages{name="etl", broker="broker-a", topic="orders"}  1200
    segmentlog_lag_bytes   {…}                                              983040
    segmentlog_lag_seconds {…}                                              4.2
    segmentlog_lag_unknown_queues {…}                                       0

``name`` is the group or the query. What is not known has no series, rather than a 0 that looks like caught up.
"""

import threading
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from segmentlog.store import MissingExtraError

from .lag import LagReport, QueueLag

_GAUGES: Final = {
    "segmentlog_lag_messages": "Messages that wait to be read",
    "segmentlog_lag_bytes": "Stored bytes of the messages that wait to be read",
    "segmentlog_lag_seconds": "By how much the next message is older than the newest one",
    "segmentlog_lag_unknown_queues": "Queues of which it is not known what waits",
}


class LagMetrics:
    """Shows lag as gauges. One serves all listeners and groups of a process; safe for threads.

    Parameters
    ----------
    registry
        The ``CollectorRegistry`` to register with; Prometheus' own default one, if not given.
    per_queue
        Whether each queue has its own series, with the label ``queue``; else one for each topic.

    Raises
    ------
    MissingExtraError
        If ``prometheus-client`` is not installed.
    """

    def __init__(self, registry: Any = None, *, per_queue: bool = False) -> None:
        try:
            prometheus = import_module("prometheus_client")
        except ModuleNotFoundError as error:
            if error.name != "prometheus_client":
                raise
            raise MissingExtraError(
                "gauges need the package prometheus-client, which is not installed",
                fix="pip install 'segmentlog[metrics]', or log lag with LagListener without metrics",
            ) from None
        self._per_queue = per_queue
        self._lock = threading.Lock()
        self._shown: dict[str, set[tuple[tuple[str, ...], str]]] = {}
        labels = ["name", "broker", "topic", *(["queue"] if per_queue else [])]
        where = {} if registry is None else {"registry": registry}
        self._gauges = {name: prometheus.Gauge(name, text, labels, **where) for name, text in _GAUGES.items()}

    def show(self, report: LagReport) -> None:
        """Set the gauges of a group or query; series of what is unknown, or gone since, go."""
        groups: dict[tuple[str, ...], list[QueueLag]] = {}
        for queue in report.queues:
            number = (str(queue.key.queue_id),) if self._per_queue else ()
            groups.setdefault((report.name, queue.broker_name, queue.key.topic, *number), []).append(queue)
        values = {
            (labels, name): value
            for labels, queues in groups.items()
            for name, value in _values(LagReport(report.name, tuple(queues))).items()
            if value is not None
        }
        with self._lock:
            for labels, name in self._shown.get(report.name, set()) - values.keys():
                self._gauges[name].remove(*labels)
            for (labels, name), value in values.items():
                self._gauges[name].labels(*labels).set(value)
            self._shown[report.name] = set(values)

    def forget(self, name: str) -> None:
        """Take away the series of a group or query that has ended."""
        self.show(LagReport(name, ()))


def _values(report: LagReport) -> Mapping[str, float | None]:
    time_ms = report.time_ms
    numbers = (report.messages, report.bytes, None if time_ms is None else time_ms / 1000, report.unknown)
    return dict(zip(_GAUGES, numbers, strict=True))
