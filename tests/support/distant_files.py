"""DistantFiles: local files as if their bytes were elsewhere; it counts what is asked for, and what is held in memory.

::

    map(path, start, stop)  ──►  a copy of just these bytes: nothing outside them can be read by accident
                                  held until no array refers to it any more: `live`, `peak`
"""

import weakref
from collections import Counter
from collections.abc import Iterable

from segmentlog.store.files.fs import Listed, LocalFileSystem
from segmentlog.store.files.plain_reads import Front
from segmentlog.store.format.message import Bytes

Piece = tuple[str, int, int]


class DistantFiles(LocalFileSystem):
    """Local files that are mapped as copies of the bytes asked for."""

    def __init__(self, window_bytes: int | None = 1 << 20) -> None:
        self._window_bytes = window_bytes
        self.calls: Counter[str] = Counter()
        self.mapped: list[Piece] = []
        self.read_bytes = 0
        self.fetched: list[Piece] = []
        self.soon: list[Piece] = []
        self.live = self.peak = 0

    @property
    def window_bytes(self) -> int | None:
        return self._window_bytes

    def forget(self) -> None:
        """Begin to count again."""
        self.__init__(self._window_bytes)  # type: ignore[misc]

    def of_log(self) -> list[Piece]:
        """Return the mapped spans of segments."""
        return [piece for piece in self.mapped if "/commitlog/" in piece[0]]

    def map(self, path: str, start: int = 0, stop: int | None = None) -> Bytes:
        self.calls["map"] += 1
        found = super().map(path, start, stop).copy()
        self.mapped.append((path, start, start + found.size))
        self.live += found.size
        self.peak = max(self.peak, self.live)
        weakref.finalize(found, self._dropped, found.size)
        found.setflags(write=False)
        return found

    def _dropped(self, size: int) -> None:
        self.live -= size

    def fetch(self, pieces: Iterable[Piece]) -> None:
        self.calls["fetch"] += 1
        self.fetched += pieces

    def fetch_soon(self, pieces: Iterable[Piece]) -> None:
        self.calls["fetch_soon"] += 1
        self.soon += pieces

    def list_dir(self, path: str) -> list[Listed]:
        self.calls["list_dir"] += 1
        return super().list_dir(path)

    def size(self, path: str) -> int | None:
        self.calls["size"] += 1
        return super().size(path)

    def read(self, path: str, offset: int, count: int) -> bytes:
        self.calls["read"] += 1
        found = super().read(path, offset, count)
        self.read_bytes += len(found)
        return found

    def data_end(self, path: str) -> int:
        self.calls["data_end"] += 1
        return super().data_end(path)

    def read_each(self, pieces: Iterable[Piece]) -> list[bytes | None]:
        self.calls["read_each"] += 1
        found = super().read_each(pieces)
        self.read_bytes += sum(len(piece) for piece in found if piece)
        return found

    def fronts(self, directories: Iterable[str], limit: int) -> list[Front | None]:
        self.calls["fronts"] += 1
        return super().fronts(directories, limit)

    def stamp(self, path: str) -> tuple[int, int] | None:
        self.calls["stamp"] += 1
        return super().stamp(path)
