"""Staging: tasks put encoded rows beside the store, and say what they put; nothing of it is in the store yet.

::

    .segmentlog/staging/
        7f3a….0.5d21…           job, partition 0, one attempt: chunks, see ``format.staged_rows``
        7f3a….1.90ab…           partition 1
        7f3a….1.c377…           partition 1, an attempt that failed, or came late: nobody names it

    task     Staging.open ──► add(batch): check, encode, write ──► finish ──► Staged: name, rows, size, CRC
    driver   commit(…, [Staged, …])      takes what is named, and nothing that is not what its task said

Staged bytes are not synced: a batch that is not in the ledger after a crash is staged anew. Files that no commit took
are swept once nothing of their job was written for long.
"""

import logging
import os
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa

from .config import StoreConfig
from .errors import ConfigError, FormatError
from .files.fs import FileSystem
from .files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from .format.message import Bytes, Ints
from .format.record_crc import RecordCrc, covered_bytes, record_crcs
from .format.row_digest import add_digests, row_digest
from .format.staged_rows import (
    HEADER_BYTES,
    ChunkHeader,
    StagedRows,
    decode_chunk,
    decode_header,
    decode_sizes,
    encode_chunk,
)
from .layout import OURS
from .outgoing import record_crc
from .outgoing_batch import encode_batch

_log = logging.getLogger(__name__)

SWEEP_IDLE_S: Final = 86_400.0
_NAME_MAX: Final = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Staged:
    """What one task attempt staged. Small and picklable: it goes back to the driver.

    Attributes
    ----------
    name
        ``job.partition.attempt``.
    rows, record_bytes, file_bytes
        How many rows, the bytes of their records, and of the file.
    crc
        Over the headers of all chunks, which have those of their contents.
    digest
        See `row_digest.row_digest`.
    """

    name: str
    rows: int
    record_bytes: int
    file_bytes: int
    crc: int
    digest: int

    @property
    def job(self) -> str:
        """Of which job it is a part."""
        return self.name.partition(".")[0]


