"""Store id: a name that a store gets when it is created, and keeps when it is copied or moved.

::

    .segmentlog/id    32 hex digits and a line end

Only stores that we write have one; a broker's directory is not written to. A stream also remembers the identity of the
last message that it read (`types.MessageIdentity`), and checks that the message is still at its place.
"""

import re
import uuid
from typing import Final

from ..files.fs import FileSystem, LocalFileSystem
from ..files.small_file import read_whole, replace_file
from ..files.writable_fs import WritableFileSystem
from ..format.store_paths import StorePaths

_ID: Final = re.compile(rb"[0-9a-f]{32}")
_ID_BYTES_MAX: Final = 64  # the name, its line end, and what an editor may have added


def store_id(path: str, fs: FileSystem | None = None) -> str | None:
    """The name of a store; None for one that has none, such as a broker's."""
    found = read_whole(fs or LocalFileSystem(), StorePaths(path).store_id, _ID_BYTES_MAX)
    whole = None if found is None else _ID.fullmatch(found.strip())
    return None if whole is None else whole[0].decode("ascii")


def is_store_id(text: str) -> bool:
    """Return whether a text has the form of an id."""
    return _ID.fullmatch(text.encode("utf-8", "replace")) is not None


def ensure_store_id(fs: WritableFileSystem, path: str) -> str:
    """Return the id of a store, created if it has none; the caller holds its lock and created ``.segmentlog``.

    What is there and is no name is replaced: nothing can have been remembered by it.
    """
    known = store_id(path, fs)
    if known is not None:
        return known
    made = uuid.uuid4().hex
    paths = StorePaths(path)
    replace_file(fs, paths.store_id, made.encode("ascii") + b"\n", paths.making_state)
    return made
