"""Stores that are kept in the page cache: with ``Flush.KERNEL`` no log, queue or index file is synced.

::

    first open     recovery, on the device ──► .segmentlog/cached: the durable point, and the kernel's boot id
    while open     log, queues, index     written, not synced; ``cached`` has how far they are in the page cache
                   names of segments, in-flight marker, ledger, topics     synced as ever
    close          ``cached`` is clean; ``abort`` stays: as far as the device goes, the store was not closed
    next open      the same kernel, clean ──► goes on where it was: nothing is examined, nothing is synced
                   the same kernel, killed, or another flush ──► everything is synced, then recovery as ever
                   another kernel: the power was cut ──► recovery from the durable point, without torn batches

A ledger entry may be on the device before the rows of its batch. Recovery ends the log before the first batch that is
not whole (`Ledger.whole_end`). RocketMQ's ``ASYNC_FLUSH`` syncs twice a second, and when the broker ends.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from ..config import Flush, OnDamage, StoreConfig
from ..directory.layout import list_queues
from ..directory.own_state import OwnState, boot_id
from ..files.small_file import made_aside, replace_file
from ..files.unsynced_fs import unsynced
from ..files.writable_fs import Lock, WritableFileSystem
from ..format import cached_point, durable_point
from ..format.durable_point import DurablePoint
from ..format.ledger import Ledger
from ..format.store_paths import StorePaths
from ..log.batch_state import BatchRecords
from ..log.commit_log import CommitLog
from ..queues.writer import SYNCED_EACH_MAX
from ..types import QueueKey
from .durability import Durability
from .open import Opened, recover

_BATCHES_MAX: Final = 64  # the ledger names every batch that may be torn, and is written once per batch


class Recovered(NamedTuple):
    """A recovered store, and the file system through which it is written from now on."""

    fs: WritableFileSystem
    opened: Opened


def open_recovered(
    fs: WritableFileSystem,
    path: str,
    config: StoreConfig,
    on_damage: OnDamage,
    *,
    lock: Lock,
    own: Callable[[], None],
    undo: Callable[[Callable[[], None]], None],
) -> Recovered:
    """Recover a store for the ``flush`` that it is opened with; parameters and errors are those of `open.recover`."""
    held = OwnState.read(fs, path, is_signed=lock.is_signed)
    keeps = config.flush is Flush.KERNEL
    if held.on_device is not None and not (keeps and held.was_kept):
        assert held.point is not None
        put_on_device(fs, path, held.on_device, held.point)
    recovered = partial(recover, path=path, config=config, on_damage=on_damage, lock=lock, own=own)
    if not keeps:
        durability = Durability(fs, path, config, was_ours=lock.is_signed)
        return Recovered(fs, recovered(fs, durability=durability, undo=undo))
    report = None
    if not held.was_kept:
        steps: list[Callable[[], None]] = []
        undo(partial(_close, steps))
        first = recovered(fs, durability=Durability(fs, path, config, was_ours=lock.is_signed), undo=steps.append)
        _close(steps)
        report = first.report
        _begin(fs, path, first.durability.point)
    files = _unsynced(fs, StorePaths(path))
    cached = CachedDurability(files, path, config, was_ours=lock.is_signed, device=fs)
    opened = recovered(files, durability=cached, undo=undo)
    cached.limit(BatchRecords(fs, path).ledger())
    return Recovered(files, opened if report is None else replace(opened, report=report))


class CachedDurability(Durability):
    """Records of a store that is kept in the page cache: notes go to the cached point, which is never synced.

    Parameters
    ----------
    fs, path, config, was_ours
        See `Durability`; ``fs`` does not sync the store's files.
    device
        The same file system, which syncs them.
    """

    def __init__(
        self, fs: WritableFileSystem, path: str, config: StoreConfig, *, was_ours: bool, device: WritableFileSystem
    ) -> None:
        super().__init__(fs, path, config, was_ours=was_ours)
        self._device = device
        self._behind_max = config.queue_flush_log_bytes
        self._on_device = OwnState.read(fs, path, is_signed=was_ours).on_device or self.point

    @property
    def durable_log(self) -> int:
        """Physical offset up to which the log is on the device, as far as it is known."""
        return self._on_device.log

    def limit(self, ledger: Ledger) -> None:
        """Put the store onto the device if too many bytes or batches are in the page cache alone.

        Recovery after a power cut reads those bytes, and the ledger names those batches. No other thread writes.
        """
        durable = self.durable_log
        if self.point.log - durable > self._behind_max or len(ledger.beyond(durable)) >= _BATCHES_MAX:
            with self._lock:
                self._opened().close()
                self.point = self._on_device = put_on_device(self._device, self._path, self._on_device, self.point)
                _begin(self._device, self._path, self.point, clean=False)
                self._file = self._fs.open(self._slots)
                self._synced_at = self._written_at = 0

    @property
    def _slots_path(self) -> str:
        return self._paths.cached_point

    def _prepare(self) -> None:
        """Nothing: the store was opened on the device before, and everything is there."""

    def _write_checkpoint(self, newest_ms: int, index_ms: int) -> None:
        """Nothing: a broker relies on the checkpoint after a power cut."""

    def _take_abort_away(self) -> None:
        """Nothing: after a power cut a broker has to examine the log."""


def put_on_device(fs: WritableFileSystem, path: str, device: DurablePoint, cached: DurablePoint) -> DurablePoint:
    """Sync what is in the page cache alone, and note that in the durable point; the cached point is deleted.

    Parameters
    ----------
    device, cached
        The durable point, and the cached one.

    Returns
    -------
    DurablePoint
        The new durable point.
    """
    paths = StorePaths(path)
    for segment in CommitLog(fs, [paths.commit_log]).segments:
        if segment.stop > device.log:
            _sync(fs, segment.path)
    queues = [
        paths.consume_queue(QueueKey(topic, each)) for topic, ids in list_queues(fs, path).items() for each in ids
    ]
    if len(queues) > SYNCED_EACH_MAX:
        fs.sync_all(paths.consume_queues)
    else:
        for directory in [*queues, paths.index]:
            for listed in fs.list_dir(directory):
                if listed.is_file:
                    _sync(fs, f"{directory}/{listed.name}")
            fs.sync_dir(directory)
        for directory in sorted({each.rpartition("/")[0] for each in queues}):
            fs.sync_dir(directory)
    for directory in (paths.consume_queues, paths.commit_log, path):
        fs.sync_dir(directory)
    point = replace(cached, sequence=device.sequence + 1, clean=False)
    content = durable_point.encode(point).ljust(durable_point.FILE_BYTES, b"\0")
    replace_file(fs, paths.durable_point, content, paths.making_state)
    fs.unlink(paths.cached_point)
    return point


def _begin(fs: WritableFileSystem, path: str, device: DurablePoint, *, clean: bool = True) -> None:
    """Write the cached point of a store that is on the device; it is not synced, and counts for this kernel only."""
    paths = StorePaths(path)
    with made_aside(fs, paths.making_state) as made:
        made.write(0, cached_point.encode(replace(device, clean=clean), device.sequence, boot_id(fs)))
        fs.rename(paths.making_state, paths.cached_point)
    made.close()


def _unsynced(fs: WritableFileSystem, paths: StorePaths) -> WritableFileSystem:
    derived = [paths.consume_queues, paths.index]
    # Names of segments are synced: if a power cut took the first one alone, the log would seem to have expired.
    return unsynced(fs, [paths.commit_log, paths.cached_point, *derived], derived)


def _sync(fs: WritableFileSystem, path: str) -> None:
    file = fs.open(path)
    try:
        file.sync()
    finally:
        file.close()


def _close(steps: list[Callable[[], None]]) -> None:
    while steps:
        steps.pop()()