class Staging:
    """One task attempt's rows; a context manager that leaves nothing behind unless finished. Use `open`."""

    def __init__(self, fs: WritableFileSystem, path: str, name: str, config: StoreConfig) -> None:
        self._fs = fs
        self._path = os.path.join(staging_directory(path), name)
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
        """Begin to stage for a store that is there.

        Parameters
        ----------
        path
            The store directory.
        job, attempt
            Names that nobody else uses: for all tasks of one write, and for one attempt of one task.
        partition
            Which task.
        config
            How the store is written.
        fs
            What to write through, for tests.

        Raises
        ------
        ConfigError
            If a name cannot be one of a file.
        """
        for given in (job, attempt):
            if not given or len(given) > _NAME_MAX or not given.replace("-", "").replace("_", "").isalnum():
                raise ConfigError(f"{given!r} cannot name staged rows", fix="Use letters, digits, - and _")
        fs = fs or LocalWritableFileSystem()
        root = staging_directory(os.path.abspath(path))
        for directory in (os.path.dirname(root), root):
            fs.make_dir(directory)
        return cls(fs, os.path.abspath(path), f"{job}.{partition}.{attempt}", config)

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Stage the rows of a batch; see `MessageStore.append_batch` for its columns and errors."""
        for piece in encode_batch(batch, self._config):
            records = piece.records
            known = piece.lookups
            joined, queues = records.join(), piece.queues.as_keys()
            parts = encode_chunk(
                StagedRows(
                    sizes=records.sizes,
                    queue_of=piece.queue_of,
                    tags_codes=known.tags_codes if known else np.zeros(records.sizes.size, np.int64),
                    crcs=self._crcs(joined, records.positions),
                    counts=piece.counts,
                    hashes=known.hashes if known else None,
                    hash_rows=known.hash_rows if known else None,
                    queues=queues,
                    records=joined,
                )
            )
            for part in parts:
                self._file.write(self._position, part.data if isinstance(part, np.ndarray) else part)
                self._position += len(part)
            self._crc = zlib.crc32(parts[0], self._crc)
            digest = row_digest(joined, records.positions, piece.queue_of, queues)
            self._digest = add_digests(self._digest, digest)
            self._rows += records.sizes.size
            self._record_bytes += joined.size

    def _crcs(self, joined: Bytes, positions: Ints) -> Ints:
        if record_crc(self._config) is RecordCrc.ABSENT:
            return np.zeros(positions.size, np.int64)
        return record_crcs(joined, positions, covered_bytes(joined, positions))

    def finish(self) -> Staged:
        """Say what was staged, for the commit. Nothing can be added afterwards."""
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
        """Take the file away; nothing happens if it was finished."""
        if not self._finished:
            self._file.close()
            self._fs.unlink(self._path)
            self._finished = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()


def staging_directory(path: str) -> str:
    """Where rows for a store are staged."""
    return os.path.join(path, OURS, "staging")


def survey_staged(fs: FileSystem, path: str, staged: Staged) -> Iterator[Ints]:
    """Give the sizes of the records of each chunk, and make sure on the way that the file is the one its task wrote.

    Reads little of it: of each chunk its header, whose checksum covers the rest, and the sizes.

    Yields
    ------
    (n,) int64
        Bytes of the records of a chunk.

    Raises
    ------
    FormatError
        If the file is another, at the latest behind its last chunk.
    """
    file = os.path.join(staging_directory(path), staged.name)
    size = fs.size(file)
    if size != staged.file_bytes:
        raise _altered(file, "there is no such file" if size is None else f"it has {size} bytes", staged)
    at = rows = record_bytes = crc = 0
    for start, data, header in _chunks(fs, file, staged):
        try:
            yield decode_sizes(header, fs.read(file, start, 4 * header.rows))
        except FormatError as error:
            raise _altered_chunk(file, error, start, staged) from None
        crc = zlib.crc32(data, crc)
        rows, record_bytes = rows + header.rows, record_bytes + header.record_bytes
        at = start + header.rest_bytes
    if (at, rows, record_bytes, crc) != (staged.file_bytes, staged.rows, staged.record_bytes, staged.crc):
        raise _altered(file, f"its chunks have {rows} rows, {record_bytes} bytes and CRC {crc:08x}", staged)


def take_staged(fs: WritableFileSystem, path: str, staged: Staged) -> Iterator[StagedRows]:
    """Give the chunks of a staged file, one at a time; their bytes belong to the caller, who may write to them.

    What was given is gone from the file: its pages are what the next bytes of the log are written into. Otherwise all
    of a batch would be in memory twice, be written to the device twice, and cost new pages twice.

    Raises
    ------
    FormatError
        If one is not what its task wrote.
    """
    file = os.path.join(staging_directory(path), staged.name)
    for start, _, header in _chunks(fs, file, staged):
        rest = np.empty(min(header.rest_bytes, staged.file_bytes - start), np.uint8)
        rest = rest[: fs.read_into(file, start, rest)]
        try:
            rows = decode_chunk(header, rest)
        except FormatError as error:
            raise _altered_chunk(file, error, start, staged) from None
        fs.release(file, start - HEADER_BYTES, start + header.rest_bytes)
        yield rows


def _chunks(fs: FileSystem, file: str, staged: Staged) -> Iterator[tuple[int, bytes, ChunkHeader]]:
    """Go over the chunks of a staged file: where each begins behind its header, and the header, as bytes and read."""
    at = 0
    while at < staged.file_bytes:
        data = fs.read(file, at, HEADER_BYTES)
        header = decode_header(data)
        if header is None:
            raise _altered(file, f"no chunk begins at {at}", staged)
        start = at + HEADER_BYTES
        yield start, data, header
        at = start + header.rest_bytes


def discard_staged(
    path: str | os.PathLike[str], staged: Iterable[Staged], *, fs: WritableFileSystem | None = None
) -> None:
    """Take staged files away."""
    fs = fs or LocalWritableFileSystem()
    root = staging_directory(os.path.abspath(path))
    for each in staged:
        fs.unlink(os.path.join(root, each.name))


def discard_jobs(path: str | os.PathLike[str], prefix: str) -> int:
    """Take away all that was staged for jobs whose name begins with a text; give how many files that were.

    For jobs that have ended. A task of one that still writes does so into a file without a name.
    """
    taken = 0
    for job, files in _files_by_job(path).items():
        for entry in files if job.startswith(prefix) else ():
            with suppress(FileNotFoundError):
                os.unlink(entry.path)
                taken += 1
    return taken


def sweep_staging(path: str | os.PathLike[str], *, idle_s: float = SWEEP_IDLE_S) -> int:
    """Take away what was staged by jobs that wrote nothing for a while; give how many files that were."""
    swept = 0
    for files in _files_by_job(path).values():
        with suppress(FileNotFoundError):  # taken away meanwhile: its job lives
            if time.time() - max(entry.stat(follow_symlinks=False).st_mtime for entry in files) >= idle_s:
                for entry in files:
                    os.unlink(entry.path)
                swept += len(files)
    if swept:
        _log.info("%s: swept %d staged files that no commit took", path, swept)
    return swept


def _files_by_job(path: str | os.PathLike[str]) -> dict[str, list[os.DirEntry[str]]]:
    """All that is staged for a store, by the job that its name says."""
    jobs: dict[str, list[os.DirEntry[str]]] = {}
    with suppress(FileNotFoundError), os.scandir(staging_directory(os.path.abspath(path))) as found:
        for entry in found:
            jobs.setdefault(entry.name.partition(".")[0], []).append(entry)
    return jobs


def _altered_chunk(file: str, error: FormatError, start: int, staged: Staged) -> FormatError:
    return _altered(file, f"{error.problem}, in the chunk at {start - HEADER_BYTES}", staged)


def _altered(file: str, found: str, staged: Staged) -> FormatError:
    return FormatError(
        f"staged rows are not what their task wrote: {found}; it wrote {staged.file_bytes} bytes, {staged.rows} rows, "
        f"{staged.record_bytes} bytes of records, CRC {staged.crc:08x}",
        path=file,
        fix="Run the job again; look who else writes into this directory",
    )
