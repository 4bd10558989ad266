"""Small files, read and replaced whole: JSON, checkpoint, abort; and the notice that a file was replaced.

::

    .segmentlog/small   write, sync ──► rename ──► config/topics.json      and its directory is synced

    ReplacedFile   a file held open, inode 17     name ──► 17   the same
                                                  name ──► 18   replaced: 18 is held open from now on

A reader finds the old file or the new one. RocketMQ writes its JSON in place, with a ``.bak`` beside it. A file that is
held open keeps its inode number, so a later file has another one, whatever its times say.

Each kind of small file has a limit. A larger file is an error before any of it is read, and is not written either::

    checkpoint, abort, .segmentlog/durable, batch, id      their own size, a few KiB at most
    JSON documents and their .bak, ledger                  `DOCUMENT_BYTES_MAX`
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..errors import FileTooLargeError
from .fs import FileSystem
from .writable_fs import WritableFile, WritableFileSystem

DOCUMENT_BYTES_MAX: Final = 64 << 20  # the largest JSON document or ledger: some 300,000 topics in ``topics.json``


@contextmanager
def made_aside(fs: WritableFileSystem, making: str) -> Iterator[WritableFile]:
    """Yield a new, empty file at the path ``making``, which the body renames; it is removed if the body fails."""
    fs.unlink(making)
    made = fs.create(making)
    try:
        yield made
    except BaseException:
        made.close()
        fs.unlink(making)
        raise


def replace_file(fs: WritableFileSystem, path: str, content: bytes, making: str) -> None:
    """Create or replace a file, and sync it and its name; it is written at the path ``making`` first."""
    with made_aside(fs, making) as made:
        made.write(0, content)
        made.sync()
        fs.rename(making, path)
    made.close()
    fs.sync_dir(os.path.dirname(path))


def read_whole(fs: FileSystem, path: str, limit: int) -> bytes | None:
    """Read all bytes of a small file; None if it does not exist, `FileTooLargeError` beyond ``limit`` bytes."""
    size = fs.size(path)
    while size is not None:
        check_size(path, size, limit)
        try:
            content = fs.read(path, 0, size + 1)
        except FileNotFoundError:
            return None
        if len(content) <= size:  # else it was replaced by a larger one since its size was asked
            return content
        size = fs.size(path)
    return None


def read_front(fs: FileSystem, path: str, count: int) -> bytes | None:
    """Read the first ``count`` bytes of a file that may have more, such as a checkpoint; None if there is none."""
    try:
        return fs.read(path, 0, count)
    except FileNotFoundError:
        return None


def check_size(path: str, size: int, limit: int) -> None:
    """Raise `FileTooLargeError` if a small file of ``size`` bytes, read or to be written, is larger than its limit."""
    if size > limit:
        raise FileTooLargeError(
            f"this file has {size} bytes, a file of its kind has at most {limit}",
            path=path,
            fix="Take it from a copy of the store, or move it away if it is not the store's",
        )


class ReplacedFile:
    """A name whose file is never written in place, as of the last look. Not thread-safe."""

    def __init__(self, fs: WritableFileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._file: WritableFile | None = None

    def look(self) -> bool:
        """Return whether there is another file than at the last look, or none any more. Costs a system call or two."""
        if self._file is not None and self._file.is_at(self._path):
            return False
        was_there = self._file is not None
        self.close()
        if self._fs.size(self._path) is None:
            return was_there
        self._file = self._fs.open(self._path)  # before the caller reads: it reads this file or a later one
        return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
