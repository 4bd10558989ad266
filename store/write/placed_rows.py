"""Rows with their places: queue offsets, physical offsets and store time, written into the bytes of their records.

::

    EncodedRows + Runs ──► place_rows ──► PlacedRows ──► patched ──► Frames: records as the log has them
                              │                   └────► request: their entries and keys, for the dispatcher
                              └ under the put lock       └ on any thread

    AheadPiece   rows whose files are known, too: several threads write pieces of one batch, each at its place

RocketMQ: ``CommitLog.asyncPutMessages``, ``MessageExtEncoder``.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..dispatch.dispatcher import DispatchRequest
from ..dispatch.rules import DispatchedRecords
from ..encode.batch import EncodedRows
from ..files.writable_fs import WritableFile
from ..format.encoded_batch import Frames, patch
from ..format.message import Ints
from ..format.pieces import part
from ..format.record_crc import RecordCrc
from ..log.appender import Run
from .queue_offsets import QueueOffsets


class PlacedRows(NamedTuple):
    """Rows with their places.

    Attributes
    ----------
    rows
        The rows; none of them is changed before `patched`.
    runs
        Consecutive bytes per segment.
    physical, offsets
        (n,) int64, physical offset and queue offset per row.
    numbers, following
        (q,) int64, numbers of the distinct queues, and the next queue offset of each after these rows.
    now
        Store time of all rows, ms since the epoch.
    """

    rows: EncodedRows
    runs: list[Run]
    physical: Ints
    offsets: Ints
    numbers: Ints
    following: Ints
    now: int

    def patched(self, record_crc: RecordCrc) -> Frames:
        """Return the records with their places, time and checksums. To be called once."""
        frames = self.rows.records.lay()
        patch(
            frames.data,
            frames.positions,
            frames.stops,
            queue_offsets=self.offsets,
            physical_offsets=self.physical,
            store_timestamps=self.now,
            record_crc=record_crc,
            crcs=frames.crcs,
        )
        return frames

    def request(self, frames: Frames) -> DispatchRequest:
        """Return the dispatch request of the rows; ``frames`` are those of `patched`."""
        sizes = self.rows.records.sizes
        stop, size = int(self.physical[-1] + sizes[-1]), int(sizes.sum())
        lookups = self.rows.lookups
        if lookups is None:  # only the records themselves have their tags and keys
            assert frames.bodies is None  # records that are read again are encoded as a whole
            return DispatchRequest(frames.data, frames.positions, stop, size)
        known = DispatchedRecords.of_columns(
            self.numbers,
            self.rows.queue_of,
            self.offsets,
            physical=self.physical,
            sizes=sizes,
            tags_codes=lookups.tags_codes,
            hashes=lookups.hashes,
            hash_rows=lookups.hash_rows,
            store_timestamp=self.now,
        )
        return DispatchRequest(known, None, stop, size)


class AheadPiece(NamedTuple):
    """Rows that may be written before those that are placed before them.

    Attributes
    ----------
    placed
        The rows.
    files
        The file of each of their runs, in the same order.
    record_crc
        Whether records end in a checksum.
    """

    placed: PlacedRows
    files: Sequence[WritableFile]
    record_crc: RecordCrc

    def write(self) -> DispatchRequest:
        """Write the rows to their places, and return their dispatch request. Thread-safe, once per piece."""
        frames = self.placed.patched(self.record_crc)
        data = frames.to_write()
        for file, run in zip(self.files, self.placed.runs, strict=True):
            file.write(run.position, part(data, run.start, run.stop))
        return self.placed.request(frames)


def place_rows(rows: EncodedRows, runs: list[Run], queues: QueueOffsets, now: int) -> PlacedRows:
    """Assign queue offsets and physical offsets to rows. Needs the put lock; ``queues`` is not changed."""
    records = rows.records
    physical = np.empty(records.positions.size, np.int64)
    for run in runs:
        inside = slice(*np.searchsorted(records.positions, [run.start, run.stop]).tolist())
        physical[inside] = records.positions[inside] + (run.base + run.position - run.start)
    numbers = queues.numbers.of(rows.queues)
    offsets, following = queues.assign(numbers, rows.queue_of, rows.counts)
    return PlacedRows(rows, runs, physical, offsets, numbers, following, now)
