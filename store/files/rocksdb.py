"""RocksDB databases of a store, read beside the broker that writes them.

::

    DIRECTORY (the broker's)                   mirror (temporary, deleted once the database is open)
    CURRENT          names the manifest  ──►   CURRENT          a copy
    MANIFEST-000005  lists live tables   ──►   MANIFEST-000005  a copy
    000010.sst       a table             ◄──   000010.sst       a symbolic link, its footer checked
    000014.log       write-ahead log     ◄──   000014.log       a symbolic link, replayed into memory
    LOCK, LOG, IDENTITY, OPTIONS-000007        nothing: never opened

The wheel ``rocksdict`` writes a file of its own into each directory that it opens, read-only or not, so it never sees
the broker's directory. A read-only database takes no lock, and opens all of its tables at once. So it is a snapshot:
tables that the broker deletes later stay readable through their descriptors, and nothing of the mirror is needed. A
table that is deleted between the copy of the manifest and the opening is an error, after which a new mirror is made.

RocksDB verifies the checksum of each block that it reads, and of each record of the manifest and of logs. Two places
are checked here before. The footer of a table has no checksum before its format 6. A huge length in it would end this
process by a failed allocation. Reading a record of a manifest or log whose type is damaged never ends. ::

    record of a manifest or log, in a block of 32 KiB; fewer than 7 bytes at the end of a block are unused
    checksum u32 | length u16 | type u8 | data             types 1 to 4: whole, first, middle, last part;
                                                   5 to 8 and 11 with another header, of recycled logs

    footer of formats 1 to 5, the last 53 bytes:
    checksum type u8 | metaindex: offset, size | index: offset, size | zeros up to 41 | format u32 | magic u64
                       varints                   varints                                little-endian
"""

import errno
import importlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self

from ..errors import (
    CorruptError,
    FileTooLargeError,
    MissingExtraError,
    MissingFileError,
    SegmentLogError,
    StoreClosedError,
    StoreIOError,
    UnsafeFileError,
    UnsupportedStoreError,
)
from .fs import FileSystem, Listed
from .small_file import read_whole

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

_MANIFEST: Final = re.compile(rb"(MANIFEST-[0-9]{1,20})\n?")
_READ: Final = re.compile(r"[0-9]{1,20}\.(?:sst|ldb|log|blob)")
_CURRENT_BYTES_MAX: Final = 4096
_LOG_BYTES_MAX: Final = 256 << 20  # all write-ahead logs, as they are replayed into memory
_MANIFEST_BYTES_MAX: Final = 256 << 20
_ATTEMPTS: Final = 20
_CHANGING_S: Final = 60  # for a database whose files change during each attempt
_FOOTER_BYTES: Final = 53
_RECORD_BLOCK: Final = 32 << 10
_RECORD_HEADER: Final = 7
_RECYCLED: Final = frozenset({5, 6, 7, 8, 11})
_TRAILER_BYTES: Final = 5  # after each block: compression type and checksum
_BLOCK_TABLE: Final = bytes.fromhex("f7cff485b741e288")
_CHECKED_FORMAT: Final = 6
_READAHEAD_BYTES: Final = 2 << 20

_FIX: Final = "Let a broker repair it, or take the queues from the CommitLog instead"

_ABSENT: Final = "No such file"

DEFAULT_FAMILY: Final = "default"


def is_rocksdb(fs: FileSystem, directory: str) -> bool:
    """Return whether a directory holds a RocksDB database, beside whatever else; the wheel is not needed."""
    return holds_database(fs.list_dir(directory))


def holds_database(names: Sequence[Listed]) -> bool:
    """Return whether these are, among others, the names of a RocksDB database."""
    files = {entry.name for entry in names if not entry.is_dir}
    return "CURRENT" in files or any(name.startswith("MANIFEST-") for name in files)


Stamp = tuple[bytes, int]
"""Name and size of the manifest, which is only appended to."""


def _stamp(fs: FileSystem, directory: str) -> Stamp | None:
    """Return what changes with a database's tables; None for a directory without a whole database."""
    current = read_whole(fs, os.path.join(directory, "CURRENT"), _CURRENT_BYTES_MAX)
    found = None if current is None else _MANIFEST.fullmatch(current)
    size = None if found is None else fs.size(os.path.join(directory, found[1].decode()))
    return None if found is None or size is None else (found[1], size)


