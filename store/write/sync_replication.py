"""Synchronous replication of commits: a commit returns when enough replicas have acknowledged it.

::

    driver   check ── copies in sync? ──► commit ──► store closed ──► wait ── confirmed ≥ stop ──► returns
               │ no, for timeout_s                                      │ no, for timeout_s
               ▼                                                        ▼
             NoReplicaError: nothing was appended                     ReplicaTimeoutError: the batch is in this store

    segmentlog serve ──► .segmentlog/confirmed       the only link between the committing process and the master

A sink opens the store for one commit, often in a process of its own. So the master is another process, and outlives it.
RocketMQ's counterparts are SLAVE_NOT_AVAILABLE, which it returns after the append, and FLUSH_SLAVE_TIMEOUT.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..errors import ConfigError, NoReplicaError, ReplicaTimeoutError
from ..files.fs import FileSystem, LocalFileSystem
from ..format.confirmation import NOT_CONFIRMED, Confirmation
from ..log.confirmed import find_confirmation

_POLL_S: Final = 0.005


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncReplication:
    """Wait of commits for replicas (option ``replication=sync``).

    Attributes
    ----------
    timeout_s
        Longest wait in seconds for replicas, before a commit and again after it.
    in_sync_replicas
        Copies that have to hold a commit, the store's own included; the master confirms with so many, or more.
    """

    timeout_s: float = 30.0
    in_sync_replicas: int = 2

    def __post_init__(self) -> None:
        if self.timeout_s <= 0 or self.in_sync_replicas < 2:
            raise ConfigError(
                f"timeout_s and in_sync_replicas are {self.timeout_s} and {self.in_sync_replicas}",
                fix="Pass a positive number of seconds, and 2 or more copies",
            )

    def check(self, path: str, fs: FileSystem | None = None) -> None:
        """Return when enough copies are in sync for a commit.

        Raises
        ------
        NoReplicaError
            If they are not within the time limit.
        """
        found = self._poll(path, fs or LocalFileSystem(), self._is_served)
        if not self._is_served(found):
            raise NoReplicaError(
                f"SLAVE_NOT_AVAILABLE: {self._described(found)} within {self.timeout_s:g} s; nothing was appended",
                path=path,
                fix=f"Run `segmentlog serve --in-sync-replicas {self.in_sync_replicas}` on it, and enough replicas",
            )

    def wait(self, path: str, stop: int, fs: FileSystem | None = None) -> None:
        """Return when enough copies hold the log up to a physical offset; it is committed in this store.

        Raises
        ------
        ReplicaTimeoutError
            If they do not within the time limit.
        """

        def is_confirmed(found: Confirmation) -> bool:
            return found.needed >= self.in_sync_replicas and found.offset >= stop

        found = self._poll(path, fs or LocalFileSystem(), is_confirmed)
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

    def _poll(self, path: str, fs: FileSystem, is_met: Callable[[Confirmation], bool]) -> Confirmation:
        """Return the first confirmation that meets a condition, or the last one within the time limit."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            late = time.monotonic() >= deadline
            found = find_confirmation(fs, path) or NOT_CONFIRMED
            if late or is_met(found):
                return found
            time.sleep(_POLL_S)

    def _described(self, found: Confirmation) -> str:
        if not found.needed:
            return "no master served this store"
        asked = f"{self.in_sync_replicas} copies were asked for, the master needs {found.needed}"
        return f"{asked}, and {found.copies} were in sync"
