"""Replicated ledger: replicas of segmentlog know the batches of their master before they hold a byte of them.

::

    master    batch in flight ──► ledger ──► no longer in flight ──► end of the log moves over it
    server    end of the log, then the ledger if it was replaced      `LedgerWatch`
    wire      [ledger][frames of the log up to that end]
    replica   .segmentlog/master-ledger onto the device, then the log `note_ledger`

    master-ledger    batch 7 [900, 1800)
    log              [rec][rec]│rec rec       ends at 1300: batch 7 is not whole
                               └ 900          `promote` ends the log here, and takes the ledger over without batch 7

A promoted replica therefore has each batch as a whole or not at all, and its ledger says which. A sink that repeats its
last batch there appends it once. Until then the replica's own ledger does not change. RocketMQ has no counterpart, and
its slaves get no ledger.
"""

import logging

from ..errors import FormatError, ReplicationError, SegmentLogError
from ..files.fs import FileSystem
from ..files.replaced_file import ReplacedFile
from ..files.small_file import DOCUMENT_BYTES_MAX, read_whole, replace_file
from ..files.writable_fs import WritableFileSystem
from ..format import ledger as codec
from ..format.ledger import Ledger
from ..format.store_paths import StorePaths
from ..log.batch_state import BatchRecords

_log = logging.getLogger(__name__)

LEDGER_BYTES_MAX = DOCUMENT_BYTES_MAX
"""Largest ledger that a replica accepts: that of a store."""


class LedgerWatch:
    """Ledger of a store to which other threads or processes commit batches, or replicate them. Not thread-safe.

    Parameters
    ----------
    fs, path
        The store.
    """

    def __init__(self, fs: WritableFileSystem, path: str) -> None:
        self._fs = fs
        self._paths = (StorePaths(path).ledger, StorePaths(path).master_ledger)
        self._files = [ReplacedFile(fs, each) for each in self._paths]
        self.now = b""
        """Content of the newer ledger, the store's own or its master's, as of the last look; empty without one."""
        self.look()

    def look(self) -> None:
        """Read the ledgers if one was replaced. If one is damaged that is logged, and what was read before stays."""
        try:
            changed = [each.look() for each in self._files]
            if any(changed):
                found = [content for each in self._paths if (content := read_whole(self._fs, each, DOCUMENT_BYTES_MAX))]
                self.now = max(found, key=lambda content: codec.decode(content, self._paths[0]).sequence, default=b"")
        except (SegmentLogError, OSError):
            _log.exception("%s: replicas do not get this ledger", self._paths[0])

    def close(self) -> None:
        """Close the files."""
        for each in self._files:
            each.close()


def note_ledger(fs: WritableFileSystem, path: str, content: bytes) -> Ledger:
    """Note the ledger of a replica's master on the device, beside the replica's own; return it.

    Raises
    ------
    ReplicationError
        If it is damaged: the connection is of no more use.
    """
    paths = StorePaths(path)
    try:
        ledger = codec.decode(content, paths.master_ledger)
    except FormatError as error:
        raise ReplicationError("the master sent a damaged ledger of batches") from error
    if content != read_whole(fs, paths.master_ledger, DOCUMENT_BYTES_MAX):
        replace_file(fs, paths.master_ledger, content, paths.making_batch)
    return ledger


def noted_ledger(fs: FileSystem, path: str) -> Ledger | None:
    """Return the ledger of a replica's master; None if it sent none since the last promotion.

    Raises
    ------
    FormatError
        If it is damaged.
    """
    file = StorePaths(path).master_ledger
    content = read_whole(fs, file, DOCUMENT_BYTES_MAX)
    return None if content is None else codec.decode(content, file)


def take_over(fs: WritableFileSystem, path: str, theirs: Ledger, end: int) -> None:
    """Write the ledger of a store that takes its master's place; the caller holds the store's lock.

    Parameters
    ----------
    theirs
        Ledger of the master.
    end
        Physical offset at which the log ends, not within a batch of ``theirs``.
    """
    records = BatchRecords(fs, path)
    ours = records.ledger()
    # A store that was a master once has batches and a mark of its own, and numbers its batches on from there.
    sequence = max(theirs.sequence, ours.sequence, records.mark().sequence)
    taken = Ledger(sequence, {**ours.applications, **theirs.up_to(end, end).applications})
    records.write_ledger(fs, taken, StorePaths(path).making_batch)
