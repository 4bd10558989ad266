"""Two directory trees, read as one: files that are missing in the first are read from the second.

::

    /data/store/commitlog    00…2147483648  00…3221225472          the first: files are unlinked here …
    /archive/commitlog       00…0000000000  00…1073741824  00…2147483648     … after they were copied here
    ──► commitlog            00…0000000000  00…1073741824  00…2147483648  00…3221225472      each name once

A file that moves from the first to the second meanwhile is seen: the first is always asked before the second. The rest
of the store, such as its lock, is in the first tree only. RocketMQ reads several CommitLog directories, and no archive.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ..format.message import Bytes
from .fs import FileSystem, Listed
from .plain_reads import Front

T = TypeVar("T")


class JoinedFileSystem:
    """Read access to a file system on which some directories continue in others, none with a final slash."""

    def __init__(self, fs: FileSystem, continued: Mapping[str, str]) -> None:
        self._fs = fs
        self._continued = dict(continued)

    @property
    def window_bytes(self) -> int | None:
        return self._fs.window_bytes

    def list_dir(self, path: str) -> list[Listed]:
        first = self._fs.list_dir(path)
        other = self._other(path)
        if other is None:
            return first
        return sorted(
            ({each.name: each for each in self._fs.list_dir(other)} | {each.name: each for each in first}).values()
        )

    def size(self, path: str) -> int | None:
        size = self._fs.size(path)
        other = self._other(path) if size is None else None
        return size if other is None else self._fs.size(other)

    def read(self, path: str, offset: int, count: int) -> bytes:
        return self._from_either(lambda found: self._fs.read(found, offset, count), path)

    def map(self, path: str, start: int = 0, stop: int | None = None) -> Bytes:
        return self._from_either(lambda found: self._fs.map(found, start, stop), path)

    def data_end(self, path: str) -> int:
        return self._from_either(self._fs.data_end, path)

    def read_each(self, pieces: Iterable[tuple[str, int, int]]) -> list[bytes | None]:
        asked = list(pieces)
        found = self._fs.read_each(asked)
        missing = [
            (number, (other, offset, count))
            for number, (path, offset, count) in enumerate(asked)
            if found[number] is None and (other := self._other(path)) is not None
        ]
        if missing:
            numbers, others = zip(*missing, strict=True)
            for number, data in zip(numbers, self._fs.read_each(others), strict=True):
                found[number] = data
        return found

    def fronts(self, directories: Iterable[str], limit: int) -> list[Front | None]:
        """The only file of each of many directories of the first tree; None if the second tree has it."""
        asked = list(directories)
        found = self._fs.fronts(asked, limit)
        for number, (directory, front) in enumerate(zip(asked, found, strict=True)):
            other = None if front is None else self._other(directory)
            if front is not None and other is not None:
                names = {each.name for each in self._fs.list_dir(other)}
                found[number] = front if names <= {front.name} else None
        return found

    def lock_owner(self, path: str) -> int | None:
        # An archive has no owner.
        return self._fs.lock_owner(path)

    def stamp(self, path: str) -> tuple[int, int] | None:
        first = self._fs.stamp(path)
        other = self._other(path)
        second = None if other is None else self._fs.stamp(other)
        if first is None or second is None:
            return first or second
        # Clocks of two devices may differ: a change in one of them would not show in the later of both times.
        return hash((first, second)), max(first[1], second[1])

    def fetch(self, pieces: Iterable[tuple[str, int, int]]) -> None:
        self._fs.fetch(self._held(pieces))

    def fetch_soon(self, pieces: Iterable[tuple[str, int, int]]) -> None:
        self._fs.fetch_soon(self._held(pieces))

    def _held(self, pieces: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
        """Pieces by the paths that hold them."""
        if self.window_bytes is None:
            return []
        pieces = list(pieces)
        held = {path: path for path, _, _ in pieces}
        for path in held:
            if (other := self._other(path)) is not None and self._fs.size(path) is None:
                held[path] = other
        return [(held[path], start, stop) for path, start, stop in pieces]

    def _from_either(self, call: Callable[[str], T], path: str) -> T:
        try:
            return call(path)
        except FileNotFoundError:
            other = self._other(path)
            if other is None:
                raise
        return call(other)

    def _other(self, path: str) -> str | None:
        """Return the path in the second tree; None outside it."""
        for first, second in self._continued.items():
            if path == first or path.startswith(f"{first}/"):
                return second + path[len(first) :]
        return None
