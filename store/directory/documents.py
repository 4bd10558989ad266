"""JSON documents of the directory ``config``: loaded with their backup, and replaced (RocketMQ: ``ConfigManager``).

::

    load       topics.json ─ torn, empty or missing ──► topics.json.bak ──► {} if neither exists
    replace    *.making, written and synced
               topics.json ──► topics.json.bak          only if it was whole: a torn one does not replace a backup
               *.making    ──► topics.json              both renames while the guard lets us

A reader that looks between the two renames finds the backup, which is the former document.
"""

import logging
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from ..errors import FormatError
from ..files.fs import FileSystem
from ..files.notices import warn_once
from ..files.small_file import DOCUMENT_BYTES_MAX, check_size, made_aside, read_whole
from ..files.writable_fs import WritableFileSystem
from ..format.documents import Document, Loaded, Origin, load, render

T = TypeVar("T")
_log = logging.getLogger(__name__)


def load_document(fs: FileSystem, path: str, parse: Callable[[Loaded], T]) -> T:
    """Load a document, or its backup, and ``parse`` it; a `FormatError` gets the path."""
    file, backup = (read_whole(fs, name, DOCUMENT_BYTES_MAX) for name in (path, f"{path}.bak"))
    try:
        loaded = load(file, backup)
        if loaded.origin is Origin.BACKUP and file:
            times = (iso_seconds(fs, name) for name in (path, f"{path}.bak"))
            warn_once(_log, path, "%s, of %s, is damaged: its backup of %s is read instead", path, *times)
        return parse(loaded)
    except FormatError as error:
        raise FormatError(error.problem, path=path, fix=error.fix) from None


def iso_seconds(fs: FileSystem, path: str) -> str:
    """Time at which a file was written, as text in UTC."""
    stamp = fs.stamp(path)
    if stamp is None or not stamp[1]:  # object storage has no times
        return "an unknown time"
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(stamp[1] // 1_000_000_000))


def replace_document(
    fs: WritableFileSystem,
    path: str,
    loaded: Loaded,
    making: str,
    guard: AbstractContextManager[bool] | None = None,
) -> bool:
    """Replace a document by ``loaded``, changed in place, with a new ``dataVersion``; return whether it was."""
    # The former document becomes the backup. `guard` is entered for the two renames; if it returns False, nothing is
    # renamed. A document larger than readers accept is a FileTooLargeError, and nothing is changed.
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


def version_number(document: Document, field: str) -> int:
    """Return a field of ``dataVersion``, ``counter`` or ``timestamp`` (ms); 0 if it is not stated."""
    version = document.get("dataVersion")
    found = version.get(field) if isinstance(version, dict) else None
    return found if isinstance(found, int) else 0


def _bump(document: Document) -> None:
    """Count up ``dataVersion``, by which brokers tell that a document changed."""
    version = document.setdefault("dataVersion", {})
    if isinstance(version, dict):
        version["counter"] = version_number(document, "counter") + 1
        version["timestamp"] = time.time_ns() // 1_000_000
