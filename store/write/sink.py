"""Sink operations on a store that is not open here: creation, commits that take turns, and the last commit.

::

    driver   prepare_store ──────────────► the store is there, and can be written
    tasks        Staging.open … finish ──► staged rows
    driver   commit_batch ── waits for the lock ──► MessageStore.open ── commit_batch ── close ──► replicas, if asked

    SyncReplication   check ── copies in sync? ──► commit ──► store closed ──► wait ── confirmed ≥ stop ──► returns
                        │ no, for timeout_s                                     │ no, for timeout_s
                        ▼                                                       ▼
                      NoReplicaError: nothing was appended                    ReplicaTimeoutError: the batch is here
    segmentlog serve ──► .segmentlog/confirmed       the only link between the committing process and the master

Sinks of several queries take turns. A broker does not, so a sink that finds one raises at once. RocketMQ's counterparts
are SLAVE_NOT_AVAILABLE, which it returns after the append, and FLUSH_SLAVE_TIMEOUT.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..config import OnChangedReplay, StoreConfig
from ..errors import ConfigError, NoReplicaError, Remedy, ReplicaTimeoutError, SegmentLogError, StoreInUseError
from ..files.fs import LocalFileSystem, absolute
from ..files.store_lock import broker_of
from ..format.confirmation import NOT_CONFIRMED, Confirmation
from ..format.ledger import LOST
from ..format.store_paths import StorePaths
from ..log.batch_state import BatchRecords
from ..log.confirmed import find_confirmation
from ..log.epochs import check_current
from .batch_commit import BatchId, CommittedBatch
from .message_store import MessageStore
from .staging import Staged, sweep_staging

_log = logging.getLogger(__name__)


_CONFIRMED_POLL_S: Final = 0.005
_POLL_S: Final = 0.02
_POLL_MAX_S: Final = 0.05  # a sink that waits longer must not come last for ever
_BROKER_FIX: Final = "Stop it, write to another directory, or to a store that is replicated from it"


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncReplication:
    """Wait of commits for replicas (option ``replication=sync``).

    Attributes
    ----------
    timeout_s
        Longest wait in seconds for replicas, before a commit and again after it.
    in_sync_replicas
        Copies that have to hold a commit, the store's own included; the master must confirm with at least this number.
    """

    timeout_s: float = 30.0
    in_sync_replicas: int = 2

    def __post_init__(self) -> None:
        if self.timeout_s <= 0 or self.in_sync_replicas < 2:
            raise ConfigError(
                f"timeout_s and in_sync_replicas are {self.timeout_s} and {self.in_sync_replicas}",
                fix="Pass a positive number of seconds, and 2 or more copies",
            )

    def check(self, path: str) -> None:
        """Return when enough copies are in sync for a commit; `NoReplicaError` after the time limit."""
        found = self._poll(path, self._is_served)
        if not self._is_served(found):
            raise NoReplicaError(
                f"SLAVE_NOT_AVAILABLE: {self._described(found)} within {self.timeout_s:g} s; nothing was appended",
                path=path,
                fix=f"Run `segmentlog serve --in-sync-replicas {self.in_sync_replicas}` on it, and enough replicas",
            )

    def wait(self, path: str, stop: int) -> None:
        """Return when enough copies hold the log up to ``stop``; `ReplicaTimeoutError` after the time limit."""

        def is_confirmed(found: Confirmation) -> bool:
            return found.needed >= self.in_sync_replicas and found.offset >= stop

        found = self._poll(path, is_confirmed)
        if not is_confirmed(found):
            raise ReplicaTimeoutError(
                f"FLUSH_SLAVE_TIMEOUT: {self._described(found)} within {self.timeout_s:g} s; the log is confirmed "
                f"up to physical offset {found.offset}, the commit ends at {stop} and is in this store",
                path=path,
                fix="Check the replicas. A commit that is repeated with its batch id appends nothing, and waits again; "
                "one without an id would append its rows twice",
            )

    def _is_served(self, found: Confirmation) -> bool:
        return found.needed >= self.in_sync_replicas and found.copies >= found.needed

    def _poll(self, path: str, is_met: Callable[[Confirmation], bool]) -> Confirmation:
        """Return the first confirmation that meets a condition, or the last one within the time limit."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            late = time.monotonic() >= deadline
            found = find_confirmation(LocalFileSystem(), path) or NOT_CONFIRMED
            if late or is_met(found):
                return found
            time.sleep(_CONFIRMED_POLL_S)

    def _described(self, found: Confirmation) -> str:
        if not found.needed:
            return "no master served this store"
        asked = f"{self.in_sync_replicas} copies were asked for, the master needs {found.needed}"
        return f"{asked}, and {found.copies} were in sync"


