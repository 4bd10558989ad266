"""Assembly of an open store: lock, recovery, then the parts that append, in the order in which they need each other.

::

    lock_and_recover   lock ──► recovery                                              LockedStore
    assemble           dispatcher, segment supply ──► appender ──► put path           LogParts
                       housekeeping ──► group commit, publication, retention
                       services ──► batch committer, asynchronous append              StoreParts, services not started

    open       lock ──► files ──► appender ──► upkeep ──► service threads
    teardown   lock ◄── files ◄── appender ◄── upkeep ◄── service threads      each ends before the next

No part refers to the `MessageStore`: a store that is dropped without a close can be finalized. RocketMQ: the
constructor of ``DefaultMessageStore``.
"""

import _thread
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from ..config import Flush, OnDamage, Services, StoreConfig
from ..dispatch.dispatcher import Dispatcher
from ..errors import NotAStoreError, SegmentLogError
from ..files.writable_fs import Lock, WritableFileSystem
from ..format.store_paths import ABORT, CHECKPOINT, COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX, LOCK, OURS, StorePaths
from ..log.appender import LogAppender, SegmentSupply
from ..read.snapshot import Snapshot
from ..recovery.open import Opened, recover
from ..retention.settings import RetentionSettings
from .async_append import AsyncAppend, GroupAppend
from .attachments import Attachments
from .batch_commit import BatchCommitter, Publication
from .group_commit import Failure, GroupCommit
from .housekeeping import BackgroundServices, Housekeeping, OnCall, StoreServices
from .put_path import PutPath
from .replica_append import ReplicaAppend
from .retention_service import RetentionService

_OF_BROKERS: Final = {"compaction", "rocksdbstore", "timerlog", "timerwheel"}  # of 5.x: no messages
_OWN_NAMES: Final = {OURS, LOCK, ABORT, f"{ABORT}.bak", CONFIG, CHECKPOINT, INDEX, *_OF_BROKERS, "lost+found"}


class Teardown:
    """Steps that undo the opening of a store, last first. Call `run` from one thread at a time."""

    # Unlike an ``ExitStack`` it releases no lock while an interrupted step has left threads that write.

    def __init__(self) -> None:
        self._steps: list[Callable[[], None]] = []
        self._pid = os.getpid()

    def add(self, step: Callable[[], None]) -> None:
        """Add a step that closes or releases a part that was just opened; it must be harmless to repeat."""
        self._steps.append(step)

    def run(self) -> None:
        """Take all steps that were not taken yet. A forked child takes none: its parent still uses the store."""
        # An error of a step is raised after the last step. After an interrupt the next call continues with its step.
        if self._pid == os.getpid():
            self._run()

    def run_in_thread(self) -> None:
        """Take the steps in a thread of its own: finalizers run in any thread, which may hold any lock."""
        if self._steps and self._pid == os.getpid():
            with suppress(RuntimeError):  # the interpreter is about to end, and the kernel closes everything
                _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        failed: Exception | None = None
        while self._steps:
            try:
                self._steps[-1]()
            except Exception as error:  # noqa: BLE001 - raised below
                failed = failed or error
            self._steps.pop()
        if failed is not None:
            raise failed


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedStore:
    """A store directory that is locked and recovered: the base of all parts."""

    fs: WritableFileSystem  # see `MessageStore.open`; the path is absolute
    path: str
    config: StoreConfig
    clock: Callable[[], int]
    teardown: Teardown  # steps that close the open parts
    lock: Lock  # lock of the directory, held
    failure: Failure  # shared by all parts
    check_owned: Callable[[], None]  # raises if another process has the store, and notes that as a failure
    opened: Opened  # recovered log, queues, index and durable point


class LogParts(NamedTuple):
    """Parts that put records at the end of the log; see the modules of their classes."""

    supply: SegmentSupply
    appender: LogAppender
    dispatcher: Dispatcher
    put_path: PutPath


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreParts:
    """Parts of one open store; see the modules of their classes."""

    base: LockedStore
    log: LogParts
    housekeeping: Housekeeping
    commit: GroupCommit  # an append waits for it before it is acknowledged
    group_append: GroupAppend
    async_append: AsyncAppend
    replica_append: ReplicaAppend
    publication: Publication
    committer: BatchCommitter
    retention: RetentionService | None
    services: StoreServices
    tick: Callable[[], None]  # runs everything that is due


def make_directory(fs: WritableFileSystem, path: str) -> None:
    """Create a store directory if it does not exist."""
    names = {listed.name for listed in fs.list_dir(path)}
    if names & {COMMIT_LOG, CONSUME_QUEUE}:
        Snapshot.open(path, fs=fs)
    elif others := sorted(names - _OWN_NAMES):
        raise NotAStoreError(
            f"this directory has no store, but other files, like {others[0]!r}",
            path=path,
            fix="Name the store's directory, or an empty one to create a store there",
        )
    fs.make_dir(path)
    fs.sync_dir(os.path.dirname(path))


def lock_and_recover(
    fs: WritableFileSystem,
    path: str,
    config: StoreConfig,
    *,
    on_damage: OnDamage,
    clock: Callable[[], int],
    teardown: Teardown,
) -> LockedStore:
    """Lock and recover a store directory."""
    lock = fs.lock_store(StorePaths(path).lock)
    teardown.add(lock.release)
    failure = Failure(path)
    check_owned = partial(_check_owned, lock, failure)
    opened = recover(fs, path, config, on_damage, lock=lock, check_owned=check_owned, undo=teardown.add)
    return LockedStore(
        fs=fs,
        path=path,
        config=config,
        clock=clock,
        teardown=teardown,
        lock=lock,
        failure=failure,
        check_owned=check_owned,
        opened=opened,
    )


