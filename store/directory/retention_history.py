"""History of deletions: one JSON line per deleted file, so that a data-loss report can name time and reason.

::

    .segmentlog/retention-history
        {"ms": 1763700000000, "file": "commitlog/00000000000000000000", "bytes": 1073741824, "reason": "expired (time)"}
        {"ms": 1763700000100, "file": "index/20261121021346480", "bytes": 420000040, "reason": "below log start …"}

A line is written before its file is deleted: after a crash in between, the file is there and deleted again. A line
about a file that was archived has ``"archive": DIR``, and is written when the copy is verified. A history of more
than `BYTES_MAX` loses its older half. A torn or foreign line is skipped. RocketMQ has a log line only.
"""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from ..errors import Remedy
from ..files.fs import FileSystem, LocalFileSystem
from ..files.small_file import read_whole, replace_file
from ..files.writable_fs import WritableFileSystem
from ..format.store_paths import COMMIT_LOG, StorePaths

BYTES_MAX: Final = 1 << 20  # size from which the history is halved
_READ_MAX: Final = 2 * BYTES_MAX
_BASE: Final = re.compile(r"[0-9]{1,20}")


class Deleted(NamedTuple):
    ms: int  # time of the run, ms since the epoch
    file: str  # path in the store
    bytes: int  # its length
    reason: str  # rule by which it was deleted
    archive: str = ""  # directory of the archive that has a copy; empty without one

    @property
    def log_base(self) -> int | None:
        """First physical offset of a CommitLog segment; None for another file."""
        kind, _, name = self.file.partition("/")
        return int(name) if kind == COMMIT_LOG and _BASE.fullmatch(name) else None

    def __str__(self) -> str:
        when = datetime.fromtimestamp(self.ms / 1000, UTC).isoformat(timespec="milliseconds")
        copied = f", archived in {self.archive}" if self.archive else ""
        return f"retention deleted {self.file} at {when}: {self.reason}{copied}"


class History:
    """History of one store that is written. Not thread-safe: retention runs one at a time."""

    def __init__(self, fs: WritableFileSystem, path: str) -> None:
        self._fs = fs
        self._paths = StorePaths(path)
        self._path = self._paths.retention_history

    def add(self, deleted: Iterable[Deleted]) -> None:
        """Append lines, synced."""
        lines = "".join(
            json.dumps({name: value for name, value in each._asdict().items() if value or name != "archive"}) + "\n"
            for each in deleted
        ).encode()
        size = self._fs.size(self._path)
        if size is None or size + len(lines) > BYTES_MAX:
            self._rewrite(lines)
            return
        file = self._fs.open(self._path)
        try:
            file.write(size, b"\n" + lines)  # ends a line that a crash tore
            file.sync()
        finally:
            file.close()

    def _rewrite(self, lines: bytes) -> None:
        """Begin the file, or halve it."""
        self._fs.make_dir(self._paths.ours)
        self._fs.sync_dir(self._paths.root)
        held = (read_whole(self._fs, self._path, _READ_MAX) or b"").splitlines(keepends=True)
        kept: list[bytes] = []
        room = BYTES_MAX // 2 - len(lines)
        for line in reversed(held):
            room -= len(line)
            if room < 0:
                break
            kept.append(line)
        content = b"".join(reversed(kept)) + lines[-BYTES_MAX:]
        replace_file(self._fs, self._path, content, self._paths.making_history)


def deletions(fs: FileSystem, path: str) -> Iterator[Deleted]:
    """Read the history of a store, oldest first; empty without one."""
    for line in (read_whole(fs, StorePaths(path).retention_history, _READ_MAX) or b"").splitlines():
        try:
            found = Deleted(**json.loads(line))
            valid = isinstance(found.ms, int) and isinstance(found.bytes, int) and isinstance(found.file, str)
            valid = valid and isinstance(found.archive, str)
        except (ValueError, TypeError, RecursionError):
            continue
        if valid:
            yield found


class DeletionNote(NamedTuple):
    """Part of a data-loss report that retention adds."""

    text: str  # clause about the last deletion of a CommitLog segment; empty without one
    remedies: tuple[Remedy, ...]  # changes to the call that read, which find the messages


def deletion_note(path: str, fs: FileSystem | None = None) -> DeletionNote:
    """Return the clause of a data-loss report about the last deletion of a CommitLog segment."""
    segments = [each for each in deletions(fs or LocalFileSystem(), path) if each.log_base is not None]
    if not segments:
        return DeletionNote("", ())
    last = segments[-1]
    return DeletionNote(f"; {last}, the last of the CommitLog", (Remedy.READ_ARCHIVE,) if last.archive else ())
