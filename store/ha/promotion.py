"""Promotion of a store to the master of its log, and demotion of a master that was replaced.

::

    log     [rec][rec][rec]│                   promote ──► [rec][rec][rec]│[rec][rec] …   writers, `serve`
    epochs  0  1/x         └ end                           0  1/x         2/y

    log     [rec][rec]│rec rec│          batch 7 of the master's history is not whole: its first rows are
    copy    [.. segment ..]rec rec          cut off, and kept in .segmentlog/cut-EPOCH-START-STOP
    history .. 6 │ 7  8  9               7 to 9 are lost here: the ledger ends with 6, and a stream whose next
                                            batch is 10 gets an error

A replica, a replaced master or any other store can be promoted. No other record is changed. A sink that repeats batch 7
in the promoted store appends all of it. Replicas learn of the promotion when they connect. RocketMQ: the controller's
``electMaster``.

::

    new master    [rec][rec]│[new][new] …          epochs  0  2/y        answers the question of the handshake
    this store    [rec][rec]│[old][old]│ end       epochs  0  1/x        demote: copy on the device, cut, epochs
                            ▲ parting  │
    copy          [.. segment ....][old]           .segmentlog/cut-EPOCH-START-STOP: a store that `segmentlog cat` reads
    demoted       [rec][rec]│                      epochs  0  2/y        `segmentlog replicate` follows the new master

    a batch of the history that is cut in two goes as a whole: the new master sends its first rows again

After an interruption, both can be repeated. RocketMQ's controller mode truncates without a copy:
``AutoSwitchHAClient``.
"""

import os
import secrets
import time
from dataclasses import dataclass
from typing import Final

from ..errors import DivergedLogError, FormatError, ReplicationError
from ..files.fs import FileSystem
from ..files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from ..format.store_paths import StorePaths
from ..log.batch_state import BatchRecords
from ..log.commit_log import CommitLog
from ..log.epochs import find_epochs, greatest_epoch, write_epochs
from ..maintenance.offline import OfflineStore
from ..read.snapshot import Snapshot
from .incoming import begins_record
from .link import connect
from .protocol import Greeting, Handshake, check_stale, question
from .settings import Address, Tls

_TOKEN_BITS: Final = 63
_READ_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Promotion:
    """Result of a promotion: the new epoch, which begins at ``start``, the end of the log.

    ``copy`` is a store directory with the log from the segment of ``start`` on, as it was; None if nothing was cut off.
    """

    path: str
    epoch: int
    start: int
    copy: str | None = None


@dataclass(frozen=True, slots=True)
class Demotion:
    """Result of a demotion, done or planned: the newest epoch of the master, and where the log was cut off.

    ``start`` and ``stop`` are physical offsets, equal if nothing was cut off. ``copy`` is a store directory with the
    log from the segment of ``start`` on, as it was; None if nothing was cut off.
    """

    path: str
    epoch: int
    start: int
    stop: int
    copy: str | None


def promote(path: str | os.PathLike[str], *, fs: WritableFileSystem | None = None) -> Promotion:
    """Make a store, which no process has open, the master of its log.

    Parameters
    ----------
    path
        Store directory; it is recovered if a crash left it open.
    fs
        File system of the store.

    Raises
    ------
    NotAStoreError
        If the directory has no store.
    StoreInUseError
        If a process has the store open; nothing was changed.
    DamagedLogError, FormatError
        If its log or its epochs are damaged; nothing was changed.
    ReplicationError
        If it is a replica that has a part of one batch, and nothing else; nothing was changed.
    """
    fs = fs or LocalWritableFileSystem()
    with OfflineStore(fs, path) as store:
        records, epochs = BatchRecords(fs, store.path), find_epochs(fs, store.path)
        copy = _cut_partial_batch(fs, store, records, epochs.newest)
        token = secrets.randbits(_TOKEN_BITS)
        promoted = epochs.promoted(store.end, token, above=greatest_epoch(fs, store.path))
        write_epochs(fs, store.path, promoted)
        records.settle_ledger(fs, store.end)  # last: a promotion that is interrupted is repeated
        return Promotion(store.path, promoted.newest, store.end, copy)


def _cut_partial_batch(fs: WritableFileSystem, store: OfflineStore, records: BatchRecords, epoch: int) -> str | None:
    """Cut off the first rows of a batch whose rest the former master did not send; return the path of their copy."""
    end = store.end
    start = records.history().whole_end(end)
    if start == end:
        return None
    if start <= store.start > 0:
        raise ReplicationError(
            f"this log, from physical offset {store.start} on, is only a part of the batch that begins at {start}",
            path=store.path,
            fix="Promote another replica, or replicate the log from its first segment into an empty directory",
        )
    log = CommitLog.of_store(fs, store.path)
    if not begins_record(log, start):
        raise FormatError(
            "in the history a batch begins here, within a record",
            path=store.path,
            offset=start,
            fix="Take the file .segmentlog/batches from the copy that the store is from, or from its master",
        )
    copy = StorePaths(store.path).cut_copy(epoch, start, end)
    store.copy_log(copy, start)
    store.cut(start)
    return copy