class RocksDatabase:
    """A snapshot of one database, with bytes as keys and values. Close it; not for use after a fork.

    All methods raise `CorruptError` for damage that RocksDB finds, `StoreIOError` for failed reads, and
    `StoreClosedError` after `close`.
    """

    def __init__(
        self, directory: str, handle: Any, families: dict[str, Any], stamp: Stamp | None, *, has_log: bool
    ) -> None:
        self.directory = directory
        self._has_log = has_log
        self._handle = handle
        self._families = families
        self._stamp = stamp

    @classmethod
    def open(cls, fs: FileSystem, directory: str) -> Self:
        """Open the database as it is on disk now; takes no lock, and changes nothing in the directory.

        Raises
        ------
        MissingExtraError
            If the extra ``rocksdb`` is not installed.
        MissingFileError
            If the directory holds no database.
        CorruptError
            If it is damaged, or lacks a file.
        UnsupportedStoreError
            If its format is newer than the wheel.
        """
        wheel = _wheel(directory)
        problem: CorruptError | MissingFileError = MissingFileError(
            "no RocksDB database is here", path=directory, errno=errno.ENOENT
        )
        deadline, unchanged = time.monotonic() + _CHANGING_S, 0
        while unchanged < _ATTEMPTS and time.monotonic() < deadline:
            stamp = _stamp(fs, directory)
            try:
                opened = cls._open(wheel, fs, directory, stamp)
            except (CorruptError, MissingFileError) as error:
                # A broker deletes files after it changed the manifest, some of them later than others.
                is_same = _stamp(fs, directory) == stamp
                if is_same and _ABSENT not in str(error):
                    raise
                problem = error
                unchanged += is_same
                continue
            # A write-ahead log that was flushed meanwhile may be missing, and its successor not.
            if not opened._has_log or opened.is_current(fs):  # noqa: SLF001 - of this class
                return opened
            opened.close()
        raise problem

    @classmethod
    def _open(cls, wheel: Any, fs: FileSystem, directory: str, stamp: Stamp | None) -> Self:
        with _temporary(directory) as mirror:
            has_log, left_out = _fill(fs, directory, mirror)
            options = wheel.Options(raw_mode=True)
            options.create_if_missing(create_if_missing=False)
            options.set_max_open_files(-1)  # all tables are opened now, before the broker or we delete a name
            options.set_skip_stats_update_on_db_open(True)
            try:
                with _explained(directory):
                    named = [str(name) for name in wheel.Rdict.list_cf(mirror, options)]
                    families = {name: wheel.Options(raw_mode=True) for name in named}
                    access = wheel.AccessType.read_only(error_if_log_file_exist=False)
                    handle = wheel.Rdict(mirror, options, families, access)
                    opened = {name: handle.get_column_family(name) for name in named}
            except CorruptError as error:
                raise left_out or error from None
        return cls(directory, handle, opened, stamp, has_log=has_log)

    def is_current(self, fs: FileSystem) -> bool:
        """Return whether the database's tables have not changed since it was opened. Costs two system calls or so.

        Additions to its write-ahead log do not count.
        """
        return self._stamp is not None and self._stamp == _stamp(fs, self.directory)

    @property
    def families(self) -> list[str]:
        """Names of the column families."""
        self._check_open()
        return sorted(self._families)

    def _check_open(self) -> None:
        if self._handle is None:
            raise StoreClosedError("the RocksDB database was closed", path=self.directory, fix="Open it again")

    def _held(self, family: str) -> Any:
        self._check_open()
        return self._families.get(family)

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key; None without such a key or family."""
        held = self._held(family)
        if held is None:
            return None
        with _explained(self.directory):
            value: bytes | None = held.get(key)
        return value

    def first(self, family: str, start: bytes) -> bytes | None:
        """Return the first key that is not before ``start``; None if there is none."""
        return self._seek(family, start, before=False)

    def last(self, family: str, start: bytes) -> bytes | None:
        """Return the last key that is not after ``start``; None if there is none."""
        return self._seek(family, start, before=True)

    def _seek(self, family: str, start: bytes, *, before: bool) -> bytes | None:
        held = self._held(family)
        if held is None:
            return None
        with _explained(self.directory):
            cursor = held.iter()
            (cursor.seek_for_prev if before else cursor.seek)(start)
            cursor.status()
            return bytes(cursor.key()) if cursor.valid() else None

    def values(self, family: str, start: bytes, stop: bytes, limit: int) -> list[bytes]:
        """Return at most ``limit`` values of the keys in ``[start, stop)``, in the order of their keys."""
        held = self._held(family)
        if held is None:
            return []
        with _explained(self.directory):
            # The iterator ends without a word at damage: callers compare the number, and ask `items`.
            return list(islice(held.values(from_key=start, read_opt=self._bounds(stop)), limit))

    def items(self, family: str, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys in ``[start, stop)`` in order, with their values; raises for damage among them."""
        held = self._held(family)
        if held is None:
            return
        with _explained(self.directory):
            cursor = held.iter(self._bounds(stop))
            cursor.seek(start)
            while cursor.valid():
                item = bytes(cursor.key()), bytes(cursor.value())
                cursor.next()
                yield item
            cursor.status()

    def _bounds(self, stop: bytes | None) -> Any:
        options = _wheel(self.directory).ReadOptions()
        if stop is not None:
            options.set_iterate_upper_bound(stop)
            options.set_readahead_size(_READAHEAD_BYTES)
        return options

    def close(self) -> None:
        """Close the database's descriptors."""
        self._families = {}
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _temporary(directory: str) -> "TemporaryDirectory[str]":
    import tempfile  # noqa: PLC0415 - loads compression and random numbers, and few stores have a database

    try:
        return tempfile.TemporaryDirectory(prefix="segmentlog-rocksdb-")
    except OSError as error:
        raise _not_made("directory", directory, directory, error) from error


