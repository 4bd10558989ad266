"""Files beside a restored DLedger log, made of its entries: where each of them is, and that the group agreed on all.

::

    data/        [entry 57][entry 58][entry 59]000     an archive ends with what its group has agreed on
    index/       … 57, 58, 59: position, size, term    at 32 · index, in files of one size
    checkpoint   committedIndex=59

DLedger: ``DLedgerMmapFileStore``, which compares the index with the entries when it starts.
"""

import os
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import numpy.typing as npt

from ..files.writable_fs import WritableFileSystem
from ..format.dledger import HEADER, HEADER_BYTES, INDEX, INDEX_FILE_BYTES, checkpoint, have_headers
from ..format.message import gather
from ..format.naming import segment_name
from ..format.store_paths import DLedgerPaths
from ..log.commit_log import CommitLog, FoundRecords

_FILE_ROWS = INDEX_FILE_BYTES // INDEX.itemsize
_Rows = npt.NDArray[np.void]


def write_group_files(fs: WritableFileSystem, paths: DLedgerPaths) -> None:
    """Write the index, in a new directory, and the checkpoint of a log whose segments are there."""
    fs.make_dir(paths.index)
    fs.unlink(paths.checkpoints[0])  # of a pull that was killed
    log = CommitLog(fs, [paths.data], with_unagreed=True)
    committed = -1
    for found in log.walk(log.min_offset, log.stop):
        for rows in _consecutive(_rows_of(found)):
            committed = int(rows["index"][-1])
            number, row = divmod(int(rows["index"][0]), _FILE_ROWS)
            path = os.path.join(paths.index, segment_name(number * INDEX_FILE_BYTES))
            _write(fs, path, row * INDEX.itemsize, rows.tobytes(), INDEX_FILE_BYTES)
    stated = checkpoint(committed)
    _write(fs, paths.checkpoints[0], 0, stated, len(stated))


def _rows_of(found: FoundRecords) -> _Rows:
    """Return the index rows of some records whose headers are right."""
    records = found.records
    right = have_headers(records.buffer, found.segment.base, records.positions, records.field("total_size"))
    headers = gather(records.buffer, records.positions[right] - HEADER_BYTES, HEADER)
    headers = headers[headers["index"] >= 0]
    rows = np.empty(headers.size, INDEX)
    for name in INDEX.names or ():
        rows[name] = headers[name]
    return rows


def _consecutive(rows: _Rows) -> Iterator[_Rows]:
    """Cut rows where an index does not follow the one before, and where a file ends."""
    index = rows["index"].astype(np.int64)
    if index.size:
        yield from np.split(rows, np.flatnonzero((np.diff(index) != 1) | (index[1:] % _FILE_ROWS == 0)) + 1)


def _write(fs: WritableFileSystem, path: str, position: int, data: bytes, file_bytes: int) -> None:
    with closing(fs.create(path) if fs.size(path) is None else fs.open(path)) as file:
        file.extend(file_bytes)
        file.write(position, data)
        file.sync()
