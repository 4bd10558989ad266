"""Demotion of a master that was replaced: what no other store has is kept aside and cut off, so that it can follow.

::

    new master    [rec][rec]│[new][new] …          epochs  0  2/y        asked by the handshake alone
    this store    [rec][rec]│[old][old]│ end       epochs  0  1/x
                            ▲ parting  │
    copy          [.. segment ....][old]           .segmentlog/cut-EPOCH-START-STOP: a store that `segmentlog cat` reads
    after it      [rec][rec]│                      epochs  0  2/y        `segmentlog replicate` follows the new master

    a batch of the history that is cut in two goes as a whole: the new master sends its first rows again

Steps: copy on the device, cut, epochs. Each can be interrupted, and the demotion repeated. RocketMQ's controller mode
truncates without a copy: ``AutoSwitchHAClient``.
"""

import os
import time
from dataclasses import dataclass
from typing import Final

from ..errors import DivergedLogError, ReplicationError
from ..files.fs import FileSystem
from ..files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from ..format.store_paths import StorePaths
from ..log.batch_state import BatchRecords
from ..log.epochs import find_epochs, greatest_epoch, write_epochs
from ..maintenance.offline import OfflineStore
from ..read.store_reader import StoreReader
from .handshake import Greeting, Handshake, check_stale, question
from .link import connect
from .settings import Address, Tls

_READ_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Demotion:
    """Result of a demotion, or what it would be.

    Attributes
    ----------
    path
        Store directory, absolute.
    epoch
        Newest epoch of the master.
    start, stop
        Physical offsets between which the log was cut off; equal if nothing was.
    copy
        Store directory with the log from the segment of ``start`` on, as it was; None if nothing was cut off.
    """

    path: str
    epoch: int
    start: int
    stop: int
    copy: str | None


def demote(
    path: str | os.PathLike[str],
    master: Address,
    *,
    tls: Tls | None = None,
    dry_run: bool = False,
    wait_s: float = 10.0,
    fs: WritableFileSystem | None = None,
) -> Demotion:
    """Make a store one that can follow a newer master. It is not open: its server and its writers have ended.

    Parameters
    ----------
    path
        Store directory; it is recovered if a crash left it open.
    master
        Address of the new master's replication port.
    tls
        Files for mutual TLS with it.
    dry_run
        Only say what would be cut off; nothing is changed.
    wait_s
        Seconds to wait for the master's answer.
    fs
        File system of the store.

    Raises
    ------
    ReplicationError
        If the master states no epochs in time.
    StaleMasterError
        If this store knows of a greater epoch than the master's.
    DivergedLogError
        If the logs part and the master is of no greater epoch, or if they have no byte in common.
    StoreInUseError
        If a process has the store open.
    OSError
        If there is no connection to the master.
    """
    fs = fs or LocalWritableFileSystem()
    reader = StoreReader.open(path, fs=fs)
    greeting = ask(master, tls, wait_s)
    if dry_run:
        return _planned(fs, reader.path, reader.readable_stop(), reader.log.min_offset, greeting)
    with OfflineStore(fs, path) as store:
        plan = _planned(fs, store.path, store.end, store.start, greeting)
        if plan.copy is not None:
            store.copy_log(plan.copy, plan.start)
            store.cut(plan.start)
        BatchRecords(fs, store.path).settle(fs, store.end)
        if greeting.epochs != find_epochs(fs, store.path):
            write_epochs(fs, store.path, greeting.epochs)  # last: they are those of the log that is left
        return plan


def ask(master: Address, tls: Tls | None, wait_s: float) -> Greeting:
    """Ask a master for its epochs.

    Raises
    ------
    ReplicationError
        If it does not answer in time, as RocketMQ's masters.
    OSError
        If there is no connection.
    """
    deadline = time.monotonic() + wait_s
    handshake, buffer = Handshake(), memoryview(bytearray(_READ_BYTES))
    with connect(master, wait_s, tls) as link:
        link.send_all(question(), wait_s)
        while not handshake.is_over and (left := deadline - time.monotonic()) > 0:
            if link.wait(left):
                handshake.take(buffer[: link.receive(buffer)])
    if handshake.greeting is None:
        raise ReplicationError(
            f"the master {master} states no epochs within {wait_s:g} s",
            fix="Name the address at which `segmentlog serve` listens. Masters of RocketMQ have no epochs",
        )
    return handshake.greeting


def _planned(fs: FileSystem, path: str, end: int, first: int, greeting: Greeting) -> Demotion:
    """Return what has to be cut off a log that begins at ``first`` and ends at ``end``."""
    ours, newest = find_epochs(fs, path), greeting.epochs.newest
    check_stale(greatest_epoch(fs, path), newest)
    parting = ours.parting(greeting.epochs)
    start = end if parting is None else min(end, parting)
    is_newer = newest > ours.newest
    if start == end and (is_newer or end <= greeting.end):
        return Demotion(path, newest, end, end, None)
    if not is_newer:
        raise DivergedLogError(
            f"the master of epoch {newest} ends at physical offset {greeting.end}, and this store of epoch "
            f"{ours.newest} at {end}: neither of them replaces the other",
            path=path,
            fix="Run `segmentlog promote` on the store that is to be the master",
        )
    start = BatchRecords(fs, path).history().whole_end(start)
    if start <= first > 0:
        raise DivergedLogError(
            f"this log begins at physical offset {first}, and is the master's before {start} only: nothing is left",
            path=path,
            fix="Replicate into an empty directory, and keep this store as long as its messages are needed",
        )
    return Demotion(path, newest, start, end, StorePaths(path).cut_copy(newest, start, end))
