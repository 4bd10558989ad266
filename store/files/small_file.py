"""Files made aside, where nobody looks; and small ones, read and replaced whole: JSON, checkpoint, abort.

::

    .segmentlog/small   write, sync ──► rename ──► config/topics.json      and its directory is synced

Whoever reads finds the old file or the new one. RocketMQ writes its JSON in place, with a ``.bak`` beside it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from .fs import FileSystem
from .writable_fs import WritableFile, WritableFileSystem


@contextmanager
def made_aside(fs: WritableFileSystem, making: str) -> Iterator[WritableFile]:
    """Give a new, empty file, which is taken away again if the body cannot finish it.

    The body gives it its name; whoever gets it closes it.

    Parameters
    ----------
    making
        Path of the file; what is there, of somebody who did not finish, goes.
    """
    fs.unlink(making)
    made = fs.create(making)
    try:
        yield made
    except BaseException:
        made.close()
        fs.unlink(making)
        raise


def replace_file(fs: WritableFileSystem, path: str, content: bytes, making: str) -> None:
    """Put a file in place of what has its name, or of nothing, and both onto the device.

    Parameters
    ----------
    making
        Path on the same file system where it is written first; what is there goes.
    """
    with made_aside(fs, making) as made:
        made.write(0, content)
        made.sync()
        fs.rename(making, path)
    made.close()
    fs.sync_dir(os.path.dirname(path))


def read_whole(fs: FileSystem, path: str) -> bytes | None:
    """All bytes of a small file; None if there is none."""
    size = fs.size(path)
    while size is not None:
        try:
            content = fs.read(path, 0, size + 1)
        except FileNotFoundError:
            return None
        if len(content) <= size:  # else it was replaced by a larger one since its size was asked
            return content
        size = fs.size(path)
    return None