def prepare_store(path: str | os.PathLike[str], config: StoreConfig) -> None:
    """Create a store unless it exists, and make sure that it can be written; raises as `MessageStore.open`."""
    # Another process of this library may have it open: a commit waits for it. A broker may not, nor may another master
    # have replaced the store.
    path = absolute(path)
    refuse_broker(path)
    check_current(LocalFileSystem(), path)
    try:
        MessageStore.open(path, config).close()
    except StoreInUseError:
        refuse_broker(path)  # another one of ours may have it, or be opening it


def refuse_broker(path: str) -> None:
    """Raise `StoreInUseError` if a broker has a store open, naming its process."""
    owner = broker_of(StorePaths(path).lock)
    if owner is not None:
        which = f"process {owner}" if owner else "of another container or host"
        raise StoreInUseError(f"a broker, {which}, has this store open", path=path, fix=_BROKER_FIX)


def open_in_turn(path: str | os.PathLike[str], config: StoreConfig, *, wait_s: float) -> MessageStore:
    """Open a store as soon as no other process has it open; `StoreInUseError` after ``wait_s``, or for a broker."""
    path = absolute(path)
    begun, pause = time.monotonic(), _POLL_S
    while True:
        try:
            return MessageStore.open(path, config)
        except StoreInUseError as error:
            refuse_broker(path)
            if time.monotonic() - begun >= wait_s:
                raise StoreInUseError(
                    f"{error.problem}, still in use after waiting {wait_s:g} s",
                    path=path,
                    fix="Close it there",
                    remedies=(Remedy.WAIT_LONGER,),
                ) from None
        time.sleep(pause)
        pause = min(2 * pause, _POLL_MAX_S)


def commit_batch(
    path: str | os.PathLike[str],
    config: StoreConfig,
    batch_id: BatchId,
    staged: Sequence[Staged],
    *,
    topics: Mapping[str, int] | None = None,
    on_changed_replay: OnChangedReplay = OnChangedReplay.FAIL,
    wait_s: float = 120.0,
    replication: SyncReplication | None = None,
) -> CommittedBatch:
    """Open a store in turn, commit staged rows, and close it; see `MessageStore.commit_batch`.

    ``wait_s`` is the longest wait for processes that have the store open, ``replication`` the copies that hold the
    batch when this returns. Raises as `SyncReplication.check`, `open_in_turn` and `MessageStore.commit_batch`; the
    batch is not committed then. After a `ReplicaTimeoutError` it is. An error of closing the store after the commit is
    only logged: opening the store again completes the remaining steps.
    """
    path = absolute(path)
    if replication is not None:
        replication.check(path)
    committed, end = _commit(
        path, config, batch_id, staged, topics=topics, on_changed_replay=on_changed_replay, wait_s=wait_s
    )
    if replication is not None:
        # A replay may be of a batch that a damaged log lost: no acknowledgement beyond the end ever comes.
        replication.wait(path, min(committed.stop, end))
    return committed


def _commit(
    path: str,
    config: StoreConfig,
    batch_id: BatchId,
    staged: Sequence[Staged],
    *,
    topics: Mapping[str, int] | None,
    on_changed_replay: OnChangedReplay,
    wait_s: float,
) -> tuple[CommittedBatch, int]:
    """Commit a batch; return it, and the physical offset at which the log ended then."""
    begun, committed = time.monotonic(), None
    try:
        with open_in_turn(path, config, wait_s=wait_s) as store:
            opened = time.monotonic()
            committed = store.commit_batch(batch_id, staged, topics=topics, on_changed_replay=on_changed_replay)
            end = store.end_offset
            done = time.monotonic()
        sweep_staging(path)
    except (SegmentLogError, OSError) as error:
        if committed is None:
            raise
        # With an error the job would run again, and append the rows of a batch without an id twice.
        _log.error("%s: %s is committed; a later step failed: %s", path, batch_id, error)
    _log.info(
        "%s: %s %s: %d rows, %d bytes at [%d, %d), %s; opened in %.3f s, committed in %.3f, closed in %.3f",
        path,
        batch_id,
        "was there already" if committed.repeated else "committed",
        committed.rows,
        committed.bytes,
        committed.start,
        committed.stop,
        ", ".join(f"{span.topic}/{span.queue_id} [{span.first}, {span.last}]" for span in committed.queues[:8])
        + (f" and {len(committed.queues) - 8} queues more" if len(committed.queues) > 8 else ""),
        opened - begun,
        done - opened,
        time.monotonic() - done,
    )
    return committed, end


def last_commit(path: str | os.PathLike[str], app: str | None = None) -> CommittedBatch | None:
    """Return the last batch of an application; None if it has none in this store.

    ``app`` is a query's id or a ``txnAppId``; None for the last batch of all. A batch that a kill left in flight is
    hidden until the store is opened.
    """
    applications = BatchRecords(LocalFileSystem(), os.path.abspath(path)).ledger().applications
    found = [(each, held) for each, held in applications.items() if app in {None, each} and held.newest.rows != LOST]
    if not found:
        return None
    name, held = max(found, key=lambda each: each[1].newest.sequence)
    return CommittedBatch.of(name, held.newest, held.queues)