def _not_made(what: str, directory: str, path: str, error: OSError) -> StoreIOError:
    return StoreIOError(
        f"no temporary {what} for reading the database {directory} can be made: {error.strerror}",
        path=path,
        fix="TMPDIR names another directory for temporary files",
        errno=error.errno or errno.EIO,
    )


def _wheel(directory: str) -> Any:
    try:
        return importlib.import_module("rocksdict")
    except ImportError:
        raise MissingExtraError(
            "reading a RocksDB database needs the package rocksdict",
            path=directory,
            fix="pip install 'segmentlog[rocksdb]'",
        ) from None


def _fill(fs: FileSystem, directory: str, mirror: str) -> tuple[bool, CorruptError | None]:
    """Make the files of a mirror; return whether a write-ahead log has content, and the error of a table left out.

    A broker that is at work has unfinished tables, which no manifest names yet. So a table without a good footer is
    left out, and is damage only if RocksDB misses it.
    """
    path = os.path.join(directory, "CURRENT")
    current = read_whole(fs, path, _CURRENT_BYTES_MAX)
    if current is None:
        raise MissingFileError("no RocksDB database is here", path=directory, errno=errno.ENOENT)
    found = _MANIFEST.fullmatch(current)
    if found is None:
        raise CorruptError("CURRENT names no manifest", path=path, fix=_FIX)
    manifest = found[1].decode()
    listed = read_whole(fs, os.path.join(directory, manifest), _MANIFEST_BYTES_MAX)
    if listed is None:
        raise CorruptError(f"the manifest that CURRENT names, {manifest}, is missing", path=directory, fix=_FIX)
    _check_records(listed, os.path.join(directory, manifest))
    wanted = [entry for entry in fs.list_dir(directory) if _READ.fullmatch(entry.name)]  # after the manifest was read
    replayed = _check_logs(fs, directory, [entry for entry in wanted if entry.name.endswith(".log")])
    problem = None
    try:
        for name, content in (("CURRENT", found[1] + b"\n"), (manifest, listed)):
            with open(os.path.join(mirror, name), "wb") as made:
                made.write(content)
        for entry in wanted:
            file = os.path.join(directory, entry.name)
            _require_plain(entry, file)
            wrong = None if entry.name.endswith((".log", ".blob")) else _footer_problem(fs, file, entry.size)
            if wrong is None:
                os.symlink(os.path.abspath(file), os.path.join(mirror, entry.name))
            else:
                problem = CorruptError(wrong, path=file, offset=entry.size, fix=_FIX)
    except OSError as error:
        if isinstance(error, SegmentLogError):
            raise
        raise _not_made("mirror", directory, mirror, error) from error
    return replayed > 0, problem


