"""RemoteFileSystem: the files of a store, whose bytes are objects.

::

    file      │ part: object A        │ part: object B   │ zeros, up to its size │      commitlog/00000000001073741824
                     │                       │
    objects   … [▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒] …         [▒▒▒▒▒▒▒▒▒▒]                                 ranges, fetched by `Fetcher`

It shows the files as they were when it was made: a growing archive is opened again. Nothing is written, and it has no
lock. A file that is not whole ends in zeros, as RocketMQ allocates it. Other bytes that no part has are an error.
"""

import errno
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Self

import numpy as np

from ..errors import MissingFileError, StoreIOError
from ..files.fs import Listed
from ..files.plain_reads import Front, end_of
from ..format.message import Bytes
from .block_cache import BlockCache
from .fetching import ByteSpan, Extent, Fetcher
from .object_store import ObjectInfo, ObjectStore
from .requests import merged

_SEARCHED_BYTES: Final = 16 << 20


class ObjectPart(NamedTuple):
    """Bytes of a file that are a range of an object."""

    key: str
    start: int  # in the file
    object_start: int
    length: int
    etag: str | None = None


class RemoteFile(NamedTuple):
    """A file of one or more objects; ``parts`` are ascending. Without any, ``key`` is the object."""

    key: str
    size: int
    etag: str | None = None
    parts: tuple[ObjectPart, ...] = ()


