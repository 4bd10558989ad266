"""Batch identities, and the check whether a batch repeats one that was committed before.

::

    ledger, newest batch of the application is 7
    batch 8      ──► new: it is appended
    batch 7, 6   ──► a replay: nothing is appended    same rows        silent
                                                      other bodies     warning with both digests
                                                      other row count  ChangedReplayError, or a warning (SKIP)
    batch 10     ──► BatchGapError, where numbers are contiguous

A replay with another number of rows means that rows are lost: they are not in the store, and no batch brings them
again. It happens when a checkpoint lost its newest files. Spark then plans the next batches again, with the rows that
the source holds by then. RocketMQ has no counterpart.
"""

import logging
from dataclasses import dataclass

from ..config import OnChangedReplay
from ..errors import BatchGapError, ChangedReplayError, ConfigError, Remedy
from ..format.ledger import LOST, VERSION_MAX, Ledger, LedgerEntry, QueueSpan, check_app

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchId:
    """Identity of a batch.

    Attributes
    ----------
    app
        Application that numbers the batches: a streaming query, a ``txnAppId``. None for a batch that is not repeated.
    version
        Its number; it has been appended if the ledger has this one or a later one. Means nothing without ``app``.
    contiguous
        Whether each number follows on the one before: one that is left out was never appended, and is missed.

    Raises
    ------
    ConfigError
        If no ledger can have the name or the number.
    """

    app: str | None = None
    version: int = 0
    contiguous: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.version <= VERSION_MAX:
            raise ConfigError(f"batch number {self.version} is not between 0 and {VERSION_MAX}", fix="Count from 0")
        try:
            check_app("-" if self.app is None else self.app)
        except ValueError as error:
            raise ConfigError(
                f"the name of the application that numbers the batches is {self.app!a}: {error}",
                fix="Choose another txnAppId",
            ) from None

    def __str__(self) -> str:
        return "a batch without an id" if self.app is None else f"batch {self.version} of {self.app}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommittedBatch:
    """A committed batch and its place in the store.

    Attributes
    ----------
    app, version
        Which batch, see `BatchId`.
    rows, bytes
        How many records, and their bytes.
    start, stop
        Physical offsets between which they are stored.
    committed_ms
        When, ms since the epoch.
    queues
        Where the rows of each queue went; only known of the newest batch of an application.
    repeated
        Whether it was there before, so that nothing was appended now.
    """

    app: str | None
    version: int
    rows: int
    bytes: int
    start: int
    stop: int
    committed_ms: int
    queues: tuple[QueueSpan, ...]
    repeated: bool = False

    @classmethod
    def of(
        cls, app: str | None, entry: LedgerEntry, queues: tuple[QueueSpan, ...], *, repeated: bool = False
    ) -> "CommittedBatch":
        """Return a batch as the ledger describes it."""
        return cls(
            app=app,
            version=entry.version,
            rows=entry.rows,
            bytes=entry.bytes,
            start=entry.start,
            stop=entry.stop,
            committed_ms=entry.committed_ms,
            queues=queues,
            repeated=repeated,
        )


def find_replay(
    ledger: Ledger, batch_id: BatchId, rows: int, digest: int, *, on_changed: OnChangedReplay, path: str, epoch: int = 0
) -> CommittedBatch | None:
    """Look a batch up among those that were committed; None if it is new.

    Parameters
    ----------
    ledger
        Of the store.
    rows, digest
        How many rows the batch has now, and their `row_digest.row_digest`.
    on_changed
        What happens to a replay with another number of rows, or whose number of rows cannot be compared any more.
    path
        The store directory, for errors.
    epoch
        Newest epoch of the store: 0 if it never took the place of another master.

    Raises
    ------
    BatchGapError
        If numbers are contiguous, and the batches before this one are not in the store. A store that never took the
        place of a master may be the new target of a stream that has written elsewhere.
    ChangedReplayError
        If the batch was committed with another number of rows, and ``on_changed`` is FAIL.
    """
    if batch_id.app is None:
        return None
    known = ledger.applications.get(batch_id.app)
    if known is None or known.newest.rows == LOST or batch_id.version > known.newest.version:
        _check_gap(batch_id, known.newest if known is not None else None, epoch, on_changed, path)
        return None
    entry = known.find(batch_id.version)
    if entry is None:
        entry = _forgotten(batch_id, known.newest, rows, on_changed, path)
    elif entry.rows != rows:
        _report_change(f"{batch_id} has {rows} rows, and had {entry.rows} rows when it was committed", on_changed, path)
    elif entry.digest is not None and entry.digest != digest:
        _log.warning(
            "%s: %s has other bodies or topics than when it was committed: digest %016x now, %016x then. "
            "The committed rows stay, the others are not appended",
            path,
            batch_id,
            digest,
            entry.digest,
        )
    queues = known.queues if entry is known.newest else ()
    return CommittedBatch.of(batch_id.app, entry, queues, repeated=True)


def _check_gap(
    batch_id: BatchId, newest: LedgerEntry | None, epoch: int, on_changed: OnChangedReplay, path: str
) -> None:
    """Refuse a new batch whose number leaves out others, where numbers are contiguous."""
    if newest is None:
        first = batch_id.version if epoch == 0 else 0
        problem = f"follows {batch_id.version} others, and this store, the master since epoch {epoch}, has none of them"
    elif newest.rows == LOST:
        first, problem = newest.version, f"follows batches that this store lost: all from {newest.version} on"
    else:
        first, problem = newest.version + 1, f"comes after batch {newest.version}: this store has none in between"
    if not batch_id.contiguous or batch_id.version <= first:
        return
    if newest is None and on_changed is OnChangedReplay.SKIP:
        # Nothing tells a stream that is new here from one whose batches the former master alone had.
        _log.warning("%s: %s %s", path, batch_id, problem)
        return
    raise BatchGapError(
        f"{batch_id} {problem}",
        path=path,
        fix="Find the missing batches: another sink, another copy of this store, the copy that a promotion or demotion "
        "cut off, or a checkpoint of another time may have them. If the source still has their rows, rewind the "
        "checkpoint to the last batch that this store has, and they are written again",
        remedies=(Remedy.SKIP_CHANGED_REPLAY if newest is None else Remedy.NEW_APP,),
    )


def _forgotten(
    batch_id: BatchId, newest: LedgerEntry, rows: int, on_changed: OnChangedReplay, path: str
) -> LedgerEntry:
    """Entry of a batch that the ledger no longer has: its place is before the newest one, its rows are not known."""
    if batch_id.contiguous:  # jobs may leave numbers out: theirs may never have had rows
        problem = f"{batch_id} has {rows} rows, and the ledger no longer says how many were committed"
        _report_change(f"{problem}: its newest batch is {newest.version}", on_changed, path)
    return newest._replace(version=batch_id.version, start=newest.stop, rows=0, bytes=0)


def _report_change(problem: str, on_changed: OnChangedReplay, path: str) -> None:
    if on_changed is OnChangedReplay.FAIL:
        raise ChangedReplayError(
            problem,
            path=path,
            fix="Find out what changed: a checkpoint that lost its newest files, a query or source that returns other "
            "rows",
            remedies=(Remedy.NEW_APP, Remedy.SKIP_CHANGED_REPLAY),
        )
    _log.warning("%s: %s. The committed rows stay, the others are not appended", path, problem)
