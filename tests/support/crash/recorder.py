"""Recording of a store's file operations, in their order.

::

    ops    create  allocate  write  write  sync  rename  sync_dir  write  sync  …
           0       1         2      3      4     5       6         7      8
    marks                                 ▲ (5, acknowledged 1)                ▲ (9, acknowledged 2)

A mark at n was made after n calls: from then on, a caller relies on its promise. Failed calls are not recorded, except
for failed syncs, which have an effect. Their data may never reach the device, whatever a later sync returns
(`Kind.FAILED_SYNC`).
"""

import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from segmentlog.store.format.buffers import Data, Pieces, contiguous

from ..delegating import Delegating
from .memory_fs import Directory, FileNode, MemoryFile, MemoryFileSystem


class Kind(Enum):
    CREATE = "create"
    ALLOCATE = "allocate"
    EXTEND = "extend"
    WRITE = "write"
    SYNC = "sync"
    FAILED_SYNC = "failed sync"
    RENAME = "rename"
    UNLINK = "unlink"
    MAKE_DIR = "make_dir"
    SYNC_DIR = "sync_dir"


@dataclass(frozen=True, kw_only=True, slots=True)
class Op:
    kind: Kind
    path: str  # of the file or directory; of a rename the source
    number: int  # of the file or directory, as `memory_fs` counts them
    # directory, name: of a call that changes names: number of the directory, and the name in it; of a rename those of
    # the source
    directory: int = -1
    name: str = ""
    target_directory: int = -1  # target_directory, target_name: of a rename
    target_name: str = ""
    position: int = 0  # position, data, size: what was written where; to which size a file was brought
    data: bytes = b""
    size: int = 0

    def __str__(self) -> str:
        match self.kind:
            case Kind.WRITE:
                what = f" {len(self.data)} bytes at {self.position}"
            case Kind.ALLOCATE | Kind.EXTEND:
                what = f" to {self.size}"
            case Kind.RENAME:
                what = f" to {self.target_name}"
            case _:
                what = ""
        return f"{self.kind.value} {self.path}{what}"


@dataclass(slots=True)
class Recording:
    base: MemoryFileSystem  # the disk before; all of it durable
    ops: list[Op] = field(default_factory=list)  # the calls
    # labels, each with how many calls were over when it was made
    marks: list[tuple[int, Any]] = field(default_factory=list)


class RecordingFileSystem(Delegating):
    """Hands all calls on to a disk in memory, and writes down those that change it. Safe for threads."""

    def __init__(self, disk: MemoryFileSystem) -> None:
        super().__init__(disk)
        self.disk = disk
        self.recording = Recording(disk.clone())
        self._lock = threading.RLock()
        self._paths: dict[int, str] = {}  # of open files, as they are named by now

    def mark(self, label: Any) -> None:
        with self._lock:
            self.recording.marks.append((len(self.recording.ops), label))

    def create(self, path: str) -> "RecordedFile":
        with self._lock:
            file = self.disk.create(path)
            directory, name = self._place(path)
            self._note(Op(kind=Kind.CREATE, path=path, number=file.node.number, directory=directory, name=name))
            self._paths[file.node.number] = path
        return RecordedFile(self, file)

    def open(self, path: str) -> "RecordedFile":
        with self._lock:
            file = self.disk.open(path)
            self._paths[file.node.number] = path
        return RecordedFile(self, file)

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            directory, name = self._place(source)
            target_directory, target_name = self._place(target)
            node = self.disk.node(source)
            self.disk.rename(source, target)
            assert node is not None
            self._paths[node.number] = target
            self._note(
                Op(
                    kind=Kind.RENAME,
                    path=source,
                    number=node.number,
                    directory=directory,
                    name=name,
                    target_directory=target_directory,
                    target_name=target_name,
                )
            )

    def unlink(self, path: str) -> None:
        with self._lock:
            node = self.disk.node(path)
            self.disk.unlink(path)
            if node is not None:
                directory, name = self._place(path)
                self._note(Op(kind=Kind.UNLINK, path=path, number=node.number, directory=directory, name=name))

    def make_dir(self, path: str, like: str | None = None) -> None:
        with self._lock:
            there = self.disk.node(path) is not None
            self.disk.make_dir(path)
            node = self.disk.node(path)
            assert node is not None
            if not there:
                directory, name = self._place(path)
                self._note(Op(kind=Kind.MAKE_DIR, path=path, number=node.number, directory=directory, name=name))

    def sync_dir(self, path: str) -> None:
        with self._lock:
            self.disk.sync_dir(path)
            node = self.disk.node(path)
            assert isinstance(node, Directory)
            self._note(Op(kind=Kind.SYNC_DIR, path=path, number=node.number))

    def sync_all(self, path: str) -> None:
        with self._lock:
            self.disk.sync_all(path)
            waiting: list[tuple[str, FileNode | Directory]] = [("", self.disk.root)]
            while waiting:
                name, node = waiting.pop()
                is_directory = isinstance(node, Directory)
                self._note(Op(kind=Kind.SYNC_DIR if is_directory else Kind.SYNC, path=name or "/", number=node.number))
                if isinstance(node, Directory):
                    waiting += [(f"{name}/{below}", each) for below, each in node.entries.items()]

    def within(self, file: MemoryFile, op: Op) -> None:
        with self._lock:
            before = file.node.size
            try:
                match op.kind:
                    case Kind.WRITE:
                        file.write(op.position, op.data)
                    case Kind.ALLOCATE:
                        file.allocate(op.size)
                    case Kind.EXTEND:
                        file.extend(op.size)
                    case Kind.SYNC:
                        file.sync()
            except OSError:
                if op.kind is Kind.WRITE and file.node.size > before:  # a disk that ran full took a part
                    written = op.data[: file.node.size - op.position]
                    self._note(Op(kind=Kind.WRITE, path=op.path, number=op.number, position=op.position, data=written))
                raise
            self._note(op)

    def path_of(self, number: int) -> str:
        return self._paths[number]

    def _note(self, op: Op) -> None:
        self.recording.ops.append(op)

    def _place(self, path: str) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        node = self.disk.node(folder or "/")
        return (node.number if isinstance(node, Directory) else -1), name


class RecordedFile(Delegating):
    def __init__(self, fs: RecordingFileSystem, file: MemoryFile) -> None:
        super().__init__(file)
        self._fs = fs

    def write(self, position: int, data: Data | Pieces) -> None:
        self._record(Kind.WRITE, position=position, data=bytes(contiguous(data)))

    def allocate(self, size: int) -> None:
        self._record(Kind.ALLOCATE, size=size)

    def extend(self, size: int) -> None:
        self._record(Kind.EXTEND, size=size)

    def sync(self) -> None:
        self._record(Kind.SYNC)

    def fail_sync(self) -> None:
        """Record a sync that failed: later syncs do not make up for it."""
        self._record(Kind.FAILED_SYNC)

    def _record(self, kind: Kind, **what: Any) -> None:
        number = self.node.number
        self._fs.within(self.inner, Op(kind=kind, path=self._fs.path_of(number), number=number, **what))