def assemble(base: LockedStore, attached: Attachments, retention: RetentionSettings | None) -> StoreParts:
    """Assemble the parts of a store on its base; services are not started."""
    log = _log_parts(base, attached)
    housekeeping = _housekeeping(base, log, attached)
    flusher, put_path = housekeeping.flusher, log.put_path
    put_path.dispatch_all = housekeeping.dispatch_flushed
    commit = GroupCommit([*([flusher] if base.config.flush is Flush.SYNC else []), *attached.acknowledgers])
    dispatch_all = partial(housekeeping.dispatch, at_once=True)
    publication = Publication(
        base.path,
        marker=base.opened.marker,
        put_path=put_path,
        flusher=flusher,
        failure=base.failure,
        make_visible=dispatch_all,
    )
    expiry = None if retention is None else _expiry(base, retention, housekeeping, log)
    periodic: dict[str, Callable[[], None]] = {
        "flush": partial(_one_by_one, housekeeping.run_due, publication.publish_waiting)
    }
    if expiry is not None:
        periodic["retention"] = expiry.step
    tick = partial(_one_by_one, dispatch_all, *periodic.values())
    services = _services(base, housekeeping, periodic, tick)
    base.teardown.add(services.stop)
    async_append = AsyncAppend(put_path, commit, services.after_put, base.path, is_threaded=services.is_threaded)
    base.teardown.add(async_append.stop)
    return StoreParts(
        base=base,
        log=log,
        housekeeping=housekeeping,
        commit=commit,
        group_append=GroupAppend(put_path, commit),
        async_append=async_append,
        replica_append=ReplicaAppend(put_path, base.config, base.path),
        publication=publication,
        committer=_committer(base, put_path, housekeeping, commit, publication, services),
        retention=expiry,
        services=services,
        tick=tick,
    )


def _log_parts(base: LockedStore, attached: Attachments) -> LogParts:
    fs, config, opened, metrics = base.fs, base.config, base.opened, attached.metrics
    paths = StorePaths(base.path)
    dispatcher = Dispatcher(
        opened.queues,
        opened.index,
        opened.ends,
        opened.log_end,
        opened.newest_timestamp,
        lagged=None if metrics is None else metrics.dispatch_lag,
    )
    supply = SegmentSupply(fs, paths.making_segment, paths.commit_log, config.segment_bytes, base.check_owned)
    appender = LogAppender(fs, paths.commit_log, supply, config.segment_bytes, opened.log_end)
    put_path = PutPath(
        appender, dispatcher, base.failure, config, clock=base.clock, listeners=attached.listeners, metrics=metrics
    )
    base.teardown.add(put_path.abandon)
    return LogParts(supply, appender, dispatcher, put_path)


def _housekeeping(base: LockedStore, log: LogParts, attached: Attachments) -> Housekeeping:
    housekeeping = Housekeeping(
        base.config,
        opened=base.opened,
        appender=log.appender,
        supply=log.supply,
        dispatcher=log.dispatcher,
        failure=base.failure,
        check_owned=base.check_owned,
        fs=base.fs,
        metrics=attached.metrics,
    )
    base.teardown.add(housekeeping.stop)
    return housekeeping


def _expiry(
    base: LockedStore, retention: RetentionSettings, housekeeping: Housekeeping, log: LogParts
) -> RetentionService:
    marker = base.opened.marker
    service = RetentionService(
        retention,
        fs=base.fs,
        path=base.path,
        remover=housekeeping,
        clock=base.clock,
        active_base=lambda: log.appender.active_base,
        hidden_from=lambda: marker.mark.start if marker.in_flight else None,
        dispatched=lambda: log.dispatcher.dispatched,
    )
    base.teardown.add(service.stop)
    return service


def _services(
    base: LockedStore, housekeeping: Housekeeping, periodic: Mapping[str, Callable[[], None]], tick: Callable[[], None]
) -> StoreServices:
    config = base.config
    if config.services is Services.ON_CALL:
        return OnCall(tick)
    interval = max(1, min(config.flush_interval_ms, config.queue_flush_interval_ms)) / 1000
    return BackgroundServices(housekeeping.dispatch, periodic, interval, base.failure)


def _committer(  # noqa: PLR0917 - the parts that a batch needs
    base: LockedStore,
    put_path: PutPath,
    housekeeping: Housekeeping,
    commit: GroupCommit,
    publication: Publication,
    services: StoreServices,
) -> BatchCommitter:
    return BatchCommitter(
        base.fs,
        base.path,
        put_path=put_path,
        flusher=housekeeping.flusher,
        commit=commit,
        publication=publication,
        failure=base.failure,
        topics=base.opened.topics,
        check_owned=base.check_owned,
        after_piece=partial(_catch_up, put_path, housekeeping, services),
        is_threaded=services.is_threaded,
    )


def _catch_up(put_path: PutPath, housekeeping: Housekeeping, services: StoreServices) -> None:
    """Dispatch and wake the services after a piece of a batch; a full disk only delays the dispatch."""
    with suppress(SegmentLogError, OSError):
        put_path.catch_up()
        housekeeping.keep_up()
    services.after_put()


def _check_owned(lock: Lock, failure: Failure) -> None:
    """Check that the store is still locked; nothing is written or acknowledged any more if it is not."""
    with failure.fatal_unless_full:
        lock.ensure_held()
    failure.check()


def _one_by_one(*steps: Callable[[], None]) -> None:
    for step in steps:
        step()
