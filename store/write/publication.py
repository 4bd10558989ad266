"""Publication of a batch: the batch mark that hides it from readers, and its removal once the batch is dispatched.

::

    begin ──► mark in flight: readers see nothing from the batch's first byte on
    publish ──► all of it dispatched ──► mark published: readers see all of it
            └── the disk is full: the batch stays hidden, and publish_waiting tries again

A batch that is in the ledger exists, whatever happens to its publication. RocketMQ has no counterpart.
"""

import logging
from collections.abc import Callable

from ..errors import SegmentLogError
from ..recovery.batch_marker import BatchMarker
from .failure import Failure
from .group_commit import Flusher
from .put_path import PutPath
from .replays import BatchId

_log = logging.getLogger(__name__)


class Publication:
    """Hides one batch at a time and publishes it. The caller of `begin` and `publish` holds `PutPath.turn`.

    Parameters
    ----------
    path
        Store directory, for log messages.
    marker
        Batch mark of the store.
    put_path, flusher, failure
        Parts of the store.
    make_visible
        Dispatches everything that was put.
    """

    def __init__(
        self,
        path: str,
        *,
        marker: BatchMarker,
        put_path: PutPath,
        flusher: Flusher,
        failure: Failure,
        make_visible: Callable[[], None],
    ) -> None:
        self._path = path
        self._marker = marker
        self._put_path = put_path
        self._flusher = flusher
        self._failure = failure
        self._make_visible = make_visible
        self._waits = False  # whether the last batch is in the ledger, and a full disk kept it hidden

    @property
    def sequence(self) -> int:
        """Number of the last batch; 0 if there is none."""
        return self._marker.mark.sequence

    def begin(self, sequence: int, start: int) -> None:
        """Hide everything from a physical offset on; the mark is on the device afterwards.

        Raises
        ------
        NoSpaceError
            If the disk is full; nothing is hidden.
        """
        with self._failure.fatal_unless_full():
            self._marker.write(self._marker.mark.begun(sequence, start))

    def publish(self, batch_id: BatchId, stop: int) -> None:
        """Publish a batch that is in the ledger, up to a physical offset; an error is logged, not raised."""
        try:
            self._publish(stop)
        except (SegmentLogError, OSError) as error:
            self._waits = True
            _log.error(
                "%s: %s is committed, but readers do not see it yet: %s They see it once that is solved and the store "
                "works on, or is opened again",
                self._path,
                batch_id,
                error,
            )

    def publish_waiting(self) -> None:
        """Publish a committed batch that a full disk kept hidden; return at once while another thread puts.

        Raises
        ------
        NoSpaceError
            If the disk is still full; the batch stays hidden.
        """
        if self._waits and self._put_path.turn.acquire(blocking=False):
            try:
                self.publish_before_next()
            finally:
                self._put_path.turn.release()

    def publish_before_next(self) -> None:
        """Publish a committed batch that is still hidden; the caller holds the turn. Raises as `publish_waiting`."""
        if self._waits:
            end = self._put_path.end
            self._flusher.wait(end)  # records that were put after the batch were dispatched without waiting for that
            self._publish(end)
            self._waits = False

    def _publish(self, stop: int) -> None:
        self._make_visible()
        with self._failure.fatal_unless_full():
            self._marker.write(self._marker.mark.ended(stop))