class RemoteFileSystem:
    """Read access to objects as to files. Paths are ``root``, a slash, and the names in ``files``."""

    def __init__(
        self, objects: ObjectStore, root: str, files: Mapping[str, RemoteFile], cache: BlockCache | None = None
    ) -> None:
        self.root = root.rstrip("/")
        self._gap_bytes = objects.gap_bytes
        self._parts: dict[str, tuple[int, tuple[ObjectPart, ...]]] = {}
        self._tree: dict[str, dict[str, Listed]] = {"": {}}
        extents: dict[str, Extent] = {}
        for path, file in files.items():
            parts = file.parts or (ObjectPart(file.key, 0, 0, file.size, file.etag),)
            self._parts[path] = file.size, tuple(part for part in parts if part.length)
            for part in parts:
                known = extents.get(part.key, Extent(0, part.etag))
                extents[part.key] = Extent(max(known.size, part.object_start + part.length), part.etag)
            self._add(path, file.size)
        self._fetcher = Fetcher(objects, extents, cache)

    @classmethod
    def listed(
        cls, objects: ObjectStore, root: str, found: Iterable[ObjectInfo], cache: BlockCache | None = None
    ) -> Self:
        """Return the files of a plain copy, an object each, of a list."""
        files = (each for each in found if not each.key.endswith("/"))
        return cls(objects, root, {each.key: RemoteFile(each.key, each.size, each.etag) for each in files}, cache)

    def _add(self, path: str, size: int) -> None:
        above, _, name = path.rpartition("/")
        self._tree.setdefault(above, {})[name] = Listed(name, is_dir=False, is_link=False, size=size)
        while above:
            below, (above, _, name) = above, above.rpartition("/")
            self._tree.setdefault(below, {})
            self._tree.setdefault(above, {})[name] = Listed(name, is_dir=True, is_link=False, is_file=False)

    @property
    def window_bytes(self) -> int | None:
        return self._gap_bytes

    def list_dir(self, path: str) -> list[Listed]:
        return sorted(self._tree.get(self._name(path), {}).values())

    def size(self, path: str) -> int | None:
        found = self._parts.get(self._name(path))
        return None if found is None else found[0]

    def read(self, path: str, offset: int, count: int) -> bytes:
        return self.map(path, offset, offset + count).tobytes()

    def map(self, path: str, start: int = 0, stop: int | None = None) -> Bytes:
        stop = self._opened(path)[0] if stop is None else stop
        found = list(self._spread(path, start, stop))
        if len(found) == 1:
            return found[0]
        made = np.concatenate(found) if found else np.empty(0, np.uint8)
        made.flags.writeable = False
        return made

    def data_end(self, path: str) -> int:
        # Backwards, as nothing tells where the zeros begin that a copy has of a file's unused end.
        _, parts = self._opened(path)
        first, stop = (parts[0].start, parts[-1].start + parts[-1].length) if parts else (0, 0)
        count = 1 << 20
        while stop > first:
            start = max(stop - count, first)
            if end := end_of(self.map(path, start, stop)):
                return start + end
            stop, count = start, min(2 * count, _SEARCHED_BYTES)
        return 0

    def read_each(self, pieces: Iterable[tuple[str, int, int]]) -> list[bytes | None]:
        asked = list(pieces)
        known = [(path, offset, offset + count) for path, offset, count in asked if self._name(path) in self._parts]
        self.fetch(known)
        return [
            self.read(path, offset, count) if self._name(path) in self._parts else None for path, offset, count in asked
        ]

    def fronts(self, directories: Iterable[str], limit: int) -> list[Front | None]:
        single: list[str | None] = []
        for directory in directories:
            names = self._tree.get(self._name(directory), {})
            only = next(iter(names.values())) if len(names) == 1 else None
            single.append(f"{directory}/{only.name}" if only is not None and only.is_file else None)
        self.fetch((path, 0, limit) for path in single if path is not None)
        return [None if path is None else self._front(path, limit) for path in single]

    def _front(self, path: str, limit: int) -> Front:
        size = self._opened(path)[0]
        data = self.read(path, 0, min(size, limit))
        end = len(data.rstrip(b"\0")) if size <= limit else self.data_end(path)
        return Front(path.rpartition("/")[2], size, end, data)

    def lock_owner(self, path: str) -> int | None:
        """Return None: objects have no lock."""

    def stamp(self, path: str) -> tuple[int, int] | None:
        name = self._name(path)
        return (zlib.crc32(path.encode()), 0) if name in self._tree and (name or self._parts) else None

    def fetch(self, pieces: Iterable[tuple[str, int, int]]) -> None:
        """Bring spans ``(path, start, stop)`` here together."""
        self._fetcher.fetch(self._spans(pieces))

    def fetch_soon(self, pieces: Iterable[tuple[str, int, int]]) -> None:
        """Begin to bring spans here; an error is raised by the read of a span."""
        self._fetcher.fetch_soon(self._spans(pieces))

    def _spans(self, pieces: Iterable[tuple[str, int, int]]) -> Iterator[ByteSpan]:
        for path, start, stop in pieces:
            _, parts = self._parts.get(self._name(path), (0, ()))
            for part in parts:
                first, last = max(start, part.start), min(stop, part.start + part.length)
                if first < last:
                    shift = part.object_start - part.start
                    yield ByteSpan(part.key, first + shift, last + shift)

    def _spread(self, path: str, start: int, stop: int) -> Iterator[Bytes]:
        """Bytes of a file, part by part."""
        size, parts = self._opened(path)
        stop = min(stop, size)
        if start >= stop:
            return
        spans = list(self._spans([(path, start, stop)]))
        end = parts[-1].start + parts[-1].length if parts else 0
        if sum(span.stop - span.start for span in spans) < min(stop, end) - start:
            held = ", ".join(f"[{first}, {last})" for first, last in merged(_ranges(parts), 0))
            raise StoreIOError(
                f"bytes [{start}, {stop}) were asked for, and the objects have {held}",
                path=path,
                offset=start,
                fix="Read what they have, or the store that the archive was made of",
                errno=errno.EIO,
            )
        if len(spans) > 1:
            self._fetcher.fetch_soon(spans)  # at the same time
        for span in spans:
            yield self._fetcher.bytes(*span)
        if stop > max(start, end):
            yield np.zeros(stop - max(start, end), np.uint8)

    def _opened(self, path: str) -> tuple[int, tuple[ObjectPart, ...]]:
        found = self._parts.get(self._name(path))
        if found is None:
            raise MissingFileError(
                "opening failed: no such object", path=path, fix="Open the store again", errno=errno.ENOENT
            )
        return found

    def _name(self, path: str) -> str:
        """Return the part of a path below the root, without a slash; a name that no file has for other paths."""
        if path.rstrip("/") == self.root:
            return ""
        return path[len(self.root) + 1 :].rstrip("/") if path.startswith(f"{self.root}/") else "\0"


def _ranges(parts: Iterable[ObjectPart]) -> Iterator[tuple[int, int]]:
    return ((part.start, part.start + part.length) for part in parts)
