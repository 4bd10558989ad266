"""DistantFiles: local files as if their bytes were elsewhere; it counts what is asked for, and what is held in memory.

::

    map(path, start, stop)  ──►  a copy of just these bytes: nothing outside them can be read by accident
                                  held until no array refers to it any more: `live`, `peak`
"""

import weakref
from collections.abc import Iterable

from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.files.plain_reads import Front
from segmentlog.store.format.message import Bytes

from .tampering import WatchedFiles

Piece = tuple[str, int, int]


class DistantFiles(WatchedFiles):
    """Local files that are mapped as copies of the bytes asked for; several pieces are one request."""

    def __init__(self, window_bytes: int | None = 1 << 20) -> None:
        super().__init__()
        self._window_bytes = window_bytes
        self.pieces: list[Piece] = []
        self.soon: list[Piece] = []
        self.live = self.peak = 0

    @property
    def window_bytes(self) -> int | None:
        return self._window_bytes

    def forget(self) -> None:
        self.__init__(self._window_bytes)  # type: ignore[misc]

    def of_log(self) -> list[Piece]:
        """Return the mapped spans of segments."""
        return [piece for piece in self.pieces if "/commitlog/" in piece[0]]

    def map(self, path: str, start: int = 0, stop: int | None = None) -> Bytes:
        found = super().map(path, start, stop).copy()
        self.pieces.append((path, start, start + found.size))
        self.live += found.size
        self.peak = max(self.peak, self.live)
        weakref.finalize(found, self._dropped, found.size)
        found.setflags(write=False)
        return found

    def _dropped(self, size: int) -> None:
        self.live -= size

    def fetch_soon(self, pieces: Iterable[Piece]) -> None:
        self.calls["fetch_soon"] += 1
        self.soon += pieces

    def read_each(self, pieces: Iterable[Piece]) -> list[bytes | None]:
        self.calls["read_each"] += 1
        return LocalFileSystem.read_each(self, pieces)

    def fronts(self, directories: Iterable[str], limit: int) -> list[Front | None]:
        self.calls["fronts"] += 1
        return LocalFileSystem.fronts(self, directories, limit)