def demote(
    path: str | os.PathLike[str],
    master: Address,
    *,
    tls: Tls | None = None,
    dry_run: bool = False,
    wait_s: float = 10.0,
    fs: WritableFileSystem | None = None,
) -> Demotion:
    """Prepare a store, which no process has open, to follow a newer master: copy and cut off its own part of the log.

    Parameters
    ----------
    path
        Store directory; it is recovered if a crash left it open.
    master
        Address of the new master's replication port.
    tls
        Files for mutual TLS with it.
    dry_run
        Return the planned demotion without changing the store.
    wait_s
        Seconds to wait for the master's answer.
    fs
        File system of the store.

    Raises
    ------
    ReplicationError
        If the master cannot be reached, or does not answer in time.
    StaleMasterError
        If this store knows of a greater epoch than the master's.
    DivergedLogError
        If the logs part and the master's epoch is not greater, or if the logs have no common byte.
    StoreInUseError
        If a process has the store open.
    """
    fs = fs or LocalWritableFileSystem()
    snapshot = Snapshot.open(path, fs=fs)
    greeting = ask_epochs(master, tls, wait_s)
    if dry_run:
        return _planned_demotion(fs, snapshot.path, snapshot.readable_stop(), snapshot.log.min_offset, greeting)
    with OfflineStore(fs, path) as store:
        plan = _planned_demotion(fs, store.path, store.end, store.start, greeting)
        if plan.copy is not None:
            store.copy_log(plan.copy, plan.start)
            store.cut(plan.start)
        BatchRecords(fs, store.path).settle_ledger(fs, store.end)
        if greeting.epochs != find_epochs(fs, store.path):
            # Last: an interrupted demotion finds the former epochs, and is repeated.
            write_epochs(fs, store.path, greeting.epochs)
        return plan


def ask_epochs(master: Address, tls: Tls | None, wait_s: float) -> Greeting:
    """Ask a master for its epochs."""
    deadline = time.monotonic() + wait_s
    handshake, buffer = Handshake(), memoryview(bytearray(_READ_BYTES))
    try:
        with connect(master, wait_s, tls) as link:
            link.send_all(question(), wait_s)
            while not handshake.is_over and (left := deadline - time.monotonic()) > 0:
                if link.wait(left):
                    handshake.strip_answer(buffer[: link.receive(buffer)])
    except OSError as error:
        raise ReplicationError(
            f"the master {master} cannot be asked for its epochs: {error.strerror or error}",
            fix="Name the address at which `segmentlog serve` listens. Both sides use TLS, or neither",
        ) from error
    if handshake.greeting is None:
        raise ReplicationError(
            f"the master {master} states no epochs within {wait_s:g} s",
            fix="Name the address at which `segmentlog serve` listens. Masters of RocketMQ have no epochs",
        )
    return handshake.greeting


def _planned_demotion(fs: FileSystem, path: str, end: int, first: int, greeting: Greeting) -> Demotion:
    """Return the demotion of a store whose log begins at ``first`` and ends at ``end``."""
    ours, newest = find_epochs(fs, path), greeting.epochs.newest
    check_stale(greatest_epoch(fs, path), newest)
    parting = ours.parting(greeting.epochs)
    common = end if parting is None else min(end, parting)
    is_newer = newest > ours.newest
    if not is_newer and (common < end or end > greeting.end):
        raise DivergedLogError(
            f"the master of epoch {newest} ends at physical offset {greeting.end}, and this store of epoch "
            f"{ours.newest} at {end}: neither of them replaces the other",
            path=path,
            fix="Run `segmentlog promote` on the store that is to be the master",
        )
    # A replica may have a part of a batch even where the logs do not part. The master sends all of the batch again.
    start = BatchRecords(fs, path).history().whole_end(common)
    if start == end:
        return Demotion(path, newest, end, end, None)
    if start <= first > 0:
        raise DivergedLogError(
            f"this log begins at physical offset {first}, and is the master's before {start} only: nothing is left",
            path=path,
            fix="Replicate into an empty directory, and keep this store as long as its messages are needed",
        )
    return Demotion(path, newest, start, end, StorePaths(path).cut_copy(newest, start, end))
