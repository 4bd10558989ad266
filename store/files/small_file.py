"""Small files that are read whole and replaced whole: JSON, checkpoint, abort.

::

    .segmentlog/small   write, sync ──► rename ──► config/topics.json      and its directory is synced

Whoever reads finds the old file or the new one. RocketMQ writes its JSON in place, with a ``.bak`` beside it.
"""

import os

from .writable_fs import WritableFileSystem


def replace_file(fs: WritableFileSystem, path: str, content: bytes, making: str) -> None:
    """Put a file in place of what has its name, or of nothing, and both onto the device.

    Parameters
    ----------
    making
        Path on the same file system where it is written first; what is there goes.
    """
    fs.unlink(making)
    file = fs.create(making)
    try:
        file.write(0, content)
        file.sync()
    finally:
        file.close()
    fs.rename(making, path)
    fs.sync_dir(os.path.dirname(path))
