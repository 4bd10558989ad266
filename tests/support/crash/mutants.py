"""Stores with one bug each, which the crash tests must see.

::

    store ──► BuggyFileSystem ──► recorder          bugs of the disk: a sync that is dropped, a write that comes late
    store with a method replaced ──► recorder       bugs of the store: acknowledged too early, tail not zeroed, …

Each names the trial that is to see it. Methods are replaced in one place, by name: a bug whose place is gone fails its
test with an AttributeError, and wants another place.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from segmentlog.store.files.writable_fs import WritableFile, WritableFileSystem
from segmentlog.store.format.buffers import Data, Pieces, contiguous

Patch = Callable[[Any, str, Any], None]
"""``patch(owner, name, replacement)``, undone after the test."""


class Trial(Enum):
    """Test that must find a bug."""

    CUT = "the power is cut while a store is written"
    RECOVERY = "the power is cut while a store is recovered"
    FAULT = "calls of the disk fail"
    DAMAGE = "bytes below the durable point are altered"
    COMMIT = "the power is cut while batches are committed"


class BuggyFileSystem:
    """Hands all calls on; `hooks` may replace what is done."""

    def __init__(self, inner: WritableFileSystem, **hooks: Callable[..., None]) -> None:
        self.inner = inner
        self.hooks = hooks

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def create(self, path: str) -> "_BuggyFile":
        return _BuggyFile(self, self.inner.create(path))

    def open(self, path: str) -> "_BuggyFile":
        return _BuggyFile(self, self.inner.open(path))

    def sync_dir(self, path: str) -> None:
        self.hooks.get("sync_dir", lambda fs, path: fs.sync_dir(path))(self.inner, path)


class _BuggyFile:
    def __init__(self, fs: BuggyFileSystem, file: WritableFile) -> None:
        self.path = file.path
        self.fs = fs
        self.file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, position: int, data: Data | Pieces) -> None:
        hook = self.fs.hooks.get("write")
        if hook:
            hook(self, position, bytes(contiguous(data)))
        else:
            self.file.write(position, data)

    def sync(self) -> None:
        hook = self.fs.hooks.get("sync")
        if hook:
            hook(self)
        else:
            self.file.sync()


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug."""

    name: str
    trial: Trial
    front: Callable[[WritableFileSystem], WritableFileSystem] | None = None
    plant: Callable[[Patch], None] | None = None


MUTANTS: list[Mutant] = []


def _disk(trial: Trial = Trial.CUT) -> Callable[[Callable[[], dict[str, Callable[..., None]]]], None]:
    """Register a bug of the disk: the function returns its hooks."""

    def enter(make: Callable[[], dict[str, Callable[..., None]]]) -> None:
        name = make.__name__.strip("_").replace("_", " ")
        MUTANTS.append(Mutant(name, trial, front=lambda fs: BuggyFileSystem(fs, **make())))

    return enter


def enter_store_bug(trial: Trial = Trial.CUT) -> Callable[[Callable[[Patch], None]], None]:
    """Enter a bug of the store."""

    def enter(plant: Callable[[Patch], None]) -> None:
        MUTANTS.append(Mutant(plant.__name__.strip("_").replace("_", " "), trial, plant=plant))

    return enter


def _no_sync_of(part: str) -> dict[str, Callable[..., None]]:
    return {"sync": lambda file: None if part in file.path else file.file.sync()}


def _no_sync_dir_of(part: str) -> dict[str, Callable[..., None]]:
    return {"sync_dir": lambda fs, path: None if path.endswith(part) or part in path else fs.sync_dir(path)}


# Bugs of the disk


@_disk()
def _log_is_not_synced() -> dict[str, Callable[..., None]]:
    return _no_sync_of("/commitlog/")


@_disk()
def _queues_are_not_synced() -> dict[str, Callable[..., None]]:
    return _no_sync_of("/consumequeue/")


@_disk()
def _index_is_not_synced() -> dict[str, Callable[..., None]]:
    return _no_sync_of("/index/")


@_disk()
def _names_of_segments_are_not_synced() -> dict[str, Callable[..., None]]:
    return _no_sync_dir_of("/commitlog")


@_disk()
def _names_of_queue_files_are_not_synced() -> dict[str, Callable[..., None]]:
    return _no_sync_dir_of("/consumequeue/")


@_disk()
def _names_in_the_root_are_not_synced() -> dict[str, Callable[..., None]]:
    return {"sync_dir": lambda fs, path: None if path.endswith("/store") else fs.sync_dir(path)}


@_disk()
def _no_directory_is_synced() -> dict[str, Callable[..., None]]:
    return {"sync_dir": lambda fs, path: None}


@_disk()
def _every_second_sync_of_the_log_is_dropped() -> dict[str, Callable[..., None]]:
    count = iter(range(1 << 30))
    return {"sync": lambda file: None if "/commitlog/" in file.path and next(count) % 2 else file.file.sync()}


@_disk()
def _log_is_written_after_it_was_synced() -> dict[str, Callable[..., None]]:
    late: list[tuple[_BuggyFile, int, bytes]] = []

    def write(file: _BuggyFile, position: int, data: bytes) -> None:
        if "/commitlog/" in file.path:
            late.append((file, position, data))
        else:
            file.file.write(position, data)

    def sync(file: _BuggyFile) -> None:
        file.file.sync()
        for owner, position, data in late:
            owner.file.write(position, data)
        late.clear()

    return {"write": write, "sync": sync}


@_disk()
def _log_is_written_with_a_bit_turned() -> dict[str, Callable[..., None]]:
    count = iter(range(1 << 30))

    def write(file: _BuggyFile, position: int, data: bytes) -> None:
        if "/commitlog/" in file.path and next(count) % 9 == 8 and data:
            data = data[:-30] + bytes([data[-30] ^ 1]) + data[-29:]
        file.file.write(position, data)

    return {"write": write}


@_disk(Trial.FAULT)
def _failed_syncs_are_passed_over() -> dict[str, Callable[..., None]]:
    def sync(file: _BuggyFile) -> None:
        try:
            file.file.sync()
        except OSError:
            return

    return {"sync": sync}


@_disk(Trial.FAULT)
def _failed_syncs_are_tried_again() -> dict[str, Callable[..., None]]:
    def sync(file: _BuggyFile) -> None:
        try:
            file.file.sync()
        except OSError:
            file.file.sync()

    return {"sync": sync}


@_disk(Trial.FAULT)
def _failed_writes_are_passed_over() -> dict[str, Callable[..., None]]:
    def write(file: _BuggyFile, position: int, data: bytes) -> None:
        try:
            file.file.write(position, data)
        except OSError:
            return

    return {"write": write}


@_disk(Trial.FAULT)
def _failed_syncs_of_names_are_passed_over() -> dict[str, Callable[..., None]]:
    def sync_dir(fs: WritableFileSystem, path: str) -> None:
        try:
            fs.sync_dir(path)
        except OSError:
            return

    return {"sync_dir": sync_dir}
