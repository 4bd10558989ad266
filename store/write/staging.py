"""Staging: tasks write encoded rows beside the store, and describe them; none of the rows are in the store yet.

::

    .segmentlog/staging/
        7f3a….0.5d21…           job, partition 0, one attempt: chunks, see ``encode.staged_rows``
        7f3a….1.90ab…           partition 1
        7f3a….1.c377…           partition 1, an attempt that failed, or came late: no commit names it

    task     Staging.open ──► add(batch): check, encode, write ──► finish ──► Staged: name, rows, size, CRC
    driver   commit(…, [Staged, …])      takes the named files, and refuses a file that changed since its task wrote it

Staged bytes are not synced: a batch that is not in the ledger after a crash is staged again. Files that no commit took
are swept after their job wrote nothing for a day.
"""

import logging
import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from ..config import StoreConfig
from ..encode.batch import EncodedRows, encode_batch
from ..encode.staged_rows import (
    HEADER_BYTES,
    ChunkHeader,
    add_digests,
    check_records,
    decode_columns,
    decode_header,
    decode_sizes,
    encode_chunk,
    row_digest,
)
from ..errors import ConfigError, FormatError
from ..files.fs import FileSystem
from ..files.os_errors import Writing
from ..files.plain_files import PlainFiles
from ..files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from ..format.message import Bytes, Ints
from ..format.store_paths import OURS, STAGING, StorePaths

_log = logging.getLogger(__name__)

