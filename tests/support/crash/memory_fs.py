"""A disk in memory: a `WritableFileSystem` without a machine.

::

    Directory ── name ──► Directory ── name ──► FileNode: number, buffer [data ······ | zeros up to the capacity]
                                                             ▲ shared with other disks until it is written or mapped

A crash test creates a disk for each state after a power cut, hundreds per second. Most files of one are those of the
next. So files are shared, and copied when they are first changed. Errors are the real file system's.
"""

import ctypes
import errno
import mmap
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from segmentlog.store.errors import NoSpaceError, NotAStoreError, UnsafeFileError
from segmentlog.store.files.fs import FileSystem, Listed
from segmentlog.store.files.os_errors import write_error
from segmentlog.store.files.plain_reads import Front
from segmentlog.store.format.buffers import Data, Pieces, contiguous
from segmentlog.store.format.message import Bytes

PAGE_BYTES = 4096

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_PROT_NONE = 0


class FileNode:
    """One file, whatever names it has; recordings know it by ``number``, ``blocks`` are the pages that take space."""

    __slots__ = ("_data", "_shared", "blocks", "number", "size")

    def __init__(self, number: int, data: Bytes | None = None) -> None:
        self.number = number
        self._data = np.zeros(0, np.uint8) if data is None else data
        self._shared = data is not None
        self.size = self._data.size
        self.blocks: set[int] = set()

    @property
    def content(self) -> Bytes:
        return self._data[: self.size]

    def own(self) -> Bytes:
        if self._shared:
            self._data = self._data.copy()
            self._shared = False
        return self._data

    def grow(self, size: int) -> None:
        """Make it at least ``size`` bytes long; a map taken before does not see what is written from now on."""
        if size > self._data.size:
            grown = np.zeros(max(size, 2 * self._data.size), np.uint8)
            grown[: self.size] = self._data[: self.size]
            self._data, self._shared = grown, False
        self.size = max(self.size, size)


class GuardedNode(FileNode):
    """A read-only file: a read beyond the end of its map kills the process."""

    def own(self) -> Bytes:
        if self._shared:
            self._data, self._shared = guarded(self._data.tobytes()), False
        return self._data


def guarded(content: bytes) -> Bytes:
    """Copy bytes between two pages that must not be touched: a read beyond their end kills the process, and is seen."""
    size = len(content)
    if size == 0:
        return np.empty(0, np.uint8)
    span = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    area = mmap.mmap(-1, span + 2 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = np.frombuffer(area, np.uint8)
    start = mmap.PAGESIZE + span - size
    whole[mmap.PAGESIZE : start] = 0xA5
    whole[start : start + size] = np.frombuffer(content, np.uint8)
    for fence in (0, mmap.PAGESIZE + span):
        if _LIBC.mprotect(whole.ctypes.data + fence, mmap.PAGESIZE, _PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    view = whole[start : start + size]
    view.flags.writeable = False
    return view


@dataclass(eq=False, slots=True)
class Directory:
    """One directory; ``number`` is what a recording knows it by."""

    number: int
    entries: dict[str, "FileNode | Directory"] = field(default_factory=dict)


class MemoryFile:
    def __init__(self, fs: "MemoryFileSystem", path: str, node: FileNode) -> None:
        self.path = path
        self.node = node
        self._fs = fs
        self._open = True

    def write(self, position: int, data: Data | Pieces) -> None:
        """Write all of ``data``, or as much of it as there is room for and fail."""
        self._check_open()
        if position < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.path)
        raw = np.frombuffer(contiguous(data), np.uint8)
        stop = position + raw.size
        if raw.size == 0:
            return
        with self._fs.lock:
            room = self._fs.take(self.node, position, stop)
            self.node.grow(room)
            self.node.own()[position:room] = raw[: room - position]
        if room < stop:
            raise _no_space(self.path)

    def allocate(self, size: int) -> None:
        self._check_open()
        with self._fs.lock:
            if self._fs.take(self.node, 0, size, whole=True) < size:
                raise _no_space(self.path)
            self.node.grow(size)

    def extend(self, size: int) -> None:
        self._check_open()
        with self._fs.lock:
            self.node.grow(size)

    def sync(self) -> None:
        """Do nothing: what a power cut leaves is for `states` to say."""
        self._check_open()

    def is_at(self, path: str) -> bool:
        return self._fs.node(path) is self.node

    def close(self) -> None:
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)


class MemoryLock:
    """The lock of a store on a disk without other users: it is never lost."""

    is_signed = True

    def sign(self) -> None:
        pass

    check = ensure_held = release = sign


