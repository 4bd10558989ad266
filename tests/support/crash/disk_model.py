"""Model of a disk: data of a recording that is on the device for certain, and data that a power cut may lose.

::

    file    durable   [old old old old]      as of its last sync
            pending      [write 7]  [write 9]  size      each may get there or not
            current   [old new old new new]  what readers see
            sector 1  old, new of write 7, new of write 9      the device may hold any one of these

    names   durable   {commitlog: {00000: file 3}}                as of each directory's last sync
            pending   create 8 of file 5, rename 9 of file 6, …   each may get there or not, each is whole

A file's bytes, its size and its names are independent. A sync of the file makes bytes and size durable and no name. A
sync of a directory makes its names durable and no bytes. A rename is durable with its target directory, and leaves
exactly one name. A write does not change the bytes beside it in a sector. The operating system may store a sector on
the device after any write to it. A sector that was written several times without a sync between has the result of one
of them, or is torn between two. Sectors are independent of each other.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b

import numpy as np

from segmentlog.store.format.message import Bytes

from .memory_fs import Directory, FileNode, MemoryFileSystem
from .recorder import Kind, Op

SECTOR_BYTES = 512
NOTHING = "\0"
"""Path of no file."""


class Version:
    """The bytes of a file in one state of the disk; immutable."""

    def __init__(self, data: Bytes) -> None:
        self.data = data

    @cached_property
    def digest(self) -> bytes:
        """Identity of the version."""
        return blake2b(self.data, digest_size=16).digest()


@dataclass(slots=True)
class Pending:
    """A call whose effect may still be lost; ``stuck`` if a sync failed that should have made it durable."""

    at: int
    op: Op
    stuck: bool = False


@dataclass(slots=True)
class FileModel:
    number: int
    durable: Bytes  # its bytes as of the last sync
    current: Bytes  # its bytes as readers see them
    pending: list[Pending] = field(default_factory=list)  # writes and changes of size since, in order
    # for each sector that pending writes changed: its bytes as of the last sync, and after each of these writes
    history: dict[int, list[bytes]] = field(default_factory=dict)
    _versions: dict[object, Version] = field(default_factory=dict)
    _dirty: list[int] | None = None

    def apply(self, at: int, op: Op) -> None:
        """Do what a call does."""
        match op.kind:
            case Kind.WRITE | Kind.ALLOCATE | Kind.EXTEND:
                before = _sectors(self.current, op)
                self.current = _with(self.current, [op], copy=False)
                self.pending.append(Pending(at, op))
                self._note_versions(before, _sectors(self.current, op))
            case Kind.SYNC:
                stuck = [p for p in self.pending if p.stuck and p.op.data]
                self.durable = _with(self.durable, [p.op for p in self.pending if not p.stuck])
                # What is stuck stays what the cache holds in its place, and stays uncertain.
                self.pending = [replace(pending, op=self._refreshed(pending.op)) for pending in stuck]
                self.history = {}
                for pending in self.pending:
                    self._note_versions(_sectors(self.durable, pending.op), _sectors(self.current, pending.op))
            case Kind.FAILED_SYNC:
                for pending in self.pending:
                    pending.stuck = True
            case _:
                raise AssertionError(op)
        self._versions.clear()
        self._dirty = None

    def _note_versions(self, before: dict[int, bytes], after: dict[int, bytes]) -> None:
        for sector, data in after.items():
            versions = self.history.setdefault(sector, [before[sector]])
            if data != versions[-1]:
                versions.append(data)

    def _refreshed(self, op: Op) -> Op:
        return replace(op, data=self.current[op.position : op.position + len(op.data)].tobytes())

    @property
    def size_pending(self) -> bool:
        """True while its size may still be the old one."""
        return self.durable.size != self.current.size

    def dirty_sectors(self) -> list[int]:
        """Numbers of the sectors whose bytes a power cut may take."""
        if self._dirty is None:
            self._dirty = []
            if self.pending:
                sectors = -(-self.current.size // SECTOR_BYTES)
                old, new = (np.zeros(sectors * SECTOR_BYTES, np.uint8) for _ in range(2))
                old[: self.durable.size] = self.durable
                new[: self.current.size] = self.current
                differs = (old != new).reshape(sectors, SECTOR_BYTES).any(axis=1)
                self._dirty = np.flatnonzero(differs).tolist()
        return self._dirty

    def version(self, key: object, make: Callable[[], Bytes]) -> Version:
        """A version by name, made when it is first asked for."""
        found = self._versions.get(key)
        if found is None:
            found = self._versions[key] = Version(make())
        return found

    def none(self) -> Version:
        return self.version("none", lambda: self.durable) if self.pending else self.all()

    def all(self) -> Version:
        """Version with everything that is pending."""
        return self.version("all", self.current.copy)

    def sectors(self, kept: Iterable[int], *, size_kept: bool = True) -> Version:
        """Of the dirty sectors, only some got there."""
        chosen = frozenset(kept)

        def make() -> Bytes:
            data = np.zeros(self.current.size, np.uint8)
            data[: self.durable.size] = self.durable
            for sector in chosen:
                span = slice(sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES)
                data[span] = self.current[span]
            return data if size_kept else data[: self.durable.size]

        return self.version((chosen, size_kept), make)

    @property
    def has_intermediate(self) -> bool:
        """True while a sector may differ from both the last sync and the last write."""
        return any(len(versions) > 2 for versions in self.history.values())

    def mixed(self, draw: random.Random) -> Version:
        """Each sector holds any of the versions that it had since the last sync, drawn for each by itself."""
        chosen = {sector: draw.randrange(len(versions)) for sector, versions in self.history.items()}
        size_kept = draw.random() < 0.5

        def make() -> Bytes:
            data = self._with_sectors({sector: self.history[sector][version] for sector, version in chosen.items()})
            return data[: self.current.size if size_kept else self.durable.size]

        return self.version((tuple(chosen.items()), size_kept), make)

    def torn(self, seed: int) -> Version:
        """Every dirty sector is torn: the front as one of its writes left it, the rest as an earlier one did."""

        def make() -> Bytes:
            draw = random.Random(seed)
            data = self._with_sectors({sector: _tear(versions, draw) for sector, versions in self.history.items()})
            return data[: self.current.size]

        return self.version(("torn", seed), make)

    def _with_sectors(self, sectors: dict[int, bytes]) -> Bytes:
        """Bytes as of the last sync but for some sectors; room for all sectors of the file as it is now."""
        data = np.zeros(-(-max(self.current.size, self.durable.size) // SECTOR_BYTES) * SECTOR_BYTES, np.uint8)
        data[: self.durable.size] = self.durable
        for sector, content in sectors.items():
            data[sector * SECTOR_BYTES :][: len(content)] = np.frombuffer(content, np.uint8)
        return data

    def calls(self, kept: Callable[[int], bool]) -> Version:
        """Of the pending calls, only some got there."""
        chosen = tuple(pending.op for pending in self.pending if kept(pending.at))
        return self.version(
            tuple(pending.at for pending in self.pending if kept(pending.at)), lambda: _with(self.durable, chosen)
        )


def _with(data: Bytes, ops: Sequence[Op], *, copy: bool = True) -> Bytes:
    """Bytes after some calls; ``data`` itself may be changed if it need not be copied and is long enough."""
    ends = [op.position + len(op.data) if op.kind is Kind.WRITE else op.size for op in ops]
    size = max([data.size, *ends])
    if size > data.size or copy:
        grown = np.zeros(size, np.uint8)
        grown[: data.size] = data
        data = grown
    for op in ops:
        if op.data:
            data[op.position : op.position + len(op.data)] = np.frombuffer(op.data, np.uint8)
    return data


def _sectors(data: Bytes, op: Op) -> dict[int, bytes]:
    """Bytes of the sectors that a write touches, whole ones, with zeros after the end of the file."""
    if not op.data:
        return {}
    first, stop = op.position // SECTOR_BYTES, -(-(op.position + len(op.data)) // SECTOR_BYTES)
    held = data[first * SECTOR_BYTES : stop * SECTOR_BYTES].tobytes().ljust((stop - first) * SECTOR_BYTES, b"\0")
    return {first + at: held[at * SECTOR_BYTES : (at + 1) * SECTOR_BYTES] for at in range(stop - first)}


def _tear(versions: Sequence[bytes], draw: random.Random) -> bytes:
    """The front of one version of a sector and the rest of an earlier one, cut where they differ."""
    if len(versions) < 2:
        return versions[-1]
    newer = draw.randrange(1, len(versions))
    new, old = versions[newer], versions[draw.randrange(newer)]
    differs = np.flatnonzero(np.frombuffer(new, np.uint8) != np.frombuffer(old, np.uint8))
    cut = int(differs[draw.randrange(differs.size)]) + draw.randrange(2) if differs.size else 0
    return new[:cut] + old[cut:]


Place = tuple[str, int, bool]
"""Path, number, and whether it is a directory."""


class NamesModel:
    """Which names the directories have."""

    def __init__(self, disk: MemoryFileSystem) -> None:
        self.pending: list[Pending] = []
        self._durable: dict[int, dict[str, tuple[int, bool]]] = {}
        self._root = disk.root.number
        directories = [disk.root, *(node for _, node in disk.walk() if isinstance(node, Directory))]
        for directory in directories:
            self._durable[directory.number] = {
                name: (node.number, isinstance(node, Directory)) for name, node in directory.entries.items()
            }
        self._places: dict[frozenset[int], list[Place]] = {}

    def apply(self, at: int, op: Op) -> None:
        """Do what a call does."""
        if op.kind is Kind.SYNC_DIR:
            synced = [p for p in self.pending if _directory_of(p.op) == op.number]
            self.pending = [p for p in self.pending if _directory_of(p.op) != op.number]
            for pending in synced:
                if pending.op.kind is Kind.RENAME:  # it ends what was still uncertain of its old name
                    self.pending = [
                        other
                        for other in self.pending
                        if (_directory_of(other.op), _name_of(other.op)) != (pending.op.directory, pending.op.name)
                        or other.at > pending.at
                    ]
                _rename(self._durable, pending.op)
        else:
            self.pending.append(Pending(at, op))
            if op.kind is Kind.MAKE_DIR:
                self._durable[op.number] = {}
        self._places.clear()

    def places(self, kept: frozenset[int]) -> list[Place]:
        """All files and directories that can be reached if of the pending calls those at some places got there."""
        found = self._places.get(kept)
        if found is None:
            entries = {number: dict(names) for number, names in self._durable.items()}
            for pending in self.pending:
                if pending.at in kept:
                    _rename(entries, pending.op)
            found = self._places[kept] = []
            stack = [("", self._root)]
            while stack:
                path, number = stack.pop()
                for name, (child, is_dir) in sorted(entries[number].items()):
                    found.append((f"{path}/{name}", child, is_dir))
                    if is_dir:
                        stack.append((f"{path}/{name}", child))
        return found


def _directory_of(op: Op) -> int:
    return op.target_directory if op.kind is Kind.RENAME else op.directory


def _name_of(op: Op) -> str:
    return op.target_name if op.kind is Kind.RENAME else op.name


def _rename(entries: dict[int, dict[str, tuple[int, bool]]], op: Op) -> None:
    names = entries[op.directory]
    match op.kind:
        case Kind.CREATE:
            names[op.name] = (op.number, False)
        case Kind.MAKE_DIR:
            names[op.name] = (op.number, True)
        case Kind.UNLINK:
            if names.get(op.name) == (op.number, False):
                del names[op.name]
        case Kind.RENAME:
            if names.get(op.name) == (op.number, False):
                del names[op.name]
            entries[op.target_directory][op.target_name] = (op.number, False)
        case _:
            raise AssertionError(op)


class DiskModel:
    """The whole disk after some calls of a recording."""

    def __init__(self, base: MemoryFileSystem) -> None:
        self.names = NamesModel(base)
        self.files = {
            node.number: FileModel(node.number, node.content.copy(), node.content.copy())
            for _, node in base.walk()
            if isinstance(node, FileNode)
        }
        self.calls = 0

    def apply(self, op: Op) -> None:
        """Do what the next call does."""
        match op.kind:
            case Kind.CREATE:
                self.files[op.number] = FileModel(op.number, np.zeros(0, np.uint8), np.zeros(0, np.uint8))
                self.names.apply(self.calls, op)
            case Kind.RENAME | Kind.UNLINK | Kind.MAKE_DIR | Kind.SYNC_DIR:
                self.names.apply(self.calls, op)
            case _:
                self.files[op.number].apply(self.calls, op)
        self.calls += 1

    def uncertain(self) -> list[FileModel]:
        """Files of which something is pending."""
        return [file for file in self.files.values() if file.pending]


def build(places: Sequence[Place], version: Callable[[int], Version]) -> MemoryFileSystem:
    """A disk with these files; their bytes are shared until a write."""
    disk = MemoryFileSystem()
    directories = {"": disk.root}
    for path, number, is_dir in places:  # parents come first
        folder, _, name = path.rpartition("/")
        if is_dir:
            directories[path] = Directory(number)
            directories[folder].entries[name] = directories[path]
        else:
            directories[folder].entries[name] = FileNode(number, version(number).data)
    return MemoryFileSystem(root=disk.root)


def digest(places: Sequence[Place], version: Callable[[int], Version], without: str = NOTHING) -> bytes:
    """Identity of one state of a disk, or of its files that are not in the directory ``without``."""
    joined = blake2b(digest_size=16)
    for path, number, is_dir in sorted(places):
        if not path.startswith(without):
            joined.update(path.encode() + b"\0" + (b"" if is_dir else version(number).digest))
    return joined.digest()
