"""File system of two roots: paths below one of them are on another file system.

::

    /data/store/commitlog/0000…           ──► here
    s3://bucket/archive/commitlog/0000…   ──► there, whose root is s3://bucket/archive
"""

from collections.abc import Iterable

from ..format.message import Bytes
from .fs import FileSystem, Listed
from .plain_reads import Front


class RoutedFileSystem:
    """Read access to a file system, and to another one below a root."""

    def __init__(self, here: FileSystem, root: str, there: FileSystem) -> None:
        self._here = here
        self._root = root
        self._there = there

    @property
    def window_bytes(self) -> int | None:
        return self._there.window_bytes  # a map of a local file costs the same in windows

    def list_dir(self, path: str) -> list[Listed]:
        return self._of(path).list_dir(path)

    def size(self, path: str) -> int | None:
        return self._of(path).size(path)

    def read(self, path: str, offset: int, count: int) -> bytes:
        return self._of(path).read(path, offset, count)

    def map(self, path: str, start: int = 0, stop: int | None = None) -> Bytes:
        return self._of(path).map(path, start, stop)

    def data_end(self, path: str) -> int:
        return self._of(path).data_end(path)

    def read_each(self, pieces: Iterable[tuple[str, int, int]]) -> list[bytes | None]:
        asked = list(pieces)
        found: list[bytes | None] = [None] * len(asked)
        for fs in (self._here, self._there):
            numbers = [number for number, (path, _, _) in enumerate(asked) if self._of(path) is fs]
            for number, data in zip(numbers, fs.read_each([asked[each] for each in numbers]), strict=True):
                found[number] = data
        return found

    def fronts(self, directories: Iterable[str], limit: int) -> list[Front | None]:
        asked = list(directories)
        found: list[Front | None] = [None] * len(asked)
        for fs in (self._here, self._there):
            numbers = [number for number, path in enumerate(asked) if self._of(path) is fs]
            for number, front in zip(numbers, fs.fronts([asked[each] for each in numbers], limit), strict=True):
                found[number] = front
        return found

    def lock_owner(self, path: str) -> int | None:
        return self._of(path).lock_owner(path)

    def stamp(self, path: str) -> tuple[int, int] | None:
        return self._of(path).stamp(path)

    def fetch(self, pieces: Iterable[tuple[str, int, int]]) -> None:
        self._there.fetch([each for each in pieces if self._of(each[0]) is self._there])

    def fetch_soon(self, pieces: Iterable[tuple[str, int, int]]) -> None:
        self._there.fetch_soon([each for each in pieces if self._of(each[0]) is self._there])

    def _of(self, path: str) -> FileSystem:
        return self._there if path == self._root or path.startswith(f"{self._root}/") else self._here
