"""Conversion of a real process's file operations, traced by ``strace``, into a `Recording`.

::

    strace   12 pwrite64(5</…/store/commitlog/0…0>, "\\x00…", 300, 1200 <unfinished ...>      thread 12 ├─write─┤
             13 fdatasync(5</…/store/commitlog/0…0> <unfinished ...>                          thread 13   ├──sync──┤
             12 <... pwrite64 resumed>) = 300                                                 thread 12            mark
             13 <... fdatasync resumed>) = 0
             12 write(7</…/marks>, "{…}\\n", 40) = 40

A call takes time, and those of several threads overlap. A write may be on the device from its beginning. A sync has
an effect at its end, and covers operations that ended before it began: `Op.spared` has the others. A mark counts from
its beginning, since its statement was true before. The tracer stops a thread before and after a call, so no call took
longer than it looks here. Calls that look concurrent may not have been, and never the other way round.

The store may change its files by the calls in `CHANGING` alone. Anything else that would change one is a `TraceError`:
calls that the tracer does not see could not be judged. Strings and paths are printed in hex, so none has a bracket,
comma or quote in it.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .disk_model import directory_of
from .memory_fs import Directory, MemoryFileSystem
from .recorder import Kind, Op, RecordedFile, Recording, RecordingFileSystem

SYNCS = {"fsync", "fdatasync", "syncfs"}
CHANGING = {
    "pwrite64", "pwritev", "pwritev2", "ftruncate", "fallocate", "rename", "renameat", "renameat2", "unlink",
    "unlinkat", "mkdir", "mkdirat", "openat", *SYNCS,
}  # fmt: skip
"""Calls that change a store, or make a change durable."""
FOLLOWED = {"close", "dup", "dup2", "dup3", "fcntl", "mmap", "write"}
UNWANTED = {
    "open", "creat", "writev", "truncate", "sync_file_range", "msync", "rmdir", "link", "linkat", "symlink",
    "symlinkat", "copy_file_range", "sendfile", "splice",
}  # fmt: skip
"""Calls that the store must not make on its files; other files do not matter."""
STRING_BYTES_MAX = 1 << 24
_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)")
_ENDED = re.compile(r"(.*?)\) += (-?\d+|0x[0-9a-f]+|\?)(.*)")
_UNFINISHED = " <unfinished ...>"


class TraceError(AssertionError):
    """The trace has a call whose effect on a disk is unknown."""


@dataclass(slots=True)
class Call:
    name: str
    begin: int  # begin, end: numbers of the lines at which it began and was over; a call that never was has no ``end``
    end: int = 1 << 60
    arguments: list[str] = field(default_factory=list)  # as ``strace`` prints them
    result: int = -1  # below 0 for an error


def trace(command: Sequence[str], output: Path, **options: Any) -> None:
    """Run a program under ``strace``, all its threads."""
    calls = ",".join(sorted(CHANGING | FOLLOWED | UNWANTED))
    tracer = ["strace", "-f", "--seccomp-bpf", "-v", "-y", "-xx", "-s", str(STRING_BYTES_MAX), "-e", "signal=none"]
    done = subprocess.run(
        [*tracer, "-e", f"trace={calls}", "-o", str(output), *command],
        check=False, capture_output=True, text=True, **options,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(f"the traced program ended with {done.returncode}: {done.stderr[-4000:]}")


def calls_of(lines: Sequence[str]) -> list[Call]:
    found: list[Call] = []
    under_way: dict[str, tuple[Call, str]] = {}
    for number, line in enumerate(lines):
        match = _LINE.match(line)
        if match is None:  # a thread ended, or a signal came
            continue
        thread, resumed, name, rest = match.groups()
        if resumed:
            call, text = under_way.pop(thread)
            text += rest
        else:
            call = Call(name, number)
            found.append(call)
            text = rest
        if text.endswith(_UNFINISHED):
            under_way[thread] = call, text.removesuffix(_UNFINISHED)
            continue
        ended = _ENDED.fullmatch(text)
        if ended is None:
            raise TraceError(f"line {number} of the trace cannot be read: {line[:200]!r}")
        call.end = number
        call.arguments = _split(ended[1])
        call.result = -1 if ended[2] == "?" else int(ended[2], 0)
    for call, text in under_way.values():  # threads that were within a call when the process ended
        call.arguments = _split(text)
    return found


def _split(text: str) -> list[str]:
    """Take arguments apart; with ``-xx`` no string has a bracket or a comma in it."""
    parts, depth, start = [], 0, 0
    for at in (match.start() for match in re.finditer(r"[\[\]{},]", text)):
        depth += (text[at] in "[{") - (text[at] in "]}")
        if text[at] == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]


def bytes_of(quoted: str) -> bytes:
    body, end, rest = quoted[1:].partition('"')
    if quoted[:1] != '"' or not end or rest:
        raise TraceError(f"the trace has a string only in part: {quoted[:60]!r}")
    return bytes.fromhex(body.replace("\\x", ""))


def written(call: Call) -> bytes:
    """Bytes that a write wrote, of which there may be fewer than were given."""
    given = call.arguments[1]
    if given.startswith("["):
        pieces = re.findall(r"\{iov_base=(\"[^\"]*\"(?:\.\.\.)?), iov_len=(\d+)\}", given)
        data = b"".join(bytes_of(piece) for piece, _ in pieces)
        size = sum(int(length) for _, length in pieces)
        if len(pieces) != int(call.arguments[2]):
            raise TraceError(f"the trace has {len(pieces)} pieces of {call.arguments[2]} of one {call.name}")
    else:
        data, size = bytes_of(given), int(call.arguments[2])
    if len(data) != size:
        raise TraceError(f"the trace has {len(data)} bytes of {size} of one {call.name}")
    return data[: call.result]


def descriptor(call: Call) -> str:
    at = 4 if call.name == "mmap" else 0
    return call.arguments[at] if len(call.arguments) > at else ""


def annotated(argument: str) -> str:
    """Path that ``strace`` prints with a descriptor; empty without one."""
    found = re.fullmatch(r"(?:\d+|AT_FDCWD)<((?:\\x..)*)>(?:\(deleted\))?", argument)
    return bytes.fromhex(found[1].replace("\\x", "")).decode() if found else ""


_PUNCH = "FALLOC_FL_PUNCH_HOLE"


@dataclass(slots=True)
class _Open:
    """Target of a descriptor: a file or directory, by the name it was opened by."""

    path: str
    flags: str
    file: RecordedFile | None = None


class Replay:
    """Makes a `Recording` of a trace; use `recording_of`."""

    def __init__(self, root: Path, marks: Path) -> None:
        disk = MemoryFileSystem()
        disk.make_dir("/disk")
        self.recorder = RecordingFileSystem(disk)
        self._root = str(root)
        self._marks = str(marks)
        self._ended: dict[int, list[tuple[int, int]]] = {}  # of files and directories: calls, and when each was over
        self._opened: dict[int, _Open] = {}  # by the line at which the call began
        self._meant: dict[int, _Open] = {}  # by the line at which the call began, what its descriptor is

    def run(self, calls: list[Call]) -> Recording:
        self._follow_descriptors(calls)
        succeeded = [call for call in calls if call.result >= 0]
        for call in calls:
            if call.name in SYNCS and call.result < 0 and self._path_of(call) is not None:
                raise TraceError(f"a sync failed: {call}")
        for call in sorted(succeeded, key=lambda call: call.end if call.name in SYNCS else call.begin):
            if call.name in CHANGING | {"mmap", "write"}:
                before = len(self.recorder.recording.ops)
                getattr(self, f"_{call.name}")(call)
                self._note_end(call, before)
            elif call.name in UNWANTED and any(self._is_ours(argument) for argument in call.arguments):
                raise TraceError(f"the store may not {call.name}: {str(call)[:300]}")
        return self.recorder.recording

    def _follow_descriptors(self, calls: list[Call]) -> None:
        """Find out what the descriptor of each call is; a number is free again from when its `close` began."""
        events: list[tuple[int, Callable[[], None]]] = []
        table: dict[int, _Open] = {}

        def begun(call: Call) -> None:
            number = re.match(r"(\d+)<", descriptor(call))
            if number is not None and int(number[1]) in table:
                self._meant[call.begin] = table[int(number[1])]
                if call.name == "close":
                    del table[int(number[1])]

        def opened(call: Call) -> None:
            path = self._resolve(call.arguments[0], call.arguments[1])
            if path is not None:
                self._opened[call.begin] = table[call.result] = _Open(path, call.arguments[2])

        def copied(call: Call) -> None:
            if call.begin in self._meant:
                table[call.result] = self._meant[call.begin]

        for call in calls:
            events.append((call.begin, lambda call=call: begun(call)))
            if call.result >= 0 and call.name == "openat":
                events.append((call.end, lambda call=call: opened(call)))
            if call.result >= 0 and (
                call.name.startswith("dup") or (call.name == "fcntl" and "F_DUPFD" in call.arguments[1])
            ):
                events.append((call.end, lambda call=call: copied(call)))
        for _, act in sorted(events, key=lambda event: event[0]):
            act()

    def _resolve(self, directory: str, quoted: str) -> str | None:
        """Path on the disk in memory of a path that a call names; None if it is of another disk.

        ``directory`` is the call's argument for paths that do not begin at the root, if it has one.
        """
        path = bytes_of(quoted).decode()
        if not path.startswith("/"):
            path = f"{annotated(directory)}/{path}"
        return self._on_disk(path)

    def _on_disk(self, path: str) -> str | None:
        inside = path == self._root or path.startswith(f"{self._root}/")
        return f"/disk{path[len(self._root) :]}" if inside else None

    def _is_ours(self, argument: str) -> bool:
        path = bytes_of(argument).decode() if re.fullmatch(r'"(\\x..)*"', argument) else annotated(argument)
        return self._on_disk(path) is not None

    def _path_of(self, call: Call) -> str | None:
        meant = self._meant.get(call.begin)
        return None if meant is None else meant.path

    def _file(self, call: Call) -> RecordedFile | None:
        meant = self._meant.get(call.begin)
        if meant is None:
            return None
        if meant.file is None:
            raise TraceError(f"this changes what is no file: {str(call)[:300]}")
        return meant.file

    # What each call does

    def _openat(self, call: Call) -> None:
        opened = self._opened.get(call.begin)
        if opened is None or "O_DIRECTORY" in opened.flags:
            return
        if "O_TMPFILE" in opened.flags or ("O_TRUNC" in opened.flags and self.recorder.size(opened.path)):
            raise TraceError(f"the store may not open a file like this: {call}")
        if "O_CREAT" in opened.flags and self.recorder.disk.node(opened.path) is None:
            opened.file = self.recorder.create(opened.path)
        elif not isinstance(self.recorder.disk.node(opened.path), Directory):
            opened.file = self.recorder.open(opened.path)

    def _pwrite64(self, call: Call) -> None:
        file = self._file(call)
        if file is not None and call.result:
            file.write(int(call.arguments[3]), written(call))

    _pwritev = _pwrite64
    _pwritev2 = _pwrite64

    def _write(self, call: Call) -> None:
        if annotated(call.arguments[0]) == self._marks:
            self.recorder.mark(json.loads(written(call)))
        elif self._path_of(call) is not None:
            raise TraceError(f"a write without a position: {str(call)[:300]}")

    def _ftruncate(self, call: Call) -> None:
        file = self._file(call)
        if file is not None:
            if int(call.arguments[1]) < file.node.size:
                raise TraceError(f"a file is made shorter: {call}")
            file.extend(int(call.arguments[1]))

    def _fallocate(self, call: Call) -> None:
        file = self._file(call)
        if file is None or (_PUNCH in call.arguments[1] and "/.segmentlog/staging/" in file.path):
            return  # what was punched out is not known, so it may be what it was
        if call.arguments[1] != "0":
            raise TraceError(f"the store may not allocate like this: {call}")
        file.allocate(int(call.arguments[2]) + int(call.arguments[3]))

    def _fsync(self, call: Call) -> None:
        meant = self._meant.get(call.begin)
        if meant is None:
            return
        if meant.file is not None:
            meant.file.sync()
        else:
            self.recorder.sync_dir(meant.path)

    _fdatasync = _fsync

    def _syncfs(self, call: Call) -> None:
        path = self._path_of(call)
        if path is not None:
            self.recorder.sync_all(path)

    def _rename(self, call: Call) -> None:
        self._renamed(call, ("", call.arguments[0]), ("", call.arguments[1]))

    def _renameat(self, call: Call) -> None:
        self._renamed(call, (call.arguments[0], call.arguments[1]), (call.arguments[2], call.arguments[3]))

    def _renameat2(self, call: Call) -> None:
        if call.arguments[4] not in {"0", "RENAME_NOREPLACE"}:
            raise TraceError(f"the store may not rename like this: {call}")
        self._renameat(call)

    def _renamed(self, call: Call, source: tuple[str, str], target: tuple[str, str]) -> None:
        old, new = self._resolve(*source), self._resolve(*target)
        if old is None and new is None:
            return
        if old is None or new is None or isinstance(self.recorder.disk.node(old), Directory):
            raise TraceError(f"this is no rename of a file of the store: {call}")
        self.recorder.rename(old, new)

    def _unlink(self, call: Call) -> None:
        self._unlinked(self._resolve("", call.arguments[0]))

    def _unlinkat(self, call: Call) -> None:
        path = self._resolve(call.arguments[0], call.arguments[1])
        if path is not None and call.arguments[2] != "0":
            raise TraceError(f"a directory is taken away: {call}")
        self._unlinked(path)

    def _unlinked(self, path: str | None) -> None:
        if path is not None:
            self.recorder.unlink(path)

    def _mkdir(self, call: Call) -> None:
        self._made(self._resolve("", call.arguments[0]))

    def _mkdirat(self, call: Call) -> None:
        self._made(self._resolve(call.arguments[0], call.arguments[1]))

    def _made(self, path: str | None) -> None:
        if path is not None and path != "/disk":
            self.recorder.make_dir(path)

    def _mmap(self, call: Call) -> None:
        meant = self._meant.get(call.begin)
        if meant is not None and "MAP_SHARED" in call.arguments[3] and "O_RDONLY" not in meant.flags:
            raise TraceError(f"a file that is open for writing is mapped, what is written there is not seen: {call}")

    # Concurrent operations

    def _note_end(self, call: Call, before: int) -> None:
        """Note the end of the operations of a call, and the operations that a sync may have missed."""
        ops = self.recorder.recording.ops
        for at in range(before, len(ops)):
            op = ops[at]
            if op.kind in {Kind.SYNC, Kind.SYNC_DIR}:
                later = [each for each in self._ended.get(op.number, []) if each[1] > call.begin]
                self._ended[op.number] = later
                ops[at] = replace(op, spared=frozenset(at for at, _ in later))
                continue
            for number in _concerned(op):
                earlier = self._ended.setdefault(number, [])
                for other, end in earlier:
                    if end > call.begin and _collide(op, ops[other]):
                        raise TraceError(f"which of these came first is not known: {ops[other]}, {op}")
                earlier.append((at, call.end))


def _concerned(op: Op) -> set[int]:
    """Numbers of the files or directories that have to be synced for a call to be durable."""
    if op.kind in {Kind.CREATE, Kind.RENAME, Kind.UNLINK, Kind.MAKE_DIR}:
        return {directory_of(op)}
    return {op.number}


def _collide(one: Op, other: Op) -> bool:
    if one.kind is Kind.WRITE and other.kind is Kind.WRITE:
        return one.position < other.position + len(other.data) and other.position < one.position + len(one.data)
    names = [{(op.directory, op.name), (op.target_directory, op.target_name)} - {(-1, "")} for op in (one, other)]
    return bool(names[0] & names[1])


def recording_of(lines: Sequence[str], root: Path, marks: Path) -> tuple[Recording, MemoryFileSystem]:
    """Convert a trace into a recording; return the final disk, too."""
    replay = Replay(root, marks)
    return replay.run(calls_of(lines)), replay.recorder.disk


def files_below(root: Path) -> Iterator[tuple[str, bytes]]:
    """All files of the real disk, with the names that they have in memory."""
    for path in sorted(root.rglob("*")):
        if path.is_file():
            yield f"/disk/{path.relative_to(root)}", path.read_bytes()