class MemoryFileSystem:
    """A disk of ``capacity`` bytes of file data, in pages of 4 KiB; paths are absolute, and ``/`` exists."""

    window_bytes: int | None = None

    def __init__(self, capacity: int | None = None, root: Directory | None = None) -> None:
        self.capacity = capacity
        self.root = root or Directory(0)
        self.lock = threading.RLock()
        self.used_pages = 0
        self._numbers = count(1 + max((node.number for _, node in self.walk()), default=0))

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> "MemoryFileSystem":
        """A read-only disk with some files; each map ends at a page without access."""
        return cls().with_changes(files)

    def with_changes(self, changes: Mapping[str, bytes | None]) -> "MemoryFileSystem":
        """A disk with other content of some read-only files, None for no file; it shares the other files."""

        def shared(directory: Directory) -> Directory:
            below = {n: shared(e) if isinstance(e, Directory) else e for n, e in directory.entries.items()}
            return Directory(directory.number, below)

        changed = MemoryFileSystem(self.capacity, shared(self.root))
        for path, content in changes.items():
            folder, _, name = path.rpartition("/")
            parent = changed.root
            for part in folder[1:].split("/"):
                parent = parent.entries.setdefault(part, Directory(next(changed._numbers)))
            if content is None:
                parent.entries.pop(name, None)
            else:
                parent.entries[name] = GuardedNode(next(changed._numbers), np.frombuffer(content, np.uint8))
        return changed

    # For assertions of tests

    def walk(self) -> Iterator[tuple[str, FileNode | Directory]]:
        stack: list[tuple[str, Directory]] = [("", self.root)]
        while stack:
            path, directory = stack.pop()
            for name in sorted(directory.entries):
                node = directory.entries[name]
                yield f"{path}/{name}", node
                if isinstance(node, Directory):
                    stack.append((f"{path}/{name}", node))

    def files(self) -> dict[str, bytes]:
        return {path: node.content.tobytes() for path, node in self.walk() if isinstance(node, FileNode)}

    def clone(self) -> "MemoryFileSystem":
        """Another disk with the same files; a write to one is not seen on the other."""

        def copied(directory: Directory) -> Directory:
            return Directory(
                directory.number,
                {
                    name: copied(node)
                    if isinstance(node, Directory)
                    else FileNode(node.number, node.content.copy())  # maps of the original must stay true
                    for name, node in directory.entries.items()
                },
            )

        return MemoryFileSystem(self.capacity, copied(self.root))

    def node(self, path: str) -> FileNode | Directory | None:
        if path == "/":
            return self.root
        at: FileNode | Directory | None = self.root
        for name in path[1:].split("/"):
            if not isinstance(at, Directory):
                return None
            at = at.entries.get(name)
        return at

    # Reads

    def list_dir(self, path: str) -> list[Listed]:
        with self.lock:
            found = self.node(path)
            if not isinstance(found, Directory):
                return []
            return sorted(
                Listed(name, is_dir=True, is_link=False, is_file=False)
                if isinstance(node, Directory)
                else Listed(name, is_dir=False, is_link=False, is_file=True, size=node.size)
                for name, node in found.entries.items()
            )

    def size(self, path: str) -> int | None:
        node = self.node(path)
        return None if node is None else self._plain(path).size

    def read(self, path: str, offset: int, count: int) -> bytes:
        assert min(offset, count) >= 0
        with self.lock:
            return self._plain(path).content[offset : offset + count].tobytes()

    def read_into(self, path: str, offset: int, buffer: Bytes) -> int:
        data = np.frombuffer(self.read(path, offset, buffer.size), np.uint8)
        buffer[: data.size] = data
        return data.size

    def map(self, path: str, start: int = 0, stop: int | None = None) -> Bytes:
        with self.lock:
            node = self._plain(path)
            node.own()
            view = node.content.view()
        view.flags.writeable = False
        return view[start:stop]

    def data_end(self, path: str) -> int:
        with self.lock:
            return len(self._plain(path).content.tobytes().rstrip(b"\0"))

    def read_each(self, pieces: Iterable[tuple[str, int, int]]) -> list[bytes | None]:
        return [None if self.node(piece[0]) is None else self.read(*piece) for piece in pieces]

    def fronts(self, directories: Iterable[str], limit: int) -> list[Front | None]:
        return [front_of(self, directory) for directory in directories]

    def fetch(self, pieces: Iterable[tuple[str, int, int]]) -> None:
        pass

    def fetch_soon(self, pieces: Iterable[tuple[str, int, int]]) -> None:
        pass

    def lock_owner(self, path: str) -> int | None:
        return None

    def stamp(self, path: str) -> tuple[int, int] | None:
        found = self.node(path.rstrip("/") or "/")
        return None if not isinstance(found, Directory) else (found.number, hash(frozenset(found.entries)))

    def lock_store(self, path: str) -> "MemoryLock":
        return MemoryLock()

    def lock_store_for_a_moment(self, path: str) -> AbstractContextManager[bool]:
        return nullcontext(True)

    def mutex(self, path: str) -> AbstractContextManager[None]:
        return nullcontext()

    # Writes

    def create(self, path: str) -> MemoryFile:
        with self.lock:
            parent, name = self._parent(path)
            if name in parent.entries:
                raise write_error(OSError(errno.EEXIST, os.strerror(errno.EEXIST)), "the call", path)
            node = FileNode(next(self._numbers))
            parent.entries[name] = node
        return MemoryFile(self, path, node)

    def open(self, path: str) -> MemoryFile:
        if isinstance(self.node(path), Directory):
            raise write_error(OSError(errno.EISDIR, os.strerror(errno.EISDIR)), "the call", path)
        return MemoryFile(self, path, self._plain(path))

    def rename(self, source: str, target: str) -> None:
        with self.lock:
            old_parent, old_name = self._parent(source)
            new_parent, new_name = self._parent(target)
            node = old_parent.entries.get(old_name)
            if node is None:
                raise write_error(OSError(errno.ENOENT, os.strerror(errno.ENOENT)), "the call", source)
            replaced = new_parent.entries.get(new_name)
            if isinstance(replaced, Directory) and not isinstance(node, Directory):
                raise write_error(OSError(errno.EISDIR, os.strerror(errno.EISDIR)), "the call", target)
            del old_parent.entries[old_name]
            new_parent.entries[new_name] = node
            if isinstance(replaced, FileNode) and replaced is not node:
                self.used_pages -= len(replaced.blocks)

    def unlink(self, path: str) -> None:
        with self.lock:
            node = self.node(path)
            if node is None:
                return
            if isinstance(node, Directory):
                raise write_error(OSError(errno.EISDIR, os.strerror(errno.EISDIR)), "the call", path)
            parent, name = self._parent(path)
            del parent.entries[name]
            self.used_pages -= len(node.blocks)

    def release(self, path: str, start: int, stop: int) -> None:
        """Overwrite it with zeros: whoever reads it later has released it too early."""
        with self.lock:
            node = self._plain(path)
            node.own()[start : min(stop, node.size)] = 0

    def make_dir(self, path: str, like: str | None = None) -> None:
        with self.lock:
            node = self.node(path)
            if isinstance(node, FileNode):
                raise UnsafeFileError("the store wants a directory here and something else is there", path=path)
            if node is None:
                try:
                    parent, name = self._parent(path)
                except FileNotFoundError:
                    raise NotAStoreError("its parent is not a directory", path=path) from None
                parent.entries[name] = Directory(next(self._numbers))

    def sync_dir(self, path: str) -> None:
        node = self.node(path)
        if node is None:
            raise write_error(OSError(errno.ENOENT, os.strerror(errno.ENOENT)), "the call", path)
        if not isinstance(node, Directory):
            raise write_error(OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)), "the call", path)

    def sync_all(self, path: str) -> None:
        self.sync_dir(path)

    # Within

    def take(self, node: FileNode, position: int, stop: int, *, whole: bool = False) -> int:
        """Take the space for ``[position, stop)`` of a file; say up to where there is any."""
        wanted = range(position // PAGE_BYTES, -(-stop // PAGE_BYTES))
        missing = [page for page in wanted if page not in node.blocks]
        if self.capacity is not None:
            free = max(self.capacity // PAGE_BYTES - self.used_pages, 0)
            if len(missing) > free:
                if whole:
                    return 0
                stop = max(missing[free] * PAGE_BYTES, position)
                missing = missing[:free]
        node.blocks.update(missing)
        self.used_pages += len(missing)
        return stop

    def _plain(self, path: str) -> FileNode:
        node = self.node(path)
        if node is None:
            raise write_error(OSError(errno.ENOENT, os.strerror(errno.ENOENT)), "the call", path)
        if isinstance(node, Directory):
            raise UnsafeFileError("this is not a plain file", path=path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        folder, _, name = path.rpartition("/")
        node = self.node(folder or "/")
        if node is None:
            raise write_error(OSError(errno.ENOENT, os.strerror(errno.ENOENT)), "the call", path)
        if not isinstance(node, Directory):
            raise write_error(OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)), "the call", path)
        return node, name


def front_of(fs: FileSystem, directory: str) -> Front | None:
    """The front of one directory by the other calls of a file system; all data, whatever the limit."""
    listed = fs.list_dir(directory)
    if len(listed) != 1 or not listed[0].is_file:
        return None
    path = f"{directory}/{listed[0].name}"
    return Front(listed[0].name, listed[0].size, fs.data_end(path), fs.read(path, 0, listed[0].size))


def _no_space(path: str) -> NoSpaceError:
    return NoSpaceError("there is no room: No space left on device", path=path, fix="Make room")
