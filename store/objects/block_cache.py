"""Cached blocks of objects on a local disk, shared by the processes of a user.

::

    DIRECTORY/NAME       NAME: SHA-256 of URL, key, etag and size; a sparse file
    │ block 0 32 KiB │ block 1 │ (hole) │ block 3, shorter │ pad │ entry 0 │ entry 1 │ 0 0 0 … │ entry 3 │
                                                             4096  └ 16 bytes each: boot u64 | CRC-32 u32 | unused u32
    DIRECTORY/.lock      held while files are deleted

    write     block ──► CRC-32 ──► boot        an absent block has boot 0
    read      boot is this boot's      ──► present
              boot is of another one   ──► CRC-32 compared ──► boot of now      the machine may have lost the data
    delete    a whole file, least recently used first; holes are never made, since it may be mapped

A kill between two of these writes leaves an absent block. Within one boot the page cache shows all writes in their
order, to all processes. After a power cut the data may be lost and the entry kept, so its CRC decides. Data and
entries are one file, so that they cannot be of two generations. Two processes may write a block at once: an etag has
one content, so they write the same bytes. A torn read of the boot shows another boot, and the CRC decides again.
"""

import contextlib
import errno
import fcntl
import hashlib
import logging
import mmap
import os
import stat
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, Self

import numpy as np
from isal import isal_zlib

from ..files.fs import Descriptor, FileMap
from ..files.notices import warn_once
from ..files.os_errors import descriptor_budget
from ..format.message import Bytes

BLOCK_BYTES: Final = 32 << 10
LIMIT_BYTES: Final = 10 << 30
_FREE_SHARE: Final = 10
_ENTRY: Final = np.dtype([("boot", "<u8"), ("crc", "<u4"), ("unused", "<u4")])
_PAGE: Final = 4096
_OPEN_MAX: Final = 256
_OPEN_SHARE: Final = 8
_SURVEY_BYTES: Final = 256 << 20  # written by this process, until the directory is looked at again
_TRIMMED_TO: Final = 0.9
_TOUCH_S: Final = 60.0
_LAYOUT: Final = b"2"
_PRIVATE: Final = 0o700
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_STATUS_BLOCK: Final = 512

_log: Final = logging.getLogger(__name__)