SWEEP_IDLE_S: Final = 86_400.0
RELEASE_BYTES: Final = 64 << 20
"""Bytes of chunks that are released together: a file system that discards blocks waits for the device each time."""
_PART: Final = "[A-Za-z0-9_-]{1,100}"
_STAGED_NAME: Final = re.compile(rf"{_PART}\.[0-9]+\.{_PART}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Staged:
    """Description of the rows that one task attempt staged. Small and picklable: it goes back to the driver."""

    name: str  # ``job.partition.attempt``
    rows: int
    record_bytes: int
    file_bytes: int
    crc: int  # of the headers of all chunks; each header has the CRC of its chunk
    digest: int  # see `staged_rows.row_digest`

    @property
    def job(self) -> str:
        """Job of the task."""
        return self.name.partition(".")[0]


class Staging:
    """One task attempt's rows; a context manager that leaves no file unless finished. Use `open`."""

    def __init__(self, fs: WritableFileSystem, path: str, name: str, config: StoreConfig) -> None:
        self._fs = fs
        self._path = os.path.join(StorePaths(path).staging, name)
        self._name = name
        self._config = config
        self._rows = self._record_bytes = self._position = self._crc = self._digest = 0
        self._finished = False
        self._file = fs.create(self._path)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        job: str,
        partition: int,
        attempt: str,
        config: StoreConfig,
        *,
        fs: WritableFileSystem | None = None,
    ) -> Self:
        """Begin to stage rows of the task ``partition`` for an existing store.

        ``job`` and ``attempt`` are unique names: one per write, and one per attempt of a task. `ConfigError` if one is
        not a valid file name.
        """
        for given in (job, attempt):
            if not re.fullmatch(_PART, given):
                raise ConfigError(f"{given!r} cannot name staged rows", fix="Use at most 100 of A-Z a-z 0-9 - _")
        fs = fs or LocalWritableFileSystem()
        root = StorePaths(os.path.abspath(path)).staging
        for directory in (os.path.dirname(root), root):
            fs.make_dir(directory)
        return cls(fs, os.path.abspath(path), f"{job}.{partition}.{attempt}", config)

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Stage the rows of a batch; see `MessageStore.append_batch` for its columns and errors."""
        for piece in encode_batch(batch, self._config):
            frames, queues = piece.records.lay(), piece.queues
            parts = encode_chunk(piece, frames)
            for part in parts:
                self._file.write(self._position, part.data if isinstance(part, np.ndarray) else part)
                self._position += len(part)
            self._crc = zlib.crc32(parts[0], self._crc)
            digest = row_digest(frames.data, frames.positions, queues.topic_of[piece.queue_of], queues.topics)
            self._digest = add_digests(self._digest, digest)
            self._rows += piece.queue_of.size
            self._record_bytes += frames.data.size

    def finish(self) -> Staged:
        """Return the description of the staged rows, for the commit. Nothing can be added afterwards."""
        self._file.close()
        self._finished = True
        return Staged(
            name=self._name,
            rows=self._rows,
            record_bytes=self._record_bytes,
            file_bytes=self._position,
            crc=self._crc,
            digest=self._digest,
        )

    def discard(self) -> None:
        """Delete the file unless it was finished."""
        if not self._finished:
            self._file.close()
            self._fs.unlink(self._path)
            self._finished = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


def survey_staged(fs: FileSystem, path: str, staged: Staged) -> Iterator[Ints]:
    """Yield the record sizes of each chunk, and check that the file is unchanged since its task wrote it."""
    # Reads little of it: of each chunk its header, whose checksum covers the rest, and the sizes.
    file = _file_of(path, staged)
    size = fs.size(file)
    if size != staged.file_bytes:
        raise _altered(file, "the file is missing" if size is None else f"it has {size} bytes", staged)
    for start, header in _chunks(fs, file, staged):
        try:
            yield decode_sizes(header, fs.read(file, start, 4 * header.rows))
        except FormatError as error:
            raise _altered_chunk(file, error, start, staged) from None


class StagedChunk(NamedTuple):
    """Rows of one chunk of a staged file."""

    rows: EncodedRows
    release: Callable[[], None] | None
    """Releases the space of this chunk and the chunks before it, once the records of all of them were laid out."""


def take_staged(fs: WritableFileSystem, path: str, staged: Staged) -> Iterator[StagedChunk]:
    """Yield the chunks of a staged file; only the last of some megabytes can be released."""
    # The space of chunks is released after they were read: later bytes of the log are written into their pages.
    # Otherwise all of a batch would be in memory twice, be written to the device twice, and cost new pages twice.
    file, released = _file_of(path, staged), 0
    for start, header in _chunks(fs, file, staged):
        columns = fs.read(file, start, min(header.column_bytes, staged.file_bytes - start))
        try:
            rows = decode_columns(header, columns, partial(_read_records, fs, file, header, start, staged))
        except FormatError as error:
            raise _altered_chunk(file, error, start, staged) from None
        stop = start + header.column_bytes + header.record_bytes
        if stop - released < RELEASE_BYTES and stop < staged.file_bytes:
            yield StagedChunk(rows, None)
            continue
        yield StagedChunk(rows, partial(fs.release, file, released, stop))
        released = stop


def _read_records(fs: WritableFileSystem, file: str, header: ChunkHeader, start: int, staged: Staged) -> Bytes:
    """Read the records of the chunk whose columns begin at ``start``."""
    at = start + header.column_bytes
    records = np.empty(max(0, min(header.record_bytes, staged.file_bytes - at)), np.uint8)
    records = records[: fs.read_into(file, at, records)]
    try:
        check_records(header, records)
    except FormatError as error:
        raise _altered_chunk(file, error, start, staged) from None
    return records


def _chunks(fs: FileSystem, file: str, staged: Staged) -> Iterator[tuple[int, ChunkHeader]]:
    """Yield the chunks of a staged file: the position after each header, and the header."""
    # At the end the headers must add up to what the task wrote. So a caller that checked each chunk against its header
    # has read the task's own file, even if the file was replaced meanwhile.
    at = rows = record_bytes = crc = 0
    while at < staged.file_bytes:
        data = fs.read(file, at, HEADER_BYTES)
        try:
            header = decode_header(data)
        except FormatError as error:
            raise _altered_chunk(file, error, at + HEADER_BYTES, staged) from None
        if header is None:
            raise _altered(file, f"no chunk begins at {at}", staged)
        start = at + HEADER_BYTES
        yield start, header
        crc = zlib.crc32(data, crc)
        rows, record_bytes = rows + header.rows, record_bytes + header.record_bytes
        at = start + header.column_bytes + header.record_bytes
    if (at, rows, record_bytes, crc) != (staged.file_bytes, staged.rows, staged.record_bytes, staged.crc):
        raise _altered(file, f"its chunks have {rows} rows, {record_bytes} bytes and CRC {crc:08x}", staged)


def discard_staged(
    path: str | os.PathLike[str], staged: Iterable[Staged], *, fs: WritableFileSystem | None = None
) -> None:
    """Delete staged files."""
    fs = fs or LocalWritableFileSystem()
    for each in staged:
        fs.unlink(_file_of(os.path.abspath(path), each))


def _file_of(path: str, staged: Staged) -> str:
    """Return the path of a staged file, whose name came from another process."""
    if not _STAGED_NAME.fullmatch(staged.name):
        raise FormatError(
            f"{staged.name[:80]!r} is not a name of staged rows",
            path=StorePaths(path).staging,
            fix="Pass on what Staging.finish returned, unchanged",
        )
    return os.path.join(StorePaths(path).staging, staged.name)


def discard_jobs(path: str | os.PathLike[str], prefix: str) -> int:
    """Delete everything staged for jobs that have ended, by the prefix of their names; return the number of files."""
    # A task that still writes writes into a file without a name. Below a symbolic link nothing is deleted.
    return _sweep(path, prefix, idle_s=float("-inf"))


def sweep_staging(path: str | os.PathLike[str], *, idle_s: float = SWEEP_IDLE_S) -> int:
    """Delete the staged files of jobs that wrote nothing for a while; return the number of files."""
    swept = _sweep(path, "", idle_s=idle_s)
    if swept:
        _log.info("%s: swept %d staged files that no commit took", path, swept)
    return swept


def _sweep(path: str | os.PathLike[str], prefix: str, *, idle_s: float) -> int:
    """Delete the staged files of jobs with a prefix that wrote nothing for ``idle_s``; leave other files."""
    try:
        root = os.path.abspath(path)
        with Writing(StorePaths(root).staging, "sweeping"), PlainFiles.open(root, OURS, STAGING) as staging:
            jobs: dict[str, dict[str, float]] = {}
            for name, written in staging.modified().items():
                if _STAGED_NAME.fullmatch(name):
                    jobs.setdefault(name.partition(".")[0], {})[name] = written
            latest = time.time() - idle_s
            return sum(
                staging.unlink(name)
                for job, files in jobs.items()
                if job.startswith(prefix) and max(files.values()) <= latest
                for name in files
            )
    except FileNotFoundError:
        return 0  # nothing was ever staged


def _altered_chunk(file: str, error: FormatError, start: int, staged: Staged) -> FormatError:
    return _altered(file, f"{error.problem}, in the chunk at {start - HEADER_BYTES}", staged)


def _altered(file: str, found: str, staged: Staged) -> FormatError:
    return FormatError(
        f"staged rows differ from the rows that their task wrote: {found}; it wrote {staged.file_bytes} bytes, "
        f"{staged.rows} rows, {staged.record_bytes} bytes of records, CRC {staged.crc:08x}",
        path=file,
        fix="Run the job again, and find out which other process writes into this directory",
    )
