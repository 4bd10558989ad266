"""Changes of stores during a read, and a record of the reader's system calls."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from segmentlog.store.files.fs import Listed, LocalFileSystem
from segmentlog.store.files.plain_reads import Front
from segmentlog.store.format.consume_queue import ENTRY, PAD_SIZE, Entries
from segmentlog.store.format.message import Bytes


class WatchedFiles(LocalFileSystem):
    """The real file system; counts calls, and remembers which files were mapped."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.mapped: list[str] = []

    def list_dir(self, path: str) -> list[Listed]:
        self.calls["list_dir"] += 1
        return super().list_dir(path)

    def read(self, path: str, offset: int, count: int) -> bytes:
        self.calls["read"] += 1
        return super().read(path, offset, count)

    def map(self, path: str, start: int = 0, stop: int | None = None) -> Bytes:
        self.calls["map"] += 1
        self.mapped.append(path)
        return super().map(path, start, stop)

    def data_end(self, path: str) -> int:
        self.calls["data_end"] += 1
        return super().data_end(path)

    def read_each(self, pieces: Iterable[tuple[str, int, int]]) -> list[bytes | None]:
        asked = list(pieces)
        self.calls["read"] += len(asked)
        return super().read_each(asked)

    def fronts(self, directories: Iterable[str], limit: int) -> list[Front | None]:
        asked = list(directories)
        self.calls["fronts"] += len(asked)
        return super().fronts(asked, limit)


class QueueFiles:
    """The files of one ConsumeQueue, as one array that can be written to."""

    def __init__(self, store: Path, topic: str, queue_id: int) -> None:
        self.directory = store / "consumequeue" / topic / str(queue_id)
        self.files = sorted(self.directory.iterdir())
        self.file_bytes = self.files[0].stat().st_size

    @property
    def entries(self) -> Entries:
        return np.concatenate([np.fromfile(path, ENTRY) for path in self.files])  # which swaps bytes to native order

    @entries.setter
    def entries(self, value: Entries) -> None:
        data = value.astype(ENTRY).tobytes()
        for number, path in enumerate(self.files):
            path.write_bytes(data[number * self.file_bytes : (number + 1) * self.file_bytes])

    def put(self, slot: int, physical_offset: int, size: int, tags_code: int = 0) -> None:
        entries = self.entries
        entries[slot] = (physical_offset, size, tags_code)
        self.entries = entries

    def pad(self, count: int) -> None:
        """Make the first entries pads, as RocketMQ does where a queue begins in its middle."""
        for slot in range(count):
            self.put(slot, 0, PAD_SIZE)

    def zero(self, start: int, stop: int) -> None:
        entries = self.entries
        entries[start:stop] = 0
        self.entries = entries


def segments(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def put_at(file: Path, position: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(data)


def overwrite(store: Path, physical_offset: int, data: bytes) -> None:
    path = max(p for p in segments(store) if int(p.name) <= physical_offset)
    put_at(path, physical_offset - int(path.name), data)


def contents(store: Path, physical_offset: int, size: int) -> bytes:
    path = max(p for p in segments(store) if int(p.name) <= physical_offset)
    with path.open("rb") as file:
        file.seek(physical_offset - int(path.name))
        return file.read(size)
