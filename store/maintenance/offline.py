"""Offline change of a store: locked and recovered, cut if need be, and closed as `MessageStore.close` does.

::

    lock ──► recovery ──► end of the log ──► closed ──► unlocked
                               │
                               └ cut(P): in-flight marker at P ──► recovery: the log ends at P, like before a batch
                                                                   that a crash left: queues, index, ledger, confirmed

The marker is one atomic write. Before it nothing is cut; after it every open cuts, whatever the process does.
"""

import os
from collections.abc import Callable
from contextlib import closing
from types import TracebackType
from typing import Final, Self

from ..config import OnDamage, StoreConfig
from ..directory.file_sizes import stored_config
from ..files.writable_fs import WritableFileSystem
from ..format.naming import segment_name
from ..format.store_paths import COMMIT_LOG, StorePaths
from ..log.batch_state import BatchRecords
from ..log.commit_log import CommitLog
from ..read.snapshot import Snapshot
from ..recovery.open import Opened, recover
from .index_check import keeps_index

_COPY_BYTES: Final = 8 << 20


class OfflineStore:
    """Store that this process holds without appending to it; a context manager. Not thread-safe."""

    def __init__(self, fs: WritableFileSystem, path: str | os.PathLike[str]) -> None:
        self.path = Snapshot.open(path, fs=fs).path  # store directory, absolute
        self._fs = fs
        self._config = stored_config(self.path, StoreConfig(index=keeps_index(fs, self.path), record_crc=False), fs)
        self._lock = fs.lock_store(StorePaths(self.path).lock)
        self._steps: list[Callable[[], None]] = []
        try:
            self._opened = self._recovered()
        except BaseException:
            self._leave()
            raise

    @property
    def end(self) -> int:
        return self._opened.log_end

    @property
    def start(self) -> int:
        return self._log().min_offset

    def copy_log(self, target: str, start: int) -> None:
        """Copy the segments from the segment of ``start`` on up to the end of the log, onto the device."""
        # Files of an interrupted copy in `target` are replaced.
        fs, log = self._fs, self._log()
        directory = os.path.join(target, COMMIT_LOG)
        for made in (target, directory):
            fs.make_dir(made, self.path)
        for segment in log.segments:
            if segment.stop <= start or segment.base >= self.end:
                continue
            path, stop = os.path.join(directory, segment_name(segment.base)), min(segment.stop, self.end) - segment.base
            fs.unlink(path)
            with closing(fs.create(path)) as file:
                file.extend(self._config.segment_bytes)
                for at in range(0, stop, _COPY_BYTES):
                    file.write(at, fs.read(segment.path, at, min(_COPY_BYTES, stop - at)))
                file.sync()
        for made in (directory, target, os.path.dirname(target)):
            fs.sync_dir(made)

    def cut(self, end: int) -> None:
        """End the log at the end of a record, or at the start of a partial batch before it."""
        self._lock.ensure_held()
        marker = self._opened.marker
        sequence = max(BatchRecords(self._fs, self.path).ledger().sequence, marker.mark.sequence) + 1
        marker.write(marker.mark.begun(sequence, end))
        _run(self._steps)
        self._opened = self._recovered()

    def close(self) -> None:
        """Leave the store as a closed store, and unlock it."""
        try:
            self._lock.ensure_held()
            self._opened.durability.note_closed()
        finally:
            self._leave()

    def _recovered(self) -> Opened:
        return recover(
            self._fs,
            self.path,
            self._config,
            OnDamage.REFUSE,
            lock=self._lock,
            check_owned=self._lock.ensure_held,
            undo=self._steps.append,
        )

    def _log(self) -> CommitLog:
        return CommitLog.of_store(self._fs, self.path)

    def _leave(self) -> None:
        try:
            _run(self._steps)
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._leave()


def _run(steps: list[Callable[[], None]]) -> None:
    """Run the steps that close the open parts, the last step first."""
    while steps:
        steps.pop()()
