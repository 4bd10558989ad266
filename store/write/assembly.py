"""Assembly of an open store: lock, recovery, then the parts that append, in the order in which they need each other.

::

    lock ──► recovery ──► dispatcher, appender ──► put path ──► housekeeping ──► group append ──► services
                                                                    └─► publication ──► batch committer

    teardown undoes them, last first

Every part is complete after its constructor. No part refers to the `MessageStore`: a store that is dropped without a
close can be finalized. RocketMQ: the constructor of ``DefaultMessageStore``.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from ..config import Flush, OnDamage, Services, StoreConfig
from ..dispatch.dispatcher import Dispatcher
from ..errors import NoSpaceError, NotAStoreError
from ..files.writable_fs import Lock, WritableFileSystem
from ..format.store_paths import ABORT, CHECKPOINT, COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX, LOCK, OURS, StorePaths
from ..log.appender import LogAppender
from ..log.segment_supply import SegmentSupply
from ..read.store_reader import StoreReader
from ..recovery.decide import Recovery
from ..recovery.durability import Durability
from ..recovery.open import recover
from ..retention.settings import RetentionSettings
from .attachments import Attachments
from .background import BackgroundServices, OnCall, StoreServices
from .batch_commit import BatchCommitter
from .failure import Failure
from .group_append import GroupAppend
from .group_commit import GroupCommit
from .housekeeping import Housekeeping
from .publication import Publication
from .put_path import PutPath
from .replica_append import ReplicaAppend
from .retention_service import RetentionService
from .teardown import Teardown

_OWN_NAMES: Final = {OURS, LOCK, ABORT, f"{ABORT}.bak", CONFIG, CHECKPOINT, INDEX, "lost+found"}


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreParts:
    """Parts of one open store; see the modules of their classes.

    Attributes
    ----------
    own
        Raises if another process has the store, and notes that as a failure.
    commit
        What an append waits for before it is acknowledged.
    tick
        Runs everything that is due.
    """

    path: str
    config: StoreConfig
    fs: WritableFileSystem
    lock: Lock
    teardown: Teardown
    failure: Failure
    own: Callable[[], None]
    recovered: Recovery
    durability: Durability
    supply: SegmentSupply
    appender: LogAppender
    dispatcher: Dispatcher
    put_path: PutPath
    housekeeping: Housekeeping
    commit: GroupCommit
    group_append: GroupAppend
    replica_append: ReplicaAppend
    publication: Publication
    committer: BatchCommitter
    retention: RetentionService | None
    services: StoreServices
    tick: Callable[[], None]


def make_directory(fs: WritableFileSystem, path: str) -> None:
    """Create a store directory if it does not exist.

    Raises
    ------
    NotAStoreError
        If the directory holds other files and no store, or its parent does not exist.
    SegmentLogError
        As `StoreReader.open`, if it holds a store that cannot be read.
    """
    names = {listed.name for listed in fs.list_dir(path)}
    if names & {COMMIT_LOG, CONSUME_QUEUE}:
        StoreReader.open(path, fs=fs)
    elif others := sorted(names - _OWN_NAMES):
        raise NotAStoreError(
            f"this directory holds no store, and other things, like {others[0]!r}",
            path=path,
            fix="Name the store's directory, or an empty one to create a store there",
        )
    fs.make_dir(path)
    fs.sync_dir(os.path.dirname(path))


def assemble(
    fs: WritableFileSystem,
    path: str,
    config: StoreConfig,
    *,
    on_damage: OnDamage,
    clock: Callable[[], int],
    teardown: Teardown,
    attached: Attachments,
    retention: RetentionSettings | None,
) -> StoreParts:
    """Lock and recover a store directory, and return its parts; services are not started.

    Parameters
    ----------
    fs, path, config, on_damage, clock, attached, retention
        See `MessageStore.open`; the directory exists.
    teardown
        Gets a step per part that was opened; the caller runs it if this raises.

    Raises
    ------
    StoreInUseError
        If another process or store object has it open.
    SegmentLogError
        As `recovery.open.recover`.
    """
    paths, metrics = StorePaths(path), attached.metrics
    lock = fs.lock_store(paths.lock)
    teardown.add(lock.release)
    failure = Failure(path)
    own = partial(_own, lock, failure)
    opened = recover(fs, path, config, on_damage, lock=lock, own=own, undo=teardown.add)
    dispatcher = Dispatcher(
        opened.queues,
        opened.index,
        opened.ends,
        opened.log_end,
        opened.newest_timestamp,
        lagged=None if metrics is None else metrics.dispatch_lag,
    )
    supply = SegmentSupply(fs, paths.making_segment, paths.commit_log, config.segment_bytes, own)
    appender = LogAppender(fs, paths.commit_log, supply, config.segment_bytes, opened.log_end)
    teardown.add(appender.abandon)
    put_path = PutPath(
        appender, dispatcher, failure, config, clock=clock, listeners=attached.listeners, metrics=metrics
    )
    housekeeping = Housekeeping(
        config,
        opened=opened,
        appender=appender,
        supply=supply,
        dispatcher=dispatcher,
        failure=failure,
        own=own,
        fs=fs,
        metrics=metrics,
    )
    teardown.add(housekeeping.stop)
    flusher = housekeeping.flusher
    commit = GroupCommit([*([flusher] if config.flush is Flush.SYNC else []), *attached.acknowledgers])
    dispatch_all = partial(housekeeping.dispatch, at_once=True)
    publication = Publication(
        path,
        marker=opened.marker,
        put_path=put_path,
        flusher=flusher,
        failure=failure,
        make_visible=dispatch_all,
    )
    expiry = None
    if retention is not None:
        marker = opened.marker
        expiry = RetentionService(
            retention,
            fs=fs,
            path=path,
            remover=housekeeping,
            clock=clock,
            hidden_from=lambda: marker.mark.start if marker.in_flight else None,
        )
    keep = partial(
        _one_by_one,
        housekeeping.keep,
        publication.publish_waiting,
        *([] if expiry is None else [expiry.step]),
    )
    tick = partial(_one_by_one, dispatch_all, keep)
    services = _services(config, housekeeping, keep, failure, tick)
    teardown.add(services.stop)
    committer = BatchCommitter(
        fs,
        path,
        put_path=put_path,
        flusher=flusher,
        commit=commit,
        publication=publication,
        failure=failure,
        topics=opened.topics,
        own=own,
        keep_up=services.after_put,
        is_threaded=services.is_threaded,
    )
    return StoreParts(
        path=path,
        config=config,
        fs=fs,
        lock=lock,
        teardown=teardown,
        failure=failure,
        own=own,
        recovered=opened.report,
        durability=opened.durability,
        supply=supply,
        appender=appender,
        dispatcher=dispatcher,
        put_path=put_path,
        housekeeping=housekeeping,
        commit=commit,
        group_append=GroupAppend(put_path, commit),
        replica_append=ReplicaAppend(put_path, config, path),
        publication=publication,
        committer=committer,
        retention=expiry,
        services=services,
        tick=tick,
    )


def _services(
    config: StoreConfig,
    housekeeping: Housekeeping,
    keep: Callable[[], None],
    failure: Failure,
    tick: Callable[[], None],
) -> StoreServices:
    if config.services is Services.ON_CALL:
        return OnCall(tick)
    interval = max(1, min(config.flush_interval_ms, config.queue_flush_interval_ms)) / 1000
    return BackgroundServices(housekeeping.dispatch, keep, interval, failure, lambda: housekeeping.is_behind)


def _own(lock: Lock, failure: Failure) -> None:
    """Check that the store is still locked; nothing is written or acknowledged any more if it is not."""
    # Called per sync: `Failure.fatal_unless_full` would cost as much as the check itself.
    try:
        lock.keep()
    except NoSpaceError:
        raise
    except BaseException as error:
        failure.note(error)
        raise
    failure.check()


def _one_by_one(*steps: Callable[[], None]) -> None:
    for step in steps:
        step()
