"""Lag of running streams, measured whenever Spark reports a query's progress.

::

    QueryProgressEvent ── sources[i].endOffset, latestOffset ──► stream_lag ──► log, callback, gauges
                          not ours: left out                     StoreReader, opened for the while

Spark calls listeners on a thread of the driver. Measuring reads 20 bytes per waiting message. So progress that comes
soon after a long measurement is left out, unless nothing waits.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from segmentlog.store import SegmentLogError, StoreReader

from ..errors import CheckpointError
from ..options.option import Mode, local_path
from ..options.read_options import parse_read_options
from ..read.batch import open_stores
from .lag import LagReport, stream_lag

if TYPE_CHECKING:
    from .lag import LagMetrics

logger = logging.getLogger(__name__)

_SHARE: Final = 10  # at most one part in so many of the time goes into measuring


class LagListener(StreamingQueryListener):
    """Reports the lag of a session's ``segmentlog`` streams: ``spark.streams.addListener(LagListener(path))``.

    Parameters
    ----------
    paths
        The store directories, as the queries have them. Without any, or for others, only messages are counted.
    broker_names
        The option ``brokerNames`` of the queries, if they have it.
    callback
        What to hand each report to; an error of its own is logged, and does not reach the query.
    metrics
        Gauges to show reports with.
    clock
        Seconds, for tests.

    Raises
    ------
    NotAStoreError, ConfigError
        If a path holds no store.
    """

    def __init__(
        self,
        *paths: str,
        broker_names: Iterable[str] = (),
        callback: Callable[[LagReport], object] | None = None,
        metrics: "LagMetrics | None" = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._options: dict[str, str] = {}
        if paths:
            names = tuple(broker_names)
            self._options = {"paths": _json(map(local_path, paths)), "subscribePattern": ".*"}
            self._options |= {"brokerNames": _json(names)} if names else {}
        self._callback = callback
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()
        self._not_before: dict[str, float] = {}
        self._names: dict[str, str] = {}
        self._open()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - as above
        """Measure, and report."""
        self.report(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - as above
        """Nothing has changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - as above
        """Take the query's gauges away: it has no lag any more, it is gone."""
        with self._lock:
            run = str(event.runId)
            self._not_before.pop(run, None)
            name = self._names.pop(run, None)
        if name is not None and self._metrics is not None:
            self._metrics.forget(name)

    def report(self, progress: StreamingQueryProgress) -> LagReport | None:
        """Measure the lag that a progress tells of, and report it; None if it is of no ``segmentlog`` stream.

        Never raises: what goes wrong is logged, since a listener that fails is of no use to the query.
        """
        try:
            with self._lock:
                made = self._measure(progress)
        except (SegmentLogError, OSError):
            logger.warning("the lag of query %s cannot be told", progress.name or progress.id, exc_info=True)
            return None
        if made is not None:
            self._hand_on(made)
        return made

    def _measure(self, progress: StreamingQueryProgress) -> LagReport | None:
        run, name = str(progress.runId), progress.name or str(progress.id)
        offsets = [(source.endOffset, _known(source.latestOffset)) for source in progress.sources]
        ours = {each: counted for each in offsets if (counted := _counted(name, *each)) is not None}
        if not ours:
            return None
        self._names[run] = name
        queues = [queue for counted in ours.values() for queue in counted.queues]
        if not self._options or all(queue.messages == 0 for queue in queues):
            return LagReport(name, tuple(queues))
        began = self._clock()
        if began < self._not_before.get(run, began):
            return None
        stores = self._open()
        queues = [queue for each in ours for queue in stream_lag(name, *each, stores).queues]
        ended = self._clock()
        self._not_before[run] = ended + (ended - began) * (_SHARE - 1)
        return LagReport(name, tuple(queues))

    def _open(self) -> Mapping[str, StoreReader]:
        """Open the stores again: lag counts up to what they hold now."""
        if not self._options:
            return {}
        return {reader.broker_name: reader for reader in open_stores(parse_read_options(self._options, Mode.BOTH))}

    def _hand_on(self, report: LagReport) -> None:
        logger.info("%s", report)
        if self._metrics is not None:
            self._metrics.show(report)
        if self._callback is not None:
            try:
                self._callback(report)
            except Exception:
                logger.exception("the callback of LagListener failed")


def _counted(name: str, end: str, latest: str | None) -> LagReport | None:
    """Return the lag that the offsets of a source alone tell; None if it is another source's."""
    try:
        return stream_lag(name, end, latest, {})
    except CheckpointError:
        return None


def _known(offset: str | None) -> str | None:
    """An offset of a progress: Spark has several ways to say that there is none."""
    return None if offset in {None, "", "null", "None"} else offset


def _json(texts: Iterable[str]) -> str:
    return json.dumps(list(texts))