def cache_directory() -> str:
    """Return the directory of the user's cache; one in the directory for temporary files without a home."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(os.path.join("~", ".cache"))
    if os.path.isabs(home) and os.access(os.path.dirname(home), os.W_OK):
        return os.path.join(home, "segmentlog", "objects")
    import tempfile  # noqa: PLC0415 - loads compression and random numbers, and few have no home

    return os.path.join(tempfile.gettempdir(), f"segmentlog-{os.geteuid()}", "objects")


class BlockCache:
    """Cached blocks of any number of object stores; safe for threads, and for processes that share the directory.

    ``limit_bytes`` bounds the files; each of several processes may exceed it by 256 MiB, or a sixteenth if that is
    less. After an error of the directory it holds nothing more, and says so once.
    """

    def __init__(self, directory: str | None = None, limit_bytes: int | None = None) -> None:
        self.directory = directory or cache_directory()
        self._limit = limit_bytes
        self._boot = _boot()
        self._lock = threading.Lock()
        self._open: OrderedDict[str, CachedFile] = OrderedDict()
        self._open_max = descriptor_budget(_OPEN_MAX, _OPEN_SHARE)
        self._used: int | None = None  # at the last survey
        self._written = 0  # since then, by this process
        self._is_usable: bool | None = None
        self._needed: Counter[str] = Counter()

    def file(self, url: str, key: str, etag: str | None, size: int) -> "CachedFile | None":
        """Return the blocks of an object; None if the cache cannot be used."""
        if self._is_usable is False:
            return None
        text = "\0".join([url, key, etag or "", str(size)]).encode()
        name = hashlib.sha256(_LAYOUT + text).hexdigest()[:40]
        with self._lock:
            found = self._open.get(name)
            if found is not None and found.is_linked():
                self._open.move_to_end(name)
                found.touch()
                return found
            try:
                if self._is_usable is None:
                    self._prepare()
                found = CachedFile(self, name, size, self._boot)
            except OSError as error:
                self._give_up(error)
                return None
            self._open[name] = found
            if len(self._open) > self._open_max:
                self._open.popitem(last=False)
            return found

    def admit(self, count: int, name: str) -> bool:
        """Make room for ``count`` bytes of a file; False if there is no room, or the cache cannot be used."""
        if self._is_usable is False:
            return False
        with self._lock:
            try:
                limit = self._limit_bytes()
                if self._used is None or self._written >= min(_SURVEY_BYTES, limit // 16):
                    self._used, self._written = sum(size for _, size, _ in self._files()), 0
                if self._used + self._written + count > limit:
                    self._trim(limit, count, name)
            except OSError as error:
                self._give_up(error)
                return False
            if self._used + self._written + count > limit:
                return False
            self._written += count
            return True

    @contextlib.contextmanager
    def needed(self, names: Iterable[str]) -> Iterator[None]:
        """Keep these files, as far as this process decides, until the context ends."""
        names = list(names)
        with self._lock:
            self._needed.update(names)
        try:
            yield
        finally:
            with self._lock:
                self._needed.subtract(names)
                self._needed += Counter()  # drops those that are at 0

    def give_up(self, error: OSError) -> None:
        """Stop using the cache in this process: reads continue without it."""
        with self._lock:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._is_usable = False
        self._open.clear()
        reason = error.strerror or str(error)
        warn_once(_log, self.directory, "cache %s is not used any more: %s", self.directory, reason)

    def _prepare(self) -> None:
        os.makedirs(self.directory, mode=_PRIVATE, exist_ok=True)
        found = os.lstat(self.directory)
        # In a directory for temporary files another user may have been first.
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise PermissionError(errno.EPERM, "it is not a directory that only this user may write")
        self._is_usable = True

    def _limit_bytes(self) -> int:
        if self._limit is None:
            free = os.statvfs(self.directory)
            held = sum(size for _, size, _ in self._files())  # freed by deleting, so it counts as free
            self._limit = min(LIMIT_BYTES, (free.f_bavail * free.f_frsize + held) // _FREE_SHARE)
        return self._limit

    def _files(self) -> Iterator[tuple[float, int, str]]:
        with os.scandir(self.directory) as found:
            for each in found:
                with contextlib.suppress(FileNotFoundError):
                    status = each.stat(follow_symlinks=False)
                    if not each.name.startswith("."):
                        yield status.st_mtime, status.st_blocks * _STATUS_BLOCK, each.name

    def _trim(self, limit: int, count: int, needed: str) -> None:
        """Delete files until there is room for ``count`` bytes, but not the file that is to have them."""
        with Descriptor(os.path.join(self.directory, ".lock"), _FLAGS) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX)  # released when it is closed; two processes would delete twice as much
            files = sorted(self._files())
            used = sum(size for _, size, _ in files)
            for _, size, name in files:
                if used + count <= limit * _TRIMMED_TO:
                    break
                if name == needed or name in self._needed:
                    continue
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.directory, name))
                self._open.pop(name, None)
                used -= size
            self._used, self._written = used, 0

    def __reduce__(self) -> tuple[type[Self], tuple[str, int | None]]:
        return type(self), (self.directory, self._limit)


class CachedFile:
    """Blocks of one object. `OSError` is never raised: what cannot be read is absent."""

    def __init__(self, cache: BlockCache, name: str, size: int, boot: int) -> None:
        self.name = name
        self._cache, self._size, self._boot = cache, size, boot
        self._table = size + -size % _PAGE
        self._blocks = -(-size // BLOCK_BYTES)
        path = os.path.join(cache.directory, name)
        whole = self._table + self._blocks * _ENTRY.itemsize
        self._file = Descriptor(path, _FLAGS)
        if os.fstat(self._file.fd).st_size not in {0, whole}:  # of a foreign hand: a file of ours has its size at once
            os.unlink(path)
            self._file = Descriptor(path, _FLAGS)
        os.truncate(self._file.fd, whole)
        self._touched = 0.0
        self._known = np.zeros(self._blocks, np.bool_)  # present blocks stay so, as long as this is open
        self.touch()

    def is_linked(self) -> bool:
        """Return whether the file still has its name."""
        return os.fstat(self._file.fd).st_nlink > 0

    def touch(self) -> None:
        """Note the use, for the order in which files are deleted."""
        if (now := time.monotonic()) - self._touched > _TOUCH_S:
            self._touched = now
            with contextlib.suppress(OSError):
                os.utime(self._file.fd)

    def missing(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the absent parts of a range, extended to whole blocks, ascending."""
        first, last = start // BLOCK_BYTES, -(-min(stop, self._size) // BLOCK_BYTES)
        if first >= last:
            return
        absent = np.flatnonzero(~self._present(first, last)) + first
        if absent.size:
            for run in np.split(absent, np.flatnonzero(np.diff(absent) > 1) + 1):
                yield int(run[0]) * BLOCK_BYTES, min((int(run[-1]) + 1) * BLOCK_BYTES, self._size)

    def put(self, start: int, data: Bytes) -> bool:
        """Add whole blocks from ``start``; False if the cache has no room for them."""
        if not self._cache.admit(data.size, self.name):
            return False
        first = start // BLOCK_BYTES
        entries = np.zeros(-(-data.size // BLOCK_BYTES), _ENTRY)
        for number in range(entries.size):
            entries["crc"][number] = isal_zlib.crc32(data[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES].data)
        place = self._table + first * _ENTRY.itemsize
        try:
            _write(self._file.fd, data.data, start)
            _write(self._file.fd, entries.tobytes(), place)  # absent still
            entries["boot"] = self._boot
            _write(self._file.fd, entries.tobytes(), place)
        except OSError as error:
            self._cache.give_up(error)
            return False
        self._known[first : first + entries.size] = True
        return True

    def map(self, start: int, stop: int) -> Bytes | None:
        """Map bytes ``[start, stop)``; None if a block of them is absent."""
        if next(self.missing(start, stop), None) is not None:
            return None
        base = start - start % mmap.ALLOCATIONGRANULARITY
        try:
            mapped = FileMap(self._file.fd, stop - base, prot=mmap.PROT_READ, offset=base)
        except (OSError, ValueError):
            return None
        return np.frombuffer(mapped, np.uint8)[start - base :]

    def _present(self, first: int, last: int) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        known = self._known[first:last]
        if known.all():
            return known
        try:
            raw = os.pread(self._file.fd, (last - first) * _ENTRY.itemsize, self._table + first * _ENTRY.itemsize)
            entries = np.frombuffer(raw, _ENTRY)
            if entries.size < last - first:
                return known
            known |= entries["boot"] == self._boot
            for number in np.flatnonzero(~known & (entries["boot"] != 0)):
                known[number] = self._is_whole(first + int(number), int(entries["crc"][number]))
        except OSError as error:
            self._cache.give_up(error)
        return known

    def _is_whole(self, block: int, crc: int) -> bool:
        """Compare the CRC of a block of an earlier boot, and note that it is whole."""
        count = min(BLOCK_BYTES, self._size - block * BLOCK_BYTES)
        data = os.pread(self._file.fd, count, block * BLOCK_BYTES)
        if len(data) != count or isal_zlib.crc32(data) != crc:
            return False
        _write(self._file.fd, self._boot.to_bytes(8, "little"), self._table + block * _ENTRY.itemsize)
        return True


def _write(fd: int, data: "memoryview | bytes", offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count


def _boot() -> int:
    """Return a number of the machine's boot; of this process where it cannot be known."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            text = file.read().strip()
    except OSError:
        text = os.urandom(16).hex()
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") | 1
