"""JSON documents of the directory ``config``: loaded with their backup, and replaced (RocketMQ: ``ConfigManager``).

::

    load       topics.json ─ torn, empty or missing ──► topics.json.bak ──► {} if neither exists
    replace    *.making, written and synced
               topics.json ──► topics.json.bak          only if it was whole: a torn one does not replace a backup
               *.making    ──► topics.json              both renames while the guard lets us

A reader that looks between the two renames finds the backup, which is the former document.
"""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from ..errors import FormatError
from ..files.fs import FileSystem
from ..files.small_file import DOCUMENT_BYTES_MAX, check_size, made_aside, read_whole
from ..files.writable_fs import WritableFileSystem
from ..format.documents import Document, Loaded, Origin, load, render

T = TypeVar("T")


def load_document(fs: FileSystem, path: str, parse: Callable[[Loaded], T]) -> T:
    """Load a document, or its backup, and parse it.

    Parameters
    ----------
    parse
        Called with what was loaded; a `FormatError` that it raises gets the path.

    Raises
    ------
    FormatError
        If neither the document nor its backup can be read; with the path.
    FileTooLargeError
        If one has more than `DOCUMENT_BYTES_MAX` bytes.
    """
    file, backup = (read_whole(fs, name, DOCUMENT_BYTES_MAX) for name in (path, f"{path}.bak"))
    try:
        return parse(load(file, backup))
    except FormatError as error:
        raise FormatError(error.problem, path=path, fix=error.fix) from None


def replace_document(
    fs: WritableFileSystem,
    path: str,
    loaded: Loaded,
    making: str,
    guard: AbstractContextManager[bool] | None = None,
) -> bool:
    """Replace a document by a changed one, with a new ``dataVersion``, and keep the former one as its backup.

    Parameters
    ----------
    path
        The document; its directory exists.
    loaded
        What `load_document` returned, its document changed in place.
    making
        Path on the same file system where the new one is written first.
    guard
        Entered for the two renames; if it returns False, nothing is renamed.

    Returns
    -------
    bool
        Whether the document was replaced. If so, it is on the device.

    Raises
    ------
    FileTooLargeError
        If the document became larger than a reader accepts; nothing was changed.
    """
    _bump(loaded.document)
    content = render(loaded.document).encode()
    check_size(path, len(content), DOCUMENT_BYTES_MAX)
    with made_aside(fs, making) as made:
        made.write(0, content)
        made.sync()
        with guard or nullcontext(enter_result=True) as is_free:
            if is_free:
                if loaded.origin is Origin.FILE:
                    fs.rename(path, f"{path}.bak")
                fs.rename(making, path)
    made.close()
    if not is_free:
        fs.unlink(making)
        return False
    fs.sync_dir(os.path.dirname(path))
    return True


def _bump(document: Document) -> None:
    """Count up ``dataVersion``, by which brokers tell that a document changed."""
    version = document.setdefault("dataVersion", {})
    if isinstance(version, dict):
        counter = version.get("counter")
        version["counter"] = (counter if isinstance(counter, int) else 0) + 1
        version["timestamp"] = time.time_ns() // 1_000_000