def _check_records(data: bytes | memoryview, path: str) -> None:
    """Raise `CorruptError` for a record of a type that RocketMQ's databases do not have.

    Other damage is left to RocksDB: it drops the rest of a block after it, and records that are cut at the end.
    Drop when RocksDB ends at such a record: 10 reads it again and again, in manifests and in logs.
    """
    at = 0
    while at + _RECORD_HEADER <= len(data):
        end = at - at % _RECORD_BLOCK + _RECORD_BLOCK
        length, kind = data[at + 4] | data[at + 5] << 8, data[at + 6]
        after = at + _RECORD_HEADER + length
        if at + _RECORD_HEADER > end or after > end or kind == length == 0:  # no record, or zeros to the block's end
            at = end
            continue
        if kind in _RECYCLED:
            raise CorruptError(f"a record has the type {kind}, of a recycled log", path=path, offset=at, fix=_FIX)
        at = after


def _check_logs(fs: FileSystem, directory: str, logs: list[Listed]) -> int:
    """Check the write-ahead logs of a database, and return the number of their bytes."""
    size = sum(entry.size for entry in logs)
    if size > _LOG_BYTES_MAX:
        raise FileTooLargeError(
            f"the write-ahead logs have {size} bytes, at most {_LOG_BYTES_MAX} are replayed",
            path=directory,
            fix="Start the broker and stop it: it empties them",
        )
    for entry in logs:
        path = os.path.join(directory, entry.name)
        _require_plain(entry, path)
        with suppress(FileNotFoundError):  # deleted after the listing; RocksDB reports it
            _check_records(fs.map(path).data, path)
    return size


def _require_plain(entry: Listed, path: str) -> None:
    if not entry.is_file:
        raise UnsafeFileError(
            "not a plain file, where a file of a database belongs", path=path, fix="Put the file itself there"
        )


def _footer_problem(fs: FileSystem, path: str, size: int) -> str | None:
    """Return what is wrong with a table's end, None if nothing is: cut short, or blocks that end beyond it."""
    try:
        footer = fs.read(path, max(size - _FOOTER_BYTES, 0), _FOOTER_BYTES)
    except FileNotFoundError:
        return "the table is gone"
    if len(footer) < _FOOTER_BYTES or footer[-8:] != _BLOCK_TABLE:
        return "the table's last bytes are not those of a RocksDB table"
    if int.from_bytes(footer[41:45], "little") >= _CHECKED_FORMAT:  # RocksDB checks it, or does not know the format
        return None
    at = 1
    for block in ("metaindex", "index"):
        start, at = _varint(footer, at)
        length, at = _varint(footer, at)
        if at > 41 or start + length + _TRAILER_BYTES > size:
            return f"the table's {block} block ends beyond its end"
    return None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            break
    return value, at


@contextmanager
def _explained(directory: str) -> Iterator[None]:
    """Raise an error of ours for one of RocksDB; other errors pass."""
    try:
        yield
    except BaseException as error:
        # The wheel raises plain Exceptions. A panic of its Rust code, which is no Exception, also means damage.
        panic = type(error).__name__ == "PanicException"
        if not panic and type(error) is not Exception:
            raise
        problem = f"RocksDB cannot read the database: {error}"
        kind = str(error).partition(":")[0]
        if kind in {"Not implemented", "Operation not supported"} or "nsupported" in problem:
            raise UnsupportedStoreError(
                problem,
                path=directory,
                fix="A newer rocksdict may read it; or take the queues from the CommitLog instead",
            ) from None
        if kind == "IO error" and _ABSENT not in problem:
            raise StoreIOError(problem, path=directory, fix=_FIX, errno=errno.EIO) from None
        raise CorruptError(problem, path=directory, fix=_FIX) from None
