"""Two directory trees, read as one: files that are missing in the first are read from the second.

::

    /data/store/commitlog    00…2147483648  00…3221225472          the first: files are unlinked here …
    /archive/commitlog       00…0000000000  00…1073741824  00…2147483648     … after they were copied here
    ──► commitlog            00…0000000000  00…1073741824  00…2147483648  00…3221225472      each name once

A file that moves from the first to the second meanwhile is seen: the first is always asked before the second. The rest
of the store, such as its lock, is in the first tree only. RocketMQ reads several CommitLog directories, and no archive.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar

from ..format.message import Bytes
from .fs import FileSystem, Listed
from .plain_reads import Front

T = TypeVar("T")
_Span: TypeAlias = tuple[str, int, int]


class JoinedFileSystem:
    """Read access to a file system of which some directories continue in others, on the same or on another one.

    ``continued`` are these directories and the others, none with a final slash.
    """

    def __init__(self, fs: FileSystem, continued: Mapping[str, str], there: FileSystem | None = None) -> None:
        self._fs = fs
        self._there = there or fs
        self._continued = dict(continued)

    @property
    def window_bytes(self) -> int | None:
        return self._there.window_bytes  # a map of a local file costs the same in windows

    def list_dir(self, path: str) -> list[Listed]:
        first = self._fs.list_dir(path)
        other = self._other(path)
        if other is None:
            return first
        return sorted(
            ({each.name: each for each in self._there.list_dir(other)} | {each.name: each for each in first}).values()
        )

    def size(self, path: str) -> int | None:
        size = self._fs.size(path)
        other = self._other(path) if size is None else None
        return size if other is None else self._there.size(other)

    def read(self, path: str, offset: int, count: int) -> bytes:
        return self._from_either(lambda fs, found: fs.read(found, offset, count), path)

    def map(self, path: str, start: int = 0, stop: int | None = None) -> Bytes:
        return self._from_either(lambda fs, found: fs.map(found, start, stop), path)

    def data_end(self, path: str) -> int:
        return self._from_either(lambda fs, found: fs.data_end(found), path)

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
            for number, data in zip(numbers, self._there.read_each(others), strict=True):
                found[number] = data
        return found

    def fronts(self, directories: Iterable[str], limit: int) -> list[Front | None]:
        """The only file of each of many directories of the first tree; None if the second tree has it."""
        asked = list(directories)
        found = self._fs.fronts(asked, limit)
        for number, (directory, front) in enumerate(zip(asked, found, strict=True)):
            other = None if front is None else self._other(directory)
            if front is not None and other is not None:
                names = {each.name for each in self._there.list_dir(other)}
                found[number] = front if names <= {front.name} else None
        return found

    def lock_owner(self, path: str) -> int | None:
        # An archive has no owner.
        return self._fs.lock_owner(path)

    def stamp(self, path: str) -> tuple[int, int] | None:
        first = self._fs.stamp(path)
        other = self._other(path)
        second = None if other is None else self._there.stamp(other)
        if first is None or second is None:
            return first or second
        # Clocks of two devices may differ: a change in one of them would not show in the later of both times.
        return hash((first, second)), max(first[1], second[1])

    def fetch(self, pieces: Iterable[tuple[str, int, int]]) -> None:
        here, there = self._divided(pieces)
        self._fs.fetch(here)
        self._there.fetch(there)

    def fetch_soon(self, pieces: Iterable[tuple[str, int, int]]) -> None:
        here, there = self._divided(pieces)
        self._fs.fetch_soon(here)
        self._there.fetch_soon(there)

    def _divided(self, pieces: Iterable[tuple[str, int, int]]) -> tuple[list[_Span], list[_Span]]:
        """Return the pieces of files of the first tree, and those of the second, by their paths there."""
        if self.window_bytes is None:
            return [], []
        asked = list(pieces)
        paths = {path for path, _, _ in asked}
        moved = {each: other for each in paths if (other := self._other(each)) and self._fs.size(each) is None}
        there = [(moved[path], start, stop) for path, start, stop in asked if path in moved]
        return [each for each in asked if each[0] not in moved], there

    def _from_either(self, call: Callable[[FileSystem, str], T], path: str) -> T:
        try:
            return call(self._fs, path)
        except FileNotFoundError:
            other = self._other(path)
            if other is None:
                raise
        return call(self._there, other)

    def _other(self, path: str) -> str | None:
        """Return the path in the second tree; None outside it."""
        for first, second in self._continued.items():
            if path == first or path.startswith(f"{first}/"):
                return second + path[len(first) :]
        return None
