"""Location of a store: a file system, and the store's root directory on it.

::

    "../data/store"  ──► StoreLocation ── fs ─────► LocalFileSystem, or a test's, or one that reads a remote store
                                       └─ paths ──► /abs/data/store/commitlog, …

Only this module makes a path of a caller absolute: on another file system that is another rule.
"""

import os
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ..errors import ConfigError
from ..files.fs import FileSystem, LocalFileSystem
from ..format.store_paths import StorePaths


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A store directory on a file system.

    Attributes
    ----------
    fs
        Its file system.
    root
        Its absolute path.
    """

    fs: FileSystem
    root: str

    @classmethod
    def of(cls, path: str | os.PathLike[str], fs: FileSystem | None = None) -> "StoreLocation":
        """Locate a store by the path that a caller has; on this machine unless a file system is given."""
        return cls(fs or LocalFileSystem(), os.path.abspath(os.fspath(path)))

    @classmethod
    def at_url(cls, url: str) -> "StoreLocation":
        """Locate a store by a path, in which ``~`` is expanded, or by a ``file:`` URL, as of Spark tables.

        Raises
        ------
        ConfigError
            If it is a URL of another file system.
        """
        parts = urlsplit(url)
        if parts.scheme and parts.scheme != "file" and ":/" in url:
            raise ConfigError(
                f"`{url}` is not a local directory",
                fix="Pass a local directory: a store is read through memory maps, which need a mounted file system",
            )
        return cls.of(os.path.expanduser(unquote(parts.path) if parts.scheme == "file" else url))

    @property
    def paths(self) -> StorePaths:
        """Paths within the store."""
        return StorePaths(self.root)

    @property
    def name(self) -> str:
        """Last part of the root's path."""
        return os.path.basename(self.root)

    @property
    def exists(self) -> bool:
        """True if the root is a directory."""
        return self.fs.stamp(os.path.join(self.root, "")) is not None  # with the slash a file has no stamp

    def beside(self, path: str | os.PathLike[str]) -> str:
        """Absolute form of another path of the caller on the same file system."""
        return os.path.abspath(os.fspath(path))
